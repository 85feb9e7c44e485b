"""Training of learned combinations: the fits, what they choose, and the folders they write."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.metrics import recall_at
from recallbed.corpus.material import gather
from recallbed.corpus.sessions import session_digest, session_key
from recallbed.errors import UserError
from recallbed.harness.configurations import Configuration
from retrievers.base import Retriever, RunContext, Scored
from retrievers.chance import Constant
from retrievers.features import feature_names
from retrievers.learned import Learned, build_legs
from retrievers.learned_model import read_learned, write_learned
from retrievers.overlap import Overlap
from task3 import sweep
from tests.kit import one_line_error, read_lines, run
from training.boosting import fit_boosted
from training.listwise import Lists, fit_linear, fit_listwise
from training.model_legs import model_legs
from training.pool_results import PoolResults, score_pools
from training.reranker import app
from training.reranker_fit import CombinationFit, FitSettings
from training.teacher import read_teacher


def lists_of(rows: Any, starts: Sequence[int], right: Sequence[int]) -> Lists:
    rows = np.asarray(rows, np.float64)
    targets = np.zeros(len(rows))
    targets[list(right)] = 1.0
    return Lists(rows, np.array(starts), targets)


# Fits


def test_the_fit_is_where_the_gradient_of_the_loss_vanishes() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, 3))
    lists = lists_of(rows, range(0, 40, 4), range(0, 40, 4))
    l2 = 0.1
    weights = fit_listwise(lists, l2)
    shares = np.exp(rows @ weights).reshape(10, 4)
    shares /= shares.sum(axis=1, keepdims=True)
    gradient = rows.T @ (shares.ravel() - lists.targets) / 10 + l2 * weights
    assert gradient == pytest.approx(np.zeros(3), abs=1e-4)


def test_weights_that_may_not_be_negative_are_zero_instead() -> None:
    # The first feature marks what is right, the second what is wrong.
    lists = lists_of([[1, 0], [0, 1], [0, 1], [1, 0]], [0, 2], [0, 3])
    assert fit_listwise(lists, 0.01)[1] < 0
    first, second = fit_listwise(lists, 0.01, nonnegative=True)
    assert first > 1
    assert second == 0


def test_a_linear_order_does_not_depend_on_the_unit_of_a_feature() -> None:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(60, 2))
    plain = fit_linear(lists_of(rows, range(0, 60, 5), range(0, 60, 5)), 0.05)
    scaled = fit_linear(lists_of(rows * [1000, 1], range(0, 60, 5), range(0, 60, 5)), 0.05)
    assert scaled.values(rows * [1000, 1]) == pytest.approx(plain.values(rows), abs=1e-4)


def test_boosted_trees_give_the_differences_of_scikit_learn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from sklearn.ensemble import HistGradientBoostingClassifier

    kept: list[Any] = []
    fit = HistGradientBoostingClassifier.fit

    def remember(self: Any, *args: Any, **more: Any) -> Any:
        kept.append(self)
        return fit(self, *args, **more)

    monkeypatch.setattr(HistGradientBoostingClassifier, "fit", remember)
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(800, 4))
    right = [4 * i + int(np.argmax(np.sin(rows[4 * i : 4 * i + 4, 1]))) for i in range(200)]
    order = fit_boosted(lists_of(rows, range(0, 800, 4), right), rounds=12, seed=3)
    expected = kept[0].decision_function(rows)
    found = order.values(rows)
    assert found - found[0] == pytest.approx(expected - expected[0], abs=1e-9)
    assert np.ptp(found) > 0.5


# Combinations of legs


LABELS = ("words", "bm25")
LEGS = tuple(
    Configuration(label, name, {}) for label, name in zip(LABELS, ("overlap", "bm25"), strict=True)
)


@pytest.fixture(scope="module")
def scored() -> PoolResults:
    material = gather(None, "dev", "nested", (20, 60), (0, 1), 60)
    return score_pools(material, build_legs(LEGS, RunContext()))


def settings(**more: Any) -> FitSettings:
    return FitSettings(8, tuple(feature_names(LABELS)), **more)


def test_pools_are_scored_as_a_leg_alone_scores_them(scored: PoolResults) -> None:
    legs = build_legs(LEGS, RunContext())
    at = (60, 1, 7)
    for label, result in zip(LABELS, scored.results[at], strict=True):
        [alone] = legs[label].results([scored.query(at)], [scored.memories(at)])
        assert result.scores.tolist() == alone.scores.tolist()  # type: ignore[union-attr]


def test_a_useless_leg_gets_no_weight(scored: PoolResults) -> None:
    material = scored.material
    legs: dict[str, Retriever] = {**scored.legs, "wrong": Constant()}
    against = {at: [*results, _negated(results[1])] for at, results in scored.results.items()}
    more = PoolResults(material, legs, against)
    fit = CombinationFit(
        more, (*LEGS, Configuration("wrong", "constant", {})), settings(combination="sum"), [0] * 60
    )
    weights = fit.fit(range(60)).model.weights
    assert weights[2] == 0
    assert sum(weights) == pytest.approx(1)


def _negated(result: Any) -> Any:
    return Scored(-np.asarray(result.scores))


@pytest.mark.parametrize("combination", ["sum", "linear", "boosting"])
def test_the_fitted_model_scores_in_a_run_as_it_did_in_training(
    scored: PoolResults, combination: Any, tmp_path: Path
) -> None:
    fit = CombinationFit(scored, LEGS, settings(combination=combination), [0] * 60)
    model = fit.fit(range(60)).model
    write_learned(tmp_path, model)
    learned = Learned.from_run({"model": str(tmp_path)}, RunContext())
    at = (20, 0, 3)
    [result] = learned.results([scored.query(at)], [scored.memories(at)])
    expected = learned.combine(scored.query(at), scored.memories(at), scored.results[at])
    assert np.asarray(result.scores).tolist() == pytest.approx(np.asarray(expected.scores).tolist())  # type: ignore[union-attr]
    assert (model.order is None) == (combination == "sum")


def test_a_model_depends_on_its_rows_and_seed_alone(scored: PoolResults, tmp_path: Path) -> None:
    files = []
    for number, rows in enumerate((range(40), range(40), range(20, 60))):
        folder = tmp_path / str(number)
        folder.mkdir()
        inner = [i % 3 for i in range(60)]
        write_learned(
            folder,
            CombinationFit(scored, LEGS, settings(combination="linear"), inner).fit(rows).model,
        )
        files.append(
            [(folder / name).read_bytes() for name in ("learned.json", "weights.safetensors")]
        )
    assert files[0] == files[1]
    assert files[0] != files[2]


def test_a_teacher_moves_what_is_learned_towards_its_order(scored: PoolResults) -> None:
    """A teacher that ranks the shortest memory first, whatever the query."""
    taught = {
        at: {min((m.text for m in scored.memories(at)), key=len): 1.0} for at in scored.results
    }
    plain = settings(combination="linear")
    whole = settings(combination="linear", teacher_weight=1.0)
    length = plain.features.index("length")
    orders = [
        CombinationFit(scored, LEGS, how, [0] * 60, teacher).fit(range(60)).model.order
        for how, teacher in ((plain, None), (whole, taught))
    ]
    alone, guided = (one.arrays()["coefficients"][length] for one in orders if one)
    assert guided < alone - 0.2


# The command


def train(*words: object, code: int = 0) -> Any:
    base = ["--retriever", "bm25", "--retriever", "words=overlap", "--distractors", "20,60"]
    return run(app, *base, "--pool-seeds", "0", *words, code=code)


def test_one_model_of_all_sessions_is_a_folder_for_learned(tmp_path: Path) -> None:
    out = tmp_path / "model"
    result = train("--out", out)
    assert re.search(r"all sessions: weights bm25 \d\.\d+, words \d\.\d+; order: ", result.stdout)
    assert {path.name for path in out.iterdir()} == {
        "learned.json",
        "weights.safetensors",
        "training_card.json",
        "README.md",
    }
    card = json.loads((out / "training_card.json").read_text("utf-8"))
    rows = gather(None).pools.rows
    assert set(card["sessions"]) >= {session_digest(session_key(row)) for row in rows}
    assert card["number_of_sessions"] == len({session_key(row) for row in rows})
    assert card["command"].startswith("python -m training.reranker --retriever bm25=bm25")
    assert str(tmp_path) not in json.dumps(card)
    learned = Learned(str(out))
    assert all(learned.saw(row.query, session_key(row)) for row in rows)
    refused = train("--out", out, code=2)
    assert "already exists" in one_line_error(refused)
    train("--out", out, "--overwrite", "--combination", "sum")
    assert read_learned(out).order is None


def test_folds_are_measured_on_sessions_that_they_were_not_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The leg `words` in place of MiniLM, which takes long to encode the sample.
    monkeypatch.setattr("training.reranker_run.baseline", lambda run: Overlap())
    out = tmp_path / "cv"
    result = train("--out", out, "--folds", 3, "--combination", "linear", "--candidates", 10)
    assert "Recall by distractors on held-out sessions" in result.stdout
    figures = json.loads((out / "crossvalidation.json").read_text("utf-8"))
    assert figures["retrievers"].keys() == {"minilm", "bm25", "words", "sum", "learned"}
    assert figures["baseline"] == "minilm"
    leg, compared = figures["retrievers"]["words"]["R@5"], figures["retrievers"]["minilm"]["R@5"]
    assert {size: one["mean"] for size, one in leg.items()} == {
        size: one["mean"] for size, one in compared.items()
    }
    assert {one["minus minilm"]["mean"] for one in leg.values()} == {0}
    assert figures["queries"] == len(gather(None).pools.rows)
    trained = [
        set(json.loads((out / f"fold-{i}" / "training_card.json").read_text("utf-8"))["sessions"])
        for i in range(3)
    ]
    assert not set.intersection(*trained)
    folds = json.loads((out / "folds.json").read_text("utf-8"))
    assert (folds["retriever"], folds["setting"]) == ("learned", "model")
    run(
        sweep.app,
        *("--retriever", "cv=folds", "--set", f"cv.folder={out}", "--distractors", "60"),
        *("--out", tmp_path / "run"),
        code=0,
    )
    rows = read_lines(tmp_path / "run" / "rows.jsonl")
    recalls = [recall_at(1, row["above"], row["tied"]) for row in rows]
    expected = figures["retrievers"]["learned"]["R@1"]["60"]["mean"]
    assert np.mean(recalls) == pytest.approx(expected, abs=1e-6)


def test_a_finished_sweep_can_teach(tmp_path: Path) -> None:
    run(
        sweep.app,
        *("--retriever", "bm25", "--distractors", "20", "--out", tmp_path / "run"),
        code=0,
    )
    material = gather(None, "dev", "nested", (20, 60), (0, 1))
    shares = read_teacher(f"{tmp_path / 'run'}:bm25", material)
    assert {at[:2] for at in shares} == {(20, 0)}
    row = json.loads((tmp_path / "run" / "rows.jsonl").read_text("utf-8").splitlines()[0])
    pool = material.pools.texts(material.pools.pools[20, 0][0])
    best, score = row["top"][0]
    if score > row["top"][1][1]:
        assert max(shares[20, 0, 0], key=shares[20, 0, 0].__getitem__) == pool[best].text
    assert sum(shares[20, 0, 0].values()) == pytest.approx(1)
    with pytest.raises(UserError, match="none of its rows is of these pools"):
        read_teacher(f"{tmp_path / 'run'}:bm25", gather(None, "dev", "nested", (60,), (0,)))
    taught = ["--teacher", f"{tmp_path / 'run'}:bm25", "--combination", "linear"]
    result = train("--out", tmp_path / "model", *taught)
    assert "164 of 328 pools" in result.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--feature", "magic"], "no feature `magic`"),
        (["--teacher", "nowhere"], "write it as FOLDER:LABEL"),
        (["--teacher", "nowhere:bm25"], "not a run folder"),
        (["--trained", "bm25=nowhere"], "`bm25` is no leg of `folds`"),
        (["--retriever", "learned=bm25"], "the label is that of a result"),
        (["--split", "validation"], "trained on dev alone"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, words: list[str], message: str) -> None:
    result = train("--out", tmp_path / "model", *words, code=2)
    assert message in one_line_error(result)
    assert not (tmp_path / "model").exists()


# Legs


def test_a_folder_that_a_leg_names_is_copied_into_the_model(tmp_path: Path) -> None:
    source = tmp_path / "encoder"
    source.mkdir()
    (source / "config.json").write_text("{}")
    given = [Configuration("tuned", "dense", {"model": str(source), "batch_size": "8"})]
    out = tmp_path / "model"
    out.mkdir()
    [leg] = model_legs(given, [], out)
    assert leg.settings == {"model": "./legs/tuned", "batch_size": "8"}
    assert (out / "legs" / "tuned" / "config.json").read_text() == "{}"
    [leg] = model_legs(given, [], None)
    assert leg.settings["model"] == str(source.resolve())


def test_a_cross_validated_leg_is_replaced_by_the_model_of_all_sessions(tmp_path: Path) -> None:
    folds, whole, out = (tmp_path / name for name in ("folds", "whole", "out"))
    for folder in (folds, whole, out):
        folder.mkdir()
    described = {"retriever": "dense", "setting": "model", "settings": {"max_tokens": None}}
    (folds / "folds.json").write_text(json.dumps(described))
    given = [Configuration("cv", "folds", {"folder": str(folds)})]
    [leg] = model_legs(given, [f"cv={whole}"], out)
    assert (leg.label, leg.name) == ("cv", "dense")
    assert leg.settings == {"max_tokens": "none", "model": "./legs/cv"}
    [leg] = model_legs(given, ["cv=a-name"], out)
    assert leg.settings["model"] == "a-name"
    with pytest.raises(UserError, match="there is no folder /nowhere"):
        model_legs(given, ["cv=/nowhere"], out)
    with pytest.raises(UserError, match="--trained cv=MODEL"):
        model_legs(given, [], out)
    [leg] = model_legs(given, [], None)
    assert (leg.name, leg.settings) == ("folds", {"folder": str(folds)})
