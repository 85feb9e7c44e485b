"""`python -m task3.predict`: official rows, ties that no position decides, failures counted."""

import gzip
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result

from analysis.official import choose
from recallbed.corpus.records import Memory, Task3Row, bank_of
from task3.predict import app
from task3.score import score_choices
from tests.kit import WriteRelease, one_line_error, python, read_lines, run

KEYS = ["benchmark_id", "answer", "reason", "selected_memory_id"]
POOLS = [
    ("any tea at home", ["drinks tea", "has a cat", "sleeps late", "owns boats"], 0),
    ("which novels", ["paints walls", "reads novels", "grows beans", "plays chess"], 1),
    ("nothing in common", ["red", "green", "blue", "white"], 2),
]
MINE = """
from retrievers import Retriever, RetrieverError

class Length(Retriever):
    def score(self, query, pool):
        return [len(memory.text) for memory in pool]

class Choosy(Length):
    def score(self, query, pool):
        if "tea" in query:
            raise RetrieverError("over quota")
        if "novels" in query:
            raise ZeroDivisionError("by nought")
        return super().score(query, pool)

class Dead(Retriever):
    def score(self, query, pool):
        raise RetrieverError("over\\nquota")

class Nan(Retriever):
    def score(self, query, pool):
        return [float("nan")] * len(pool)

class Unprepared(Length):
    def prepare(self, queries, memories):
        raise RuntimeError("no model")

class Stopped(Length):
    def score(self, query, pool):
        raise KeyboardInterrupt

class Full(Length):
    def score(self, query, pool):
        raise MemoryError("8 GiB")
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "owned.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "owned", raising=False)
    return tmp_path


@pytest.fixture
def root(write_release: WriteRelease) -> Path:
    return write_release(POOLS)


def predict(
    root: Path, name: str, *words: str, out: str = "p.jsonl", code: int | None = None
) -> Result:
    return run(app, "--data", root, "--retriever", name, "--out", out, *words, code=code)


def test_rows_have_the_official_keys_in_order(root: Path, place: Path) -> None:
    result = predict(root, "owned:Length")
    assert (result.exit_code, result.stdout) == (0, "")
    rows = read_lines(place / "p.jsonl")
    assert [list(row) for row in rows] == [KEYS] * 3
    assert [row["benchmark_id"] for row in rows] == ["q0", "q1", "q2"]
    for row, (_, texts, _) in zip(rows, POOLS, strict=True):
        assert row["answer"] == texts[int(row["selected_memory_id"][1:])]
        assert len(row["answer"]) == max(map(len, texts))
    assert "3 rows, 2 of them" in result.stderr


def test_the_reason_gives_score_and_ties(root: Path, place: Path) -> None:
    predict(root, "mine=owned:Length")
    reasons = [row["reason"] for row in read_lines(place / "p.jsonl")]
    assert reasons == [
        "mine: highest score 11, tied with none",
        "mine: highest score 12, tied with 1 other",
        "mine: highest score 5, tied with 1 other",
    ]


def test_references_are_not_read(root: Path, place: Path) -> None:
    predict(root, "bm25", out="with.jsonl")
    (root / "dev" / "task3" / "d3" / "reference_output.jsonl").unlink()
    assert predict(root, "bm25", out="without.jsonl").exit_code == 0
    assert (place / "with.jsonl").read_bytes() == (place / "without.jsonl").read_bytes()


def test_the_smallest_pool_unless_a_size_is_named(
    root: Path, write_release: WriteRelease, place: Path
) -> None:
    write_release([(q, [*texts, f"a much longer text {q}"], 0) for q, texts, _ in POOLS])
    predict(root, "owned:Length", out="small.jsonl")
    predict(root, "owned:Length", "--size", "4", out="large.jsonl")
    assert not any("longer" in row["answer"] for row in read_lines(place / "small.jsonl"))
    assert all("longer" in row["answer"] for row in read_lines(place / "large.jsonl"))
    one_line_error(predict(root, "bm25", "--size", "7", out="x"), "7 distractors", "3, 4")


# Ties.

MANY = [(f"question {i}", [f"fact {i} {j}" for j in range(5)], 0) for i in range(60)]


def chosen(root: Path, place: Path, *words: str) -> dict[str, str]:
    assert predict(root, "constant", "--overwrite", *words).exit_code == 0
    return {row["benchmark_id"]: row["answer"] for row in read_lines(place / "p.jsonl")}


def test_the_order_of_a_pool_decides_no_tie(write_release: WriteRelease, place: Path) -> None:
    straight = chosen(write_release(MANY), place)
    turned = chosen(write_release([(q, texts[::-1], 4) for q, texts, _ in MANY]), place)
    assert straight == turned
    ends = [int(answer[-1]) for answer in straight.values()]
    assert all(4 <= ends.count(j) <= 22 for j in range(5))  # 12 expected


def test_only_the_seed_decides_ties(write_release: WriteRelease, place: Path) -> None:
    root = write_release(MANY)
    first, second = chosen(root, place), chosen(root, place)
    assert first == second
    other = chosen(root, place, "--seed", "1")
    assert 30 <= sum(first[query] != other[query] for query in first) < 60
    assert predict(root, "owned:Length", "--overwrite", "--seed", "1").exit_code == 0


def test_the_query_has_a_part_in_it(write_release: WriteRelease, place: Path) -> None:
    texts = [f"fact {j}" for j in range(5)]
    answers = chosen(write_release([(f"question {i}", texts, 0) for i in range(60)]), place)
    assert set(answers.values()) == set(texts)


def test_one_text_under_two_ids_is_settled_without_its_position() -> None:
    memories = (Memory("likes tea"), Memory("likes tea"), Memory("has a cat"))
    row = Task3Row("q", "q", "tea", memories, ("m7", "m2", "m1"), 1)
    turned = Task3Row("q", "q", "tea", memories, ("m2", "m7", "m1"), 1)
    scores = np.array([1, 1, 0], np.float32)
    assert choose(scores, row, 0) == (1, 2)
    assert choose(scores, turned, 0) == (0, 2)


def test_scores_equal_in_float32_are_ties(root: Path, place: Path) -> None:
    (place / "near.py").write_text(
        "from retrievers import Retriever\n"
        "class Near(Retriever):\n"
        "    def score(self, query, pool):\n"
        "        return [1 + i * 1e-12 for i in range(len(pool))]\n"
    )
    predict(root, "near:Near")
    rows = read_lines(place / "p.jsonl")
    assert all(row["reason"].endswith("score 1, tied with 3 others") for row in rows)


def test_the_bank_is_the_distinct_memories_of_the_file() -> None:
    pools = [("b", "a", "b"), ("c", "a")]
    rows = [
        Task3Row("q", "q", "?", tuple(Memory(t, f"label {i}") for t in pool), pool, i)
        for i, pool in enumerate(pools)
    ]
    assert bank_of(rows) == (Memory("a", "label 0"), Memory("b", "label 0"), Memory("c", "label 1"))


# Failures.


def test_a_failed_query_is_counted_by_cause(root: Path, place: Path) -> None:
    result = predict(root, "owned:Choosy", code=0)
    assert [row["benchmark_id"] for row in read_lines(place / "p.jsonl")] == ["q2"]
    assert result.stderr.splitlines()[-1] == (
        "no row for 2 of 3 queries (over quota: 1; ZeroDivisionError: by nought (owned.py:13): 1)"
    )


MISTAKES = {
    "owned:Dead": ["not one of 3 queries", "over quota: 3"],
    "owned:Nan": ["not one of 3 queries", "not finite at position 0: 3"],
    "owned:Unprepared": ["Unprepared", "RuntimeError: no model"],
    "owned:Full": ["Full", "out of memory", "8 GiB"],
    "owned:Gone": ["Gone"],
    "bm26": ["bm26", "bm25, "],
}


@pytest.mark.parametrize("name", MISTAKES)
def test_nothing_scored_writes_no_file(root: Path, place: Path, name: str) -> None:
    one_line_error(predict(root, name), *MISTAKES[name])
    assert not list(place.glob("*p.jsonl*"))


def test_a_stop_leaves_nothing(root: Path, place: Path) -> None:
    assert predict(root, "owned:Stopped").exit_code == 130
    assert not list(place.glob("*p.jsonl*"))


def test_one_retriever_and_no_less(root: Path, place: Path) -> None:
    one_line_error(predict(root, "bm25", "--retriever", "overlap"), "uses one of", "--label")
    one_line_error(run(app, "--data", root, "--out", "p.jsonl"), "--retriever bm25")
    assert not (place / "p.jsonl").exists()


# The file.


def test_an_existing_file_is_not_overwritten(root: Path, place: Path) -> None:
    (place / "p.jsonl").write_text("mine")
    one_line_error(predict(root, "bm25"), "p.jsonl", "--overwrite")
    one_line_error(predict(root, "owned:Dead", "--overwrite"), "over quota")
    assert (place / "p.jsonl").read_text() == "mine"
    assert predict(root, "bm25", "--overwrite").exit_code == 0
    assert len(read_lines(place / "p.jsonl")) == 3


@pytest.mark.parametrize("out", ["release", "gone/p.jsonl", "owned.py/p.jsonl"])
def test_an_unwritable_out_is_one_line(root: Path, place: Path, out: str) -> None:
    one_line_error(predict(root, "bm25", "--overwrite", out=out), out)


def test_a_name_in_gz_is_compressed(root: Path, place: Path) -> None:
    predict(root, "bm25")
    predict(root, "bm25", out="p.jsonl.gz")
    assert gzip.decompress((place / "p.jsonl.gz").read_bytes()) == (place / "p.jsonl").read_bytes()
    assert score_choices(place / "p.jsonl.gz", root, "dev", None).all.counts.answered == 3


def test_unencodable_text_is_written_repaired(write_release: WriteRelease, place: Path) -> None:
    root = write_release([("tea\ud83d?", ["tea\ud83d \u0000\u2028 one", "cat"], 0)])
    assert predict(root, "owned:Length").exit_code == 0
    [row] = [json.loads(line) for line in (place / "p.jsonl").read_bytes().split(b"\n")[:-1]]
    assert row["answer"] == "tea\ufffd \ufffd\u2028 one"
    assert score_choices(place / "p.jsonl", root, "dev", 1).all.counts.causes["correct"].count == 1


def test_what_names_the_gold_is_not_seen(write_release: WriteRelease, place: Path) -> None:
    (place / "spy.py").write_text(
        "from retrievers import Retriever\n"
        "seen = []\n"
        "class Spy(Retriever):\n"
        "    @classmethod\n"
        "    def from_run(cls, settings, run):\n"
        "        seen.append(run)\n"
        "        return cls()\n"
        "    def prepare(self, queries, memories):\n"
        "        seen.extend([queries, memories])\n"
        "    def score(self, query, pool):\n"
        "        seen.extend([query, pool])\n"
        "        return [0] * len(pool)\n"
    )
    root = write_release(POOLS, ids=["one_id", "two_id", "three_id", "four_id"])
    assert predict(root, "spy:Spy").exit_code == 0
    import spy  # type: ignore[import-not-found]

    asked = spy.seen[3:]  # behind the run, its queries and memories
    assert len(asked) == 2 * (3 + 2 * 3)  # each query once, and twice more by the order check
    assert not any(word in repr(spy.seen) for word in ("_id", "secret", "q1"))


# The command.


def test_python_m_on_the_sample(tmp_path: Path) -> None:
    words = ("-m", "task3.predict", "--retriever", "overlap")
    assert python(*words, cwd=tmp_path).stdout == ""
    assert len(read_lines(tmp_path / "predictions.jsonl")) == 164
    one_line_error(python(*words, cwd=tmp_path, code=2))
