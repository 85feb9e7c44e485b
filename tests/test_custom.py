"""A user's own file of memories: its form, its faults, its pools and what a sweep makes of it."""

import codecs
import gzip
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.compare import app as compare_app
from analysis.curves import app as curves_app
from analysis.statistics import Bootstrap
from analysis.summary import SweepSummary
from analysis.tables import build_table, remarks, title
from recallbed.corpus import DataError, Memory
from recallbed.corpus.custom import CustomFile, is_custom, load_custom
from recallbed.corpus.material import gather
from retrievers import Retriever
from task3.sweep import app as sweep_app
from tests.kit import (
    LFS,
    PROMISED,
    assert_equal_runs,
    one_line_error,
    rows_of,
    run,
    swept,
    write_lines,
)
from tests.test_resume import SLOW, finish, row_count, start_and_hold

Row = dict[str, Any]


class Stated(Retriever):
    """The number that a memory's text begins with."""

    def score(self, query: str, pool: Sequence[Memory]) -> list[float]:
        return [float(memory.text.split()[0]) for memory in pool]


class Spy(Stated):
    """Keeps all that it was ever given."""

    seen: list[Any] = []  # noqa: RUF012

    def prepare(self, queries: Sequence[str], memories: Sequence[Memory]) -> None:
        self.seen.append((list(queries), list(memories)))

    def score(self, query: str, pool: Sequence[Memory]) -> list[float]:
        self.seen.append((query, list(pool)))
        return super().score(query, pool)


def small(gold: Any = 0, **more: Any) -> Row:
    return {"query": "which tea", "memories": ["2 green tea", "1 a cat"], "gold": gold, **more}


def several() -> list[Row]:
    """Four queries, two of them with two golds, pools of 4, 3, 2 and 2; the last is unanswered."""
    return [
        {"query": "one", "memories": ["3 a", "2 b", "2 c", "1 d"], "gold": [1, 0], "session": "u"},
        {"query": "two", "memories": ["1 e", "1 f", "1 g"], "gold": [0, 2], "session": "u"},
        {"query": "three", "memories": ["5 h", "4 i"], "gold": 1, "session": "v"},
        {"query": "four", "memories": ["1 j", "2 k"], "gold": []},
    ]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write_rows(*rows: Any, name: str = "my.jsonl") -> Path:
        write_lines(tmp_path / name, rows)
        return tmp_path / name

    return write_rows


Write = Callable[..., Path]


def sweep(data: Path, out: Path, **options: Any) -> dict[str, Any]:
    return report(data, out, **options).to_json()


def report(data: Path, out: Path, **options: Any) -> SweepSummary:
    name = options.pop("name", f"{__name__}:Stated")
    return swept([f"mine={name}"], data, out=out, **{"ks": (1, 2), **options}).report


command = partial(run, sweep_app, "--retriever", "overlap")


def assert_refused(path: Path, *parts: object, more: Sequence[str] = ()) -> None:
    """One line that holds `parts`, and no run."""
    out = path.parent / "run"
    one_line_error(command("--data", path, "--out", out, *more), *parts)
    assert not out.exists()


# The form


def test_a_row_is_read_as_documented(write: Write) -> None:
    path = write(
        {
            "query": "where do I run?",
            "memories": ["by the river", {"text": "on Sundays", "label": "Sports"}, {"text": "x"}],
            "gold": [2, 1],
            "id": "q2",
            "session": "user 7",
        }
    )
    [row] = load_custom(path).file.rows
    assert row.candidates == (Memory("by the river"), Memory("on Sundays", "Sports"), Memory("x"))
    assert (row.query, row.golds, row.gold) == ("where do I run?", (1, 2), 1)
    assert (row.benchmark_id, row.session_id, row.line) == ("q2", "user 7", 1)
    assert row.gold_memories == (Memory("on Sundays", "Sports"), Memory("x"))


@pytest.mark.parametrize(
    ("gold", "golds"), [(0, (0,)), (1, (1,)), ([1], (1,)), ([1, 0], (0, 1)), ([0, 1], (0, 1))]
)
def test_gold_is_a_position_or_a_list(write: Write, gold: Any, golds: tuple[int, ...]) -> None:
    [row] = load_custom(write(small(gold))).file.rows
    assert row.golds == golds


@pytest.mark.parametrize(
    ("given", "name"), [(7, "7"), (0, "0"), (-1, "-1"), ("", "1"), (None, "1"), ("é %", "é %")]
)
def test_ids(write: Write, given: Any, name: str) -> None:
    [row] = load_custom(write(small(id=given))).file.rows
    assert row.benchmark_id == row.session_id == name


def test_without_an_id_it_is_the_line_number(write: Write, tmp_path: Path) -> None:
    path = write(small(), small())
    path.write_text("\n" + path.read_text() + "\n\n" + json.dumps(small()))
    assert [row.benchmark_id for row in load_custom(path).file.rows] == ["2", "3", "6"]


@pytest.mark.parametrize(("given", "name"), [("user", "user"), ("", "a"), (None, "a")])
def test_a_session_is_by_default_the_id(write: Write, given: Any, name: str) -> None:
    [row] = load_custom(write(small(id="a", session=given))).file.rows
    assert row.session_id == name


def test_labels_may_be_null_and_other_fields_of_a_memory_are_not_read(write: Write) -> None:
    memories = [{"text": "a", "label": None, "id": 5, "secret": True}, {"text": ""}]
    [row] = load_custom(write(small(memories=memories))).file.rows
    assert row.candidates == (Memory("a"), Memory(""))


def content(file: CustomFile) -> Any:
    """All but the hash, the path and what was repaired."""
    rows = [(r.benchmark_id, r.session_id, r.query, r.candidates, r.golds) for r in file.file.rows]
    return rows, file.file.size, file.abstentions, file.bank


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: codecs.BOM_UTF8 + raw,
        lambda raw: raw.replace(b"\n", b"\r\n"),
        lambda raw: raw[:-1],
        lambda raw: codecs.BOM_UTF8 + raw.replace(b"\n", b"\r\n")[:-2],
        lambda raw: raw + b"\n \t\r\n",
    ],
    ids=["BOM", "CRLF", "no last line feed", "all three", "blank lines"],
)
def test_text_as_it_comes(write: Write, tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    path = write(*several())
    plain = load_custom(path)
    path.write_bytes(change(path.read_bytes()))
    assert content(load_custom(path)) == content(plain)
    zipped = tmp_path / "my.jsonl.gz"
    zipped.write_bytes(gzip.compress(path.read_bytes()))
    assert is_custom(zipped)
    assert content(load_custom(zipped)) == content(plain)


def test_a_line_ends_at_a_line_feed_only(write: Write) -> None:
    text = "a\u2028b\u2029c\x85d\x0be"
    path = write(small(query=text))
    path.write_text(json.dumps(small(query=text), ensure_ascii=False) + "\n", "utf-8", newline="")
    assert [row.query for row in load_custom(path).file.rows] == [text]


def test_lone_surrogates_and_nul_are_repaired_and_counted(write: Write, tmp_path: Path) -> None:
    path = tmp_path / "my.jsonl"
    path.write_text(
        r'{"query": "a \ud83d b", "memories": ["1 \u0000", "2 \ud83d\udc4d"], "gold": 0,'
        r' "id": "\udc00", "session": "s\u0000"}' + "\n"
    )
    file = load_custom(path).file
    [row] = file.rows
    assert (row.query, row.candidates[0].text) == ("a \ufffd b", "1 \ufffd")
    assert row.candidates[1].text == "2 \U0001f44d"
    assert (row.benchmark_id, row.session_id) == ("\ufffd", "s\ufffd")
    assert file.repairs == {"lone surrogate": 2, "NUL": 2}
    summary = sweep(path, tmp_path / "run")
    assert summary["repaired"] == {"lone surrogate": 2, "NUL": 2}
    assert summary["cells"][0]["scored"] == 1


def test_every_name_of_an_existing_file_will_do(write: Write, tmp_path: Path) -> None:
    path = write(small(), name="mine.txt")
    assert is_custom(path)
    assert sweep(path, tmp_path / "run")["cells"][0]["scored"] == 1


# Faults


FAULTS: dict[str, tuple[Any, list[str]]] = {
    "gold misspelled": (
        {"query": "q", "memories": ["m"], "Golds": 0},
        ["field `gold` is missing", "Rename `Golds`"],
    ),
    "query under another name": (
        {"question": "q", "memories": ["m"], "gold": 0},
        ["field `query` is missing", "The row has `question`"],
    ),
    "further fields equal once repaired": (
        small(**{"a\x00": 1, "a\ufffd": 2}),
        ["keys that are equal once repaired"],
    ),
    "gold beyond the pool": (small(2), ["gold 2 is no position in 2 memories", "from 0"]),
    "gold below 0": (small(-1), ["gold -1 is no position"]),
    "gold in a list beyond the pool": (small([0, 9]), ["gold 9 is no position"]),
    "gold a bool": (small(True), ["`gold` must be a position"]),
    "gold a list of bools": (small([False]), ["`gold` must be a position"]),
    "gold a float": (small(1.0), ["`gold` must be a position"]),
    "gold a text": (small("0"), ["`gold` must be a position"]),
    "gold null": (small(None), ["`gold` must be a position"]),
    "gold an object": (small({"0": 1}), ["`gold` must be a position"]),
    "gold a list of lists": (small([[0]]), ["`gold` must be a position"]),
    "gold twice": (small([1, 1]), ["`gold` names a position twice"]),
    "gold missing": ({"query": "q", "memories": ["m"]}, ["field `gold` is missing", "[]"]),
    "no memories": (small(memories=[]), ["`memories` is empty"]),
    "memories missing": ({"query": "q", "gold": 0}, ["field `memories` is missing"]),
    "memories a text": (small(memories="tea"), ["field `memories` must be a list"]),
    "memories an object": (small(memories={"0": "tea"}), ["field `memories` must be a list"]),
    "a memory a number": (small(memories=["tea", 5]), ["`memories[1]`", "int"]),
    "a memory null": (small(memories=[None]), ["`memories[0]`"]),
    "a memory a list": (small(memories=[["tea"]]), ["`memories[0]`"]),
    "a memory without text": (small(memories=[{"label": "x"}]), ["`memories[0].text` is missing"]),
    "a label a number": (small(memories=[{"text": "a", "label": 1}]), ["`memories[0].label`"]),
    "query missing": ({"memories": ["m"], "gold": 0}, ["field `query` is missing"]),
    "query a list": (small(query=["tea"]), ["field `query` must be a string"]),
    "query null": (small(query=None), ["field `query` must be a string"]),
    "id a list": (small(id=["a"]), ["field `id` must be a string"]),
    "id a bool": (small(id=True), ["field `id` must be a string"]),
    "id a float": (small(id=1.5), ["field `id` must be a string"]),
    "session a number": (small(session=7), ["field `session` must be a string"]),
    "a list": ([small()], ["a line must hold a JSON object, not list"]),
    "a text": ("tea", ["a line must hold a JSON object, not str"]),
    "null": (None, ["a line must hold a JSON object"]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_line_with_file_and_line(write: Write, fault: str) -> None:
    value, parts = FAULTS[fault]
    path = write(small(id="first"), value, small(id="last"))
    assert_refused(path, f"{path}:2: ", *parts)


@pytest.mark.parametrize(
    ("one", "other", "name"),
    [("a", "a", "a"), (5, "5", "5"), ("2", None, "2"), ("\x00", "\ufffd", "\ufffd")],
)
def test_a_repeated_id_is_named_with_both_lines(
    write: Write, one: Any, other: Any, name: str
) -> None:
    path = write(small(id=one), small(id=other))
    assert_refused(path, f"{path}:2: id `{name}` already appears on line 1")


def test_no_row_with_gold(write: Write) -> None:
    path = write(small([]), small([]))
    assert_refused(path, f"{path}: none of 2 rows has a gold", "`gold`")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (LFS.encode(), ":1: this is a Git LFS pointer"),
        (codecs.BOM_UTF8 + LFS.encode(), ":1: this is a Git LFS pointer"),
        (b"", ": the file is empty"),
        (b"\n\r\n \n", ": the file is empty"),
        (codecs.BOM_UTF8, ": the file is empty"),
    ],
    ids=["LFS", "LFS behind a BOM", "nothing", "blank lines", "a BOM"],
)
@pytest.mark.parametrize("name", ["my.jsonl", "my.jsonl.gz"])
def test_files_of_nothing(tmp_path: Path, raw: bytes, message: str, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(raw) if name.endswith("gz") and b"git-lfs" not in raw else raw)
    assert_refused(path, f"{path}{message}")


def test_files_that_cannot_be_read(write: Write, tmp_path: Path) -> None:
    one_line_error(command("--data", tmp_path / "no.jsonl"), "no.jsonl: cannot be read", "No such")
    (tmp_path / "folder.jsonl").mkdir()
    one_line_error(command("--data", tmp_path / "folder.jsonl"), "folder.jsonl: cannot be read")
    whole = gzip.compress(write(*[small() for _ in range(500)]).read_bytes())
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(whole[: len(whole) // 2])
    one_line_error(command("--data", cut), "cut.jsonl.gz", "cannot be read")
    cut.write_bytes(b"not gzip at all")
    one_line_error(command("--data", cut), "cut.jsonl.gz: cannot be read")


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--distractors", "1"], ["the pools of this file come in the sizes", "--pools nested"]),
        (["--pools", "released", "--distractors", "1"], ["come in the sizes"]),
        (["--pools", "nested"], ["nested pools of this file need sizes", "--distractors"]),
        (["--pools", "as-released"], ["need sizes"]),
        (["--pools", "nested", "--distractors", "50"], ["fewer than the 50 asked for"]),
    ],
)
def test_sizes_that_are_unavailable(write: Write, words: list[str], parts: list[str]) -> None:
    path = write(*several())
    assert_refused(path, path, *parts, more=words)


# Pools


def test_pools_are_taken_as_given(write: Write) -> None:
    rows = [small(memories=["same", "same", "other"], gold=[2, 0]), *several()[:2]]
    material = gather(write(*rows))
    assert (material.strategy, material.sizes, material.seeds) == ("released", (2,), (0,))
    for row, pool in zip(rows, material.pools.pools[2, 0], strict=True):
        assert [memory.text for memory in material.pools.texts(pool)] == row["memories"]
        assert sorted(row["gold"]) == list(pool.golds)


def bank_of_twenty() -> list[Row]:
    """Ten queries whose pools share texts; every gold stands in the pool of the next query."""
    rows: list[Row] = []
    for i in range(10):
        memories = [f"{i} first gold", f"{(i - 1) % 10} first gold", f"{i} other", f"{i} other"]
        gold: list[int] = [0]
        if i % 3 == 0:
            memories.append(f"{i} second gold")
            gold.append(4)
        rows.append({"query": f"query {i}", "memories": memories, "gold": gold})
    return [*rows, small([], memories=[f"{i} only here" for i in range(5)])]


@pytest.mark.parametrize("seed", range(3))
def test_nested_pools_never_hold_a_golds_text_twice(write: Write, seed: int) -> None:
    path = write(*bank_of_twenty())
    material = gather(path, strategy="nested", sizes=(1, 4, 15), seeds=(seed,))
    assert len(material.data.bank) == 29
    for i, row in enumerate(material.pools.rows):
        golds = {memory.text for memory in row.gold_memories}
        smaller: set[str] = set()
        for size in (1, 4, 15):
            pool = material.pools.pools[size, seed][i]
            texts = [memory.text for memory in material.pools.texts(pool)]
            assert len(texts) == len(set(texts)) == size + len(golds)
            assert {texts[place] for place in pool.golds} == golds
            assert smaller <= set(texts)
            smaller = set(texts)
            own = {memory.text for memory in row.candidates}
            assert own <= set(texts) if size >= 4 else set(texts) <= own
    drawn = {m.text for m in material.pools.memories}
    assert any("only here" in text for text in drawn)


def test_nested_pools_follow_their_seed_alone(write: Write) -> None:
    rows = bank_of_twenty()

    def pools(**options: Any) -> list[list[str]]:
        found = gather(write(*rows), strategy="nested", **options)
        size = max(found.sizes)
        return [
            [memory.text for memory in found.pools.texts(pool)]
            for pool in found.pools.pools[size, found.seeds[-1]]
        ]

    whole = pools(sizes=(15,))
    assert pools(sizes=(1, 3, 15)) == whole
    assert pools(sizes=(15,), limit=4) == whole[:4]
    assert pools(sizes=(15,), seeds=(3, 0)) == whole
    assert pools(sizes=(15,), seeds=(1,)) != whole


# What a sweep makes of it


def test_rows_of_several_golds_hold_lists(write: Write, tmp_path: Path) -> None:
    sweep(write(*several()), tmp_path / "run")
    ranks = [(row["gold"], row["above"], row["tied"]) for row in rows_of(tmp_path / "run")]
    assert ranks == [([0, 1], [0, 1], [1, 2]), ([0, 2], [0, 0], [3, 3]), (1, 1, 1)]
    assert [row["query"] for row in rows_of(tmp_path / "run")] == ["1", "2", "3"]


def test_figures_of_several_golds_are_those_worked_out_by_hand(
    write: Write, tmp_path: Path
) -> None:
    [cell] = sweep(write(*several()), tmp_path / "run")["cells"]
    second = 1 / math.log2(3)
    wanted = {
        "recall": {"1": (1 / 2 + 1 / 3 + 0) / 3, "2": (3 / 4 + 2 / 3 + 1) / 3},
        "recall_any": {"1": (1 + 2 / 3 + 0) / 3, "2": 1},
        "recall_all": {"1": 0, "2": (1 / 2 + 1 / 3 + 1) / 3},
        "ndcg": {
            "1": (1 + 2 / 3 + 0) / 3,
            "2": ((1 + second / 2) / (1 + second) + 2 / 3 + second) / 3,
        },
    }
    for name, by_k in wanted.items():
        means = {k: figures["mean"] for k, figures in cell[name].items()}
        assert means == pytest.approx(by_k, abs=1e-6), name
    assert cell["reciprocal_rank"]["mean"] == pytest.approx((1 + 5 / 6 + 1 / 2) / 3, abs=1e-6)
    bounds = [(cell["recall"][k]["worst"], cell["recall"][k]["best"]) for k in ("1", "2")]
    assert bounds[0] == pytest.approx(((1 / 2 + 0 + 0) / 3, (1 / 2 + 1 / 2 + 0) / 3), abs=1e-6)
    assert bounds[1] == pytest.approx(((1 / 2 + 1 / 2 + 1) / 3, 1), abs=1e-6)
    assert cell["tie_rate"] == pytest.approx(2 / 3, abs=1e-6)
    assert cell["all_tied"] == 1
    assert cell["recall"]["1"]["ceiling"] == pytest.approx((1 / 2 + 1 / 2 + 1) / 3, abs=1e-6)


def test_pools_of_different_sizes_have_a_chance_of_their_own(write: Write, tmp_path: Path) -> None:
    found = report(write(*several()), tmp_path / "run", ks=(1, 2, 3))
    summary = found.to_json()
    [cell] = summary["cells"]
    # The largest has two distractors beside two golds; pools hold 4, 3 and 2 memories.
    assert (cell["distractors"], cell["pool_size"]) == (2, 4)
    assert cell["pool_sizes"] == {"min": 2, "median": 3.0, "max": 4}
    chance = [cell["recall"][k]["chance"] for k in ("1", "2", "3")]
    wanted = [(1 / 4 + 1 / 3 + 1 / 2) / 3, (2 / 4 + 2 / 3 + 1) / 3, (3 / 4 + 1 + 1) / 3]
    assert chance == pytest.approx(wanted, abs=1e-6)
    assert cell["recall_all"]["2"]["chance"] == pytest.approx((1 / 6 + 1 / 3 + 1) / 3, abs=1e-6)
    assert [cell["recall"][k]["trivial_pools"] for k in ("1", "2", "3")] == [0, 1, 2]
    assert [cell["recall"][k]["trivial"] for k in ("1", "2", "3")] == [False] * 3
    shown = "\n".join(remarks(found))
    assert "mine at 2: pools of 2 to 4 memories, median 3" in shown
    assert "R@3 is trivial in 2 pools of at most 3 memories" in shown
    assert "R@1 cannot exceed 0.667: some queries have more than 1 gold" in shown


def test_a_constant_scorer_gets_chance_in_every_figure(write: Write, tmp_path: Path) -> None:
    [cell] = sweep(write(*several()), tmp_path / "run", name="constant")["cells"]
    for name in ("recall", "recall_any", "recall_all", "ndcg"):
        for figures in cell[name].values():
            assert figures["mean"] == figures["chance"] > 0 or name == "recall_all"
    assert cell["reciprocal_rank"]["mean"] == cell["reciprocal_rank"]["chance"]
    assert cell["all_tied"] == 3


def test_k_beyond_every_pool_is_trivial(write: Write, tmp_path: Path) -> None:
    found = report(write(*several()), tmp_path / "run", ks=(1, 4))
    summary = found.to_json()
    assert summary["cells"][0]["recall"]["4"]["trivial"]
    assert "R@4 is trivial, k >= pool of 4" in "\n".join(remarks(found))


def test_abstentions_are_counted_apart(write: Write, tmp_path: Path) -> None:
    path = write(*several())
    result = command("--data", path, "--out", tmp_path / "run", "--k", "1", "--json", code=0)
    summary = json.loads(result.stdout)
    assert summary["abstentions"] == 1
    assert summary["cells"][0]["attempted"] == summary["cells"][0]["scored"] == 3
    assert summary["data"]["queries"] == 3
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["abstentions"] == 1
    assert "queries without gold (abstention): 1, counted apart" in result.stderr
    assert load_custom(path).abstentions == ("4",)
    assert Memory("1 j") in load_custom(path).bank


def columns(summary: SweepSummary) -> dict[str, str]:
    table = build_table(summary, {})
    [row] = table.rows
    return dict(zip(table.columns, row, strict=True))


def test_the_table_has_columns_for_any_and_all(write: Write, tmp_path: Path) -> None:
    found = report(write(*several()), tmp_path / "run")
    shown = columns(found)
    assert list(shown) == [
        *("retriever", "distractors", "R@1 [95 %]", "worst-best", "R@2"),
        *("any@1", "all@1", "any@2", "all@2"),
        *("E[RR]", "tied", "chance", "attempted", "scored", "failed", "prep + score"),
    ]
    assert [shown[f"{name}@{k}"] for name in ("any", "all") for k in (1, 2)] == [
        *("0.556", "1.000", "0.000", "0.611")
    ]
    assert (shown["chance"], shown["tied"], shown["scored"]) == ("0.3611", "66.7%", "3")
    shown = "\n".join(remarks(found))
    assert "R@k: share of a query's golds found; any@k, all@k" in shown
    assert title(found) == "Task 3, file my.jsonl: 3 queries, pools as given"


def test_with_one_gold_a_query_no_column_is_added(write: Write, tmp_path: Path) -> None:
    found = report(write(small(), small([1])), tmp_path / "run")
    assert "recall_any" not in found.to_json()["cells"][0]
    assert not [head for head in columns(found) if head.startswith(("any", "all"))]
    assert [row["gold"] for row in rows_of(tmp_path / "run")] == [0, 1]


def test_sessions_are_what_intervals_are_resampled_by(write: Write, tmp_path: Path) -> None:
    rows = [small(int(i % 3 == 0), session=f"user {i // 4}") for i in range(24)]
    [cell] = sweep(write(*rows), tmp_path / "run", ks=(1,))["cells"]
    hits = np.array([float(row["gold"] == 0) for row in rows])
    interval = Bootstrap([row["session"] for row in rows], 0).interval(hits)
    figures = cell["recall"]["1"]
    wanted = (interval.mean, interval.low, interval.high)
    assert [figures[key] for key in ("mean", "low", "high")] == pytest.approx(wanted, abs=1e-6)
    for row in rows:
        del row["session"]
    [alone] = sweep(write(*rows, name="alone.jsonl"), tmp_path / "alone", ks=(1,))["cells"]
    assert alone["recall"]["1"]["mean"] == figures["mean"]
    assert alone["recall"]["1"] != figures


@pytest.mark.parametrize("pools", ["released", "nested"])
def test_no_retriever_sees_an_id_a_session_or_a_gold(
    write: Write, tmp_path: Path, pools: str
) -> None:
    assert {field.name for field in fields(Memory)} == {"text", "label"}
    seen = []
    for gold in (0, 1):
        rows = [
            {
                "id": f"SECRET {i}",
                "session": "SECRET user",
                "query": f"query {i}",
                "memories": [
                    {"text": f"{j} of {i}", "id": f"SECRET-{j}", "gold": "SECRET", "label": "open"}
                    for j in range(3)
                ],
                "gold": [gold, 2],
            }
            for i in range(4)
        ]
        Spy.seen = []
        sizes = {"distractors": (1,)} if pools == "nested" else {}
        path = write(*rows, name=f"{gold}.jsonl")
        sweep(path, tmp_path / str(gold), name=f"{__name__}:Spy", pools=pools, **sizes)
        # Prepared once, and each query scored twice more to see that nothing is kept of others.
        assert len(Spy.seen) == 1 + 4 + 2 * 4
        assert "SECRET" not in repr(Spy.seen)
        assert all(type(memory) is Memory for _, pool in Spy.seen for memory in pool)
        seen.append(Spy.seen)
    # Another gold in the same pools: nothing that a retriever is given changes.
    if pools == "released":
        assert seen[0] == seen[1]


# A run like any other


def many(count: int = 12) -> list[Row]:
    """Queries with one, two or three golds in pools of 4 to 8."""
    return [
        {
            "id": f"q{i}",
            "session": f"user {i // 3}",
            "query": f"topic {i} colour",
            "memories": [
                f"{i * j % 5} topic {i * j % 7} note {j} of {i}" for j in range(4 + i % 5)
            ],
            "gold": list(range(1 + i % 3)),
        }
        for i in range(count)
    ]


def test_kill_9_and_resume_end_in_equal_bytes(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "late.py").write_text(SLOW)
    write(*many(40))
    words = ["--data", "my.jsonl", "--keep-scores"]
    words += ["--retriever", "late:Slow", "--k", "1,2", "--out"]
    process = start_and_hold(tmp_path, "Slow 20", [*words, "broken/run"], rows=16)
    process.kill()
    process.wait()
    assert row_count(tmp_path / "broken" / "run") == 16
    finish([*words, "broken/run", "--resume"])
    finish([*words, "unbroken/run"])
    unbroken, broken = (tmp_path / side / "run" for side in ("unbroken", "broken"))
    assert_equal_runs(unbroken, broken, (*PROMISED, "scores.jsonl"))
    assert any(isinstance(row["gold"], list) for row in rows_of(tmp_path / "broken" / "run"))


def test_a_changed_line_is_other_data(write: Write, tmp_path: Path) -> None:
    path = write(*several())
    sweep(path, tmp_path / "run")
    write(*[{**row, "query": row["query"] + "?"} for row in several()])
    result = run(
        sweep_app,
        *("--retriever", f"mine={__name__}:Stated", "--data", str(path), "--k", "1,2"),
        *("--out", str(tmp_path / "run"), "--resume"),
    )
    one_line_error(result, "they differ in data.sha256")


def test_compare_and_curves_read_such_a_run(write: Write, tmp_path: Path) -> None:
    path = write(*several())
    command(
        *("--data", path, "--out", tmp_path / "run", "--k", "1,2"),
        *("--retriever", f"mine={__name__}:Stated"),
        code=0,
    )
    sides = [f"{tmp_path / 'run'}:mine", f"{tmp_path / 'run'}:overlap"]
    compared = run(compare_app, *sides, "--k", "1,2", "--json", code=0)
    found = {entry["k"]: entry for entry in json.loads(compared.stdout)}
    assert found[1]["a"] == pytest.approx((1 / 2 + 1 / 3) / 3)
    assert found[2]["a"] == pytest.approx((3 / 4 + 2 / 3 + 1) / 3)
    assert found[1]["n"] == 3
    picture = tmp_path / "both.png"
    words = [str(tmp_path / "run"), "--k", "2", "--out", str(picture)]
    run(curves_app, *words, code=0)
    assert picture.stat().st_size > 1000
    table = picture.with_suffix(".csv").read_text()
    for name in ("any@2", "all@2", "nDCG@2"):
        assert name in table
    assert (tmp_path / "run" / "curve.png").exists()


def test_nested_pools_of_ones_own_file_make_a_curve(write: Write, tmp_path: Path) -> None:
    path = write(*bank_of_twenty())
    words = ("--pools", "nested", "--distractors", "2,5,15", "--pool-seeds", "0,1", "--k", "1")
    result = command("--data", path, "--out", tmp_path / "run", *words, "--json", code=0)
    cells = json.loads(result.stdout)["cells"]
    assert [cell["distractors"] for cell in cells] == [2, 5, 15]
    assert [cell["attempted"] for cell in cells] == [20, 20, 20]
    # Six queries have one gold, four have two: pools of 16 and of 17 memories.
    assert cells[2]["pool_sizes"] == {"min": 16, "median": 16.0, "max": 17}
    wanted = (6 / 16 + 4 / 17) / 10
    assert cells[2]["recall"]["1"]["chance"] == pytest.approx(wanted, abs=1e-6)


def test_a_file_is_no_release_where_one_is_needed(write: Write) -> None:
    from recallbed.corpus.layout import split_folder

    with pytest.raises(DataError, match="is a file, and this needs a release"):
        split_folder(write(small()), "dev")
