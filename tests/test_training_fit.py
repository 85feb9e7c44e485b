"""One command from a user's file to a tested model; what learning more would bring."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from retrievers import RunContext
from retrievers.adapted import Adapted
from task3 import sweep
from tests.kit import one_line_error, read_json, rows_of, run, write_lines
from tests.tiny_models import save_static, words_of
from training import fit, learning_curve, methods
from training.card import BaseModel, Card, write_card
from training.examples import read_training_data
from training.fit_run import FittedModel, verdicts
from training.folds import fold_name
from training.learning_curve_run import LearningCurveConfig, sessions_by_part
from training.measure import write_figures
from training.options import TrainingOptions, whole_folder

TOPICS = ("tea", "chess", "skiing", "opera", "gardens", "trains", "baking", "stars", "dogs", "maps")


def memories_of(count: int) -> list[dict[str, Any]]:
    """Rows of `count` sessions; memories of other topics are the distractors."""
    rows = []
    for i in range(count):
        topic = TOPICS[i % len(TOPICS)]
        others = [f"Reads about {name} in year {i}" for name in TOPICS if name != topic][:4]
        gold = f"Likes {topic} best in year {i}"
        rows.append(
            {
                "query": f"What about {topic} in year {i}?",
                "memories": [*others, gold],
                "gold": 4,
                "session": f"user {i}",
            }
        )
    return rows


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An encoder of random word vectors, which takes the place of minilm."""
    import numpy as np

    texts = [[one["query"], *one["memories"]] for one in memories_of(20)]
    words = words_of([text for row in texts for text in row])
    vectors = np.random.default_rng(0).normal(size=(len(words), 16))
    found = dict(zip(words, vectors.tolist(), strict=True))
    return str(save_static(tmp_path_factory.mktemp("models") / "tiny", found))


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "my.jsonl", memories_of(20))


FIGURES: dict[str, Any] = {
    "format": 1,
    "folds": 2,
    "strategy": "released",
    "pool_seeds": [0],
    "distractors": [4],
    "queries": 20,
    "sessions": 20,
    "failed": 0,
    "baseline": "minilm",
    "retrievers": {
        "minilm": {"R@1": {"4": {"mean": 0.5, "low": 0.4, "high": 0.6}}},
        "adapted": {
            "R@1": {
                "4": {
                    **{"mean": 0.7, "low": 0.6, "high": 0.8},
                    "minus minilm": {"mean": 0.2, "low": 0.1, "high": 0.3},
                }
            }
        },
    },
}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A training that writes cards alone; the list names what was trained."""
    trained: list[str] = []

    def train(options: TrainingOptions, encoders: Sequence[str]) -> Any:
        data = options.read()
        names = [""] if options.folds is None else [fold_name(n) for n in range(options.folds)]
        with whole_folder(options.out, options.overwrite or options.resume) as draft:
            for name in names:
                trained.append(f"{options.out.name}/{name}")
                (draft / name).mkdir(exist_ok=True)
                base = [BaseModel("a", "0", "MIT")]
                card = Card.of("x", "y", options.seed, {}, data.provenance, data.sessions, base)
                write_card(draft / name, card)
            if options.folds is not None:
                write_figures(draft, FIGURES)
        return None if options.folds is None else FIGURES

    monkeypatch.setattr(
        methods, "METHODS", {"adapter": methods.Method("adapted", "adapted", train)}
    )
    monkeypatch.setattr("training.fit_run.METHODS", methods.METHODS)
    return trained


def test_one_command_tests_and_trains(quick: list[str], mine: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    done = run(fit.app, mine, "--out", out, "--folds", "2", code=0)
    assert quick == ["model-folds/fold-0", "model-folds/fold-1", "model/"]
    assert "4 distractors: adapted finds more at R@1, compared with minilm" in done.stdout
    assert "20 sessions are few to learn from" in done.stderr
    assert f"--retriever adapted --set adapted.model={out}" in done.stderr
    card = read_json(out / "training_card.json")
    assert card["figures"] == FIGURES
    assert len(card["sessions"]) == 20
    assert "2-fold cross-validation" in (out / "README.md").read_text("utf-8")
    assert read_json(out / "crossvalidation.json") == FIGURES


def test_a_stopped_training_is_resumed(quick: list[str], mine: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    given = (mine, "--out", out, "--folds", "2")
    run(fit.app, *given, code=0)
    whole = (out / "training_card.json").read_bytes()
    shutil.rmtree(out)
    quick.clear()
    run(fit.app, *given, "--resume", code=0)
    assert quick == ["model/"]
    assert (out / "training_card.json").read_bytes() == whole
    quick.clear()
    run(fit.app, *given, "--resume", code=0)
    assert quick == []


@pytest.mark.parametrize("change", ["data", "seed", "folds"])
def test_another_training_is_not_resumed(
    quick: list[str], mine: Path, tmp_path: Path, change: str
) -> None:
    out = tmp_path / "model"
    run(fit.app, mine, "--out", out, "--folds", "2", code=0)
    more = {"seed": ["--seed", "1"], "folds": ["--folds", "3"]}.get(change, [])
    if change == "data":
        write_lines(mine, memories_of(21))
    words = [*({"folds": []}.get(change, ["--folds", "2"])), *more]
    done = run(fit.app, mine, "--out", out, *words, "--resume", code=2)
    one_line_error(done, "is another cross-validation", after_notes=True)


def test_a_finished_model_is_not_replaced(quick: list[str], mine: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    run(fit.app, mine, "--out", out, "--folds", "2", code=0)
    done = run(fit.app, mine, "--out", out, "--folds", "2", code=2)
    one_line_error(done, "already exists", after_notes=True)
    run(fit.app, mine, "--out", out, "--folds", "2", "--overwrite", code=0)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["missing.jsonl"], "missing.jsonl"),
        (["."], "fit takes a .jsonl file of your own memories"),
        (["my.jsonl", "--method", "finetune", "--encoder", "use"], "--encoder"),
        (["my.jsonl", "--encoder", "use=x"], "--encoder use=x: write it as MODEL"),
        (["my.jsonl", "--folds", "1"], "--folds 1: at least 2 are needed"),
        (["my.jsonl", "--folds", "30"], "Give fewer folds"),
        (["my.jsonl", "--out", "none/model"], "there is no folder none"),
    ],
)
def test_a_mistake_is_one_line(
    words: list[str], part: str, mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = words if "--out" in words else [*words, "--out", "model"]
    one_line_error(run(fit.app, *given, "--store", "none"), part, after_notes=True)


def test_a_loss_is_said_with_advice() -> None:
    figures = json.loads(json.dumps(FIGURES))
    metrics = figures["retrievers"]["adapted"]
    metrics["R@5"] = json.loads(json.dumps(metrics["R@1"]))
    metrics["R@5"]["4"]["minus minilm"] = {"mean": -0.2, "low": -0.3, "high": -0.1}
    first, last = verdicts(FittedModel("adapted", "adapted", Path("x"), figures))
    assert first == (
        "4 distractors: adapted finds more at R@1 and less at R@5, compared with minilm"
    )
    assert "keep minilm" in last
    metrics["R@1"]["4"]["minus minilm"]["low"] = -0.1
    del metrics["R@5"]
    [line] = verdicts(FittedModel("adapted", "adapted", Path("x"), figures))
    assert "is not shown to differ" in line


@pytest.mark.slow
def test_an_adapter_learns_from_a_users_file(
    mine: Path, tmp_path: Path, tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the sweep knows what it was trained on."""
    monkeypatch.setattr("training.adapter_run.BASELINE_MODEL", tiny)
    out = tmp_path / "model"
    words = ("--folds", "2", "--encoder", tiny, "--store", "none")
    run(fit.app, mine, "--out", out, *words, code=0)
    model = Adapted.from_run({"model": str(out)}, RunContext())
    assert model.saw("any", "user 3")
    assert not model.saw("any", "user 20")
    swept = ("--data", mine, "--store", "none", "--k", "1", "--retriever", "bm25")
    trained = ("--retriever", "adapted", "--set", f"adapted.model={out}")
    done = run(sweep.app, *swept, *trained, "--out", tmp_path / "run", code=2)
    one_line_error(done, "adapted was trained on 20 of these 20 sessions")
    crossed = ("--retriever", "cv=folds", "--set", f"cv.folder={tmp_path / 'model-folds'}")
    run(sweep.app, *swept, *crossed, "--out", tmp_path / "run", code=0)
    rows = [row for row in rows_of(tmp_path / "run") if row["retriever"] == "cv"]
    assert [row["error"] for row in rows] == [None] * 20
    figures = read_json(out / "crossvalidation.json")["retrievers"]["adapted"]["R@1"]
    mean = sum(row["above"] == 0 for row in rows) / 20
    assert figures[str(4)]["mean"] == pytest.approx(mean, abs=1e-6)


# The learning curve


def parts_of(mine: Path, **given: Any) -> dict[tuple[str, int], frozenset[str]]:
    config = LearningCurveConfig(mine.parent / "curve", mine, folds=4, **given)
    return sessions_by_part(read_training_data(mine), config)


def test_parts_grow_and_never_hold_the_fold_that_is_measured(mine: Path) -> None:
    parts = parts_of(mine, sessions=(5, 10))
    labels = list(dict.fromkeys(label for label, _ in parts))
    assert labels == ["5 sessions", "10 sessions", "all sessions"]
    every = {f"user {i}" for i in range(20)}
    held_out = [every - parts["all sessions", fold] for fold in range(4)]
    assert set().union(*held_out) == every
    assert sum(map(len, held_out)) == 20
    for fold in range(4):
        small, large, whole = (parts[label, fold] for label in labels)
        assert (len(small), len(large), len(whole)) == (5, 10, 15)
        assert small < large < whole


def test_parts_depend_on_the_seed_alone(mine: Path) -> None:
    assert parts_of(mine, sessions=(5,)) == parts_of(mine, sessions=(5,))
    assert parts_of(mine, sessions=(5,)) != parts_of(mine, sessions=(5,), seed=1)


def test_more_sessions_than_there_are_is_one_line(mine: Path, tmp_path: Path) -> None:
    given = ("--data", mine, "--out", tmp_path / "curve", "--store", "none")
    done = run(learning_curve.app, *given, code=2)
    one_line_error(done, "--sessions 200: with 5 folds of 20 sessions a model is trained on 16")
    assert not (tmp_path / "curve").exists()


@pytest.mark.slow
def test_a_curve_has_a_point_for_each_number_of_sessions(
    mine: Path, tmp_path: Path, tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.learning_curve_run.BASELINE_MODEL", tiny)
    out = tmp_path / "curve"
    given = ["--data", mine, "--out", out, "--store", "none", "--folds", "2", "--sessions", "4,8"]
    given += ["--encoder", tiny]
    done = run(learning_curve.app, *given, code=0)
    assert "from 8 to 10 training sessions: R@1" in done.stdout
    lines = (out / "learning_curve.csv").read_text("utf-8").splitlines()
    assert lines[0] == "sessions,metric,distractors,mean,low,high"
    assert [line.split(",")[0] for line in lines[1::4]] == ["0", "4", "8", "10"]
    found = read_json(out / "learning_curve.json")
    counts = {"4 sessions": 4, "8 sessions": 8, "all sessions": 10}
    assert found["training_sessions"] == counts
    assert found["last_step"].keys() == {"4"}
    one_line_error(run(learning_curve.app, *given), "already exists")
