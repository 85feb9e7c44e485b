"""Export and import seen from outside: exact agreement, odd names, and files of other people."""

import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import ir_measures
import numpy as np
import pytest
from ir_measures import RR, P, R, ScoredDoc, Success, nDCG
from typer.testing import Result

from analysis.export import app as export_app
from analysis.importing import app as import_app
from analysis.importing import by_size
from analysis.metrics import parse_metric, tied_with_others
from analysis.rows import SweepRow
from analysis.runs import read_run
from analysis.trec import document, read_run_file
from recallbed.corpus import DataError, Memory
from recallbed.errors import UserError
from recallbed.harness.configurations import Configuration
from recallbed.harness.run_folder import encode_row, read_manifest
from retrievers import Retriever
from retrievers.base import RetrieverError
from task3.score import app as score_app
from task3.sweep_run import run_sweep
from tests.kit import (
    ROOT,
    WriteRelease,
    one_line_error,
    python,
    read_lines,
    run,
    sweep_config,
    write_lines,
)

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:77aa\nsize 5120\n"
KS = (1, 3, 5)


class Stated(Retriever):
    """The number that a memory's text begins with."""

    def score(self, query: str, pool: Sequence[Memory]) -> list[float]:
        return [float(memory.text.split()[0]) for memory in pool]


class Reversed(Stated):
    """The other way round."""

    def score(self, query: str, pool: Sequence[Memory]) -> list[float]:
        return [-score for score in super().score(query, pool)]


def own_rows(values: int, count: int = 8, size: int = 12) -> list[dict[str, Any]]:
    """Queries with one to three golds, each memory beginning with one of `values` numbers."""
    rng = random.Random(values)
    rows = []
    for i in range(count):
        distinct = values >= size
        numbers = (
            rng.sample(range(values), size) if distinct else rng.choices(range(values), k=size)
        )
        memories = [f"{number} note {i} {j}" for j, number in enumerate(numbers)]
        gold = rng.sample(range(size), 1 + i % 3)
        rows.append({"id": f"q{i}", "query": f"what of {i}", "memories": memories, "gold": gold})
    return rows


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def sweep(*names: str, data: object = "own.jsonl", out: str = "run", **options: Any) -> Path:
    labels = tuple(
        Configuration(name, f"{__name__}:{name}" if name[0].isupper() else name, {})
        for name in names or ("Stated",)
    )
    asked: dict[str, Any] = {"ks": KS, "keep_scores": True, **options}
    return run_sweep(sweep_config(labels, Path(str(data)), out=Path(out), **asked)).path


def call(app: Any, *words: object) -> Result:
    return run(app, *words)


def call_well(app: Any, *words: object) -> Result:
    return run(app, *words, code=0)


def files_of(app: Any, *words: object) -> list[Path]:
    return [Path(line) for line in call_well(app, *words).stdout.splitlines()]


def try_export(*words: object, run: str = "run", data: object = "own.jsonl") -> Result:
    return call(export_app, run, "--out", "exported", "--data", data, *words)


def export(*words: object, run: str = "run", data: object = "own.jsonl") -> list[Path]:
    return files_of(export_app, run, "--out", "exported", "--data", data, *words)


def take_in(*words: object, out: str = "back", data: str = "own.jsonl") -> Result:
    given = ("--label", "t", "--out", out, "--data", data, "--k", "1,3,5")
    return call(import_app, *given, *words)


@pytest.fixture
def exported(place: Path) -> Path:
    """The folder of a run without ties that was exported, with its data."""
    write_lines(place / "own.jsonl", own_rows(100))
    sweep()
    export()
    return place / "exported"


def assert_equal_ranks(run: str = "run", back: str = "back") -> None:
    keys = ("query", "above", "tied", "top")
    for one, other in zip(rows_of(run), rows_of(back), strict=True):
        assert [one[key] for key in keys] == [other[key] for key in keys]


def predictions_of(data: object, out: object) -> tuple[object, ...]:
    return ("--format", "predictions", "--label", "t", "--data", data, "--out", out)


def rows_of(run: str) -> list[dict[str, Any]]:
    return [row.to_json() for row in read_run(Path(run)).rows]


def cells_of(run: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((Path(run) / "summary.json").read_text())["cells"]
    return found


# Agreement with ir-measures


def test_every_measure_agrees_on_runs_without_ties(place: Path) -> None:
    write_lines(place / "own.jsonl", own_rows(100, count=15))
    sweep("Stated", "Reversed")
    export()
    measures = [RR, *(m @ k for m in (P, R, Success, nDCG) for k in KS)]
    qrels = list(ir_measures.read_trec_qrels("exported/d11.qrels"))
    for label in ("Stated", "Reversed"):
        run = list(ir_measures.read_trec_run(f"exported/{label}.d11.run"))
        assert len(run) == 15 * 12
        theirs = {
            (one.query_id, str(one.measure)): one.value
            for one in ir_measures.iter_calc(measures, qrels, run)
        }
        assert len(theirs) == 15 * len(measures)
        for row in rows_of("run"):
            if row["retriever"] != label:
                continue
            ties, query = SweepRow.from_json(row).ties, row["query"]
            assert not tied_with_others(ties)
            assert abs(theirs[query, "RR"] - parse_metric("E[RR]").value(ties)) <= 1e-9
            for k in KS:
                for name, metric in (("R", "R"), ("P", "P"), ("Success", "any"), ("nDCG", "nDCG")):
                    found = parse_metric(f"{metric}@{k}").value(ties)
                    assert abs(theirs[query, f"{name}@{k}"] - found) <= 1e-9
        means = ir_measures.calc_aggregate(measures, qrels, run)
        [cell] = [cell for cell in cells_of("run") if cell["retriever"] == label]
        for k in KS:
            for ours, theirs_name in (("recall", R), ("recall_any", Success), ("ndcg", nDCG)):
                mean = cell[ours][str(k)]["mean"]
                assert mean == pytest.approx(means[theirs_name @ k], abs=1e-6)  # six digits kept
        assert cell["reciprocal_rank"]["mean"] == pytest.approx(means[RR], abs=1e-6)


@pytest.mark.parametrize("name", ["Stated", "constant"])
def test_with_ties_ours_is_the_mean_over_a_thousand_orders(place: Path, name: str) -> None:
    write_lines(place / "own.jsonl", own_rows(3))
    sweep(name)
    export()
    measures = [RR, R @ 3, Success @ 3, nDCG @ 3]
    given = list(ir_measures.read_trec_run(f"exported/{name}.d11.run"))
    qrels = list(ir_measures.read_trec_qrels("exported/d11.qrels"))
    evaluator = ir_measures.evaluator(measures, qrels)
    rng = random.Random(0)
    drawn: dict[str, list[float]] = {str(measure): [] for measure in measures}
    for _ in range(1000):
        # Scores are whole numbers: less than half apart, the tied come in a random order.
        broken = [ScoredDoc(d.query_id, d.doc_id, d.score + rng.random() / 2) for d in given]
        for measure, value in evaluator.calc_aggregate(broken).items():
            drawn[str(measure)].append(value)
    [cell] = cells_of("run")
    ours = {
        "RR": cell["reciprocal_rank"]["mean"],
        "R@3": cell["recall"]["3"]["mean"],
        "Success@3": cell["recall_any"]["3"]["mean"],
        "nDCG@3": cell["ndcg"]["3"]["mean"],
    }
    assert cell["tie_rate"] > 0.5
    for measure, values in drawn.items():
        error = np.std(values, ddof=1) / math.sqrt(1000)
        assert error > 0
        assert abs(np.mean(values) - ours[measure]) < 3 * error, measure


# Out and in


@pytest.mark.parametrize("values", [3, 100])
def test_a_run_comes_back_as_it_went(place: Path, values: int) -> None:
    write_lines(place / "own.jsonl", own_rows(values))
    sweep()
    export()
    assert take_in("exported/Stated.d11.run").exit_code == 0
    keys = ("query", "distractors", "pool", "gold", "above", "tied", "top", "error")
    for one, other in zip(rows_of("run"), rows_of("back"), strict=True):
        assert [one[key] for key in keys] == [other[key] for key in keys]
    [one], [other] = cells_of("run"), cells_of("back")
    assert {**one, "retriever": "t"} == other


@pytest.mark.parametrize(
    "texts",
    [
        ["0.1 a", "0.10000001 b", "0.1000000089 c"],
        ["1000 a", "1000.00006 b", "1000.00012 c"],
        ["1e-40 a", "2e-40 b", "0 c"],
        ["3.4e38 a", "-3.4e38 b", "16777217 c"],
        ["-0.0 a", "0.0 b", "1e-45 c"],
    ],
)
def test_float32_survives_the_text_of_a_run(place: Path, texts: list[str]) -> None:
    rows = [{"query": "q", "memories": texts, "gold": gold} for gold in range(3)]
    write_lines(place / "own.jsonl", rows)
    sweep()
    export()
    assert take_in("exported/Stated.d2.run").exit_code == 0
    assert_equal_ranks()


NAMES = [
    *("a b", "50 %", "100%25", "%20", "a%2Fb", "茶 / tea", "x\ty", "\u00a0", "\u2028", "q+r&=#"),
    *("'\"\\", "é"),
]


def test_any_query_id_survives(place: Path) -> None:
    rows = own_rows(100, count=len(NAMES))
    write_lines(place / "own.jsonl", [row | {"id": n} for row, n in zip(rows, NAMES, strict=True)])
    sweep()
    export()
    for file in ("Stated.d11.run", "d11.qrels"):
        lines = (place / "exported" / file).read_bytes().decode("ascii").splitlines()
        assert {len(line.split()) for line in lines} == {6 if file.endswith("run") else 4}
    assert take_in("exported/Stated.d11.run").exit_code == 0
    assert [row["query"] for row in rows_of("back")] == NAMES
    assert all(row["error"] is None for row in rows_of("back"))
    export("--what", "pools")
    pools = (place / "exported" / "d11.pools.jsonl").read_text("utf-8").rstrip("\n").split("\n")
    assert [json.loads(line)["id"] for line in pools] == NAMES


def test_scores_order_a_run_not_ranks_or_lines(exported: Path, place: Path) -> None:
    lines = (exported / "Stated.d11.run").read_text().splitlines()
    random.Random(1).shuffle(lines)
    other = []
    for i, line in enumerate(lines):
        query, q0, name, _, score, tag = line.split()
        other.append(f"  {query}\t{q0}   {name} {i % 3} {float(score):.6e}\t{tag}  ")
    (place / "theirs.run").write_text("\ufeff" + "\r\n\r\n".join(other), "utf-8")
    assert take_in("theirs.run").exit_code == 0
    assert_equal_ranks()


def test_documents_left_out_share_the_last_place_even_below_huge_scores(place: Path) -> None:
    rows = [{"id": "q", "query": "q", "memories": ["1 a", "2 b", "3 c", "4 d"], "gold": [0, 1]}]
    write_lines(place / "own.jsonl", rows)
    sweep()
    for lowest in ("5", "-3.3e38", "3.3e38", "0", "-1e-45"):
        names = [document(i, text) for i, text in enumerate(rows[0]["memories"])]  # type: ignore[arg-type]
        (place / "t.run").write_text(f"q Q0 {names[1]} 1 {lowest} t\n")
        result = take_in("t.run", "--overwrite")
        assert result.exit_code == 0, (lowest, result.output, result.exception)
        [row] = rows_of("back")
        assert (row["above"], row["tied"]) == ([1, 0], [3, 1]), lowest
        assert "3 of 4 memories are not in its files" in result.stderr
        assert read_manifest(Path("back"))["notes"]["t"]["unreturned_memories"] == 3


def test_a_query_left_out_is_a_failed_row(exported: Path, place: Path) -> None:
    lines = (exported / "Stated.d11.run").read_text().splitlines(keepends=True)
    (place / "t.run").write_text("".join(line for line in lines if not line.startswith("q3 ")))
    result = take_in("t.run")
    assert result.exit_code == 0
    [cell] = cells_of("back")
    assert (cell["attempted"], cell["scored"], cell["failures"]) == (8, 7, {"not in the file": 1})
    assert "1 failed: not in the file" in result.stderr


def test_the_sample_goes_out_without_data_being_named(place: Path) -> None:
    overlap = (Configuration("overlap", "overlap", {}),)
    asked: dict[str, Any] = {"distractors": (100,), "limit": 6, "keep_scores": True}
    run_sweep(sweep_config(overlap, out=Path("run"), **asked))
    call_well(export_app, "run", "--out", "exported")
    words = ("exported/overlap.d100.run", "--label", "t", "--out", "back", "--distractors", "100")
    call_well(import_app, *words, "--limit", "6")
    assert_equal_ranks()
    fewer = call(import_app, *words, "--limit", "5", "--overwrite")
    one_line_error(fewer, "not a query of the data")
    one_line_error(try_export(data=place / "none"), "no such folder")


def test_a_file_of_any_name_goes_out_and_in(place: Path) -> None:
    write_lines(place / "mine.txt", own_rows(100))
    sweep(data="mine.txt")
    export(data="mine.txt")
    assert take_in("exported/Stated.d11.run", data="mine.txt").exit_code == 0
    assert_equal_ranks()


def nine(write_release: WriteRelease, note: str = "{} note") -> Path:
    """A release of nine queries over pools of six memories with their own numbers."""
    texts = [[note.format(i * 31 + j, i) for j in range(6)] for i in range(9)]
    return write_release([(f"what of {i}", texts[i], i % 6) for i in range(9)])


def test_nested_pools_of_a_release_and_a_file(write_release: WriteRelease, place: Path) -> None:
    write_lines(place / "own.jsonl", own_rows(100))
    for data in ("own.jsonl", str(nine(write_release))):
        sweep(data=data, out=f"run{data[0]}", distractors=(5, 14), pools="nested")
        files = export(run=f"run{data[0]}", data=data)
        assert [file.name for file in files] == [
            *("Stated.d5.run", "d5.qrels", "Stated.d14.run", "d14.qrels")
        ]
        words = ["5=exported/Stated.d5.run", "14=exported/Stated.d14.run"]
        nested = ("--distractors", "5,14", "--pools", "nested")
        result = take_in(*words, *nested, data=data, out=f"back{data[0]}")
        assert result.exit_code == 0, result.output
        assert_equal_ranks(f"run{data[0]}", f"back{data[0]}")


def test_predictions_without_ties_give_recall(write_release: WriteRelease, place: Path) -> None:
    rows = [(f"what of {i}", [f"{i * j % 7} note {j}" for j in range(6)], i % 6) for i in range(7)]
    release = str(write_release(rows))
    sweep(data=release, pools="released", distractors=(5,))
    [file] = export("--what", "predictions", data=release)
    words = (file, *predictions_of(release, "back"), "--pools", "released", "--distractors", "5")
    call_well(import_app, *words)
    for one, other in zip(rows_of("run"), rows_of("back"), strict=True):
        if one["tied"] == 1:
            assert (one["above"] == 0) == (other["above"] == 0)
    assert json.loads((place / "back" / "summary.json").read_text())["ks"] == [1]


# Faulty files


def write(place: Path, raw: str | bytes) -> None:
    (place / "t.run").write_bytes(raw.encode() if isinstance(raw, str) else raw)


FIRST = document(0, "1 a")
FILES: dict[str, tuple[str | bytes, list[str]]] = {
    "an unknown query": (f"q Q0 {FIRST} 1 1 t\nzz Q0 {FIRST} 1 1 t\n", [":2: `zz` is not a query"]),
    "an unknown document": ("q Q0 0-12345678 1 1 t\n", [":1: `0-12345678` is not a document", "q"]),
    "other pools": (f"q Q0 {document(1, '1 a')} 1 1 t\n", [":1:", "is not a document of the pool"]),
    "a bare position": ("q Q0 0 1 1 t\n", [":1: `0` is not a document"]),
    "five columns": (f"q Q0 {FIRST} 1 1 t\n\nq Q0 {FIRST} 1 1\n", [":3: 5 columns", "six"]),
    "seven columns": (f"q Q0 {FIRST} 1 1 my tag\n", [":1: 7 columns"]),
    "a score NaN": (f"q Q0 {FIRST} 1 NaN t\n", [":1: score `NaN` is not a finite number"]),
    "a score infinite": (f"q Q0 {FIRST} 1 -inf t\n", [":1: score `-inf`"]),
    "a score of words": (f"q Q0 {FIRST} 1 high t\n", [":1: score `high`"]),
    "a score beyond float64": (f"q Q0 {FIRST} 1 1e999 t\n", [":1: score `1e999`"]),
    "a score beyond float32": (f"q Q0 {FIRST} 1 1e39 t\n", ["too large for float32"]),
    "a repeat": (f"q Q0 {FIRST} 1 2 t\nq Q0 {FIRST} 2 1 t\n", [":2:", "is already on line 1"]),
    "nothing": ("", ["the file is empty"]),
    "blank lines": ("\n \r\n\t\n", ["the file is empty"]),
    "binary": (bytes(range(256)) * 40, ["t.run"]),
    "gzip": (b"\x1f\x8b\x08\x00\xff\xfe", ["cannot be read"]),
    "UTF-16": (f"q Q0 {FIRST} 1 2 t\n".encode("utf-16"), ["cannot be read"]),
    "qrels": (f"q 0 {FIRST} 1\n", [":1: 4 columns"]),
    "a Git LFS pointer": (LFS, ["Git LFS pointer"]),
}


@pytest.mark.parametrize("fault", FILES)
def test_a_faulty_file_is_one_line_and_changes_nothing(place: Path, fault: str) -> None:
    row = {"id": "q", "query": "q", "memories": ["1 a", "2 b"], "gold": 0}
    write_lines(place / "own.jsonl", [row])
    raw, parts = FILES[fault]
    write(place, raw)
    one_line_error(take_in("t.run"), "t.run", *parts)
    assert not (place / "back").exists()
    write(place, f"q Q0 {FIRST} 1 1 t\n")
    assert take_in("t.run").exit_code == 0
    before = {p.name: p.read_bytes() for p in (place / "back").iterdir() if p.is_file()}
    write(place, raw)
    one_line_error(take_in("t.run", "--overwrite"), *parts)
    assert before == {p.name: p.read_bytes() for p in (place / "back").iterdir() if p.is_file()}


def test_bytes_that_are_no_text_are_named_with_their_line(place: Path) -> None:
    lines = [f"q{i} Q0 0-00000000 1 1 t\n".encode() for i in range(100)]
    lines[69] = b"caf\xe9 Q0 0-00000000 1 1 t\n"
    write(place, b"".join(lines))
    with pytest.raises(DataError, match=r"t\.run:70: "):
        read_run_file(place / "t.run")


def test_not_one_query_answered_is_an_error(write_release: WriteRelease, place: Path) -> None:
    release = write_release([("what", ["1 a", "2 b"], 0)])
    rows = [{"benchmark_id": "q0", "answer": "", "reason": "", "selected_memory_id": None}]
    write_lines(place / "p.jsonl", rows)
    words = ("p.jsonl", *predictions_of(release, "back"), "--distractors", "1")
    released = ("--pools", "released")
    result = call(import_app, *words, *released)
    one_line_error(result, "no query is answered", "selects nothing")
    for raw, message in ((LFS, "Git LFS pointer"), (b"", "empty"), (b"\xff\xfe", "no query")):
        (place / "p.jsonl").write_bytes(raw)
        one_line_error(call(import_app, *words, *released), message)
    one_line_error(call(import_app, *words), "--pools released")
    assert not (place / "back").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a", "b"], "a: write SIZE=FILE, SIZE being one of 5, 14"),
        (["5=a"], "no file for 14 distractors. Give 14=FILE"),
        (["5=a", "14=b", "14=c"], "14=c: there are two files for 14"),
        (["5=a", "15=b"], "15=b: write SIZE=FILE"),
        (["5=", "14=b"], "5=: write SIZE=FILE"),
        (["=a", "14=b"], "=a: write SIZE=FILE"),
        (["five=a", "14=b"], "five=a: write SIZE=FILE"),
        (["-5=a", "14=b"], "-5=a: write SIZE=FILE"),
        (["٥=a", "14=b"], "write SIZE=FILE"),
        (["²=a", "14=b"], "write SIZE=FILE"),
        (["9" * 5000 + "=a", "14=b"], "write SIZE=FILE"),
    ],
)
def test_words_by_size_that_make_no_sense(words: list[str], said: str) -> None:
    with pytest.raises(UserError) as caught:
        by_size(words, (5, 14))
    assert said in str(caught.value)


def test_words_by_size() -> None:
    assert by_size(["14=b=c", "5=a"], (5, 14)) == {14: Path("b=c"), 5: Path("a")}
    assert by_size(["a=b"], (5,)) == {5: Path("a=b")}
    assert by_size(["5=a"], (5,)) == {5: Path("a")}


def test_an_existing_run_is_not_replaced(exported: Path, place: Path) -> None:
    assert take_in("exported/Stated.d11.run").exit_code == 0
    one_line_error(take_in("exported/Stated.d11.run"), "--overwrite")
    before = (place / "run" / "rows.jsonl").read_bytes()
    one_line_error(take_in("exported/Stated.d11.run", out="run"), "holds another run")
    assert (place / "run" / "rows.jsonl").read_bytes() == before
    (place / "file").write_text("mine")
    one_line_error(take_in("exported/Stated.d11.run", out="file"), "file: cannot be written")
    assert (place / "file").read_text() == "mine"


# What export refuses


Spoil = Callable[[Path], None]


def edit_scores(change: Callable[[list[dict[str, Any]]], Any]) -> Spoil:
    """`change` the lines of scores.jsonl in place."""

    def spoil(run: Path) -> None:
        lines = [json.loads(line) for line in (run / "scores.jsonl").read_text().splitlines()]
        change(lines)
        write_lines(run / "scores.jsonl", lines)

    return spoil


def swap(lines: list[Any], one: int, other: int) -> None:
    lines[one], lines[other] = lines[other], lines[one]


def in_text(old: str, new: str) -> Spoil:
    def spoil(run: Path) -> None:
        path = run / "scores.jsonl"
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new, 1))

    return spoil


def swap_rows(run: Path) -> None:
    for name in ("rows.jsonl", "scores.jsonl"):
        lines = (run / name).read_bytes().splitlines(keepends=True)
        swap(lines, 0, 1)
        (run / name).write_bytes(b"".join(lines))


SPOILT: dict[str, Spoil] = {
    "the last line is gone": edit_scores(lambda lines: lines.pop()),
    "all lines are gone": lambda run: (run / "scores.jsonl").write_bytes(b""),
    "a line too many": edit_scores(lambda lines: lines.append(lines[0])),
    "the last line is cut": lambda run: (run / "scores.jsonl").write_bytes(
        (run / "scores.jsonl").read_bytes()[:-20]
    ),
    "two retrievers are swapped": edit_scores(lambda lines: swap(lines, 0, 4)),
    "two queries of one pool are swapped": edit_scores(lambda lines: swap(lines, 0, 1)),
    "two rows and their scores are swapped": swap_rows,
    "a score too few": edit_scores(lambda lines: lines[2]["scores"].pop()),
    "a score too many": edit_scores(lambda lines: lines[2]["scores"].append(1.0)),
    "no scores": edit_scores(lambda lines: lines[2].update(scores=None)),
    "scores of words": edit_scores(lambda lines: lines[2].update(scores=["1", "2", "3"])),
    "scores of bools": edit_scores(lambda lines: lines[2].update(scores=[True, False, True])),
    "a score null": edit_scores(lambda lines: lines[2]["scores"].__setitem__(0, None)),
    "a list in a list": edit_scores(lambda lines: lines[2]["scores"].__setitem__(0, [1.0])),
    "scores changed": edit_scores(lambda lines: lines[2]["scores"].reverse()),
    "a key gone": edit_scores(lambda lines: lines[2].pop("scores")),
    "a line that is a list": edit_scores(lambda lines: lines.__setitem__(2, [])),
    "another pool": edit_scores(lambda lines: lines[2].update(pool="0" * 16)),
    "another query": edit_scores(lambda lines: lines[2].update(query="q9")),
    "a score of 400 digits": in_text('"scores": [1.0', '"scores": [1' + "0" * 400),
    "a score beyond float32": in_text('"scores": [1.0', '"scores": [1e39'),
    "NaN": in_text('"scores": [1.0', '"scores": [NaN'),
    "infinity": in_text('"scores": [1.0', '"scores": [1e999'),
    "nesting": in_text('"scores": [1.0', '"scores": [' + "[" * 100_000 + "]" * 100_000),
    "not UTF-8": lambda run: (run / "scores.jsonl").write_bytes(
        b"\xff" + (run / "scores.jsonl").read_bytes()
    ),
}


@pytest.fixture
def shared_pool(place: Path) -> Path:
    """A run of two retrievers over four queries that all have the same pool."""
    pool = {"memories": ["1 a", "2 b", "4 c"]}
    rows = [{"id": f"q{i}", "query": f"q{i}", **pool, "gold": i % 3} for i in range(4)]
    write_lines(place / "own.jsonl", rows)
    return sweep("Stated", "Reversed")


@pytest.mark.parametrize("how", SPOILT)
def test_scores_that_are_not_those_of_their_rows(shared_pool: Path, place: Path, how: str) -> None:
    SPOILT[how](shared_pool)
    one_line_error(try_export(), "run")
    assert not (place / "exported").exists()


def test_a_failed_row_has_no_scores_whatever_its_line_says(shared_pool: Path, place: Path) -> None:
    # As a crash between the two writes of --retry-failed leaves it.
    lines = [json.loads(line) for line in (shared_pool / "rows.jsonl").read_text().splitlines()]
    lines[1].update(above=None, tied=None, top=[], error="service down")
    for row in lines:
        del row["check"]
    write_lines(shared_pool / "rows.jsonl", lines)
    export()
    exported = (place / "exported" / "Stated.d2.run").read_text().splitlines()
    assert {line.split()[0] for line in exported} == {"q0", "q2", "q3"}


def test_an_unfinished_run(shared_pool: Path, place: Path) -> None:
    rows = (shared_pool / "rows.jsonl").read_bytes().splitlines(keepends=True)
    (shared_pool / "rows.jsonl").write_bytes(b"".join(rows[:3]))
    one_line_error(try_export(), "3 of 8 rows", "--resume")
    (shared_pool / "rows.jsonl").write_bytes(b"")
    one_line_error(try_export(), "no rows yet")
    assert not (place / "exported").exists()


def test_a_manifest_without_what_export_needs(shared_pool: Path, place: Path) -> None:
    path = shared_pool / "manifest.json"
    whole = json.loads(path.read_text())
    for part, key in [("data", "split"), ("data", "queries"), ("data", "sha256"),
                      ("pools", "strategy"), ("pools", "distractors")]:  # fmt: skip
        for value in (None, {}, "x", -1, 1.5, ["y"], "gone"):
            spoilt = json.loads(json.dumps(whole))
            spoilt["fingerprint"][part][key] = value
            if value == "gone":
                del spoilt["fingerprint"][part][key]
            path.write_text(json.dumps(spoilt))
            one_line_error(try_export())
    for value in (None, [], "x"):
        path.write_text(json.dumps(whole | {"fingerprint": whole["fingerprint"] | {"data": value}}))
        one_line_error(try_export())
    assert not (place / "exported").exists()


def test_out_that_cannot_be_written(shared_pool: Path, place: Path) -> None:
    (place / "file").write_text("mine")
    for out in ("file", "file/below"):
        one_line_error(call(export_app, "run", "--out", out, "--data", "own.jsonl"), "file")
    assert (place / "file").read_text() == "mine"


def test_exported_pools_are_those_of_the_run(write_release: WriteRelease, place: Path) -> None:
    release = str(nine(write_release))
    sweep(data=release, pools="nested", distractors=(4, 12), pool_seeds=(0, 7))
    files = export("--what", "pools", data=release)
    assert [file.name for file in files] == [
        f"d{size}.s{seed}.pools.jsonl" for seed in (0, 7) for size in (4, 12)
    ]
    for size in (4, 12):
        for i, seed in enumerate((0, 7)):
            text = (place / "exported" / f"d{size}.s{seed}.pools.jsonl").read_text("utf-8")
            mine = [r for r in rows_of("run") if r["distractors"] == size][i * 9 : (i + 1) * 9]
            for line, row in zip(map(json.loads, text.splitlines()), mine, strict=True):
                assert (line["id"], line["gold"]) == (row["query"], [row["gold"]])
                for place_, score in row["top"]:
                    assert float(line["memories"][place_]["text"].split()[0]) == score
                    assert line["memories"][place_]["id"].startswith(f"{place_}-")


def test_qrels_hold_the_golds_alone(exported: Path) -> None:
    found = (exported / "d11.qrels").read_text().splitlines()
    wanted = [
        f"{quote(row['id'])} 0 {document(gold, row['memories'][gold])} 1"
        for row in own_rows(100)
        for gold in sorted(row["gold"])
    ]
    assert found == wanted


@pytest.mark.parametrize("module", ["analysis.export", "analysis.import"])
def test_help_and_faults_as_a_user_types_them(place: Path, module: str) -> None:
    assert "Usage" in python("-m", module, "--help", cwd=ROOT).stdout
    more = ["--label", "t"] if module.endswith("import") else []
    words = ("-m", module, place / "nowhere", "--out", place / "o", *more)
    one_line_error(python(*words, cwd=ROOT, code=2))
    assert not (place / "o").exists()


# Odd ids, golds of several positions, ids that repeat, rows without kept scores


OTHER = ["q0", "a b", "50 %", "茶/tea", "x#y", "q5", "q6", "q7"]


class Distinct(Retriever):
    """A score for each text that no other text has."""

    def score(self, query: str, pool: Any) -> list[float]:
        return [int.from_bytes(m.text.encode()[-5:], "big") % 9973 + len(m.text) for m in pool]


class Coarse(Distinct):
    """Four values, so most scores are tied."""

    def score(self, query: str, pool: Any) -> list[float]:
        return [score % 4 for score in super().score(query, pool)]


class Flaky(Distinct):
    """Fails on two queries."""

    def score(self, query: str, pool: Any) -> list[float]:
        if query.endswith(("2", "5")):
            raise RetrieverError("service down")
        return super().score(query, pool)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Queries with one to three golds, and ids that no TREC column holds as they are."""
    monkeypatch.chdir(tmp_path)
    rng = random.Random(0)
    rows = []
    for i, name in enumerate(OTHER):
        memories = [f"note {i} about {rng.randrange(10**6)} {j}" for j in range(12 + i % 3)]
        gold = rng.sample(range(len(memories)), 1 + i % 3)
        rows.append({"id": name, "query": f"what of {i}", "memories": memories, "gold": gold})
    write_lines(tmp_path / "own.jsonl", rows)
    return Path("own.jsonl")


def test_several_sizes_and_seeds(write_release: WriteRelease, tmp_path: Path) -> None:
    data = nine(write_release, "note {1} on {0}")
    out = str(tmp_path / "x")
    sweep("Distinct", data=data, out=f"{out}/run", distractors=(5, 12), pool_seeds=(3, 4))
    files = files_of(export_app, f"{out}/run", "--out", f"{out}/exported", "--data", str(data))
    names = {f"{head}d{n}.s{s}{tail}" for n in (5, 12) for s in (3, 4)
             for head, tail in (("Distinct.", ".run"), ("", ".qrels"))}  # fmt: skip
    assert {file.name for file in files} == names
    words = [f"{n}={out}/exported/Distinct.d{n}.s4.run" for n in (5, 12)]
    more = ["--label", "t", "--data", str(data), "--distractors", "5,12", "--out", f"{out}/back"]
    call_well(import_app, *words, *more, "--pool-seed", "4")
    back, run = read_run(Path(f"{out}/back")), read_run(Path(f"{out}/run"))
    fourth = [row.ties for row in run.rows[len(run.rows) // 2 :]]
    assert [row.ties for row in back.rows] == fourth
    other = call(import_app, *words, *more, "--pool-seed", "3", "--overwrite")
    one_line_error(other, "is not a document of")
    rows = read_run(Path(f"{out}/back")).rows
    assert [row.ties for row in rows] == fourth, "a refusal touches nothing"


def test_exported_pools_are_ranked_elsewhere_and_come_back(own: Path) -> None:
    sweep("Distinct", data=own)
    [pools] = export("--what", "pools")
    with Path("theirs.run").open("w") as stream:
        for line in read_lines(pools):
            for rank, memory in enumerate(line["memories"], 1):
                score = len(memory["text"]) - rank
                stream.write(f"{quote(line['id'], safe='')} Q0 {memory['id']} 7 {score} tag\n")
    call_well(import_app, "theirs.run", "--label", "t", "--data", "own.jsonl", "--out", "back")
    again = sweep("Distinct", data=pools, out="again", keep_scores=False)
    for one, other in zip(read_run(Path("run")).rows, read_run(again).rows, strict=True):
        assert (one.pool, one.ties) == (other.pool, other.ties)


def released(write_release: WriteRelease) -> Path:
    """A release in which ids repeat, as the benchmark's do, and the gold's stands once."""
    return write_release(
        [(f"what of {i}", [f"note {i} on {i * 31 + j}" for j in range(7)], 3) for i in range(9)],
        ids=["m1", "m1", "m2", "m7", "m2", "m4", "m1"],
    )


def test_predictions_out_scored_and_in(write_release: WriteRelease, tmp_path: Path) -> None:
    data, out = released(write_release), tmp_path / "x"
    run = sweep("Flaky", data=data, out=str(out / "run"), pools="released", distractors=(6,))
    words = [str(run), "--out", str(out), "--data", str(data), "--what", "predictions"]
    [file] = files_of(export_app, *words)
    keys = ["benchmark_id", "answer", "reason", "selected_memory_id"]
    assert [list(row) for row in read_lines(file)] == [keys] * 7
    scored = call_well(score_app, str(file), "--data", str(data), "--json").stdout
    accuracy = json.loads(scored)["all"]["accuracy_over_answered"]["mean"]
    swept = json.loads((run / "summary.json").read_text())["cells"][0]
    assert accuracy == pytest.approx(swept["recall"]["1"]["mean"], abs=1e-6)
    more = ("--pools", "released", "--distractors", "6")
    call_well(import_app, file, *predictions_of(data, out / "back"), *more)
    [cell] = json.loads((out / "back/summary.json").read_text())["cells"]
    assert (cell["scored"], cell["failed"]) == (7, 2)
    assert cell["failures"] == {"not in the file": 2}
    # An id that stands on several memories names each of them as likely as the others.
    assert cell["recall"]["1"]["mean"] == pytest.approx(accuracy, abs=1e-6)


def test_predictions_without_a_pool_fail(write_release: WriteRelease, tmp_path: Path) -> None:
    data, out = released(write_release), tmp_path / "x"
    chosen = ["m7", "m7", "zebra", None, "", "m4"]
    rows = [
        {"benchmark_id": f"q{i}", "answer": "", "reason": "", "selected_memory_id": one}
        for i, one in enumerate(chosen)
    ]
    write_lines(tmp_path / "p.jsonl", [*rows, rows[0]])
    words = [tmp_path / "p.jsonl", *predictions_of(data, out), "--pools", "released"]
    words += ["--distractors", "6"]
    call_well(import_app, *words)
    [cell] = json.loads((out / "summary.json").read_text())["cells"]
    assert cell["failures"] == {
        "not in the file": 3,
        "selected id not in the pool": 1,
        "selects nothing": 2,
        "several predictions": 1,
    }
    assert cell["recall"]["1"]["mean"] == 0.5
    write_lines(tmp_path / "p.jsonl", [{**rows[0], "benchmark_id": "absent"}])
    other = call(import_app, *words, "--overwrite")
    one_line_error(other, "p.jsonl:1: `absent` is not a query")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere.run"], "cannot be read"),
        (["a.run", "--format", "xml"], "--format xml"),
        (["a.run", "--pools", "deep"], "--pools deep"),
        (["a.run", "--k", "0"], "--k 0"),
        (["a.run", "--label", "a b"], "label"),
    ],
)
def test_words_that_make_no_sense(own: Path, words: list[str], said: str) -> None:
    Path("a.run").write_text("q0 Q0 d 1 1 t\n")
    one_line_error(take_in(*words), said)


def test_what_export_refuses(own: Path) -> None:
    run = sweep("Distinct", data=own)
    one_line_error(call(export_app, "run", "--out", "exported"), "other data")
    one_line_error(try_export("--what", "xml"), "--what xml")
    one_line_error(try_export(run="nowhere"), "not a run folder")
    own.write_text(own.read_text().replace("note 3", "note three"))
    one_line_error(try_export(), "data.sha256")
    own.write_text(own.read_text().replace("note three", "note 3"))
    scores = (run / "scores.jsonl").read_text()
    (run / "scores.jsonl").write_text(scores.replace('"scores": [', '"scores": [1.5, ', 1))
    one_line_error(try_export(), "scores.jsonl:1: not the scores")
    rows = (run / "rows.jsonl").read_bytes().splitlines(keepends=True)
    (run / "rows.jsonl").write_bytes(b"".join(rows[:3]))
    one_line_error(try_export(), "Finish it with --resume")
    assert not Path("exported").exists()


def test_predictions_need_released_pools(write_release: WriteRelease, tmp_path: Path) -> None:
    data = released(write_release)
    run = sweep("Distinct", data=data, out=str(tmp_path / "run"), distractors=(6,))
    words = [str(run), "--out", str(tmp_path / "e"), "--data", str(data), "--what", "predictions"]
    one_line_error(call(export_app, *words), "--pools released")


def test_a_run_without_scores_is_exported_from_its_rows(own: Path) -> None:
    """The README's `analysis.export runs/A` failed on every run that its commands make."""
    sweep("Coarse", "Flaky", data=own)
    call_well(export_app, "run", "--out", "whole", "--data", "own.jsonl")
    sweep("Coarse", "Flaky", data=own, out="bare", keep_scores=False)
    found = call_well(export_app, "bare", "--out", "part", "--data", "own.jsonl")
    assert found.stderr.count("\n") == 1
    assert "bare has no scores.jsonl: a .run file holds the best 10 memories" in found.stderr
    assert Path("part/d11.qrels").read_text() == Path("whole/d11.qrels").read_text()
    for name in ("Coarse", "Flaky"):
        part, whole = (
            [line.split() for line in Path(f"{folder}/{name}.d11.run").read_text().splitlines()]
            for folder in ("part", "whole")
        )
        assert part == [line for line in whole if int(line[3]) <= 10]
    # The first ten places decide every measure at 10 and below.
    measures = [R @ 3, P @ 5, Success @ 1]
    qrels = list(ir_measures.read_trec_qrels("part/d11.qrels"))
    of_part, of_whole = (
        ir_measures.calc_aggregate(
            measures, qrels, ir_measures.read_trec_run(f"{run}/Flaky.d11.run")
        )
        for run in ("part", "whole")
    )
    assert of_part == of_whole


def test_rows_of_other_pools_are_not_exported(own: Path) -> None:
    run = sweep("Distinct", data=own, keep_scores=False)
    rows = read_run(run).rows
    swapped = [replace(rows[0], pool=rows[1].pool).to_json(), *(r.to_json() for r in rows[1:])]
    (run / "rows.jsonl").write_bytes(b"".join(map(encode_row, swapped)))
    one_line_error(try_export(), "rows.jsonl:1: not the row of its pool")
    assert not Path("exported").exists()


def test_predictions_of_rows_and_scores_agree(write_release: WriteRelease, tmp_path: Path) -> None:
    data = released(write_release)
    found = {}
    for keep in (True, False):
        out = tmp_path / str(keep)
        options = {"pools": "released", "distractors": (6,), "keep_scores": keep}
        run = sweep("Flaky", "constant", data=data, out=str(out / "run"), **options)
        words = [str(run), "--out", str(out), "--data", str(data), "--what", "predictions"]
        found[keep] = [file.read_text() for file in files_of(export_app, *words)]
    assert found[True] == found[False]
    assert [len(text.splitlines()) for text in found[True]] == [7, 9]


def test_an_incomplete_tie_gives_no_prediction(write_release: WriteRelease, tmp_path: Path) -> None:
    data = write_release([(f"what {i}", [f"note {i} {j}" for j in range(12)], 3) for i in range(4)])
    options = {"pools": "released", "distractors": (11,), "keep_scores": False}
    run = sweep("constant", "Distinct", data=data, out=str(tmp_path / "run"), **options)
    words = [str(run), "--out", str(tmp_path), "--data", str(data), "--what", "predictions"]
    result = call_well(export_app, *words)
    assert "in 4 rows all of the best 10 memories tie: no prediction" in result.stderr
    assert (tmp_path / "constant.d11.predictions.jsonl").read_text() == ""
    assert len((tmp_path / "Distinct.d11.predictions.jsonl").read_text().splitlines()) == 4
