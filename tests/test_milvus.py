"""Milvus Lite, for real, held to the contract of an index."""

import socket
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexes.base import (
    IndexingError,
    NotAnIndex,
    RepeatedId,
    ServerUnavailable,
    WrongWidth,
    open_index,
)
from indexes.milvus import LONGEST_TEXT, MOST_HITS, Milvus, _messages
from tests.index_contract import MutableIndexContract
from tests.test_indexes import WIDTH, phrases_and, unit_vectors

_numbers = count()


@pytest.fixture(autouse=True, scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, quick_milvus: None) -> Any:
    folder = tmp_path_factory.mktemp("milvus")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[__name__], "FOLDER", folder, raising=False)
        yield folder
    Milvus(WIDTH, address=str(folder / "all.db")).close()


def fresh(**settings: Any) -> Milvus:
    """An empty collection; all of them are in one file, so that one engine is started."""
    folder: Path = globals()["FOLDER"]
    name = f"c{next(_numbers)}"
    return Milvus(WIDTH, "a-model", str(folder / "all.db"), name, **settings)


class TestHNSW(MutableIndexContract):
    single_file = False
    ties_by_id = False

    def make(self) -> Milvus:
        return fresh()

    def items(self, seed: int, count: int) -> Any:
        return unit_vectors(seed, max(count, 400))[:count]


def test_a_vector_among_copies_of_three_phrases_is_found_by_its_own_vector() -> None:
    others = unit_vectors(0, 100)
    vectors, ids = phrases_and(others, 5_000)
    index = fresh()
    index.build(ids, vectors)
    index.close()  # rows that were just written are searched one by one, not by the graph
    assert len(index) == 5_100
    assert [hit.ids[0] for hit in index.search(others, 1)] == list(range(100))
    [near] = index.search(unit_vectors(5, 1), 50)
    assert len(near.ids) == len(set(near.ids.tolist())) == 50
    assert len(set(near.scores.tolist())) == 1


def test_repeated_texts_are_found_under_all_ids_by_words_and_by_both() -> None:
    index, vectors = fresh(), unit_vectors(0, 3)
    rows = [0, 1, 0, 2, 0]
    index.add(np.arange(5), vectors[rows], [TEXTS[row] for row in rows])
    index.add([9, 8], vectors[[0, 0]], [TEXTS[0], "Another text of that vector"])
    index.remove([0])
    assert index.search_text(["green tea"], 9)[0].ids.tolist() == [2, 4, 9]
    assert index.search_hybrid(vectors[:1], ["green tea"], 3)[0].ids.tolist() == [2, 4, 9]
    assert set(index.search(vectors[:1], 4)[0].ids.tolist()) == {2, 4, 8, 9}
    found = index.rows([0, 2, 8, 9])
    assert {i: text for i, (text, _) in found.items()} == {
        2: TEXTS[0],
        8: "Another text of that vector",
        9: TEXTS[0],
    }
    index.add([0], vectors[1:2], ["Comes back with something else"])
    assert index.search_text(["comes back"], 1)[0].ids.tolist() == [0]
    assert index.rows([9])[9][0] == TEXTS[0]
    assert len(index) == 7
    index.remove([0, 1, 2, 3, 4, 8, 9])
    assert len(index) == 0
    assert index._count(index.collection, "id < 0") == index._count(index._others, "id < 0") == 0


def test_a_collection_of_the_version_before_is_read_and_added_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index, vectors = fresh(), unit_vectors(0, 5)
    real = index._make

    class WithoutKey:
        """A client whose schemas have no key, as they were."""

        def __init__(self, client: Any) -> None:
            self.client = client

        def __getattr__(self, name: str) -> Any:
            return getattr(self.client, name)

        def create_schema(self, **settings: Any) -> Any:
            schema = self.client.create_schema(**settings)
            add = schema.add_field
            schema.add_field = lambda name, *a, **k: name == "key" or add(name, *a, **k)
            return schema

    monkeypatch.setattr(index, "_make", lambda client: real(WithoutKey(client)))
    index._ask(index._make)
    again = Milvus(WIDTH, "a-model", index.address, index.collection)
    again.add([1, 2, 3], vectors[[0, 0, 1]])
    assert len(again) == 3
    assert set(again.search(vectors[:1], 2)[0].ids.tolist()) == {1, 2}
    again.remove([1])
    assert again.held([1, 2, 3]) == {2, 3}


@pytest.mark.parametrize("structure", ["FLAT", "IVF_FLAT"])
def test_other_structures(structure: Any) -> None:
    index, vectors = fresh(structure=structure), unit_vectors(0, 500)
    index.build(np.arange(500), vectors)
    hits = index.search(vectors[:50], 5)
    assert np.mean([hit.ids[0] == i for i, hit in enumerate(hits)]) >= 0.9
    expected = np.sort(vectors @ vectors[0])[::-1][:5]
    if structure == "FLAT":
        assert abs(hits[0].scores - expected).max() <= 1e-5


TEXTS = [
    "Prefers green tea",
    "Keeps hens",
    "喜欢喝绿茶",
    "Green bike, green shed",
    "",
    "¿Té verde?",
]


@pytest.fixture(scope="module")
def texts(place: Path) -> Milvus:
    index = fresh()
    index.add(np.arange(6) + 10, unit_vectors(0, 6), TEXTS)
    return index


def test_bm25_finds_texts_in_any_script(texts: Milvus) -> None:
    found = texts.search_text(["green tea", "绿茶", "té", "zebra", "", "???"], 6)
    assert [hit.ids[:1].tolist() for hit in found] == [[10], [12], [15], [], [], []]
    assert set(found[0].ids.tolist()) == {10, 13}
    assert (found[0].scores > 0).all()
    assert found[0].scores[0] > found[0].scores[1]


def test_hybrid_search_fuses_both_sides_by_rank(texts: Milvus) -> None:
    vectors = unit_vectors(0, 6)
    [hits] = texts.search_hybrid(vectors[3:4], ["green bike"], 6)
    assert hits.ids[0] == 13
    assert hits.scores[0] == pytest.approx(2 / 61, abs=1e-6)
    [no_words] = texts.search_hybrid(vectors[1:2], ["???"], 3)
    assert no_words.ids[0] == 11


def test_hybrid_search_by_weights(texts: Milvus) -> None:
    vector, words = unit_vectors(0, 6)[1:2], ["green bike"]
    firsts = [
        texts.search_hybrid(vector, words, 6, weights=weights)[0].ids[0]
        for weights in ((1.0, 0.0), (0.0, 1.0))
    ]
    assert firsts == [11, 13]
    with pytest.raises(IndexingError, match="from 0 to 1"):
        texts.search_hybrid(vector, words, 6, weights=(2.0, 0.5))


def test_texts_and_vectors_come_back(texts: Milvus) -> None:
    rows = texts.rows([12, 10, 99])
    assert {i: text for i, (text, _) in rows.items()} == {12: TEXTS[2], 10: TEXTS[0]}
    assert abs(rows[12][1] - unit_vectors(0, 6)[2]).max() <= 1e-6
    assert fresh().rows([1]) == {}
    assert texts.held([10, 11, 99]) == {10, 11}


def test_more_rows_than_a_message_holds_all_or_none() -> None:
    index, vectors = fresh(), unit_vectors(0, 4100)
    index.build(np.arange(4100), vectors)
    assert len(index) == 4100
    ids = np.arange(4000, 8100)
    with pytest.raises(RepeatedId, match="id 4000 "):
        index.add(ids, vectors)
    assert len(index) == 4100


def test_what_milvus_cannot_hold_is_refused_before_it_is_sent() -> None:
    index = fresh()
    with pytest.raises(IndexingError, match=f"text 1 has 70000 bytes.*{LONGEST_TEXT}"):
        index.add([1, 2], unit_vectors(0, 2), ["tea", "a" * 70_000])
    with pytest.raises(IndexingError, match="text 0 contains a lone surrogate"):
        index.add([1], unit_vectors(0, 1), ["tea \ud83d"])
    with pytest.raises(IndexingError, match="1 texts for 2 ids"):
        index.add([1, 2], unit_vectors(0, 2), ["tea"])
    with pytest.raises(WrongWidth, match=f"width 20 .* width {WIDTH}, made by a-model"):
        index.add([1, 2], unit_vectors(0, 2, 20))
    index.add([1, 2], unit_vectors(0, 2))
    with pytest.raises(IndexingError, match=f"Milvus returns at most {MOST_HITS}"):
        index.search(unit_vectors(0, 1), MOST_HITS + 1)
    assert len(index) == 2


def test_a_negative_inner_product_stays_negative() -> None:
    index, vectors = fresh(), unit_vectors(0, 3)
    index.build([4], vectors[:1])
    [hits] = index.search(-vectors[:1], 1)
    assert hits.scores[0] == pytest.approx(-1, abs=1e-6)


def test_messages_stay_below_the_limit_of_a_server() -> None:
    assert [len(part) for part in _messages([10] * 4_500)] == [2_000, 2_000, 500]
    sizes = [1_536 + 2 * LONGEST_TEXT] * 1_000
    parts = list(_messages(sizes))
    assert [i for part in parts for i in part] == list(range(1_000))
    assert max(sum(sizes[i] for i in part) for part in parts) <= 16 * 2**20
    assert [list(part) for part in _messages([2**30, 1, 2**30])] == [[0], [1], [2]]
    assert list(_messages([])) == []


def test_a_lost_connection_is_made_again() -> None:
    index, vectors = fresh(), unit_vectors(0, 20)
    index.build(np.arange(20), vectors)
    index.close()
    assert len(index) == 20
    assert index.search(vectors[:1], 1)[0].ids[0] == 0


def test_a_failure_half_way_takes_back_what_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    index, vectors = fresh(), unit_vectors(0, 4100)
    index.build([9_000], vectors[:1])
    call, calls = index._call, []

    def failing(method: str, *values: Any, **options: Any) -> Any:
        found = call(method, *values, **options)
        calls.append(method)
        if calls.count("upsert") == 2:  # the reply is lost, not the message
            calls.clear()
            raise ServerUnavailable("gone")
        return found

    monkeypatch.setattr(index, "_call", failing)
    with pytest.raises(ServerUnavailable):
        index.add(np.arange(4100), vectors)
    assert len(index) == 1


def test_an_unavailable_server_is_one_line_that_names_it() -> None:
    index = Milvus(WIDTH, address="http://127.0.0.1:9", timeout=2)
    with pytest.raises(
        ServerUnavailable, match=r"127\.0\.0\.1:9: Milvus cannot be reached"
    ) as caught:
        len(index)
    assert "\n" not in str(caught.value)


def _serve(port: int, folder: Path) -> Any:
    words = ["server", "--data-dir", str(folder), "--host", "127.0.0.1", "--port", str(port)]
    return subprocess.Popen(
        [sys.executable, "-m", "milvus_lite", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _answer(index: Milvus, process: Any) -> int:
    """The number of rows, as soon as the server is up."""
    deadline = time.monotonic() + 300
    while True:
        try:
            return len(index)
        except ServerUnavailable:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_server_by_address_that_dies_and_comes_back(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    vectors, server = unit_vectors(0, 20), _serve(port, tmp_path)
    try:
        index = Milvus(WIDTH, address=f"http://127.0.0.1:{port}", timeout=2)
        assert _answer(index, server) == 0
        index.add(np.arange(20), vectors, [f"tea {i}" for i in range(20)])
        assert index.search_text(["tea 7"], 1)[0].ids.tolist() == [7]
        server.kill()
        server.wait()
        for ask in (lambda: index.search(vectors[:1], 1), lambda: index.add([99], vectors[:1])):
            with pytest.raises(
                ServerUnavailable, match=f"127.0.0.1:{port}: Milvus cannot be"
            ) as caught:
                ask()
            assert "\n" not in str(caught.value)
        server = _serve(port, tmp_path)
        assert _answer(index, server) == 20
        assert index.search(vectors[3:4], 1)[0].ids.tolist() == [3]
        index.close()
    finally:
        server.kill()
        server.wait()


@pytest.mark.parametrize(
    "content", ["not a database", "version https://git-lfs.github.com/spec/v1"]
)
def test_a_file_that_is_no_database(
    tmp_path: Path, content: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.db"
    path.write_text(content)
    expected = "Git LFS pointer" if "git-lfs" in content else "a database of another version"
    with pytest.raises(IndexingError, match=expected):
        len(Milvus(WIDTH, address=str(path)))
    assert path.read_text() == content
    assert "Traceback" not in capfd.readouterr().err


def test_a_file_that_another_process_uses_is_one_line(tmp_path: Path) -> None:
    holder = (
        "import sys; from indexes.milvus import Milvus\n"
        f"index = Milvus({WIDTH}, address=sys.argv[1]); len(index)\n"
        "print('held', flush=True); sys.stdin.read()"
    )
    address = str(tmp_path / "one.db")
    process = subprocess.Popen(
        [sys.executable, "-c", holder, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout.readline().strip() == b"held"
    try:
        with pytest.raises(ServerUnavailable, match="another process"):
            len(Milvus(WIDTH, address=address))
    finally:
        process.communicate()


def test_a_saved_pointer_leads_back_wherever_the_folder_goes(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    index = Milvus(WIDTH, "a-model", str(tmp_path / "a" / "m.db"))
    index.build(np.arange(9), unit_vectors(0, 9))
    index.save(tmp_path / "a" / "index")
    index.close()
    (tmp_path / "a").rename(tmp_path / "b")
    again = open_index(tmp_path / "b" / "index")
    assert isinstance(again, Milvus)
    assert (len(again), again.model) == (9, "a-model")
    with pytest.raises(NotAnIndex, match="width 16, not 20"):
        len(Milvus(20, address=again.address))
    again.close()
    (tmp_path / "b" / "m.db").rename(tmp_path / "elsewhere.db")
    with pytest.raises(NotAnIndex, match="no collection"):
        open_index(tmp_path / "b" / "index")


def test_invalid_names_and_settings_are_refused() -> None:
    with pytest.raises(IndexingError, match="structure TREE"):
        fresh(structure="TREE")
    with pytest.raises(IndexingError, match=r"must end in \.db"):
        len(Milvus(WIDTH, address="memories.sqlite"))
