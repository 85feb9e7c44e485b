"""Models with their own prompts or a network for each role, and vectors without a direction."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexes.build import app as build_app
from indexes.embedding_store import EmbeddingStore
from indexes.indexed_store import IndexedStore
from indexes.search import app as search_app
from indexes.sentence_encoder import SentenceEncoder
from recallbed.corpus.records import Memory
from recallbed.errors import UserError
from recallbed.harness.checksums import seal
from recallbed.harness.configurations import Configuration, parse_configurations
from recallbed.harness.fingerprint import canonical
from retrievers import RunContext, build_retriever
from retrievers.dense import Dense
from tests.kit import (
    WriteRelease,
    checked,
    one_line_error,
    rows_of,
    run,
    run_json,
    swept,
    write_lines,
)
from tests.tiny_models import save_static, static

WORDS = {
    "tea": (1.0, 0.0, 0.0),
    "cat": (0.0, 1.0, 0.0),
    "ask:": (0.0, 2.0, 0.5),
    "kept:": (0.5, 0.0, 2.0),
}
QUERY, MEMORIES = "ask: ", "kept: "
POOL = [Memory("tea"), Memory("cat"), Memory("tea cat")]


def model(folder: Path, prompts: dict[str, str], default: str | None = None) -> Path:
    return save_static(folder / "tiny", WORDS, prompts=prompts, default_prompt_name=default)


def unit(*words: str) -> Any:
    total = np.sum([WORDS[word] for word in words], axis=0)
    return total / np.linalg.norm(total)


def cosine(query: str, memory: str) -> float:
    return float(unit(*query.split()) @ unit(*memory.split()))


@pytest.mark.parametrize(
    ("prompts", "default", "expected"),
    [
        ({"query": QUERY, "document": MEMORIES}, None, (QUERY, MEMORIES)),
        ({"query": QUERY, "passage": MEMORIES}, None, (QUERY, MEMORIES)),
        ({"query": QUERY, "corpus": MEMORIES}, None, (QUERY, MEMORIES)),
        ({"query": QUERY}, None, (QUERY, "")),
        ({"all": QUERY}, "all", (QUERY, QUERY)),
        ({"query": QUERY, "all": MEMORIES}, "all", (QUERY, MEMORIES)),
        ({"all": QUERY}, None, ("", "")),
        ({}, None, ("", "")),
    ],
)
@pytest.mark.parametrize("retriever", ["dense", "faiss"])
def test_a_models_own_prompts_are_used_and_recorded(
    tmp_path: Path,
    prompts: dict[str, str],
    default: str | None,
    expected: tuple[str, str],
    retriever: str,
) -> None:
    folder = model(tmp_path, prompts, default)
    [configuration] = parse_configurations(
        [f"x={retriever}"], [f"x.model={folder}", "x.device=cpu"]
    )
    one = checked(Dense, build_retriever(configuration, RunContext()))
    found = {role: one.settings()[f"{role}_prompt"] for role in ("query", "memory")}
    assert found == dict(zip(("query", "memory"), expected, strict=True))
    by_hand = [cosine(f"{expected[0]}tea", f"{expected[1]}{memory.text}") for memory in POOL]
    assert np.asarray(one.score("tea", POOL)) == pytest.approx(by_hand, abs=1e-6)
    one.prepare(["tea"], POOL)
    assert np.asarray(one.score("tea", POOL)) == pytest.approx(by_hand, abs=1e-6)
    shown = {key: text for key, text in one.notes().items() if key.endswith("prompt")}
    assert shown == {f"{role}_prompt": text for role, text in found.items() if text}


def test_the_vectors_are_those_of_sentence_transformers(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    folder = model(tmp_path, {"query": QUERY, "document": MEMORIES})
    peer, encoder = (
        SentenceTransformer(str(folder), device="cpu"),
        SentenceEncoder(str(folder), "cpu"),
    )
    for role, encode in (("query", peer.encode_query), ("memory", peer.encode_document)):
        expected = encode(["tea", "tea cat"], normalize_embeddings=True)
        assert encoder.encode(["tea", "tea cat"], role=role)[0] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("settings", "query", "memory"),
    [
        ({"query_prompt": "none", "memory_prompt": "none"}, "tea", "cat"),
        ({"query_prompt": "cat "}, "cat tea", "kept: cat"),
        ({"memory_prompt": "none"}, "ask: tea", "cat"),
        ({"query_prefix": "cat "}, "cat tea", "kept: cat"),  # a prefix replaces the model's prompt
        ({"query_prefix": "cat ", "query_prompt": "tea "}, "tea cat tea", "kept: cat"),
    ],
)
def test_settings_override_them(
    tmp_path: Path, settings: dict[str, str], query: str, memory: str
) -> None:
    folder = model(tmp_path, {"query": QUERY, "document": MEMORIES})
    one = Dense(str(folder), device="cpu", **settings)  # type: ignore[arg-type]
    assert one.score("tea", [Memory("cat")])[0] == pytest.approx(cosine(query, memory), abs=1e-6)


def test_the_store_keeps_vectors_of_other_prompts_apart(tmp_path: Path) -> None:
    folder = str(model(tmp_path, {"query": QUERY, "all": MEMORIES}, "all"))
    for _ in range(2):
        store = EmbeddingStore(tmp_path / "store.sqlite")
        for prompts, query, memory in (
            ({}, "ask: tea", "kept: tea"),
            ({"query": "none", "memory": "none"}, "tea", "tea"),
            ({"query": "cat "}, "cat tea", "kept: tea"),
        ):
            encoder = SentenceEncoder(folder, "cpu", store=store, prompts=prompts)  # type: ignore[arg-type]
            assert encoder.encode(["tea"], role="query")[0][0] == pytest.approx(
                unit(*query.split()), abs=1e-6
            )
            assert encoder.encode(["tea"])[0][0] == pytest.approx(unit(*memory.split()), abs=1e-6)


def test_a_model_with_a_network_for_each_is_asked_by_role(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Router

    turned = {word: vector[::-1] for word, vector in WORDS.items()}
    router = Router.for_query_document([static(turned)], [static(WORDS)])
    SentenceTransformer(modules=[router], device="cpu").save(str(tmp_path / "routed"))
    encoder = SentenceEncoder(
        str(tmp_path / "routed"), "cpu", store=EmbeddingStore(tmp_path / "s.sqlite")
    )
    for _ in range(2):  # the second time from the store
        assert encoder.encode(["tea"], role="query")[0].tolist() == [[0, 0, 1]]
        assert encoder.encode(["tea"])[0].tolist() == [[1, 0, 0]]
    assert not encoder.symmetric


def test_a_configuration_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    folder = model(tmp_path, {})
    for content in ("{", '{"prompts": 3}', '{"prompts": {"query": 3}}', "[1]"):
        (folder / "config_sentence_transformers.json").write_text(content)
        with pytest.raises(UserError, match="config_sentence_transformers") as caught:
            SentenceEncoder(str(folder))
        assert "\n" not in str(caught.value)


def test_a_store_is_built_and_searched_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = model(tmp_path, {"query": QUERY, "document": MEMORIES})
    write_lines(tmp_path / "mine.jsonl", [{"text": memory.text} for memory in POOL])
    run(build_app, "mine.jsonl", "--out", "store", "--model", folder, "--kind", "flat", code=0)
    found = run_json(search_app, "store", "tea", "-k", "3")
    scores = {hit["text"]: hit["score"] for hit in found["hits"]}
    for text, score in scores.items():
        assert score == pytest.approx(cosine("ask: tea", f"kept: {text}"), abs=1e-5)
    header = IndexedStore(Path("store")).header
    assert header.memory_prompt == MEMORIES
    # As a recallbed without prompts left it: its vectors don't fit to the queries of this one.
    older = {key: value for key, value in asdict(header).items() if key != "memory_prompt"}
    Path("store/store.json").write_bytes(seal(canonical(older).encode()))
    one_line_error(run(search_app, "store", "tea"), "Build the store again")


# --- vectors without a direction


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    return save_static(tmp_path / "plain", {"tea": (1.0, 0.0), "cat": (0.6, 0.8)})


@pytest.mark.parametrize("name", ["dense", "faiss"])
def test_a_text_without_a_vector_scores_zero_and_is_counted(plain: Path, name: str) -> None:
    settings = {"model": str(plain), "device": "cpu"}
    one = checked(Dense, build_retriever(Configuration("x", name, settings), RunContext()))
    pool = [Memory("tea"), Memory(""), Memory("zebra"), Memory("  "), Memory("cat")]
    one.prepare(["cat", "quagga"], pool)
    assert np.asarray(one.score("cat", pool)) == pytest.approx([0.6, 0, 0, 0, 1], abs=1e-6)
    assert np.asarray(one.score("quagga", pool)).tolist() == [0.0] * 5
    assert (one.trust("quagga"), one.trust("cat")) == (0.0, 1.0)
    assert one.trust("never seen") == 0.0
    assert one.notes()["zero_vector_queries"] == 1
    assert one.notes()["zero_vector_memories"] == 3


def test_zero_vectors_in_the_store_are_counted_again(plain: Path, tmp_path: Path) -> None:
    context = RunContext(store=tmp_path / "store.sqlite")
    for _ in range(2):
        one = Dense.from_run({"model": str(plain), "device": "cpu"}, context)
        one.prepare(["quagga"], [Memory("tea"), Memory("zebra")])
        found = one.notes()
        assert (found["zero_vector_queries"], found["zero_vector_memories"]) == (1, 1)


def test_a_sweep_with_unknown_words_ends_with_their_count(
    plain: Path, write_release: WriteRelease, tmp_path: Path
) -> None:
    queries = [("tea", ["tea", "zebra", "cat"], 0), ("quagga", ["cat", "tea", "gnu"], 1)]
    settings = [f"d.model={plain}", "d.device=cpu", "h.legs=bm25,d"]
    release, out = write_release(queries), tmp_path / "run"
    both = swept(["d=dense", "h=hybrid"], release, settings=settings, distractors=(2,), out=out)
    notes = both.summary["notes"]["d"]
    assert (notes["zero_vector_queries"], notes["of_queries"]) == (1, 2)
    rows = rows_of(out)
    assert [row["error"] for row in rows] == [None] * 4
    tied = {(row["retriever"], row["query"][-1:]): row["tied"] for row in rows}
    assert sorted(tied.values()) == [1, 1, 3, 3]


def test_a_vector_that_is_not_finite_is_an_error_that_names_the_text(tmp_path: Path) -> None:
    folder = save_static(tmp_path / "nan", {"tea": (1.0, 0.0), "cat": (float("nan"), 0.8)})
    with pytest.raises(UserError, match=r"nan: the vector of 'cat' is not finite"):
        Dense(str(folder), device="cpu").score("tea", [Memory("tea"), Memory("cat")])


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_an_index_keeps_them_and_says_how_many(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    texts = ["tea", "zebra", "gnu", "cat"]
    write_lines(tmp_path / "mine.jsonl", [{"text": text} for text in texts])
    done = run(build_app, "mine.jsonl", "--out", "store", "--model", plain, "--kind", kind, code=0)
    assert "2 of 4 memories have a vector of zeros (first: id 1)" in done.stderr
    found = run_json(search_app, "store", "cat", "-k", "4")
    hits = [(hit["text"], hit["score"]) for hit in found["hits"]]
    assert hits == [("cat", 1.0), ("tea", pytest.approx(0.6)), ("zebra", 0.0), ("gnu", 0.0)]
    nothing = run(search_app, "store", "quagga", code=0)
    assert "nothing matches" in nothing.stdout
