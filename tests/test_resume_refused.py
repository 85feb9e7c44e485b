"""Resuming a run with other settings or code, and two runs in one folder."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from task3.sweep import app
from tests.kit import WriteRelease

OWN = """
from retrievers import Retriever

class Same(Retriever):
    '''Shared words, each worth `weight`.'''

    def __init__(self, weight: float = 1.0):
        self.weight = weight

    def score(self, query, pool):
        words = set(query.split())
        return [self.weight * len(words & set(memory.text.split())) for memory in pool]
"""
PROMISED = ("manifest.json", "rows.jsonl", "summary.json", "curve.csv")


@pytest.fixture
def place(write_release: WriteRelease, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a release of eight queries and two modules, each with a `Same`."""
    write_release(
        [
            (f"topic a{i}", [f"topic a{i * j % 8} note {i}.{j}" for j in range(5)], i % 5)
            for i in range(8)
        ]
    )
    (tmp_path / "first_own.py").write_text(OWN)
    (tmp_path / "other_own.py").write_text(OWN.replace("len(words &", "-len(words &"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    forget(monkeypatch)
    return tmp_path


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that an earlier test imported lies in another folder."""
    for name in ("first_own", "other_own"):
        monkeypatch.delitem(sys.modules, name, raising=False)


BASE = {
    "--retriever": "own=first_own:Same",
    "--data": "release",
    "--distractors": "4,9",
    "--k": "1,3",
}


def sweep(out: str | None, *flags: str, **changes: str) -> Result:
    options = {**BASE, **{"--" + key.replace("_", "-"): value for key, value in changes.items()}}
    words = [word for pair in options.items() for word in pair]
    words += ["--out", out] if out else []
    return CliRunner().invoke(app, [*words, *flags])


def stop_half_way(place: Path) -> bytes:
    """A run in `place/run` as a kill leaves it; gives back the rows of the unbroken run."""
    done = sweep("run")
    assert done.exit_code == 0, done.stderr
    rows = (place / "run" / "rows.jsonl").read_bytes()
    (place / "run" / "rows.jsonl").write_bytes(rows[: len(rows) // 2])
    for name in ("summary.json", "curve.csv", "curve.png"):
        (place / "run" / name).unlink()
    return rows


def differing_field(done: Result) -> str:
    """The field that a refusal names; what the two runs hold there stands in brackets after it."""
    assert done.exit_code == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    found = re.search(r"they differ in (.+?) \(", done.stderr)
    assert found, done.stderr
    return found[1]


def change_data(place: Path) -> None:
    path = place / "release" / "dev" / "task3" / "d4" / "model_input.jsonl"
    path.write_text(path.read_text().replace("note 3.2", "note 3.two"))


def change_code(place: Path) -> None:
    path = place / "first_own.py"
    path.write_text(path.read_text().replace("self.weight * len", "2 * len"))


def change_nothing(place: Path) -> None:
    pass


# What is changed, the options of the resuming sweep, and the words the named field must hold.
CHANGES: dict[str, tuple[Callable[[Path], None], dict[str, str], list[str]]] = {
    "another retriever": (change_nothing, {"retriever": "own=overlap"}, ["retrievers"]),
    "another label": (
        change_nothing,
        {"retriever": "else=first_own:Same"},
        ["retrievers"],
    ),
    "a setting": (change_nothing, {"set": "own.weight=2.5"}, ["retrievers", "settings.weight"]),
    "code of the user's class": (change_code, {}, ["retrievers", "code"]),
    "a line of the data": (change_data, {}, ["data"]),
    "the seed": (change_nothing, {"seed": "1"}, ["seed"]),
    "the pool seeds": (change_nothing, {"pool_seeds": "0,1"}, ["pools.seeds"]),
    "the sizes": (change_nothing, {"distractors": "4,10"}, ["pools.distractors"]),
    "fewer queries": (change_nothing, {"limit": "5"}, ["data.queries"]),
    "how pools are made": (
        change_nothing,
        {"pools": "as-released"},
        ["pools.strategy"],
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_resume_under_other_settings_is_refused_naming_the_field(
    place: Path, change: str
) -> None:
    stop_half_way(place)
    kept = (place / "run" / "rows.jsonl").read_bytes()
    alter, options, words = CHANGES[change]
    alter(place)
    field = differing_field(sweep("run", "--resume", **options))
    for word in words:
        assert word in field
    assert (place / "run" / "rows.jsonl").read_bytes() == kept
    assert not (place / "run" / "summary.json").exists(), "a refusal writes no score"


def test_changed_code_of_an_inherited_class_is_seen_too(place: Path) -> None:
    (place / "other_own.py").write_text(
        "from first_own import Same\n\nclass Heir(Same):\n    pass\n"
    )
    assert sweep("run", retriever="own=other_own:Heir").exit_code == 0
    change_code(place)
    field = differing_field(sweep("run", "--resume", retriever="own=other_own:Heir"))
    assert "code" in field


def test_an_unchanged_resume_ends_as_an_unbroken_run(place: Path) -> None:
    sweep("unbroken/run")
    rows = stop_half_way(place)  # the middle of the file is the middle of a line
    assert not (place / "run" / "rows.jsonl").read_bytes().endswith(b"\n")
    assert sweep("run", "--resume").exit_code == 0
    assert (place / "run" / "rows.jsonl").read_bytes() == rows
    for name in PROMISED:
        unbroken = (place / "unbroken" / "run" / name).read_bytes()
        assert (place / "run" / name).read_bytes() == unbroken, name


def test_what_cannot_change_a_row_does_not_refuse_a_resume(place: Path) -> None:
    rows = stop_half_way(place)
    (place / "release").rename(place / "moved")
    done = sweep("run", "--resume", data="moved", k="2,4")
    assert done.exit_code == 0, done.stderr
    assert (place / "run" / "rows.jsonl").read_bytes() == rows


def test_overwrite_is_the_way_to_start_again(place: Path) -> None:
    stop_half_way(place)
    done = sweep("run", "--overwrite", seed="1")
    assert done.exit_code == 0, done.stderr
    manifest = json.loads((place / "run" / "manifest.json").read_text())
    assert manifest["fingerprint"]["seed"] == 1


def test_a_second_benchmark_never_overwrites_the_first(place: Path) -> None:
    assert sweep("run", distractors="4").exit_code == 0
    before = {p.name: p.read_bytes() for p in (place / "run").iterdir()}
    for flags in ((), ("--resume",), ("--retry-failed",)):
        done = sweep("run", *flags, "--json", distractors="9")
        assert "pools.distractors" in differing_field(done)
    assert {p.name: p.read_bytes() for p in (place / "run").iterdir()} == before


def test_two_sizes_and_two_classes_of_one_name_are_four_results(place: Path) -> None:
    summaries = []
    for module in ("first_own", "other_own"):
        for size in ("4", "9"):
            done = sweep(None, "--json", retriever=f"{module}:Same", distractors=size)
            assert done.exit_code == 0, done.stderr
            summaries.append(json.loads(done.stdout))
    runs = sorted((place / "runs").iterdir())
    assert len(runs) == 4
    assert all(run.name.startswith("Same-") for run in runs)
    kept = [json.loads((run / "summary.json").read_text()) for run in runs]
    for summary in summaries:
        assert kept.count(summary) == 1


def test_two_classes_of_one_name_need_two_labels_in_one_sweep(place: Path) -> None:
    done = sweep("run", "--retriever", "other_own:Same", retriever="first_own:Same")
    assert done.exit_code == 2
    assert "`Same` is used twice" in done.stderr
    assert not (place / "run").exists()
    done = sweep("run", "--retriever", "other=other_own:Same", retriever="first_own:Same")
    assert done.exit_code == 0, done.stderr
    cells = json.loads((place / "run" / "summary.json").read_text())["cells"]
    named = [(cell["retriever"], cell["distractors"]) for cell in cells]
    assert named == [("Same", 4), ("Same", 9), ("other", 4), ("other", 9)]
    recalls = [cell["recall"]["1"]["mean"] for cell in cells]
    assert recalls[0] != recalls[2], "each label is scored by its own class"


def test_a_refusal_is_no_failed_row(place: Path) -> None:
    assert sweep("run").exit_code == 0
    before = (place / "run" / "summary.json").read_bytes()
    done = sweep("run")
    assert done.exit_code == 2
    assert "already holds this run" in done.stderr
    assert (place / "run" / "summary.json").read_bytes() == before
