"""Flat, HNSW, IVF-PQ and bm25s, each held to the contract and to what is its own."""

import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexes.base import (
    FLAT_UP_TO,
    HNSW_UP_TO,
    IndexingError,
    MutableIndex,
    NotAnIndex,
    NotFinite,
    TooFewPoints,
    WrongWidth,
    kind_for,
    make_index,
    open_index,
)
from indexes.files import write_index
from indexes.flat import Flat
from indexes.hnsw import COMPACT_AT, HNSW
from indexes.ivfpq import IVFPQ
from indexes.lexical import Lexical
from indexes.vector_index import stream_index
from recallbed.corpus.records import Memory
from retrievers.bm25 import BM25
from tests.index_contract import IndexContract, MutableIndexContract

WIDTH = 16


def unit_vectors(seed: int, count: int, width: int = WIDTH) -> Any:
    vectors = np.random.default_rng(seed).standard_normal((count, width), np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def filled(index: Any, items: Any, ids: Any = None) -> Any:
    """The index, built with these items under their numbers unless `ids` are given."""
    index.build(np.arange(len(items)) if ids is None else ids, items)
    return index


class Dense(MutableIndexContract):
    """What indexes of vectors share."""

    __test__ = False

    def items(self, seed: int, count: int) -> Any:
        return unit_vectors(seed, max(count, 400))[:count]

    def test_both_widths_and_the_model_are_named(self, index: Any) -> None:
        for call in (lambda v: index.add(np.arange(3), v), lambda v: index.search(v, 1)):
            with pytest.raises(WrongWidth, match=rf"width 20 .* width {WIDTH}, made by a-model"):
                call(unit_vectors(0, 3, 20))
        assert len(index) == self.count

    def test_a_vector_that_is_not_finite_is_named(self, index: Any) -> None:
        vectors = np.array(self.items(0, self.count))
        vectors[2, 3] = np.nan
        empty = self.make()
        with pytest.raises(NotFinite, match=f"vector 2 of {self.count}"):
            empty.build(self.ids(), vectors)
        assert len(empty) == 0
        with pytest.raises(NotFinite, match="query vector 0 of 1"):
            index.search(np.full((1, WIDTH), np.inf, np.float32), 3)

    @pytest.mark.parametrize("strange", [[["a"] * WIDTH], [[1.0], [1.0, 2.0]], np.ones(WIDTH)])
    def test_what_is_no_matrix_of_numbers_is_one_line(self, index: Any, strange: Any) -> None:
        with pytest.raises(IndexingError, match="matrix"):
            index.search(strange, 1)

    def test_lengths_whose_products_overflow_are_refused(self, index: Any) -> None:
        with pytest.raises(NotFinite, match="vector 0 of 1"):
            index.add([0], np.full((1, WIDTH), 1e30))

    def test_build_is_for_an_empty_index(self, index: Any) -> None:
        with pytest.raises(IndexingError, match="Use add"):
            index.build(np.arange(self.count), self.items(0, self.count))
        assert len(index) == self.count
        for hit in self.ask(index, self.count):
            assert (hit.ids >= 2**40).all()

    def test_adding_stopped_half_way_leaves_the_index_as_it_was(self, index: Any) -> None:
        if index.kind == "flat":
            pytest.skip("nothing of FAISS's to stop")
        before = [hit.ids.tolist() for hit in self.ask(index, 10)]
        inner = index._graph if index.kind == "hnsw" else index._index
        name = "add" if index.kind == "hnsw" else "add_with_ids"

        def stopped(vectors: Any, *ids: Any) -> None:
            getattr(type(inner), name)(inner, vectors[:2], *(i[:2] for i in ids))
            raise KeyboardInterrupt

        setattr(inner, name, stopped)
        with pytest.raises(KeyboardInterrupt):
            index.add(np.arange(5), self.items(1, 5))
        delattr(inner, name)
        assert len(index) == self.count
        assert [hit.ids.tolist() for hit in self.ask(index, 10)] == before
        index.add(np.arange(5), self.items(1, 5))
        assert index.search(self.items(1, 5)[1:2], 1)[0].ids.tolist() == [1]

    def test_an_empty_index_is_saved_too(self, tmp_path: Path) -> None:
        self.make().save(tmp_path / "index")
        again = type(self.make()).load(tmp_path / "index")
        assert len(again) == 0
        again.build(self.ids(), self.items(0, self.count))
        assert len(again) == self.count

    def test_a_full_disk_is_one_line_and_the_old_index_stays(
        self, index: Any, tmp_path: Path
    ) -> None:
        path = tmp_path / "index"
        index.save(path)
        before, (soft, hard) = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, hard))
        try:
            with pytest.raises(IndexingError, match="cannot be written"):
                index.save(path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert path.read_bytes() == before
        assert list(tmp_path.iterdir()) == [path]

    def test_a_cosine_exceeds_one_only_by_rounding(self, index: Any) -> None:
        best = [hit.scores[0] for hit in self.ask(index, 1, self.count)]
        assert max(best) <= 1 + (1e-5 if index.kind != "ivfpq" else 0.1)


class TestFlat(Dense):
    __test__ = True

    def make(self) -> Flat:
        return Flat(WIDTH, "a-model")


class TestHNSW(Dense):
    __test__ = True

    def make(self) -> HNSW:
        return HNSW(WIDTH, "a-model")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    case = TestIVFPQ()
    index = case.make()
    index.build(case.ids(), case.items(0, case.count))
    path = tmp_path_factory.mktemp("ivfpq") / "index"
    index.save(path)
    return path


class TestIVFPQ(Dense):
    """Trained once; every test but those of building starts from a saved copy."""

    __test__ = True
    count = 9_984

    @pytest.fixture
    def index(self, trained: Path) -> Any:
        return IVFPQ.load(trained)

    def make(self) -> MutableIndex[Any]:
        return IVFPQ(WIDTH, "a-model", lists=16, codes=16)

    def items(self, seed: int, count: int) -> Any:
        return unit_vectors(seed, max(count, self.count))[:count]

    def test_saving_over_an_older_index(self, index: Any, tmp_path: Path) -> None:
        index.save(tmp_path / "index")
        index.remove(self.ids()[:1])
        index.save(tmp_path / "index")
        assert len(IVFPQ.load(tmp_path / "index")) == self.count - 1

    def test_all_may_go(self, index: Any) -> None:
        index.remove(self.ids())
        assert len(index) == 0
        index.add([1, 2], self.items(1, 2))  # trained as before
        assert len(index) == 2


ANIMALS = ("hens", "bees", "goats", "cats", "dogs", "ducks", "parrots", "rabbits", "geese", "sheep")


class TestLexical(IndexContract):
    """Texts; each has a word of its own."""

    def make(self) -> Lexical:
        return Lexical()

    def items(self, seed: int, count: int) -> list[str]:
        return [f"Keeps {ANIMALS[i % 10]} number{seed}x{i} and more" for i in range(count)]


# --- exactness


def reference(vectors: Any, query: Any, ids: Any, k: int) -> list[int]:
    scores = np.einsum("ij,j->i", vectors.astype(np.float64), query).astype(np.float32)
    return [int(i) for i in ids[np.lexsort((ids, -scores))][:k]]


@pytest.mark.parametrize("library", ["faiss", "numpy"])
@pytest.mark.parametrize("k", [1, 5, 17, 60, 500])
def test_flat_is_exact_with_any_ties(monkeypatch: pytest.MonkeyPatch, library: str, k: int) -> None:
    if library == "numpy":
        monkeypatch.setitem(sys.modules, "faiss", None)  # the documented way around FAISS
    vectors = unit_vectors(0, 500)
    vectors[3], vectors[50] = vectors[7], vectors[7]
    vectors[100:200] = vectors[100]
    ids = np.random.default_rng(1).permutation(10_000)[:500]
    index = filled(Flat(WIDTH), vectors, ids)
    asked = vectors[[3, 7, 100, 150, 499]]
    for query, hit in zip(asked, index.search(asked, k), strict=True):
        assert hit.ids.tolist() == reference(vectors, query, ids, k)


def test_flat_is_exact_where_rounding_decides() -> None:
    """Long vectors nearly at right angles to the query: float32 knows little of their products."""
    rng = np.random.default_rng(0)
    query = (1000 * rng.standard_normal(384)).astype(np.float32)
    vectors = (1000 * rng.standard_normal((2000, 384))).astype(np.float32)
    vectors -= np.outer(vectors @ query / (query @ query), query).astype(np.float32)
    index, ids = filled(Flat(384), vectors), np.arange(2000)
    assert index.search(query[None], 10)[0].ids.tolist() == reference(vectors, query, ids, 10)


def test_flat_stays_exact_through_adding_and_removing() -> None:
    rng, index = np.random.default_rng(0), Flat(WIDTH)
    held: dict[int, Any] = {}
    pool = unit_vectors(3, 600)
    for step in range(40):
        new = [i for i in rng.choice(600, 30, replace=False).tolist() if i not in held]
        index.add(new, pool[new])
        held |= {i: pool[i] for i in new}
        gone = rng.choice(sorted(held), min(len(held), int(rng.integers(0, 25))), replace=False)
        index.remove(gone)
        for i in gone.tolist():
            del held[i]
        ids = np.array(sorted(held))
        query = unit_vectors(step, 1)
        expected = reference(np.array([held[i] for i in ids]), query[0], ids, 9)
        assert index.search(query, 9)[0].ids.tolist() == expected


def test_without_faiss_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    for kind in ("hnsw", "ivfpq"):
        with pytest.raises(IndexingError, match=r"recallbed\[index\]"):
            make_index(kind, width=WIDTH).build(np.arange(10_000), unit_vectors(0, 10_000))


# --- repeats


def phrases_and(others: Any, repeats: int) -> tuple[Any, Any]:
    """`repeats` vectors of three phrases among the others, in a seeded order; and their ids.

    The others have the ids from 0.
    """
    rng = np.random.default_rng(3)
    phrases = unit_vectors(5, 3, others.shape[1])[rng.integers(0, 3, repeats)]
    order = rng.permutation(len(others) + repeats)
    return np.concatenate([others, phrases])[order], order


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_a_vector_among_copies_of_three_phrases_is_found_by_its_own_vector(kind: str) -> None:
    others = unit_vectors(0, 100, 64)
    vectors, ids = phrases_and(others, 29_900)
    index = filled(make_index(kind, width=64), vectors, ids)
    hits = index.search(others, 1)
    assert [hit.ids[0] for hit in hits] == list(range(100))
    # All hits that there are, and the copies of a phrase by their ids.
    assert [len(hit.ids) for hit in index.search(others[:2], 30_000)] == [30_000] * 2
    [near] = index.search(unit_vectors(5, 1, 64), 50)
    assert near.ids.tolist() == sorted(near.ids.tolist())
    assert len(set(near.scores.tolist())) == 1


@pytest.mark.parametrize("share", [0.1, 0.25])
def test_repeats_cost_the_others_no_recall(share: float) -> None:
    others = unit_vectors(0, 6_000, 32)
    queries = others[:200] + 0.1 * unit_vectors(1, 200, 32)
    recalls = []
    for repeats in (0, int(6_000 * share / (1 - share))):
        vectors, ids = phrases_and(others, repeats)
        exact, index = (filled(cls(32), vectors, ids) for cls in (Flat, HNSW))
        pairs = zip(exact.search(queries, 10), index.search(queries, 10), strict=True)
        recalls.append(np.mean([np.isin(one.ids, other.ids).mean() for one, other in pairs]))
    assert recalls[0] > 0.97
    assert recalls[1] >= recalls[0] - 0.005


def test_a_node_is_a_tombstone_when_its_last_id_is_removed() -> None:
    index = filled(HNSW(WIDTH), vectors := unit_vectors(0, 100))
    index.add([200, 201], vectors[[7, 7]])
    index.remove([7, 201])
    assert index.removed == 0
    index.remove([200])
    assert index.removed == 1
    assert index.search(vectors[7:8], 1)[0].ids[0] not in (7, 200, 201)
    index.add([300], vectors[7:8])
    assert index.removed == 0, "the node is used again"
    assert index.search(vectors[7:8], 1)[0].ids.tolist() == [300]


def test_vectors_of_zero_and_minus_zero_are_one() -> None:
    index, zeros = HNSW(WIDTH), np.zeros((2, WIDTH), np.float32)
    zeros[1] = -zeros[1]
    index.build([4, 2, 9], np.concatenate([zeros, unit_vectors(0, 1)]))
    assert index.search(unit_vectors(0, 1), 3)[0].ids.tolist() == [9, 2, 4]
    assert index._graph.ntotal == 2


def test_too_few_distinct_vectors_are_too_few_to_train_on() -> None:
    vectors, ids = phrases_and(unit_vectors(0, 100), 10_000)
    with pytest.raises(TooFewPoints, match="103 distinct vectors are too few"):
        IVFPQ(WIDTH).build(ids, vectors)


def test_an_index_of_format_1_is_read_and_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the version before wrote it: a node for each id that was ever added."""
    vectors, ids = unit_vectors(0, 300), np.arange(300) + 50
    vectors[5] = vectors[6]
    alive = np.ones(300, bool)
    alive[:10] = [False, True] * 5
    graph = HNSW(WIDTH)._empty_graph()
    graph.add(vectors)
    monkeypatch.setattr("indexes.files.INDEX_FORMAT", 1)
    settings = HNSW(WIDTH).settings()
    header = {"width": WIDTH, "model": None, "count": 295, "removed": 5, "settings": settings}
    sections: dict[str, Any] = {
        "ids": lambda write: write(ids.tobytes()),
        "alive": lambda write: write(alive.tobytes()),
        "faiss": lambda write: stream_index(graph, write),
    }
    write_index(tmp_path / "index", "hnsw", header, sections, ("numpy",))
    monkeypatch.undo()
    index = HNSW.load(tmp_path / "index")
    assert (len(index), index.removed) == (295, 5)
    found = [hit.ids[0] for hit in index.search(vectors[[1, 2, 20]], 1)]
    assert found == [51, found[1], 70]
    assert found[1] != 52
    index.add([1], vectors[20:21])
    assert index.search(vectors[20:21], 2)[0].ids.tolist() == [1, 70]
    index.save(tmp_path / "new")
    assert len(HNSW.load(tmp_path / "new")) == 296


def test_an_ivfpq_of_format_1_is_read_and_changed(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = IVFPQ.load(trained)
    old = new._index
    old.reset()  # trained, without vectors
    vectors, ids = TestIVFPQ().items(0, 9_984), TestIVFPQ().ids()
    old.add_with_ids(vectors, ids)
    monkeypatch.setattr("indexes.files.INDEX_FORMAT", 1)
    header = {"width": WIDTH, "model": None, "count": 9_984, "settings": new.settings()}
    sections: dict[str, Any] = {
        "ids": lambda write: write(ids.tobytes()),
        "faiss": lambda write: stream_index(old, write),
    }
    write_index(tmp_path / "index", "ivfpq", header, sections, ("numpy",))
    monkeypatch.undo()
    index = IVFPQ.load(tmp_path / "index")
    index.add([1, 2], vectors[[20, 20]])
    assert set(index.search(vectors[20:21], 3)[0].ids.tolist()) == {1, 2, int(ids[20])}
    index.remove([1, ids[20]])
    assert index.search(vectors[20:21], 1)[0].ids.tolist() == [2]


# --- HNSW


def test_tombstones_are_never_returned_and_are_compacted() -> None:
    index = filled(HNSW(WIDTH), vectors := unit_vectors(0, 1000))
    index.remove(np.arange(int(1000 * COMPACT_AT)))
    assert index.removed == 200
    index.remove([999])
    assert index.removed == 0, "past the threshold the graph is rebuilt"
    assert len(index) == 799
    hits = index.search(vectors[300:310], 1)
    assert [hit.ids[0] for hit in hits] == list(range(300, 310))


def test_as_many_hits_as_asked_for_however_many_neighbours_are_gone() -> None:
    # The 150 nearest to the query are removed, fewer than would compact the graph.
    vectors, query = unit_vectors(0, 1000), unit_vectors(9, 1)
    index, near = (filled(one, vectors) for one in (HNSW(WIDTH, effort=2), Flat(WIDTH)))
    index.remove(near.search(query, 150)[0].ids)
    for k in (1, 10, 850, 2000):
        assert len(index.search(query, k)[0].ids) == min(k, 850)


def test_equal_calls_build_equal_graphs(tmp_path: Path) -> None:
    for name in ("a", "b"):
        filled(HNSW(WIDTH), unit_vectors(0, 2000)).save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_rebuild_that_fails_keeps_the_old_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    index = filled(HNSW(WIDTH), vectors := unit_vectors(0, 100))
    with monkeypatch.context() as patch:
        patch.setattr(index, "_empty_graph", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            index.remove(np.arange(50))
    assert len(index) == 50
    assert index.search(vectors[70:71], 1)[0].ids.tolist() == [70]


# --- IVF-PQ


def test_too_few_points_are_refused_with_the_number_needed() -> None:
    with pytest.raises(TooFewPoints, match="9984 are needed"):
        IVFPQ(WIDTH).build(np.arange(101), unit_vectors(0, 101))
    index = IVFPQ(WIDTH, lists=512)
    with pytest.raises(TooFewPoints, match=f"{512 * 39} are needed"):
        index.build(np.arange(10_000), unit_vectors(0, 10_000))
    assert len(index) == 0


def test_training_is_seeded() -> None:
    vectors = unit_vectors(0, 10_000)
    found = []
    for seed in (0, 0, 1):
        index = filled(IVFPQ(WIDTH, lists=16, codes=4, seed=seed), vectors)
        found.append([hit.scores.tolist() for hit in index.search(vectors[:50], 10)])
    assert found[0] == found[1]
    assert found[0] != found[2]


@pytest.mark.parametrize(
    ("kind", "settings"),
    [("ivfpq", {"codes": 5}), ("ivfpq", {"probes": 0}), ("hnsw", {"links": 1}), ("tree", {})],
)
def test_invalid_settings_are_refused(kind: str, settings: dict[str, int]) -> None:
    with pytest.raises(IndexingError):
        make_index(kind, width=WIDTH, **settings)
    with pytest.raises(IndexingError, match="leaves"):
        make_index("flat", width=WIDTH, leaves=3)


# --- bm25s


TEXTS = [
    *(f"Keeps {ANIMALS[i % 10]} and {ANIMALS[i % 7]} since {1950 + i % 40}" for i in range(120)),
    *("喜欢喝绿茶", "Prefers green tea, green above all", "", "the and of", "¿Bebe té verde?"),
]


def test_scores_equal_those_of_the_retriever() -> None:
    index, retriever = filled(Lexical(), TEXTS), BM25()
    pool = [Memory(text) for text in TEXTS]
    for query in ("green tea", "hens and geese since 1955", "绿茶", "of the", "???", "té", "zebra"):
        expected = np.asarray(retriever.score(query, pool).scores)
        [hits] = index.search([query], len(TEXTS))
        assert hits.ids.tolist() == hits.ids[np.lexsort((hits.ids, -hits.scores))].tolist()
        assert abs(hits.scores - expected[hits.ids]).max(initial=0) <= 1e-5
        assert set(np.flatnonzero(expected > 0)) == set(hits.ids.tolist())


def test_texts_without_a_single_token() -> None:
    index = filled(Lexical(), ["", "???"])
    assert [len(hit.ids) for hit in index.search(["tea", ""], 3)] == [0, 0]


def test_a_built_index_is_not_added_to() -> None:
    index = filled(Lexical(), ["tea"])
    with pytest.raises(IndexingError, match="cannot be changed"):
        index.build([2], ["oak"])
    with pytest.raises(IndexingError, match="list of texts"):
        index.search("tea", 1)


# --- files


def test_any_kind_is_opened_by_its_header(tmp_path: Path) -> None:
    for kind in ("flat", "hnsw", "bm25s"):
        index = make_index(kind, **({} if kind == "bm25s" else {"width": WIDTH}))
        filled(index, TEXTS[:3] if kind == "bm25s" else unit_vectors(0, 3)).save(tmp_path / kind)
        assert open_index(tmp_path / kind).kind == kind
    with pytest.raises(NotAnIndex, match="of kind hnsw, not flat"):
        Flat.load(tmp_path / "hnsw")


def test_a_lexical_index_with_tokens_of_an_earlier_version_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("indexes.files.INDEX_FORMAT", 1)
        filled(Lexical(), ["green tea", "a cat"]).save(tmp_path / "index")
    with pytest.raises(NotAnIndex, match="tokens are those of an earlier version"):
        Lexical.load(tmp_path / "index")


def test_a_newer_format_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = filled(Flat(WIDTH), unit_vectors(0, 1))
    with monkeypatch.context() as patch:
        patch.setattr("indexes.files.INDEX_FORMAT", 3)
        index.save(tmp_path / "index")
    with pytest.raises(NotAnIndex, match="format 3 by a newer recallbed"):
        open_index(tmp_path / "index")


SAVER = """
import os, signal, sys
from pathlib import Path
import numpy as np
import indexes.files
from indexes.vector_index import stream_index
from indexes.files import write_index
from indexes.flat import Flat

def die(*words):
    os.kill(os.getpid(), signal.SIGKILL)

if sys.argv[1] == "before the rename":
    Path.replace = die
elif sys.argv[1] == "before the header":
    indexes.files.versions = die
else:
    real = indexes.files._write_section
    indexes.files._write_section = lambda *words: (real(*words), die())
index = Flat(16)
index.build(np.arange(50), np.eye(50, 16, dtype=np.float32))
index.save(Path("index"))
"""


@pytest.mark.parametrize("when", ["after a section", "before the header", "before the rename"])
def test_killed_while_saving_the_old_index_is_still_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    monkeypatch.chdir(tmp_path)
    filled(Flat(WIDTH), unit_vectors(0, 9)).save(Path("index"))
    killed = subprocess.run([sys.executable, "-c", SAVER, when], timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert len(Flat.load(Path("index"))) == 9


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    index = filled(Flat(WIDTH), unit_vectors(0, 9))
    with pytest.raises(IndexingError, match="cannot be written"):
        index.save(tmp_path / "nowhere" / "index")


def test_kinds_by_size() -> None:
    assert [kind_for(n) for n in (0, FLAT_UP_TO, FLAT_UP_TO + 1, HNSW_UP_TO, HNSW_UP_TO + 1)] == [
        *("flat", "flat", "hnsw", "hnsw", "ivfpq")
    ]
    assert make_index("auto", 10, width=4).kind == "flat"
