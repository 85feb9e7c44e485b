"""retrievers/dense.py on the real MiniLM weights, over a small invented pool."""

import json
import pickle
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexes.embedding_store import VectorBatch
from indexes.encoder import Role
from recallbed.corpus.options import Strategy
from recallbed.corpus.records import Memory
from recallbed.errors import UserError
from recallbed.harness.configurations import parse_configurations
from retrievers import RunContext, build_retriever
from retrievers.dense import Dense, MiniLM
from tests.kit import WriteRelease, swept
from tests.test_encoder import rows_matter
from tests.test_scoring import pools_of, rows_of

QUERY = "Which drink should I order this morning?"
TEXTS = [
    "Starts every day with an espresso",
    "Owns a red bicycle",
    "每天早上喝一杯豆浆",
    "Allergic to peanuts",
    "Starts every day with an espresso",
    "Studies the history of bridges in the evenings, and has been writing a book about them",
]
POOL = [Memory(text) for text in TEXTS]
ROWS = [
    (QUERY, TEXTS[:4], 0),
    ("What may I not eat?", ["Allergic to peanuts", "Has a twin sister", "Owns a boat"], 0),
    ("Wie komme ich zur Arbeit?", ["Plays chess", "Sleeps badly", "Owns a red bicycle"], 2),
]


@pytest.fixture(scope="module")
def minilm() -> MiniLM:
    return MiniLM(device="cpu")


class Recorded(MiniLM):
    """MiniLM that keeps a list of the texts its model was really given."""

    def __init__(self) -> None:
        super().__init__(device="cpu")
        self.given: list[str] = []
        batches = self.encoder.batches

        def recording(texts: Sequence[str], role: Role = "memory") -> Iterator[VectorBatch]:
            for made in batches(texts, role):
                self.given += [texts[i] for i in made.places]
                yield made

        self.encoder.batches = recording


class PerPool(MiniLM):
    """MiniLM scored pool by pool, as a retriever that is not declared pool-independent."""

    @property
    def pool_independent(self) -> bool:
        return False


# --- scores


def test_scores_are_the_cosines_of_sentence_transformers(minilm: MiniLM) -> None:
    from sentence_transformers import SentenceTransformer

    peer = SentenceTransformer(str(minilm.encoder.folder), device="cpu", local_files_only=True)
    expected = peer.similarity(peer.encode(QUERY), peer.encode(TEXTS))[0].numpy()
    found = minilm.score(QUERY, POOL)
    assert found.dtype == np.float64
    assert np.allclose(found, expected, atol=1e-5)


def test_the_memory_that_answers_comes_first(minilm: MiniLM) -> None:
    scores = minilm.score(QUERY, POOL)
    assert scores.argmax() in (0, 4)
    assert scores[2] > scores[1]  # the Chinese breakfast beats the bicycle


def test_a_score_has_the_same_bits_among_any_other_memories(minilm: MiniLM) -> None:
    whole = minilm.score(QUERY, POOL)
    for i, memory in enumerate(POOL):
        assert minilm.score(QUERY, [memory])[0] == whole[i]
        assert (minilm.score(QUERY, [memory] * 50) == whole[i]).all()


def test_an_empty_pool_has_no_scores(minilm: MiniLM) -> None:
    assert minilm.score(QUERY, []).shape == (0,)


def test_an_empty_text_has_a_score_like_any_other(minilm: MiniLM) -> None:
    assert np.isfinite(minilm.score("", [Memory(""), Memory("Owns a red bicycle")])).all()


def test_the_label_of_a_memory_is_not_read(minilm: MiniLM) -> None:
    labelled = [Memory(text, "Preferences/Food") for text in TEXTS]
    assert (minilm.score(QUERY, labelled) == minilm.score(QUERY, POOL)).all()


@pytest.mark.parametrize("name", ["minilm", "faiss"])
@pytest.mark.parametrize("prepared", [True, False])
def test_memories_that_are_equal_to_the_model_tie_exactly(name: str, prepared: bool) -> None:
    """Whether they are encoded in one batch or, unprepared, in two calls."""
    long = [Memory("tea " * 300 + end) for end in ("and a cat", "and a dog")]
    pool = [Memory("Owns a RED bicycle"), *long, *POOL, Memory("owns a  red bicycle")]
    [configuration] = parse_configurations([f"x={name}"], ["x.device=cpu"])
    retriever = build_retriever(configuration, RunContext())
    rows_matter(retriever.encoder)
    if prepared:
        retriever.prepare([QUERY], pool)
    else:
        for memory in pool:
            retriever.score(QUERY, [memory])
    scores = np.asarray(retriever.score(QUERY, pool))
    assert scores[1] == scores[2]
    assert scores[0] == scores[4] == scores[-1]
    assert len(set(scores)) == len(pool) - 4  # the fourth is the espresso, twice in the pool


# --- one model under two names


def test_minilm_is_dense_on_the_packaged_model(minilm: MiniLM) -> None:
    dense = Dense(device="cpu")
    assert dense.settings() == minilm.settings()
    assert (dense.score(QUERY, POOL) == minilm.score(QUERY, POOL)).all()


# --- what is encoded, and how often


def test_each_distinct_text_is_encoded_once(minilm: MiniLM) -> None:
    recorded = Recorded()
    recorded.prepare([QUERY, "Owns a red bicycle"], POOL)  # one query is a memory's text too
    for pool in (POOL, POOL[2:], POOL * 3):
        recorded.score(QUERY, pool)
    recorded.score("Owns a red bicycle", [*POOL, Memory("Not seen before"), POOL[0]])
    recorded.score("A query not seen before", [Memory("Not seen before")])
    expected = {*TEXTS, QUERY, "Not seen before", "A query not seen before"}
    assert Counter(recorded.given) == dict.fromkeys(expected, 1)


def test_a_sweep_encodes_each_distinct_text_once(write_release: WriteRelease) -> None:
    pools = pools_of(write_release(ROWS), (2, 3, 5), seeds=(0, 1))
    recorded = Recorded()
    recorded.prepare(sorted({row.query for row in pools.rows}), pools.memories)
    rows_of(recorded, pools)
    expected = {m.text for m in pools.memories} | {row.query for row in pools.rows}
    assert Counter(recorded.given) == dict.fromkeys(expected, 1)


def test_a_copy_carries_the_vectors_and_not_the_model(minilm: MiniLM) -> None:
    prepared = MiniLM(device="cpu")
    prepared.prepare([QUERY], POOL)
    frozen = pickle.dumps(prepared)
    assert len(frozen) < 50_000
    thawed: MiniLM = pickle.loads(frozen)
    assert (thawed.score(QUERY, POOL) == prepared.score(QUERY, POOL)).all()
    assert "_model" not in vars(thawed.encoder)


# --- prefixes


def test_prefixes_are_put_before_the_texts_unchanged(minilm: MiniLM) -> None:
    dense = Dense(query_prefix="query: ", memory_prefix="passage:", device="cpu")
    by_hand = minilm.score(f"query: {QUERY}", [Memory(f"passage:{text}") for text in TEXTS])
    assert np.allclose(dense.score(QUERY, POOL), by_hand, atol=1e-6)
    dense.prepare([QUERY], POOL)
    assert np.allclose(dense.score(QUERY, POOL), by_hand, atol=1e-6)
    assert abs(by_hand - minilm.score(QUERY, POOL)).max() > 1e-3


def test_a_text_that_is_query_and_memory_gets_both_prefixes() -> None:
    text = "Owns a red bicycle"
    apart = Dense(query_prefix="search for: ", device="cpu").score(text, [Memory(text)])
    same = Dense(device="cpu").score(text, [Memory(text)])
    assert same[0] == pytest.approx(1, abs=1e-6)
    assert apart[0] < 0.99


def test_prefixes_come_through_the_command_line_with_their_blanks() -> None:
    [configuration] = parse_configurations(
        ["e5=dense"], ["e5.query_prefix=query: ", "e5.memory_prefix= = ", "e5.device=cpu"]
    )
    settings = build_retriever(configuration, RunContext()).settings()
    assert (settings["query_prefix"], settings["memory_prefix"]) == ("query: ", " = ")


# --- settings


@pytest.mark.parametrize(
    "change", [{"query_prefix": "q"}, {"memory_prefix": "m"}, {"max_tokens": 9}, {"batch_size": 3}]
)
def test_every_setting_that_can_change_a_score_is_recorded(change: dict[str, Any]) -> None:
    plain, other = Dense(device="cpu").settings(), Dense(device="cpu", **change).settings()
    assert {key: other[key] for key in other if other[key] != plain[key]} == change
    json.dumps(other, allow_nan=False)


@pytest.mark.parametrize("word", ["x.batch_size=0", "x.batch_size=many", "x.pooling=cls"])
def test_a_wrong_setting_is_a_users_mistake(word: str) -> None:
    [configuration] = parse_configurations(["x=dense"], [word])
    with pytest.raises(UserError, match="x"):
        build_retriever(configuration, RunContext())


# --- truncation


LONG = "once upon a time " * 80


def test_texts_past_the_limit_are_counted_by_kind() -> None:
    minilm = MiniLM(device="cpu")
    assert minilm.notes() == {}
    minilm.prepare([QUERY, LONG], [Memory(LONG + end) for end in "ab"] + POOL)
    assert minilm.notes() == {
        "truncated_queries": 1,
        "of_queries": 2,
        "truncated_memories": 2,
        "of_memories": 2 + len(set(TEXTS)),
    }


def test_a_prefix_can_push_a_text_past_the_limit() -> None:
    dense = Dense(memory_prefix="passage ", max_tokens=7, device="cpu")
    dense.prepare(["one two three four five"], [Memory("one two three four five")])
    assert dense.notes() == {
        "truncated_queries": 0,
        "of_queries": 1,
        "truncated_memories": 1,
        "of_memories": 1,
    }


def test_preparing_again_counts_the_same() -> None:
    """A sweep prepares twice when --retry-failed is given for a run that was interrupted too."""
    minilm = MiniLM(device="cpu")
    minilm.prepare([QUERY], [Memory(LONG), *POOL])
    first = minilm.notes()
    minilm.prepare([QUERY], [Memory(LONG), *POOL])
    assert minilm.notes() == first
    assert first["truncated_memories"] == 1


def test_truncation_is_in_the_summary_of_a_run(write_release: WriteRelease, tmp_path: Path) -> None:
    release = write_release([(QUERY, [TEXTS[0], LONG, "Plays chess"], 0), *ROWS[1:]])
    options = {"settings": ["m.device=cpu"], "distractors": (2,), "out": tmp_path / "run"}
    notes = swept(["m=minilm"], release, **options).summary["notes"]["m"]
    # The three pools hold nine memories; chess is in two of them.
    assert (notes["truncated_memories"], notes["of_memories"]) == (1, 8)
    assert (notes["truncated_queries"], notes["of_queries"]) == (0, 3)
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["notes"]["m"] == notes


# --- a union of pools is scored once


@pytest.mark.parametrize("how", ["nested", "as-released"])
def test_union_scoring_gives_the_rows_of_scoring_pool_by_pool(
    write_release: WriteRelease, how: Strategy
) -> None:
    pools = pools_of(write_release(ROWS), (2, 3, 5), seeds=(0, 1), how=how)
    union, single = MiniLM(device="cpu"), PerPool(device="cpu")
    for retriever in (union, single):
        retriever.prepare(sorted({row.query for row in pools.rows}), pools.memories)
    found = rows_of(union, pools)
    assert found == rows_of(single, pools)
    assert len(found) == 3 * 2 * len(ROWS)
    assert not any(row["error"] for row in found)


# --- GPU


def test_cpu_and_cuda_agree_to_1e_5() -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA here")
    cpu, cuda = (MiniLM(device=device) for device in ("cpu", "cuda"))
    assert (cpu.settings()["device"], cuda.settings()["device"]) == ("cpu", "cuda")
    assert abs(cpu.score(QUERY, POOL) - cuda.score(QUERY, POOL)).max() <= 1e-5
    assert abs(cpu.encoder.encode(TEXTS)[0] - cuda.encoder.encode(TEXTS)[0]).max() <= 1e-5
