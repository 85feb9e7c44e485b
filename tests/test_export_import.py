"""Runs out and in: TREC files that ir-measures agrees with, pools, official predictions."""

import json
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pytest
from ir_measures import RR, P, R, Success, nDCG
from typer.testing import CliRunner

from analysis.export import app as export_app
from analysis.importing import app as import_app
from analysis.metrics import parse_metric
from analysis.runs import read_run
from recallbed.harness.configurations import Configuration
from recallbed.harness.run_folder import encode_row, read_manifest
from retrievers.base import Retriever, RetrieverError
from task3.score import app as score_app
from task3.sweep_run import run_sweep
from tests.kit import WriteRelease, sweep_config, write_lines

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


def sweep(data: Path, *names: str, out: str = "run", **options: Any) -> Path:
    labels = tuple(
        Configuration(name, f"{__name__}:{name}" if name[0].isupper() else name, {})
        for name in names
    )
    asked = {"ks": (1, 3, 5), "keep_scores": True, **options}
    return run_sweep(sweep_config(labels, data, out=Path(out), **asked)).path


def export(*words: str) -> list[Path]:
    found = CliRunner().invoke(export_app, list(words))
    assert found.exit_code == 0, found.output
    return [Path(line) for line in found.stdout.splitlines()]


def imported(*words: str) -> Any:
    found = CliRunner().invoke(import_app, list(words))
    assert found.exit_code == 0, found.output
    return found


def refused(app: Any, words: Sequence[str], said: str) -> None:
    found = CliRunner().invoke(app, list(words))
    assert found.exit_code == 2, found.output
    assert said in found.stderr, found.stderr
    assert found.stderr.count("\n") == 1, found.stderr


def measured(label: str, stem: str, measures: Iterable[Any]) -> dict[tuple[str, str], float]:
    """By query and measure, what ir-measures makes of the exported files."""
    qrels = ir_measures.read_trec_qrels(f"exported/{stem}.qrels")
    run = ir_measures.read_trec_run(f"exported/{label}.{stem}.run")
    return {
        (one.query_id, str(one.measure)): one.value
        for one in ir_measures.iter_calc(list(measures), list(qrels), list(run))
    }


def ours(run: Path, label: str) -> dict[tuple[str, str], float]:
    from urllib.parse import quote

    found = {}
    for row in read_run(run).rows:
        if row.retriever != label:
            continue
        ties, name = row.ties, quote(row.query, safe="")
        found[name, "RR"] = parse_metric("E[RR]").value(ties)
        for k in (1, 3, 5):
            found[name, f"R@{k}"] = parse_metric(f"R@{k}").value(ties)
            found[name, f"Success@{k}"] = parse_metric(f"any@{k}").value(ties)
            found[name, f"nDCG@{k}"] = parse_metric(f"nDCG@{k}").value(ties)
    return found


MEASURES = [RR, *(m @ k for m in (R, Success, nDCG) for k in (1, 3, 5))]


def test_ir_measures_agrees_where_nothing_is_tied(own: Path) -> None:
    run = sweep(own, "Distinct")
    export("run", "--out", "exported", "--data", "own.jsonl")
    theirs, mine = measured("Distinct", "d11", MEASURES), ours(run, "Distinct")
    assert theirs.keys() == mine.keys()
    assert len(mine) == len(OTHER) * 10
    assert max(abs(theirs[key] - mine[key]) for key in mine) <= 1e-9
    summary = json.loads((run / "summary.json").read_text())["cells"][0]
    mean = np.mean([theirs[q, m] for q, m in theirs if m == "nDCG@5"])
    assert summary["ndcg"]["5"]["mean"] == pytest.approx(mean, abs=1e-6)


def test_with_ties_ours_is_the_mean_over_a_thousand_tie_orders(own: Path) -> None:
    run = sweep(own, "Coarse")
    export("run", "--out", "exported", "--data", "own.jsonl")
    qrels = list(ir_measures.read_trec_qrels("exported/d11.qrels"))
    given = list(ir_measures.read_trec_run("exported/Coarse.d11.run"))
    rng, sums, squares = random.Random(0), {}, {}  # type: ignore[var-annotated]
    measures = [RR, R @ 3, Success @ 3, nDCG @ 3, P @ 1]
    evaluator = ir_measures.evaluator(measures, qrels)
    for _ in range(1000):
        broken = [
            ir_measures.ScoredDoc(d.query_id, d.doc_id, d.score + rng.random() * 0.5) for d in given
        ]
        for one in evaluator.iter_calc(broken):
            key = one.query_id, str(one.measure)
            sums[key] = sums.get(key, 0) + one.value
            squares[key] = squares.get(key, 0) + one.value**2
    mine = ours(run, "Coarse")
    mine |= {(q, "P@1"): mine[q, "Success@1"] for q, m in list(mine) if m == "RR"}
    far = []
    for key, total in sums.items():
        mean = total / 1000
        error = math.sqrt(max(squares[key] / 1000 - mean**2, 0) / 1000)
        far.append(abs(mean - mine[key]) / error if error else abs(mean - mine[key]) / 1e-9)
    # Forty figures at three standard errors: one in three hundred and seventy may lie outside.
    assert sum(distance > 3 for distance in far) <= 1
    assert max(far) < 4.5
    tied = [t for row in read_run(run).rows for t in row.ties if t[1] > 1]
    assert len(tied) > 5, "a test of ties needs ties"


def test_a_scorer_that_knows_nothing(own: Path) -> None:
    run = sweep(own, "constant")
    export("run", "--out", "exported", "--data", "own.jsonl")
    lines = Path("exported/constant.d11.run").read_text().splitlines()
    assert {line.split()[4] for line in lines} == {"0"}
    cell = json.loads((run / "summary.json").read_text())["cells"][0]
    for k in ("1", "3", "5"):
        assert cell["recall"][k]["mean"] == cell["recall"][k]["chance"]
        assert cell["ndcg"][k]["mean"] == cell["ndcg"][k]["chance"]


def test_out_and_in_again_is_the_same_run(own: Path) -> None:
    sweep(own, "Coarse")
    export("run", "--out", "exported", "--data", "own.jsonl")
    imported(
        *("exported/Coarse.d11.run", "--label", "theirs", "--data", "own.jsonl"),
        *("--out", "back", "--k", "1,3,5"),
    )
    first, second = read_run(Path("run")), read_run(Path("back"))
    for one, other in zip(first.rows, second.rows, strict=True):
        assert replace(one, retriever="theirs") == other
    for name in ("recall", "recall_any", "recall_all", "ndcg", "reciprocal_rank", "pool_sizes"):
        cells = [run.summary((1, 3, 5)).to_json()["cells"][0][name] for run in (first, second)]
        assert cells[0] == cells[1]
    assert Path("back/curve.png").exists()


def test_several_sizes_and_seeds(write_release: WriteRelease, tmp_path: Path) -> None:
    data = write_release(
        [(f"what of {i}", [f"note {i} on {i * 31 + j}" for j in range(6)], i % 6) for i in range(9)]
    )
    out = str(tmp_path / "x")
    sweep(data, "Distinct", out=f"{out}/run", distractors=(5, 12), pool_seeds=(3, 4))
    files = export(f"{out}/run", "--out", f"{out}/exported", "--data", str(data))
    names = {f"{head}d{n}.s{s}{tail}" for n in (5, 12) for s in (3, 4)
             for head, tail in (("Distinct.", ".run"), ("", ".qrels"))}  # fmt: skip
    assert {file.name for file in files} == names
    words = [f"{n}={out}/exported/Distinct.d{n}.s4.run" for n in (5, 12)]
    more = ["--label", "t", "--data", str(data), "--distractors", "5,12", "--out", f"{out}/back"]
    imported(*words, *more, "--pool-seed", "4")
    back, run = read_run(Path(f"{out}/back")), read_run(Path(f"{out}/run"))
    fourth = [row for i, row in enumerate(run.rows) if i >= len(run.rows) // 2]
    assert [r.ties for r in back.rows] == [r.ties for r in fourth]
    refused(import_app, [*words, *more, "--pool-seed", "3", "--overwrite"], "is no document of")
    rows = read_run(Path(f"{out}/back")).rows
    assert [r.ties for r in rows] == [r.ties for r in fourth], "a refusal touches nothing"


def test_exported_pools_are_ranked_elsewhere_and_come_back(own: Path) -> None:
    sweep(own, "Distinct")
    [pools] = export("run", "--out", "exported", "--data", "own.jsonl", "--what", "pools")
    lines = [json.loads(line) for line in pools.read_text().splitlines()]
    from urllib.parse import quote

    with Path("theirs.run").open("w") as stream:
        for line in lines:
            for rank, memory in enumerate(line["memories"], 1):
                score = len(memory["text"]) - rank
                stream.write(f"{quote(line['id'], safe='')} Q0 {memory['id']} 7 {score} tag\n")
    imported("theirs.run", "--label", "t", "--data", "own.jsonl", "--out", "back")
    again = sweep(pools, "Distinct", out="again", keep_scores=False)
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
    run = sweep(data, "Flaky", out=str(out / "run"), pools="released", distractors=(6,))
    words = [str(run), "--out", str(out), "--data", str(data), "--what", "predictions"]
    [file] = export(*words)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(rows) == 7
    assert all(
        list(row) == ["benchmark_id", "answer", "reason", "selected_memory_id"] for row in rows
    )
    scored = CliRunner().invoke(score_app, [str(file), "--data", str(data), "--json"])
    assert scored.exit_code == 0, scored.output
    accuracy = json.loads(scored.stdout)["all"]["accuracy_over_answered"]["mean"]
    swept = json.loads((run / "summary.json").read_text())["cells"][0]
    assert accuracy == pytest.approx(swept["recall"]["1"]["mean"], abs=1e-6)
    imported(
        *(str(file), "--format", "predictions", "--label", "t", "--data", str(data)),
        *("--pools", "released", "--distractors", "6", "--out", str(out / "back")),
    )
    [cell] = json.loads((out / "back/summary.json").read_text())["cells"]
    assert (cell["scored"], cell["failed"]) == (7, 2)
    assert cell["failures"] == {"not in the file": 2}
    # An id that stands on several memories names each of them as likely as the others.
    assert cell["recall"]["1"]["mean"] == pytest.approx(accuracy, abs=1e-6)


def test_predictions_that_can_not_be_placed_are_failures(
    write_release: WriteRelease, tmp_path: Path
) -> None:
    data, out = released(write_release), tmp_path / "x"
    chosen = ["m7", "m7", "zebra", None, "", "m4"]
    rows = [
        {"benchmark_id": f"q{i}", "answer": "", "reason": "", "selected_memory_id": one}
        for i, one in enumerate(chosen)
    ]
    write_lines(tmp_path / "p.jsonl", [*rows, rows[0]])
    words = [
        *(str(tmp_path / "p.jsonl"), "--format", "predictions", "--label", "t"),
        *("--data", str(data), "--pools", "released", "--distractors", "6", "--out", str(out)),
    ]
    imported(*words)
    [cell] = json.loads((out / "summary.json").read_text())["cells"]
    assert cell["failures"] == {
        "not in the file": 3,
        "selected id not in the pool": 1,
        "selects nothing": 2,
        "several predictions": 1,
    }
    assert cell["recall"]["1"]["mean"] == 0.5
    write_lines(tmp_path / "p.jsonl", [{**rows[0], "benchmark_id": "stranger"}])
    refused(import_app, [*words, "--overwrite"], "p.jsonl:1: `stranger` is no query")


def test_failed_rows_have_no_line_in_a_run(own: Path) -> None:
    sweep(own, "Flaky")
    export("run", "--out", "exported", "--data", "own.jsonl")
    lines = Path("exported/Flaky.d11.run").read_text().splitlines()
    assert len({line.split()[0] for line in lines}) == len(OTHER) - 2
    imported("exported/Flaky.d11.run", "--label", "t", "--data", "own.jsonl", "--out", "back")
    failed = [row.error for row in read_run(Path("back")).rows if row.error]
    assert failed == ["not in the file"] * 2


def test_memories_that_a_run_leaves_out_share_the_last_place(own: Path) -> None:
    sweep(own, "Distinct")
    export("run", "--out", "exported", "--data", "own.jsonl")
    path = Path("exported/Distinct.d11.run")
    kept = [line for line in path.read_text().splitlines() if int(line.split()[3]) <= 4]
    path.write_text("\n".join(kept))
    found = imported(str(path), "--label", "t", "--data", "own.jsonl", "--out", "back")
    left = sum(len(json.loads(line)["memories"]) - 4 for line in own.read_text().splitlines())
    assert read_manifest(Path("back"))["notes"]["t"]["unreturned_memories"] == left
    assert f"{left} of" in found.stderr
    for row, whole in zip(read_run(Path("back")).rows, read_run(Path("run")).rows, strict=True):
        for (above, tied), (was, _) in zip(row.ties, whole.ties, strict=True):
            assert (above, tied) == (was, 1) if was < 4 else (above == 4 and tied > 1)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("q0 Q0 0-00000000 1 2.5 tag", ":1: `0-00000000` is no document of the pool of `q0`"),
        ("stranger Q0 0-00000000 1 2.5 tag", ":1: `stranger` is no query of the data"),
        ("q0 Q0 DOC 1 2.5", ":1: 5 columns"),
        ("q0 Q0 DOC 1 nan tag", ":1: score `nan`"),
        ("q0 Q0 DOC 1 high tag", ":1: score `high`"),
        ("q0 Q0 DOC 1 1e39 tag", "too large"),
        ("q0 Q0 DOC 1 2 tag\nq0 Q0 DOC 2 1 tag", "stands on line 1 already for `q0`"),
        ("", "is empty"),
        ("\x00\xff", "columns"),
        ("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "Git LFS pointer"),
    ],
)
def test_a_faulty_run_file_is_one_line_and_nothing_is_written(
    own: Path, line: str, said: str
) -> None:
    sweep(own, "Distinct")
    export("run", "--out", "exported", "--data", "own.jsonl")
    document = Path("exported/d11.qrels").read_text().split()[2]
    Path("theirs.run").write_text(line.replace("DOC", document))
    words = ["theirs.run", "--label", "t", "--data", "own.jsonl", "--out", "back"]
    refused(import_app, words, said)
    assert not Path("back").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a.run", "b.run"], "write SIZE=FILE"),
        (["12=a.run"], "write SIZE=FILE"),
        (["11=a.run", "11=b.run"], "two files for 11"),
        (["nowhere.run"], "cannot be read"),
        (["a.run", "--format", "xml"], "--format xml"),
        (["a.run", "--pools", "deep"], "--pools deep"),
        (["a.run", "--k", "0"], "--k 0"),
    ],
)
def test_words_that_make_no_sense(own: Path, words: list[str], said: str) -> None:
    Path("a.run").write_text("q0 Q0 d 1 1 t\n")
    refused(import_app, [*words, "--label", "t", "--data", "own.jsonl", "--out", "back"], said)
    refused(import_app, ["a.run", "--label", "a b", "--data", "own.jsonl", "--out", "b"], "label")


def test_what_export_refuses(own: Path) -> None:
    run = sweep(own, "Distinct")
    data = ["--data", "own.jsonl"]
    refused(export_app, ["run", "--out", "e"], "other data")
    refused(export_app, ["run", "--out", "e", *data, "--what", "xml"], "--what xml")
    refused(export_app, ["nowhere", "--out", "e", *data], "not a run folder")
    own.write_text(own.read_text().replace("note 3", "note three"))
    refused(export_app, ["run", "--out", "e", *data], "data.sha256")
    own.write_text(own.read_text().replace("note three", "note 3"))
    scores = (run / "scores.jsonl").read_text()
    (run / "scores.jsonl").write_text(scores.replace('"scores": [', '"scores": [1.5, ', 1))
    refused(export_app, ["run", "--out", "e", *data], "scores.jsonl:1: not the scores")
    rows = (run / "rows.jsonl").read_bytes().splitlines(keepends=True)
    (run / "rows.jsonl").write_bytes(b"".join(rows[:3]))
    refused(export_app, ["run", "--out", "e", *data], "Finish it with --resume")
    assert not Path("e").exists()


def test_predictions_need_released_pools(write_release: WriteRelease, tmp_path: Path) -> None:
    data = released(write_release)
    run = sweep(data, "Distinct", out=str(tmp_path / "run"), distractors=(6,))
    words = [str(run), "--out", str(tmp_path / "e"), "--data", str(data), "--what", "predictions"]
    refused(export_app, words, "--pools released")


def test_a_run_without_scores_is_exported_from_its_rows(own: Path) -> None:
    """The README's `analysis.export runs/A` failed on every run that its commands make."""
    sweep(own, "Coarse", "Flaky")
    export("run", "--out", "whole", "--data", "own.jsonl")
    sweep(own, "Coarse", "Flaky", out="bare", keep_scores=False)
    words = ["bare", "--out", "part", "--data", "own.jsonl"]
    found = CliRunner().invoke(export_app, words)
    assert found.exit_code == 0, found.stderr
    assert found.stderr.count("\n") == 1
    assert "bare kept no scores: a .run file holds the best 10 memories" in found.stderr
    assert Path("part/d11.qrels").read_text() == Path("whole/d11.qrels").read_text()
    for name in ("Coarse", "Flaky"):
        part, whole = (
            [line.split() for line in Path(f"{folder}/{name}.d11.run").read_text().splitlines()]
            for folder in ("part", "whole")
        )
        assert part == [line for line in whole if int(line[3]) <= 10]
    # The first ten places decide every measure at 10 and below.
    measures = [R @ 3, P @ 5, Success @ 1]
    run = ir_measures.read_trec_run("part/Flaky.d11.run")
    qrels = list(ir_measures.read_trec_qrels("part/d11.qrels"))
    assert ir_measures.calc_aggregate(measures, qrels, run) == ir_measures.calc_aggregate(
        measures, qrels, ir_measures.read_trec_run("whole/Flaky.d11.run")
    )


def test_rows_of_other_pools_are_not_exported(own: Path) -> None:
    run = sweep(own, "Distinct", keep_scores=False)
    rows = read_run(run).rows
    swapped = [replace(rows[0], pool=rows[1].pool).to_json(), *(r.to_json() for r in rows[1:])]
    (run / "rows.jsonl").write_bytes(b"".join(map(encode_row, swapped)))
    words = ["run", "--out", "exported", "--data", "own.jsonl"]
    refused(export_app, words, "rows.jsonl:1: not the row of its pool")
    assert not Path("exported").exists()


def test_predictions_from_rows_are_those_from_scores(
    write_release: WriteRelease, tmp_path: Path
) -> None:
    data = released(write_release)
    found = {}
    for keep in (True, False):
        out = tmp_path / str(keep)
        options = {"pools": "released", "distractors": (6,), "keep_scores": keep}
        run = sweep(data, "Flaky", "constant", out=str(out / "run"), **options)
        words = [str(run), "--out", str(out), "--data", str(data), "--what", "predictions"]
        found[keep] = [file.read_text() for file in export(*words)]
    assert found[True] == found[False]
    assert [len(text.splitlines()) for text in found[True]] == [7, 9]


def test_a_tie_that_rows_do_not_show_whole_gives_no_prediction(
    write_release: WriteRelease, tmp_path: Path
) -> None:
    data = write_release([(f"what {i}", [f"note {i} {j}" for j in range(12)], 3) for i in range(4)])
    options = {"pools": "released", "distractors": (11,), "keep_scores": False}
    run = sweep(data, "constant", "Distinct", out=str(tmp_path / "run"), **options)
    words = [str(run), "--out", str(tmp_path), "--data", str(data), "--what", "predictions"]
    result = CliRunner().invoke(export_app, words)
    assert result.exit_code == 0, result.stderr
    assert "in 4 rows all of the best 10 memories tie: no prediction" in result.stderr
    assert (tmp_path / "constant.d11.predictions.jsonl").read_text() == ""
    assert len((tmp_path / "Distinct.d11.predictions.jsonl").read_text().splitlines()) == 4
