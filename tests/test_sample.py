"""The embedded sample keeps its promises: size, languages, dimensions, wording, provenance."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from indexes.tokens import MultilingualTokens
from recallbed.corpus import sample_root
from recallbed.corpus.build_sample import DISTRACTORS, build, read_sessions
from recallbed.corpus.dataset import Dataset, load_dataset
from recallbed.corpus.pools import build_pools
from task3.sweep import app
from tests.kit import run

FILES = [
    f"dev/{track}/{name}.jsonl"
    for track in ("task1", "task2", "task3/d100", *(f"task4_ability{n}" for n in range(1, 6)))
    for name in ("model_input", "reference_output")
]
DIMENSIONS = {"PA", "PF", "VRA", "CF", "EI"}
tokens = MultilingualTokens()


@pytest.fixture(scope="module")
def sample() -> Dataset:
    return load_dataset(sample_root(), "dev", (100,))


@pytest.fixture(scope="module")
def metadata() -> dict[str, dict[str, Any]]:
    """The metadata of each query. The loader leaves it behind, so it is read from the file."""
    path = sample_root() / "dev" / "task3" / "d100" / "model_input.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
    return {row["benchmark_id"]: row["input"]["metadata"] for row in rows}


def content(text: str) -> set[str]:
    return set(tokens(text).content)


def test_queries_and_bank_are_as_many_as_promised(sample: Dataset) -> None:
    assert len(sample.smallest.rows) >= 120
    assert len({memory.text for memory in sample.bank}) >= 1500
    # No two queries in the same words: no recall is capped by rivals.
    assert len({row.query for row in sample.smallest.rows}) == len(sample.smallest.rows)


def test_the_default_sizes_can_be_built_for_every_query(sample: Dataset) -> None:
    pools = build_pools(sample, "nested", [100, 300, 500, 700, 1000], [0])
    assert {len(pool) for pool in pools.pools[1000, 0]} == {1001}


def test_six_languages_at_the_least(metadata: dict[str, dict[str, Any]]) -> None:
    counts = Counter(entry["language"] for entry in metadata.values())
    for language in ("English", "Chinese", "Spanish", "French", "Arabic", "Russian"):
        assert counts[language] >= 10, language
    assert len(counts) > 6


@pytest.mark.parametrize(
    ("language", "first", "last"),
    [
        ("Chinese", "\u4e00", "\u9fff"),
        ("Arabic", "\u0600", "\u06ff"),
        ("Russian", "\u0400", "\u04ff"),
        ("English", "A", "z"),
        ("Spanish", "A", "\u024f"),
        ("French", "A", "\u024f"),
    ],
)
def test_queries_are_written_in_the_language_they_name(
    sample: Dataset, metadata: dict[str, dict[str, Any]], language: str, first: str, last: str
) -> None:
    for row in sample.smallest.rows:
        if metadata[row.benchmark_id]["language"] == language:
            letters = [c for c in row.query if c.isalpha()]
            inside = sum(first <= c <= last for c in letters)
            # A Chinese query may well speak of Python.
            assert inside > 0.6 * len(letters), row.benchmark_id


def test_all_five_dimensions_evenly(metadata: dict[str, dict[str, Any]]) -> None:
    counts = Counter(entry["dimension"] for entry in metadata.values())
    assert set(counts) == DIMENSIONS
    assert min(counts.values()) >= len(metadata) / 10


def test_explicit_and_implicit_memories(metadata: dict[str, dict[str, Any]]) -> None:
    counts = Counter(entry["type"] for entry in metadata.values())
    assert set(counts) == {"direct", "indirect"}
    assert min(counts.values()) >= 0.4 * len(metadata)


def test_about_half_the_queries_share_a_content_word_with_their_gold(
    sample: Dataset, metadata: dict[str, dict[str, Any]]
) -> None:
    shares = {
        row.benchmark_id: bool(content(row.query) & content(row.gold_memory.text))
        for row in sample.smallest.rows
    }
    assert 0.4 <= sum(shares.values()) / len(shares) <= 0.6
    # What the authors say of each row is what the tokens find, but for a few forms of a word.
    agree = sum(metadata[name]["shares_word"] == found for name, found in shares.items())
    assert agree >= 0.95 * len(shares)


@pytest.mark.parametrize("language", ["English", "Chinese"])
def test_both_kinds_of_query_exist_in_each_large_language(
    sample: Dataset, metadata: dict[str, dict[str, Any]], language: str
) -> None:
    rows = [r for r in sample.smallest.rows if metadata[r.benchmark_id]["language"] == language]
    shared = sum(bool(content(row.query) & content(row.gold_memory.text)) for row in rows)
    assert 0.3 < shared / len(rows) < 0.7


def test_near_misses_are_in_the_bank_and_near(sample: Dataset) -> None:
    bank = {memory.text for memory in sample.bank}
    near = other = 0
    for session in read_sessions():
        subject = content(session["query"]) | content(session["gold"]["value"])
        misses = [memory["value"] for memory in session["near"] if memory["value"] in bank]
        assert misses
        near += any(subject & content(text) for text in misses)
        strangers = [memory["value"] for memory in session["other"]][: len(misses)]
        other += any(subject & content(text) for text in strangers)
    # Most share words with query or gold; memories on other subjects hardly ever do.
    assert near > 0.75 * len(sample.smallest.rows) > 3 * other


def test_pools_look_like_the_released_ones(sample: Dataset) -> None:
    repeats = 0
    for row in sample.smallest.rows:
        texts = [memory.text for memory in row.candidates]
        assert len(texts) == DISTRACTORS + 1
        assert texts.count(row.gold_memory.text) == 1
        repeats += len(set(texts)) < len(texts)
        assert not sample.own[row.session_id] - {row.gold_memory.text} & set(texts)
        assert row.gold_memory.text in sample.own[row.session_id]
        assert len(set(row.memory_ids)) == len(row.memory_ids)
    assert sample.smallest.repeated_ids == 0
    assert repeats > len(sample.smallest.rows) / 2  # some distractors repeat
    assert not sample.smallest.repairs


def test_the_released_place_of_the_gold_is_spread(sample: Dataset) -> None:
    tenths = Counter((row.gold or 0) * 10 // 101 for row in sample.smallest.rows)
    assert len(tenths) == 10
    assert max(tenths.values()) < 0.2 * len(sample.smallest.rows)


def test_every_memory_was_written_once() -> None:
    sessions = read_sessions()
    texts = [
        memory["value"]
        for session in sessions
        for memory in (session["gold"], *session["own"], *session["near"], *session["other"])
    ]
    assert len(set(texts)) == len(texts)
    assert len({session["id"] for session in sessions}) == len(sessions)


def test_rebuilding_gives_the_committed_files(tmp_path: Path) -> None:
    build(tmp_path, read_sessions())
    built = sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file())
    assert built == sorted(FILES)
    for name in FILES:
        assert (tmp_path / name).read_bytes() == (sample_root() / name).read_bytes(), name


@pytest.mark.parametrize("name", FILES)
def test_rows_have_no_field_that_the_release_does_not_know(name: str, alpsbench: Path) -> None:
    ours, theirs = (
        json.loads((root / name).read_text(encoding="utf-8").split("\n")[0])
        for root in (sample_root(), alpsbench)
    )
    for row in (ours, theirs):
        # Free-form on both sides; no loader reads it.
        row.get("input", {}).pop("metadata", None)
    assert set(key_paths(ours)) <= set(key_paths(theirs))


def key_paths(value: Any, path: str = "") -> list[str]:
    if isinstance(value, dict):
        inner = [key_paths(item, f"{path}.{key}") for key, item in value.items()]
        return [f"{path}.{key}" for key in value] + sum(inner, [])
    if isinstance(value, list):
        return sum((key_paths(item, path + "[]") for item in value), [])
    return []


def test_nothing_is_taken_from_the_benchmark(alpsbench: Path) -> None:
    def runs(data: Dataset) -> set[tuple[str, ...]]:
        texts = [m.text for m in data.bank] + [row.query for row in data.smallest.rows]
        words = [tokens(text).every for text in texts]
        return {w[i : i + 8] for w in words for i in range(len(w) - 7)}

    ours, theirs = load_dataset(sample_root(), "dev"), load_dataset(alpsbench, "dev")
    assert not {m.text for m in ours.bank} & {m.text for m in theirs.bank}
    assert not runs(ours) & runs(theirs)


def test_its_figures_are_called_a_samples(tmp_path: Path) -> None:
    out = tmp_path / "run"
    arguments = ["--retriever", "constant", "--distractors", "100", "--limit", "4"]
    result = run(app, *arguments, "--out", out, code=0)
    assert "sample, not AlpsBench" in " ".join(result.stdout.split())
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert summary["data"]["sample"] is True
