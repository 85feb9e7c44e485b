"""Training of linear maps over frozen vectors, and the retriever that applies them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recallbed.corpus.records import Memory
from recallbed.corpus.sessions import session_digest
from recallbed.errors import UserError
from retrievers.adapted import Adapted, Adapter, LinearMap, WeightedEncoder
from retrievers.base import RunContext
from retrievers.testing import POOL, QUERIES, RetrieverContract
from retrievers.trained import read_card
from tests.kit import one_line_error, python, run
from tests.tiny_models import save_static, words_of
from training.adapter import AdapterOptions, app
from training.adapter_fit import (
    AdapterRecipe,
    Maps,
    Pairs,
    _slopes,
    best_steps,
    fit_maps,
    low_rank,
    mean_maps,
)
from training.options import TrainingOptions

TOPICS, WIDTH = 8, 24


def synthetic(n: int = 60, seed: int = 0, noise: float = 0.4) -> Pairs:
    """Texts and memories of topics, whose vectors for a text and for a memory are unrelated."""
    rng = np.random.default_rng(seed)
    directions = np.random.default_rng(9).normal(size=(2, TOPICS, WIDTH))
    topics = np.arange(n) % TOPICS
    of_texts, of_memories = (
        side[topics] + noise * rng.normal(size=(n, WIDTH)) for side in directions
    )
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (of_texts, of_memories)]
    same_topic = topics[:, None] == topics[None, :]
    return Pairs(
        unit[0].astype(np.float32),
        np.arange(n),
        unit[1].astype(np.float32),
        lambda numbers: ~same_topic[numbers],
    )


def test_the_gradient_is_that_of_the_loss() -> None:
    pairs = synthetic(10)
    rng = np.random.default_rng(1)
    maps = Maps(
        *(
            np.eye(WIDTH, dtype=np.float32) + 0.1 * rng.normal(size=(WIDTH, WIDTH)).astype("f4")
            for _ in range(2)
        )
    )
    slopes = _slopes(pairs, np.arange(10), np.arange(10), maps, 0.3)
    for side, slope in zip(("query", "memory"), slopes, strict=True):
        step = rng.normal(size=(WIDTH, WIDTH)).astype(np.float32)
        step /= np.linalg.norm(step)
        losses = []
        for sign in (1, -1):
            moved = {"query": maps.query, "memory": maps.memory}
            moved[side] = moved[side] + np.float32(sign * 1e-2) * step
            losses.append(Maps(**moved).loss(pairs, 0.3))
        assert (slope * step).sum() == pytest.approx((losses[0] - losses[1]) / 2e-2, rel=0.02)


def test_training_finds_what_frozen_vectors_cannot() -> None:
    held_out = synthetic(40, seed=5)
    recipe = AdapterRecipe(steps=40, batch=60)
    frozen = Maps.identity(WIDTH).loss(held_out, recipe.temperature)
    trained = fit_maps(synthetic(), recipe, seed=0)
    assert trained.loss(held_out, recipe.temperature) < 0.5 * frozen


def test_one_seed_gives_one_result_whatever_part_of_the_bank_is_drawn() -> None:
    for bank in (8192, 20):
        recipe = AdapterRecipe(steps=3, batch=16, bank=bank)
        one, same, other = (fit_maps(synthetic(), recipe, seed) for seed in (1, 1, 2))
        assert one.query.tobytes() == same.query.tobytes()
        assert one.memory.tobytes() == same.memory.tobytes()
        assert not np.array_equal(one.query, other.query)


def test_a_pull_keeps_the_maps_near_the_identity() -> None:
    far, near = (
        np.linalg.norm(fit_maps(synthetic(), AdapterRecipe(pull=pull), 0).query - np.eye(WIDTH))
        for pull in (0.0, 1.0)
    )
    assert near < 0.5 * far


def test_early_stopping_keeps_the_step_with_the_best_ranks() -> None:
    noisy = synthetic(24, noise=3.0)
    recipe = AdapterRecipe(steps=200, rate=0.3)
    held_out = synthetic(24, seed=7, noise=3.0)
    steps, ranks = best_steps(noisy, held_out, recipe, 0, patience=5)
    assert ranks[0] == Maps.identity(WIDTH).mean_reciprocal_rank(held_out)
    assert ranks[steps] == max(ranks[1:])
    assert len(ranks) - 1 < 200


def test_ranks_count_allowed_memories_above_the_gold() -> None:
    pairs = synthetic(24, noise=3.0)
    cosines = pairs.texts @ pairs.memories.T
    wanted = []
    for i, gold in enumerate(pairs.golds):
        allowed = pairs.allowed(np.array([i]))[0]
        above = sum(cosines[i, j] > cosines[i, gold] for j in np.flatnonzero(allowed) if j != gold)
        wanted.append(1 / (1 + above))
    found = Maps.identity(pairs.texts.shape[1]).mean_reciprocal_rank(pairs)
    assert found == pytest.approx(np.mean(wanted))


def test_a_rate_that_is_too_high_is_one_line() -> None:
    with pytest.raises(UserError, match="not finite after step"):
        fit_maps(synthetic(), AdapterRecipe(rate=1e38, steps=10), 0)


def test_runs_are_averaged() -> None:
    recipe = AdapterRecipe(steps=2, batch=8, runs=2)
    one, other = (fit_maps(synthetic(), recipe, seed) for seed in (3000, 3001))
    mean = mean_maps(synthetic(), recipe, 3)
    assert np.allclose(mean.query, (one.query + other.query) / 2, atol=1e-6)
    assert np.allclose(mean.memory, (one.memory + other.memory) / 2, atol=1e-6)


def test_low_rank_is_the_nearest_map_of_its_rank() -> None:
    matrix = fit_maps(synthetic(), AdapterRecipe(steps=5), 0).query
    x = np.random.default_rng(2).normal(size=WIDTH).astype(np.float32)
    expected = x @ matrix
    assert np.allclose(low_rank(matrix, 500)(x), expected / np.linalg.norm(expected), atol=1e-5)
    some = low_rank(matrix, 4)
    assert some.down.shape == (WIDTH, 4)
    rest = np.linalg.svd(matrix - np.eye(WIDTH), compute_uv=False)[4:]
    error = np.linalg.norm(np.eye(WIDTH) + some.down @ some.up - matrix)
    assert error == pytest.approx(np.linalg.norm(rest), rel=1e-3)


# With an encoder: each word has a vector, and no word of a query is in its gold


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder, and a file of 48 sessions in which a topic's words differ by side."""
    folder = tmp_path_factory.mktemp("adapter")
    rng = np.random.default_rng(4)
    words = [f"{side}{topic}" for side in ("ask", "know") for topic in range(TOPICS)]
    words += [f"x{i}" for i in range(48)]
    words += words_of([*QUERIES, *(memory.text for memory in POOL)])
    vectors = {word: rng.normal(size=16).tolist() for word in dict.fromkeys(words)}
    for i in range(48):
        vectors[f"x{i}"] = (0.3 * np.array(vectors[f"x{i}"])).tolist()
    save_static(folder / "encoder", vectors)
    rows = []
    for i in range(48):
        others = [(i + j) % 48 for j in range(1, 48) if (i + j) % TOPICS != i % TOPICS][:12]
        memories = [f"know{j % TOPICS} x{j}" for j in (*others[:6], i, *others[6:])]
        rows.append(
            {
                "query": f"ask{i % TOPICS} x{47 - i}",
                "memories": memories,
                "gold": 6,
                "session": f"s{i}",
            }
        )
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "mine.jsonl").write_text(text, encoding="utf-8")
    return folder


def words_for(place: Path, out: Path, *more: object) -> list[object]:
    return [
        *("--data", place / "mine.jsonl", "--encoder", place / "encoder", "--out", out),
        *("--store", "none", "--batch", 64, "--steps", 30, "--runs", 1, *more),
    ]


@pytest.fixture(scope="module")
def model(place: Path) -> Path:
    """The folder of a trained adapter."""
    run(app, *words_for(place, place / "model"), code=0)
    return place / "model"


def test_the_folder_holds_a_model_and_its_card(model: Path) -> None:
    names = ["README.md", "adapter.json", "adapter.safetensors", "training_card.json"]
    assert sorted(path.name for path in model.iterdir()) == names
    card = read_card(model)
    assert card is not None
    assert card["sessions"] == sorted(session_digest(f"s{i}") for i in range(48))
    assert card["settings"]["steps"] == 30
    assert card["base"][0]["name"] == "encoder"
    assert str(model.parent) not in (model / "training_card.json").read_text("utf-8")
    assert "ask1" not in (model / "README.md").read_text("utf-8")
    assert Adapted(str(model)).trained_on == tuple(card["sessions"])


def test_training_again_in_another_process_gives_equal_bytes(place: Path, model: Path) -> None:
    out = place / "again"
    python("-m", "training.adapter", *words_for(place, out), PYTHONHASHSEED="5")
    for name in ("adapter.safetensors", "adapter.json", "training_card.json", "README.md"):
        assert (out / name).read_bytes() == (model / name).read_bytes(), name


def test_cross_validation_measures_each_fold_with_the_model_that_did_not_see_it(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.adapter_run.BASELINE_MODEL", str(place / "encoder"))
    out = place / "cv"
    words = words_for(place, out, "--folds", 2)
    run(app, *words, code=0)
    figures = json.loads((out / "crossvalidation.json").read_text("utf-8"))
    frozen, adapted = (
        figures["retrievers"][label]["R@1"][str(figures["distractors"][0])]
        for label in ("minilm", "adapted")
    )
    assert adapted["mean"] > frozen["mean"] + 0.2
    assert adapted["minus minilm"]["low"] > 0
    seen = [set(Adapted(str(out / f"fold-{i}")).trained_on) for i in range(2)]
    assert seen[0].isdisjoint(seen[1])
    assert len(seen[0] | seen[1]) == 48
    assert not any(one.isdisjoint(seen[0]) for one in [seen[0]])
    before = [(out / f"fold-{i}" / "adapter.json").stat().st_ino for i in range(2)]
    (out / "crossvalidation.json").unlink()
    run(app, *words, "--resume", code=0)
    assert [(out / f"fold-{i}" / "adapter.json").stat().st_ino for i in range(2)] == before
    assert json.loads((out / "crossvalidation.json").read_text("utf-8")) == figures
    other = run(app, *words, "--resume", "--temperature", "0.1")
    one_line_error(other, "of another training", "temperature", after_notes=True)
    again = run(app, *words)
    one_line_error(again, "already exists")
    out_with = place / "with-figures"
    with_figures = words_for(place, out_with, "--figures", out / "crossvalidation.json")
    another = run(app, *with_figures, "--pull", "0.1")
    one_line_error(another, "of another training", "pull", after_notes=True)
    run(app, *with_figures, code=0)
    assert "| adapted | R@1 |" in (out_with / "README.md").read_text("utf-8")


class TestContract(RetrieverContract):
    @pytest.fixture(autouse=True)
    def _folder(self, model: Path) -> None:
        self.folder = model

    def make(self) -> Adapted:
        return Adapted.from_run({"model": str(self.folder)}, RunContext())


def test_a_score_is_the_cosine_of_the_mapped_vectors(model: Path) -> None:
    retriever = Adapted(str(model))
    query, pool = "ask3 x1", [Memory("know3 x9"), Memory("know4 x9")]
    scores = retriever.score(query, pool)
    adapter = Adapter.load(model)
    [leg] = retriever.legs
    asked = leg.vectors([query], "query")[0] @ full(adapter.query)
    kept = leg.vectors([memory.text for memory in pool]) @ full(adapter.memory)
    expected = kept @ asked / np.linalg.norm(asked) / np.linalg.norm(kept, axis=1)
    assert np.allclose(scores, expected, atol=1e-6)
    assert scores[0] > scores[1]
    [cosine] = retriever.explain(query, pool, [1])
    assert cosine.score == pytest.approx(scores[1])


def full(linear: LinearMap) -> Any:
    return np.eye(len(linear.down)) + linear.down @ linear.up


def test_vectors_of_several_encoders_are_weighted(place: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    save_static(tmp_path / "other", {f"know{i}": rng.normal(size=4).tolist() for i in range(8)})
    encoders = tuple(
        WeightedEncoder(str(folder), weight, weights_of(folder), width)
        for folder, weight, width in ((place / "encoder", 1.0, 16), (tmp_path / "other", 0.5, 4))
    )
    nothing = LinearMap(np.zeros((20, 1)), np.zeros((1, 20)))
    (tmp_path / "model").mkdir()
    Adapter(encoders, nothing, nothing).save(tmp_path / "model")
    retriever = Adapted(str(tmp_path / "model"))
    one, other = (leg.score("know1", [Memory("know2")])[0] for leg in retriever.legs)
    [score] = retriever.score("know1", [Memory("know2")])
    assert score == pytest.approx((one + 0.25 * other) / 1.25, abs=1e-6)


def weights_of(folder: Path) -> str:
    from retrievers.dense import Dense

    return str(Dense(str(folder)).settings()["weights"])


def test_an_encoder_that_cannot_read_a_query_counts_less(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    save_static(tmp_path / "other", {f"know{i}": rng.normal(size=4).tolist() for i in range(8)})
    monkeypatch.setattr(
        "indexes.sentence_encoder.SentenceEncoder.legibility",
        lambda self, text: 0.0 if self.folder.name == "encoder" else 0.8,
    )
    folders = ((place / "encoder", 16), (tmp_path / "other", 4))
    encoders = tuple(WeightedEncoder(str(f), 1.0, weights_of(f), width) for f, width in folders)
    nothing = LinearMap(np.zeros((20, 1)), np.zeros((1, 20)))
    (tmp_path / "model").mkdir()
    Adapter(encoders, nothing, nothing, 0.1).save(tmp_path / "model")
    retriever = Adapted(str(tmp_path / "model"))
    one, other = (leg.score("know1", [Memory("know2")])[0] for leg in retriever.legs)
    [score] = retriever.score("know1", [Memory("know2")])
    scale = np.sqrt(2 * (0.1**2 + 0.8**2))
    assert score == pytest.approx((0.1 * one + 0.8 * other) / scale, abs=1e-6)


def test_another_version_of_an_encoder_is_refused(model: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in model.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    content = json.loads((copy / "adapter.json").read_text("utf-8"))
    content["encoders"][0]["weights"] = "0" * 16
    (copy / "adapter.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match="with weights 0000"):
        Adapted(str(copy)).score("ask1", [Memory("know1")])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("adapter.json", b"{", "cannot be read"),
        ("adapter.json", b'{"format": 9}', "format"),
        ("adapter.json", b'{"format": 1, "encoders": [], "least_trust": 1}', "do not fit"),
        ("adapter.safetensors", b"version https://git-lfs", "cannot be read"),
        ("training_card.json", b"[]", "is no training card"),
    ],
)
def test_a_damaged_model_is_one_line(
    model: Path, tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    for path in model.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        Adapted(str(tmp_path))


def test_without_the_default_encoder_the_error_names_the_smaller_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = LinearMap(np.zeros((4, 1)), np.zeros((1, 4)))
    Adapter((WeightedEncoder("./nowhere", 1.0, "0" * 16, 4),), nothing, nothing).save(tmp_path)
    monkeypatch.setattr("retrievers.adapted.model_folder", lambda *_: tmp_path)
    with pytest.raises(UserError, match=r"nowhere.*--set LABEL\.model=minilm-use"):
        Adapted()


def test_a_missing_model_says_how_to_train_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"training\.adapter --out FOLDER"):
        Adapted(str(tmp_path / "nowhere"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--encoder", "a=0"), "a weight above 0"),
        (("--encoder", "a", "--encoder", "a=2"), "names an encoder twice"),
        (("--split", "test", "--data", "."), "dev alone"),
        (("--resume", "--overwrite"), "excludes"),
        (("--examples", "answers"), "choose one of query, evidence, utilization"),
        (("--figures", "x.json", "--folds", "3"), "Leave --folds out"),
        (("--figures", "x.json"), "no such file"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    done = run(app, "--out", tmp_path / "model", *words)
    one_line_error(done, message)
    assert list(tmp_path.iterdir()) == []


def test_the_command_line_of_a_card_has_no_path(tmp_path: Path) -> None:
    options = TrainingOptions(
        tmp_path / "out", data=tmp_path / "data", folds=5, store="x", kinds=("query", "evidence")
    )
    how = AdapterOptions(encoder=(f"{tmp_path}=0.5", "use=0.6"), steps=30)
    assert options.command_line("training.adapter", how) == (
        "python -m training.adapter --out FOLDER --data DATA --examples query --examples evidence"
        f" --folds 5 --encoder {tmp_path.name}=0.5 --encoder use=0.6 --steps 30"
    )
