"""Fine-tuning a sentence encoder, with a tiny BERT of random weights made here."""

import json
import math
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexes.compact import read_compact
from indexes.sentence_encoder import load_model
from recallbed.corpus.records import Memory
from recallbed.corpus.sessions import session_digest
from retrievers.dense import Dense
from tests.kit import one_line_error, read_json, run, write_lines
from tests.tiny_models import SIZES, save_bert, save_tokenizer
from training.encoder_training import (
    WEIGHTS,
    EncoderTraining,
    EpochResult,
    Recipe,
    encoded,
    trained_parameters,
)
from training.examples import TrainingData, TrainingExample
from training.finetune import app
from training.frozen_layers import FrozenLayers
from training.pairs import MinedNegatives, PairBatches, TextPairs

pytest.importorskip("datasets")
pytestmark = pytest.mark.slow

WORDS = [f"w{i}" for i in range(60)]
NO_PROMPTS: Mapping[Any, str] = {"query": "", "memory": ""}
RECIPE = Recipe(epochs=3, batch_size=8, learning_rate=1e-3, checkpoint_every=2, mine="epoch")


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_bert(tmp_path_factory.mktemp("bert"), WORDS, kind="BertModel")


def texts(count: int, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    made = [" ".join(rng.choice(WORDS, int(rng.integers(3, 9)))) for _ in range(count)]
    return sorted(set(made))


def training_data(pairs: int = 24) -> TrainingData:
    """Queries made of words of their gold; two sessions have a second memory of their own."""
    bank = texts(40)
    rng = np.random.default_rng(1)
    examples = tuple(
        TrainingExample(f"s{i}", " ".join(rng.permutation(bank[i].split())[:3]), bank[i], "query")
        for i in range(pairs)
    )
    own = {f"s{i}": frozenset({bank[i]}) for i in range(pairs)}
    own["s0"] |= {bank[30]}
    own["s1"] |= {bank[31]}
    return TrainingData(examples, (), tuple(bank), own, {})


def loaded(folder: Path) -> Any:
    return load_model("SentenceTransformer", folder, "cpu")


# Frozen layers


def test_frozen_layers_change_no_vector(bert: Path) -> None:
    some = ["w1 w2 w3", "w4", "w5 [PAD] w6 w7", "w8 w9 w9 w9 w9 w9"]
    expected = encoded(loaded(bert), some)
    for remembered in (1 << 20, 0):
        model = loaded(bert)
        frozen = FrozenLayers(model, 1, remembered)
        frozen.remember(model.preprocess(some[:2])["input_ids"])
        np.testing.assert_allclose(encoded(model, some), expected, atol=1e-6)
        frozen.release()
        np.testing.assert_array_equal(encoded(model, some), expected)


@pytest.mark.parametrize("kind", ["MPNet", "Roberta", "DistilBert"])
def test_other_encoders_can_be_frozen(kind: str, tmp_path: Path) -> None:
    """What all layers share, such as the position bias of MPNet, is frozen too."""
    import torch
    import transformers

    size = save_tokenizer(tmp_path, WORDS, 40)
    torch.manual_seed(3)
    sizes = {"dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 2}
    sizes = sizes if kind == "DistilBert" else dict(SIZES)
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=size, max_position_embeddings=48, pad_token_id=0, **sizes
    )
    getattr(transformers, f"{kind}Model")(config).save_pretrained(tmp_path)
    some = ["w1 w2 w3", "w4", "w5 w6 w7 w8 w9 w10"]
    model = loaded(tmp_path)
    expected = encoded(model, some)
    FrozenLayers(model, 1)
    np.testing.assert_allclose(encoded(model, some), expected, atol=1e-5)
    assert trained_parameters(model)
    assert all("layer.1." in name for name in trained_parameters(model))


def test_only_the_layers_above_are_trained_and_names_stay(bert: Path) -> None:
    model = loaded(bert)
    before = list(model.state_dict())
    FrozenLayers(model, 1)
    assert list(model.state_dict()) == before
    names = trained_parameters(model)
    assert any("layer.1." in name for name in names)
    assert not any("layer.0." in name or "embeddings" in name for name in names)


@pytest.mark.parametrize(("count", "part"), [(2, "the model has 2 layers"), (9, "2 layers")])
def test_too_many_frozen_layers_are_refused(bert: Path, count: int, part: str) -> None:
    with pytest.raises(ValueError, match=f"--freeze-layers {count}: .*{part}"):
        FrozenLayers(loaded(bert), count)


# Batches and the loss


def test_a_batch_holds_each_text_once_and_bars_what_is_no_negative(bert: Path) -> None:
    data, model = training_data(), loaded(bert)
    pairs = TextPairs.of(data)
    negatives = MinedNegatives(pairs, np.arange(len(pairs)), per_pair=2, depth=5, seed=0)
    vectors = encoded(model, pairs.queries), encoded(model, pairs.memories)
    negatives.mine(0, *vectors)
    batch = PairBatches(model, pairs, negatives, dict(NO_PROMPTS))(
        [{"label": i} for i in (0, 1, 5)]
    )
    label = batch["label"]
    count = sum(len(ids) for key, ids in batch.items() if key.endswith("_input_ids"))
    assert count == 3 + len(label["document"])
    assert 3 < len(label["document"]) <= 9
    assert sorted([*label["query"].tolist(), *label["document"].tolist()]) == list(range(count))
    gold = label["barred"][[0, 1, 2], label["gold"].tolist()]
    assert not gold.any()
    for pair in (0, 1, 5):
        drawn = negatives.of(pair)
        assert len(set(drawn)) == 2
        assert drawn == negatives.of(pair)
        assert pairs.allowed(np.array([pair]))[0, drawn].all()
    assert negatives.of(0) != [pairs.gold[0]] * 2


def test_negatives_are_the_best_of_the_bank_that_are_allowed() -> None:
    mask = np.array([[False, True, True, False]])
    pairs = TextPairs(("q",), tuple("abcd"), np.array([0]), np.array([0]), 3, mask.__getitem__)
    negatives = MinedNegatives(pairs, np.array([0]), per_pair=3, depth=3, seed=0)
    memories = np.array([[1.0], [0.5], [0.9], [2.0]], np.float32)  # d is not of the bank
    negatives.mine(0, np.array([[1.0]], np.float32), memories)
    assert negatives.found[0].tolist() == [2, 1, 1]
    assert sorted(negatives.of(0)) == [1, 2]


def test_the_loss_is_the_cross_entropy_over_documents_that_are_not_barred(bert: Path) -> None:
    import torch

    from training.ranking_trainer import MaskedRankingLoss

    class Given(torch.nn.Module):
        def forward(self, part: Any) -> Any:
            return part

    made = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [1.0, 0.0]])
    labels = {
        "query": torch.tensor([0]),
        "document": torch.tensor([1, 2, 3]),
        "gold": torch.tensor([0]),
        "barred": torch.tensor([[False, False, True]]),
    }
    parts = [{"sentence_embedding": made[:2]}, {"sentence_embedding": made[2:]}]
    loss = MaskedRankingLoss(Given(), scale=2.0)(parts, labels)
    assert float(loss) == pytest.approx(-math.log(math.exp(1.2) / (math.exp(1.2) + 1)), rel=1e-6)


# Training


def training(bert: Path, folder: Path, held: int, recipe: Recipe = RECIPE) -> EncoderTraining:
    model = loaded(bert)
    FrozenLayers(model, 1)
    pairs = TextPairs.of(training_data())
    numbers = np.arange(len(pairs))
    return EncoderTraining(
        *(model, pairs, numbers[held:], numbers[:held], recipe, dict(NO_PROMPTS), folder, 0)
    )


class Interrupted(Exception):
    pass


def interrupted(made: EncoderTraining, at: int) -> None:
    """Run a training until it has saved a checkpoint at step `at`, or later."""
    save = made.save_progress

    def save_and_stop(step: int) -> None:
        save(step)
        if step >= at:
            raise Interrupted

    made.save_progress = save_and_stop  # type: ignore[method-assign]
    with pytest.raises(Interrupted):
        made.run()


def outcome(folder: Path, history: list[EpochResult]) -> tuple[bytes, list[EpochResult]]:
    assert sorted(path.name for path in folder.iterdir()) == ["history.json", WEIGHTS]
    return (folder / WEIGHTS).read_bytes(), history


def test_a_resumed_training_ends_byte_equal(bert: Path, tmp_path: Path) -> None:
    whole = outcome(tmp_path / "a", training(bert, tmp_path / "a", held=4).run())
    losses = [one.loss for one in whole[1]]
    assert losses[-1] < losses[0]
    for at in (2, 3):  # within the first epoch of three steps, and at its end
        folder = tmp_path / f"b{at}"
        interrupted(training(bert, folder, held=4), at)
        (folder / "checkpoint-99").mkdir()  # what a killed process had not finished
        assert outcome(folder, training(bert, folder, held=4).run()) == whole
    again = training(bert, folder, held=4)
    assert outcome(folder, again.run()) == whole
    assert again.history == []  # nothing was trained
    assert whole[1][0].held_out is not None


def test_negatives_are_mined_once_by_the_base_model(bert: Path, tmp_path: Path) -> None:
    recipe = replace(RECIPE, epochs=2, mine="once")
    made = training(bert, tmp_path / "a", held=0, recipe=recipe)
    model, pairs = made.model, made.pairs
    base = MinedNegatives(pairs, made.train, recipe.negatives, recipe.mined, made.seed)
    base.mine(0, encoded(model, pairs.queries), encoded(model, pairs.memories))
    made.run()
    assert made.negatives.epoch == 1
    np.testing.assert_array_equal(made.negatives.found, base.found)


def test_a_training_stops_without_gain_and_keeps_the_best_epoch(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = iter([0.5, 0.6, 0.6])
    monkeypatch.setattr("training.encoder_training.held_out_rank", lambda *a: next(figures))
    recipe = Recipe(epochs=9, batch_size=24, learning_rate=1e-3, patience=1)
    made = training(bert, tmp_path / "a", held=2, recipe=recipe)
    kept: list[bytes] = []
    keep = made._keep

    def keep_and_note(path: Path) -> None:
        keep(path)
        kept.append(path.read_bytes())

    made._keep = keep_and_note  # type: ignore[method-assign]
    history = made.run()
    assert [one.held_out for one in history] == [0.5, 0.6, 0.6]
    first, second, result = kept
    assert result == second != first


# The command


def own_file(folder: Path) -> Path:
    """A user's file: twelve sessions with a query and a pool of six memories."""
    data = training_data(12)
    bank = data.bank
    rows = [
        {
            "id": one.session,
            "session": one.session,
            "query": one.query,
            "memories": [one.memory, *bank[20 + i % 8 : 25 + i % 8]],
            "gold": 0,
        }
        for i, one in enumerate(data.examples)
    ]
    return write_lines(folder / "own.jsonl", rows)


FAST = ("--epochs", 1, "--batch-size", 8, "--learning-rate", 1e-3, "--freeze-layers", 1)


@pytest.fixture(scope="module")
def finetuned(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that was fine-tuned on a user's file, with two seeds."""
    folder = tmp_path_factory.mktemp("finetuned")
    data = own_file(folder)
    run(
        *(app, "--data", data, "--base-model", bert, "--out", folder / "model", *FAST),
        *("--seeds", 2),
        code=0,
    )
    return folder


def test_dense_takes_the_folder_and_knows_its_sessions(bert: Path, finetuned: Path) -> None:
    dense = Dense(str(finetuned / "model"))
    assert set(dense.trained_on) == {session_digest(f"s{i}") for i in range(12)}
    assert Dense(str(bert)).trained_on == ()
    pool = [Memory(text) for text in texts(5)]
    assert not np.allclose(dense.score("w1 w2", pool), Dense(str(bert)).score("w1 w2", pool))
    assert [path.name for path in finetuned.iterdir()] != []
    assert not (finetuned / "model.checkpoints").exists()


def test_the_card_holds_provenance_and_no_text(bert: Path, finetuned: Path) -> None:
    card = read_json(finetuned / "model" / "training_card.json")
    assert card["base"][0]["name"] == bert.name
    assert "--seeds 2" in card["command"]
    assert card["number_of_sessions"] == 12
    for path in (finetuned / "model").rglob("*"):
        if path.suffix in (".json", ".md") and "tokenizer" not in path.name:
            content = path.read_text(encoding="utf-8")
            assert "w3 " not in content, path
            assert str(bert.parent) not in content, path


def test_a_compact_model_scores_like_the_whole_one(bert: Path, finetuned: Path) -> None:
    out = finetuned / "compact"
    words = ("--data", finetuned / "own.jsonl", "--base-model", bert, "--out", out, *FAST)
    done = run(app, *words, "--seeds", 2, "--compact", "--rank", 12, code=0)
    assert "of the squared change of the weights is kept" in done.stdout
    pool = [Memory(text) for text in texts(8)]
    whole, compact = (Dense(str(finetuned / name)) for name in ("model", "compact"))
    base = Dense(str(bert)).score("w1 w2", pool)
    change = np.abs(whole.score("w1 w2", pool) - base).max()
    assert np.abs(whole.score("w1 w2", pool) - compact.score("w1 w2", pool)).max() < change / 3
    assert compact.trained_on == whole.trained_on
    assert not list(out.glob("model.safetensors"))


def test_a_compact_model_of_another_base_is_refused(finetuned: Path, tmp_path: Path) -> None:
    other = save_bert(tmp_path / "other", [*WORDS, "more"], kind="BertModel")
    folder = tmp_path / "compact"
    folder.mkdir()
    for name in ("compact.json", "differences.safetensors"):
        source = finetuned / "compact" / name
        if not source.exists():
            pytest.skip("the test before has not made it")
        shutil.copy(source, folder)
    content = read_json(folder / "compact.json")
    (folder / "compact.json").write_text(json.dumps({**content, "base": str(other)}))
    with pytest.raises(ValueError, match="was made from another"):
        Dense(str(folder)).score("w1", [Memory("w2")])
    (folder / "compact.json").write_text(json.dumps({**content, "format": 9}))
    with pytest.raises(ValueError, match=r"compact\.json: is no compact model \(format 9"):
        read_compact(folder)


def test_folds_are_measured_on_sessions_that_they_did_not_see(bert: Path, tmp_path: Path) -> None:
    data, out = own_file(tmp_path), tmp_path / "folds"
    words = ("--data", data, "--base-model", bert, "--out", out, *FAST, "--folds", 2)
    done = run(app, *words, code=0)
    assert "2 folds" in done.stdout
    figures = read_json(out / "crossvalidation.json")
    assert figures["queries"] == 12
    assert set(figures["retrievers"]) == {"minilm", bert.name, "finetuned"}
    cards = [read_json(out / name / "training_card.json") for name in ("fold-0", "fold-1")]
    first, second = (set(card["sessions"]) for card in cards)
    assert not first & second
    assert len(first | second) == 12
    assert read_json(out / "folds.json")["retriever"] == "dense"


def test_a_model_that_saw_the_sessions_is_not_cross_validated(
    finetuned: Path, tmp_path: Path
) -> None:
    words = ("--data", finetuned / "own.jsonl", "--base-model", finetuned / "model")
    done = run(app, *words, "--out", tmp_path / "folds", *FAST, "--folds", 2)
    one_line_error(done, "was trained on 12 of these 12 sessions")


def test_an_unfinished_training_is_resumed_on_request_only(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--data", own_file(tmp_path), "--base-model", bert, "--out", tmp_path / "m", *FAST)

    def killed(self: EncoderTraining, checkpoint: Path | None) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(EncoderTraining, "_train", killed)
        assert run(app, *words).exit_code != 0
    assert not (tmp_path / "m").exists()
    one_line_error(run(app, *words), "holds an unfinished training", "--resume")
    other = run(app, *words, "--resume", "--loss-temperature", 0.1)
    one_line_error(other, "is another training (settings.loss_temperature", after_notes=True)
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "training_card.json").write_text("{}")  # it was to be replaced
    run(app, *words, "--resume", code=0)
    assert (tmp_path / "m" / "model.safetensors").is_file()
    assert not (tmp_path / "m.checkpoints").exists()
    assert "is finished already" in run(app, *words, "--resume", code=0).stderr
    one_line_error(run(app, *words), "already exists")


@pytest.mark.large
def test_minilm_learns_the_sample(tmp_path: Path) -> None:
    out = tmp_path / "folds"
    words = ("--examples", "query", "--folds", 2, "--epochs", 1, "--distractors", 10)
    run(app, "--out", out, *words, code=0)
    found = read_json(out / "crossvalidation.json")["retrievers"]["finetuned"]["R@1"]
    assert found["10"]["mean"] > 0.3
