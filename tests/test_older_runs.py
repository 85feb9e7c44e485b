"""Run folders, prediction files and stores of the version before: see fixtures/older_runs."""

import json
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer import Typer

from analysis import compare, curves, export, frontier
from indexes import search
from judges import agreement
from memory_systems import history
from recallbed.corpus import layout
from recallbed.harness.fingerprint import code_identity, versions
from task1 import run as task1_run
from task1 import score as task1_score
from task2 import run as task2_run
from task2 import score as task2_score
from task3 import answer, score, sweep
from task4 import run as task4_run
from task4 import score as task4_score
from tests.kit import one_line_error, read_json, read_lines, rows_of, run, run_json

ARCHIVE = Path(__file__).parent / "fixtures" / "older_runs" / "runs.tar.xz"
PRESENT: Mapping[str, Typer] = {
    "analysis.compare": compare.app,
    "indexes.search": search.app,
    "judge.agreement": agreement.app,
    "memory.history": history.app,
    "task1.score": task1_score.app,
    "task2.score": task2_score.app,
    "task3.score": score.app,
    "task4.score": task4_score.app,
}
"""The commands of the version before, by their names then."""
TWO = ("--retriever", "bm25", "--retriever", "okapi=bm25", "--set", "okapi.variant=okapi")
BM25 = ("--retriever", "bm25")
SIZES = ("--distractors", "5,10")
RERANKED = (
    *("--retriever", "bm25", "--retriever", "llm=listwise", "--limit", 4, "--distractors", 10),
    *("--set", "llm.model=openai:m", "--set", "llm.first_stage=bm25", "--k", "1,5"),
)
ANSWERS = (*BM25, "--depth", 3, "--chat-model", "openai:m", "--limit", 8)
RUNS: Mapping[str, tuple[Typer, tuple[object, ...]]] = {
    "sweep": (sweep.app, (*TWO, "--limit", 8, *SIZES, "--k", "1,5", "--keep-scores")),
    "two_seeds": (sweep.app, (*TWO, "--limit", 8, *SIZES, "--pool-seeds", "0,1")),
    "interrupted": (sweep.app, (*TWO, "--limit", 40, *SIZES)),
    "reranked": (sweep.app, RERANKED),
    "answers": (answer.app, ANSWERS),
    "task1": (task1_run.app, ("--system", "extractive", *BM25, "--limit", 3)),
    "task2": (task2_run.app, ("--system", "replace", *BM25, "--limit", 3)),
    "task4": (task4_run.app, ("--system", "extractive", *BM25, "--limit", 1)),
    "turns": (task1_run.app, ("--system", "turns", *BM25, "--limit", 1)),
    "judged1": (
        task1_score.app,
        ("task1/predictions.jsonl", "--scorer", "judge", "--chat-model", "openai:judge"),
    ),
    "judged3": (
        score.app,
        ("answers/predictions.jsonl", "--use", "judge", "--judge-model", "openai:judge"),
    ),
    "judged4": (task4_score.app, ("task4", "--judge-model", "openai:judge")),
}
"""The run folders, with the commands that made them but for the server's address."""
WITH_MODEL = ("reranked", "answers", "judged1", "judged3", "judged4")


ADDED = {
    *("grounding_proxy", "holm", "sides"),
    *("mcnemar", "mcnemar_reason", "effect", "effect_reason"),
}
"""Keys that reports have had since then."""


def recorded() -> list[dict[str, Any]]:
    with tarfile.open(ARCHIVE) as archive:
        stream = archive.extractfile("recorded.json")
        assert stream is not None
        commands: list[dict[str, Any]] = json.load(stream)
    return commands


@pytest.fixture
def older(tmp_path: Path, flawed_sample: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of the version before, in the working folder; its sample is the embedded one."""
    monkeypatch.setattr(layout, "__file__", str(flawed_sample.parent / "layout.py"))
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command_of(name: str) -> tuple[Typer, list[object]]:
    """The command that made a run folder, with `--resume`.

    Its model's address is the one of then, part of the fingerprint; nothing listens there.
    """
    app, words = RUNS[name]
    chat: tuple[str, ...] = ()
    if name in WITH_MODEL:
        [address] = set(re.findall(r"http://[\d.:]+/v1", Path(name, "manifest.json").read_text()))
        chat = ("--base-url", address, "--replies", "none")
    return app, [*words, *chat, "--out", name, "--resume"]


def make_present(name: str) -> None:
    """Let the manifest of an older run name the present code and libraries, and nothing else."""
    manifest = read_json(f"{name}/manifest.json")
    fingerprint = manifest["fingerprint"]
    fingerprint["code"] = code_identity()
    if "libraries" in fingerprint:
        fingerprint["libraries"] = versions(set(fingerprint["libraries"]) - {"python"})
    Path(name, "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("case", recorded(), ids=lambda case: " ".join(case["command"][:3]))
def test_a_command_prints_the_same_for_an_older_file(case: dict[str, Any], older: Path) -> None:
    module, *words = case["command"]
    found = json.loads(run(PRESENT[module], *words, code=0).stdout)
    for one in found if isinstance(found, list) else [found]:
        for key in ADDED & {*one}:
            del one[key]
    assert found == in_present_words(case["stdout"], found)


RENAMED = {
    **{"lines_of_no_session": "lines_of_no_query", "others": "lines_of_no_query"},
    **{"empty": "null_or_empty", "unusable": "without_benchmark_id", "mended": "repaired"},
}
"""Keys of the tasks' scores that now are those of task 3."""


def in_present_words(old: Any, new: Any) -> Any:
    """`old` with the keys of today; causes and coverage that it did not report are as in `new`."""
    if not isinstance(old, dict):
        return old
    told = {RENAMED.get(key, key): value for key, value in old.items()}
    found = {key: in_present_words(value, new.get(key, {})) for key, value in told.items()}
    added = {"null_or_empty", "coverage"} & {*new} if {"answered", "missing"} & {*told} else set()
    return {**{key: new[key] for key in added}, **found}


def with_summary_keys(old: Any) -> Any:
    """A summary with the keys that sweeps write today."""
    names = {"a_query": "per_query", "mended": "repaired"}
    if isinstance(old, list):
        return [with_summary_keys(value) for value in old]
    if not isinstance(old, dict):
        return old
    return {names.get(key, key): with_summary_keys(value) for key, value in old.items()}


def test_older_runs_are_drawn_and_exported_as_before(older: Path) -> None:
    run(curves.app, "sweep", "two_seeds", "--k", 5, "--out", "again.png", code=0)
    assert (older / "again.csv").read_text() == (older / "curves.csv").read_text()
    run(frontier.app, "reranked", "--out", "again2.png", code=0)
    assert (older / "again2.csv").read_text() == (older / "frontier.csv").read_text()
    run(export.app, "sweep", "--out", "again", code=0)
    run(export.app, "sweep", "--what", "pools", "--out", "again", code=0)
    for before in (*older.glob("exported/*"), *older.glob("pools/*")):
        assert (older / "again" / before.name).read_bytes() == before.read_bytes(), before


@pytest.mark.parametrize("name", RUNS)
def test_an_older_run_is_not_resumed_and_the_differing_field_is_named(
    name: str, older: Path
) -> None:
    app, words = command_of(name)
    one_line_error(run(app, *words), f"{name}: ", "code.sha256", "--overwrite", after_notes=True)


@pytest.mark.parametrize("name", [name for name in RUNS if name != "interrupted"])
def test_a_finished_run_of_the_same_code_and_libraries_is_resumed(name: str, older: Path) -> None:
    """All other fields of the fingerprint and the rows are as the present version writes them."""
    make_present(name)
    before = {
        file: (older / name / file).read_text()
        for file in ("rows.jsonl", "predictions.jsonl", "summary.json")
        if (older / name / file).exists()
    }
    app, words = command_of(name)
    run(app, *words, code=0)
    for file, text in before.items():
        after = (older / name / file).read_text()
        if file == "summary.json":
            assert json.loads(after) == with_summary_keys(json.loads(text))
        else:
            assert after == text, file


def test_an_interrupted_run_of_the_same_code_and_libraries_is_finished(older: Path) -> None:
    make_present("interrupted")
    kept = rows_of("interrupted")
    assert len(kept) == 40
    app, words = command_of("interrupted")
    run(app, *words, code=0)
    assert rows_of("interrupted")[:40] == kept
    app, words = RUNS["interrupted"]
    run(app, *words, "--out", "unbroken", code=0)
    assert rows_of("interrupted") == rows_of("unbroken")
    assert len(rows_of("interrupted")) == 160


def test_rows_of_the_present_version_are_those_of_the_version_before(older: Path) -> None:
    app, words = RUNS["sweep"]
    run(app, *words, "--out", "again", code=0)
    assert rows_of("again") == rows_of("sweep")
    assert read_lines("again/scores.jsonl") == read_lines("sweep/scores.jsonl")
    assert read_json("again/summary.json") == with_summary_keys(read_json("sweep/summary.json"))


def test_an_older_settings_file_is_used(older: Path) -> None:
    words = ("--retriever", "bm25", "--set", "@tuned.json", "--limit", 8, *SIZES)
    run(sweep.app, *words, "--out", "tuned", code=0)
    [described] = read_json("tuned/manifest.json")["fingerprint"]["retrievers"]
    assert described["settings"]["k1"] == 0.9
    tuned_on = read_json("tuned.json")["rows"]
    assert described["fitted_on"] == [tuned_on]


def test_a_sweep_over_an_older_embedding_store_ranks_as_before(older: Path) -> None:
    """Vectors themselves are used only by the same libraries: their versions are in its key."""
    words = ("--data", "own.jsonl", "--retriever", "minilm", "--store", "vectors.sqlite", "--k", 1)
    run(sweep.app, *words, "--out", "again", code=0)
    [before, after] = ([row["top"] for row in rows_of(path)] for path in ("own", "again"))
    assert [[place for place, _ in top] for top in after] == [
        [place for place, _ in top] for top in before
    ]


def test_an_older_flat_index_is_searched(older: Path) -> None:
    [found] = [run_json(search.app, "flat", "a pet that purrs", "-k", 1)]
    assert found["hits"][0]["text"] == "Owns a cat"
