"""Fitting settings by cross-validation, and the settings file that comes of it."""

import json
import re
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recallbed.corpus.material import gather
from recallbed.corpus.records import Memory
from recallbed.errors import UserError
from recallbed.harness.configurations import (
    Configuration,
    SettingsFile,
    parse_configurations,
    read_settings,
    write_settings,
)
from retrievers.base import RetrieverError, RunContext
from retrievers.overlap import Overlap
from retrievers.rerank.base import Reranked, Reranker, Shortlist
from task3 import predict, sweep, tune, tuning
from task3.order_check import SAMPLE
from task3.tuning import configured, folds_of, parse_grid
from task3.tuning import tune as fit
from tests import kit
from tests.kit import WriteRelease, one_line_error

ANIMALS = ("cat", "dog", "horse", "parrot", "rabbit", "hamster", "turtle", "goat")
PLACES = ("garden", "kitchen", "office", "cellar", "attic", "barn")


class Counted(Overlap):
    """Counts the pools that it scored, over all instances."""

    scored = 0

    def __init__(self, flip: bool = False) -> None:
        self.flip = flip

    def score(self, query: str, pool: Sequence[Memory]) -> Any:
        type(self).scored += 1
        counts = super().score(query, pool)
        return [-count for count in counts] if self.flip else counts


class Refuses(Overlap):
    """Fails on one animal."""

    def score(self, query: str, pool: Sequence[Memory]) -> Any:
        if "goat" in query:
            raise RetrieverError("no goats")
        return super().score(query, pool)


class RefusesAll(Overlap):
    def score(self, query: str, pool: Sequence[Memory]) -> Any:
        raise RetrieverError("no")


@pytest.fixture
def release(write_release: WriteRelease) -> Path:
    """Each query names an animal and a place; the gold names both, each rival one of them."""
    rows = []
    for i in range(40):
        animal, place = ANIMALS[i % 8], PLACES[i % 6]
        others = [f"keeps a {a} in the {place}" for a in ANIMALS if a != animal][:3]
        texts = [f"keeps a {animal} in the {place}", *others, f"paints {animal} pictures {i}"]
        rows.append((f"Where is my {animal}, in the {place}?", texts, 0))
    return write_release(rows)


run = partial(kit.run, tune.app)


def words(release: Path, out: Path, *more: str) -> list[str]:
    data = ["--data", str(release), "--pools", "released", "--distractors", "4"]
    return [*data, "--folds", "3", "--store", "none", "--out", str(out), *more]


MINE = f"{__name__}:Counted"
LEGS = ("--retriever", "bm25", "--retriever", f"mine={MINE}", "--retriever", "h=hybrid")
HYBRID = (*LEGS, "--set", "h.legs=mine,bm25", "--set", "h.scale=minmax", "--label", "h")


# --- folds


def test_a_fold_is_known_by_the_session_alone() -> None:
    sessions = [f"session-{i}" for i in range(50)]
    folds = folds_of(sessions, 5)
    assert folds_of(sessions[::-1], 5).tolist() == folds.tolist()[::-1]
    assert folds_of(sessions[:30], 5).tolist() == folds.tolist()[:30]
    assert set(folds.tolist()) == {0, 1, 2, 3, 4}


def test_the_hash_of_a_fold_is_unchanged() -> None:
    """The published estimates depend on these folds."""
    found = folds_of([f"s{i}" for i in range(12)], 3)
    assert found.tolist() == [2, 2, 2, 0, 2, 2, 2, 2, 0, 0, 0, 1]


@pytest.mark.parametrize(("folds", "message"), [(1, "at least 2"), (40, "leave fold 0 empty")])
def test_folds_that_cant_be_are_refused(folds: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        folds_of([f"{i}" for i in range(3)], folds)


# --- the grid


def test_the_grid_is_every_combination_in_order() -> None:
    configurations = parse_configurations(["bm25", "h=hybrid"], ["bm25.k1=2"])
    grid = ["bm25.k1=0/1", "h.weights=1,0/0,1"]
    found = parse_grid(grid, "h", configurations)
    assert [tuple(one.values()) for one in found] == [
        *(("0", "1,0"), ("0", "0,1"), ("1", "1,0"), ("1", "0,1"))
    ]
    first = configured(configurations, found[0])
    assert [one.settings for one in first] == [{"k1": "0"}, {"weights": "1,0"}]


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ("k1=0/1", "write it as"),
        ("bm25.k1", "write it as"),
        ("bm25.k1=0/", "write it as"),
        ("bm25.k1=0/0", "twice"),
        ("bm26.k1=0/1", "no retriever has the label `bm26` (labels: bm25)"),
    ],
)
def test_a_wrong_grid_is_named(grid: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_grid([grid], "bm25", parse_configurations(["bm25"], []))
    assert message in str(caught.value)


def test_without_a_usual_grid_one_is_asked_for() -> None:
    for named, settings in (("minilm", []), ("h=hybrid", ["h.legs=bm25,minilm,random"])):
        configurations = parse_configurations([named], settings)
        with pytest.raises(UserError, match="Give --grid"):
            parse_grid([], configurations[0].label, configurations)
    assert len(parse_grid([], "bm25", parse_configurations(["bm25"], []))) == 35


# --- choosing


def fitted(release: Path, *grid: str, retrievers: Sequence[str] = LEGS[1::2], **how: Any) -> Any:
    material = gather(release, "dev", "released", (4,))
    settings = ["h.legs=mine,bm25", "h.scale=minmax"]
    configurations = parse_configurations(retrievers, settings)
    candidates = parse_grid(grid, "h", configurations)
    bank = RunContext(bank=material.data.bank)
    return fit(material, bank, configurations, "h", candidates, folds=3, **how)


@pytest.mark.parametrize("objective", ["floor", "mean"])
def test_the_better_candidate_is_chosen_in_every_fold(release: Path, objective: str) -> None:
    grid = "h.weights=1,0/0.01,0.99"
    found = fitted(release, "mine.flip=true", grid, objective=objective)
    assert found.chosen == 1
    assert found.by_fold == [1, 1, 1]
    assert found.estimate[4] == found.means[1][4] > found.means[0][4]


def test_folds_are_judged_by_the_others(release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recalls by hand: a is right in fold 0 alone, so only fold 0's own queries would choose it."""
    sessions = [row.session_id for row in gather(release, "dev", "released", (4,)).pools.rows]
    fold = folds_of(sessions, 3)
    by_weights = {"1,0": (fold == 0) * 1.0, "0,1": (fold != 0) * 1.0, None: np.zeros(40)}

    def recalls(self: Any, configurations: Sequence[Configuration], label: str, k: int) -> Any:
        chosen = {c.label: c.settings for c in configurations}["h"].get("weights")
        return {4: np.asarray(by_weights[chosen if label == "h" else None])}

    monkeypatch.setattr(tuning.LegScores, "recalls", recalls)
    found = fitted(release, "h.weights=1,0/0,1", objective="mean")
    in_first = [(fold[fold != i] == 0).mean() for i in range(3)]
    assert found.by_fold == [int(share < 0.5) for share in in_first]
    right = [(fold == i).sum() for i, c in enumerate(found.by_fold) if (c == 0) == (i == 0)]
    assert found.estimate[4] == pytest.approx(sum(right) / 40)


def test_equal_candidates_yield_the_first(release: Path) -> None:
    found = fitted(release, "h.weights=0.5,0.5/1,1/2,2")
    assert found.chosen == 0
    assert found.by_fold == [0, 0, 0]


def test_legs_are_scored_once_whatever_the_number_of_candidates(release: Path) -> None:
    Counted.scored = 0
    fitted(release, "h.weights=0.1,0.9/0.2,0.8/0.3,0.7/0.4,0.6")
    check = 2 * SAMPLE  # by the order check, once for each instance
    assert Counted.scored == 40 + check
    Counted.scored = 0
    fitted(release, "h.weights=0.1,0.9/0.2,0.8", "mine.flip=false/true", "bm25.k1=0/1")
    assert Counted.scored == 3 * (40 + check)  # as given, false, true


def test_fused_from_kept_scores_as_in_a_sweep(release: Path, tmp_path: Path) -> None:
    found = fitted(release, "h.weights=0.3,0.7", "bm25.k1=0.5")
    settings = ["h.legs=mine,bm25", "h.scale=minmax", "h.weights=0.3,0.7", "bm25.k1=0.5"]
    more = [word for one in settings for word in ("--set", one)]
    summary = swept(release, tmp_path / "run", *LEGS, *more)
    assert found.means[0][4] == pytest.approx(summary["h"], abs=1e-6)
    assert found.others["mine"][4] == pytest.approx(summary["mine"], abs=1e-6)


def test_queries_that_fail_are_left_out_and_counted(release: Path) -> None:
    legs = ["bm25", f"mine={__name__}:Refuses", "h=hybrid"]
    found = fitted(release, "h.weights=0.3,0.7/0.7,0.3", retrievers=legs)
    assert (found.queries, found.failed) == (35, 5)
    legs[1] = f"mine={__name__}:RefusesAll"
    with pytest.raises(UserError, match="40 of 40 queries fail"):
        fitted(release, "h.weights=0.3,0.7", retrievers=legs)


# --- the command


def test_a_table_and_a_file_with_its_provenance(release: Path, tmp_path: Path) -> None:
    out = tmp_path / "tuned.json"
    done = run(*words(release, out, *HYBRID, "--grid", "h.weights=0.5,0.5/0.9,0.1"), code=0)
    assert len(re.findall(r"<- chosen", done.stdout)) == 1
    assert "cross-validated - bm25 at 4:" in done.stdout
    assert "cross-validated - as given at 4:" in done.stdout
    file = read_settings(out)
    assert file.retrievers == {"bm25": "bm25", "mine": MINE, "h": "hybrid"}
    assert set(file.settings["h"]) == {"legs", "scale", "weights"}
    how = file.provenance
    assert (how["candidates"], how["folds"], how["objective"], how["k"]) == (2, 3, "floor", 1)
    assert how["grid"] == {"h.weights": ["0.5,0.5", "0.9,0.1"]}
    assert (how["data"]["queries"], how["data"]["split"]) == (40, "dev")
    assert how["pools"]["strategy"] == "released"
    assert len(how["chosen_by_fold"]) == 3
    assert how["code"]["sha256"]
    again = tmp_path / "again.json"
    run(*words(release, again, *HYBRID, "--grid", "h.weights=0.5,0.5/0.9,0.1"), code=0)
    assert again.read_bytes() == out.read_bytes()


def test_bm25_is_tuned_alone(release: Path, tmp_path: Path) -> None:
    out = tmp_path / "tuned.json"
    grid = ["--grid", "bm25.k1=0/1.5", "--grid", "bm25.b=0/0.75"]
    run(*words(release, out, "--retriever", "bm25", *grid), code=0)
    assert set(read_settings(out).settings["bm25"]) == {"k1", "b"}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--retriever", "bm25", "--retriever", "overlap"], "Pass --label"),
        (["--retriever", "bm25", "--label", "x"], "--label x: no retriever has it"),
        (["--retriever", "bm25", "--objective", "best"], "--objective best: choose one of floor"),
        (["--retriever", "bm25", "--folds", "1"], "--folds 1"),
        (["--retriever", "bm25", "--pools", "x"], "--pools x"),
        (["--retriever", "bm25", "--grid", "bm25.k1=0/x"], "bm25.k1=x"),
        (["--retriever", "bm25", "--out", "no/such/folder.json"], "there is no folder"),
    ],
)
def test_mistakes_in_one_line(release: Path, tmp_path: Path, more: list[str], message: str) -> None:
    one_line_error(run(*words(release, tmp_path / "t.json", *more)), message)
    assert not (tmp_path / "t.json").exists()


def test_a_file_is_not_replaced_unless_asked(release: Path, tmp_path: Path) -> None:
    out = tmp_path / "tuned.json"
    out.write_text("mine")
    run(*words(release, out, "--retriever", "bm25"), code=2)
    assert out.read_text() == "mine"


# --- the file in use


def swept(release: Path, out: Path, *more: str) -> dict[str, Any]:
    data = ["--data", str(release), "--pools", "released", "--distractors", "4", "--store", "none"]
    done = kit.run(sweep.app, *data, "--out", out, *more, "--json", code=0)
    summary = json.loads(done.stdout)
    means = {cell["retriever"]: cell["recall"]["1"]["mean"] for cell in summary["cells"]}
    return {**means, "fitted": summary["fitted_on_these_rows"], "table": done.stderr}


@pytest.fixture
def tuned(release: Path, tmp_path: Path) -> Path:
    out = tmp_path / "tuned.json"
    grid = ["--grid", "h.weights=0.5,0.5/0.9,0.1", "--grid", "bm25.k1=0.1"]
    assert run(*words(release, out, *HYBRID, *grid)).exit_code == 0
    return out


def test_a_sweep_reports_where_it_was_fitted(
    release: Path, tuned: Path, tmp_path: Path, write_release: WriteRelease
) -> None:
    same = swept(release, tmp_path / "run", *LEGS, "--set", f"@{tuned}")
    assert same["fitted"] == ["bm25", "h"]
    assert "h: settings were fitted on these rows: not an estimate" in same["table"]
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text("utf-8"))
    bm25, mine, h = manifest["fingerprint"]["retrievers"]
    assert bm25["settings"]["k1"] == 0.1
    assert h["fitted_on"] == bm25["fitted_on"] == [read_settings(tuned).rows]
    assert "fitted_on" not in mine
    other = write_release([("my cat", [f"likes {a}s" for a in ANIMALS[:5]], i) for i in range(5)])
    fresh = swept(other, tmp_path / "other", *LEGS, "--set", f"@{tuned}")
    assert fresh["fitted"] == []
    assert "not an estimate" not in fresh["table"]


def test_a_hybrid_of_a_fitted_leg_is_fitted(release: Path, tuned: Path, tmp_path: Path) -> None:
    more = ["--retriever", "two=hybrid", "--set", "two.legs=bm25,overlap"]
    found = swept(release, tmp_path / "run", *LEGS, *more, "--set", f"@{tuned}")
    assert found["fitted"] == ["bm25", "h", "two"]


def test_predict_takes_it_too(release: Path, tuned: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.jsonl"
    more = [*LEGS, "--set", f"@{tuned}", "--data", str(release), "--out", str(out)]
    kit.run(predict.app, *more, "--label", "h", code=0)
    assert len(out.read_text("utf-8").splitlines()) == 40
    one_line_error(kit.run(predict.app, *more, "--label", "x"), "--label x", after_notes=True)


FILE = SettingsFile({"bm25": "bm25"}, {"bm25": {"k1": "0.3", "b": "0.1"}}, "rows", {})


def test_what_is_typed_wins_over_the_file(tmp_path: Path) -> None:
    write_settings(tmp_path / "a.json", FILE)
    for order in (1, -1):
        given = [f"@{tmp_path / 'a.json'}", "bm25.k1=2"][::order]
        [one] = parse_configurations(["bm25"], given)
        settings = {"k1": "2", "b": "0.1"}
        assert one == Configuration("bm25", "bm25", settings, ("rows",), frozenset({"b"}))


def test_two_files_that_set_one_key_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_settings(tmp_path / f"{name}.json", FILE)
    with pytest.raises(UserError, match=r"`bm25\.k1` is set by another file"):
        parse_configurations(["bm25"], [f"@{tmp_path}/a.json", f"@{tmp_path}/b.json"])


@pytest.mark.parametrize("retriever", ["other=bm25", "bm25=overlap"])
def test_the_labels_must_be_those_it_was_fitted_for(tmp_path: Path, retriever: str) -> None:
    write_settings(tmp_path / "a.json", FILE)
    with pytest.raises(UserError, match="Add --retriever bm25=bm25"):
        parse_configurations([retriever], [f"@{tmp_path}/a.json"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        ("{", "cannot be read"),
        ("[]", "not a settings file"),
        ('{"k1": 1}', "not a settings file"),
        ('{"format": "recallbed settings, version 1"}', "damaged"),
        (
            '{"format": "recallbed settings, version 1", "retrievers": {}, "rows": "",'
            ' "settings": {"bm25": {"k1": "1"}}, "provenance": {}}',
            "damaged",
        ),
    ],
)
def test_other_files_are_named(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "x.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=message):
        parse_configurations(["bm25"], [f"@{path}"])


def test_the_file_is_whole_or_absent(tmp_path: Path) -> None:
    write_settings(tmp_path / "a.json", FILE)
    assert read_settings(tmp_path / "a.json") == FILE
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


# --- a file from someone else


BY_FILE = """
from retrievers.overlap import Overlap

open("was_run", "a").write("x")

class Leg(Overlap):
    pass
"""


@pytest.mark.parametrize(
    ("key", "name", "value"),
    [
        ("legs", "hybrid", "bm25,theirs:Leg"),
        ("first_stage", "tests.test_tune:Upside", "theirs:Leg"),
    ],
)
def test_a_settings_file_runs_no_code(
    release: Path, tmp_path: Path, key: str, name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "theirs.py").write_text(BY_FILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "theirs", raising=False)
    file = tmp_path / "theirs.json"
    write_settings(file, SettingsFile({"h": name}, {"h": {key: value}}, "0" * 64, {}))
    words = ["--retriever", f"h={name}", "--set", f"@{file}", "--data", str(release)]
    words += ["--distractors", "2", "--k", "1", "--out", str(tmp_path / "run")]
    error = kit.run(sweep.app, *words, code=2).stderr.replace("\n", " ")
    message = f"--set @FILE: sets h.{key}={value}, which runs the code of `theirs:Leg`"
    assert message in error
    assert "--allow-code" in error
    assert not (tmp_path / "was_run").exists()
    for more in (["--allow-code"], ["--set", f"h.{key}={value}", "--overwrite"]):
        kit.run(sweep.app, *words, *more, code=0)
    assert (tmp_path / "was_run").exists()


class Upside(Reranker):
    """Turns the first stage's best two around."""

    def __init__(self, first_stage: str = "overlap") -> None:
        super().__init__(first_stage, 2)

    def rerank_all(self, shortlists: Sequence[Shortlist]) -> list[Reranked | RetrieverError]:
        return [Reranked(np.arange(len(shortlist.texts))) for shortlist in shortlists]
