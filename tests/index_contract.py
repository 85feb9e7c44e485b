"""The contract of an index, as test classes to inherit from, by capability.

class TestMine(MutableIndexContract):
    def make(self): return Mine(...)
    def items(self, seed, count): ...      # what it holds: vectors or texts
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexes.base import Hits, Index, IndexingError, MutableIndex, NotAnIndex, RepeatedId, UnknownId


class IndexContract(ABC):
    """Build, search, save, load."""

    count = 300
    single_file = True
    ties_by_id = True
    """Whether the smaller ids come first if a cut goes through equal scores."""

    @abstractmethod
    def make(self) -> Index[Any]:
        """An empty index."""

    @abstractmethod
    def items(self, seed: int, count: int) -> Any:
        """`count` different things to hold, of which each is its own best hit."""

    @pytest.fixture
    def index(self) -> Any:
        index = self.make()
        index.build(self.ids(), self.items(0, self.count))
        return index

    def ids(self) -> Any:
        """Not in order, far apart, past 32 bits."""
        return (np.arange(self.count)[::-1] * 7 + 2**40).astype(np.int64)

    def ask(self, index: Index[Any], k: int, number: int = 5) -> list[Hits]:
        return index.search(self.items(0, self.count)[:number], k)

    def test_length(self, index: Any) -> None:
        assert len(index) == self.count
        assert len(self.make()) == 0

    def test_each_item_finds_itself_under_its_own_id(self, index: Any) -> None:
        hits = self.ask(index, 1, 20)
        right = sum(hit.ids[0] == wanted for hit, wanted in zip(hits, self.ids(), strict=False))
        assert right >= (20 if index.exact else 17)

    def test_hits_are_ordered_distinct_and_of_the_promised_types(self, index: Any) -> None:
        for hit in self.ask(index, 40):
            assert (hit.ids.dtype, hit.scores.dtype) == (np.int64, np.float32)
            assert len(hit.ids) == len(hit.scores) == len(set(hit.ids.tolist())) <= 40
            keys = list(zip((-hit.scores).tolist(), hit.ids.tolist(), strict=True))
            assert keys == sorted(keys)
            assert set(hit.ids.tolist()) <= set(self.ids().tolist())

    def test_k_past_the_end_gives_fewer_hits_and_no_padding(self, index: Any) -> None:
        for hit in self.ask(index, self.count + 50):
            assert len(hit.ids) <= self.count
            assert (hit.ids >= 2**40).all()
            assert np.isfinite(hit.scores).all()

    def test_an_empty_index_has_no_hits(self) -> None:
        for number in (1, 20):
            hits = self.make().search(self.items(0, number), 5)
            assert [len(hit.ids) for hit in hits] == [0] * number

    def test_a_repeated_item_is_found_under_all_its_ids(self) -> None:
        items, ids = self.items(0, self.count), self.ids()
        repeats = np.arange(40)[::-1]
        index = self.make()
        rows = [*range(self.count), *([7] * 40)]
        index.build(np.concatenate([ids, repeats]), taken(items, rows))
        assert len(index) == self.count + 40
        expected = [*range(40), int(ids[7])]
        for k in (1, 5, 41):
            [hit] = index.search(items[7:8], k)
            assert len(set(hit.scores.tolist())) == 1
            found = hit.ids.tolist()
            assert found == expected[:k] if self.ties_by_id else set(found) <= set(expected)
            assert len(set(found)) == k
        [hit] = index.search(items[7:8], 45)
        assert set(hit.ids[:41].tolist()) == set(expected)
        assert len(set(hit.ids.tolist())) == len(hit.ids)
        [other] = index.search(items[8:9], 3)
        assert other.ids[0] == ids[8]

    def test_no_query_no_hits(self, index: Any) -> None:
        assert index.search(self.items(0, 1)[:0], 5) == []

    def test_the_first_hits_are_the_start_of_more_hits(self, index: Any) -> None:
        if index.exact:
            for few, many in zip(self.ask(index, 5), self.ask(index, 50), strict=True):
                assert few.ids.tolist() == many.ids[:5].tolist()

    def test_alone_or_among_others_a_query_gets_the_same(self, index: Any) -> None:
        together = self.ask(index, 10, 30)
        for i in (0, 17, 29):
            [alone] = index.search(self.items(0, self.count)[i : i + 1], 10)
            assert alone.ids.tolist() == together[i].ids.tolist()

    @pytest.mark.parametrize("k", [0, -1, 1.5, True])
    def test_an_invalid_k_is_refused(self, index: Any, k: Any) -> None:
        with pytest.raises(IndexingError, match="k "):
            self.ask(index, k)

    def test_an_id_given_twice_is_refused(self) -> None:
        index = self.make()
        with pytest.raises(RepeatedId, match="id 7 "):
            index.build([7, 3, 7], self.items(0, 3))
        assert len(index) == 0

    @pytest.mark.parametrize(
        "ids",
        [[1], [1, 2, 3, 4], [0.5, 1.0, 2.0], [-1, 2, 3], [[1, 2, 3]], [[1], [2, 3]], [1, 2, 2**63]],
    )
    def test_invalid_ids_are_refused(self, ids: Any) -> None:
        with pytest.raises(IndexingError, match="id"):
            self.make().build(ids, self.items(0, 3))

    # --- on disk

    def test_a_saved_index_returns_the_same_hits(self, index: Any, tmp_path: Path) -> None:
        before = self.ask(index, 10)
        index.save(tmp_path / "index")
        again = type(index).load(tmp_path / "index")
        assert len(again) == self.count
        for one, other in zip(before, self.ask(again, 10), strict=True):
            assert one.ids.tolist() == other.ids.tolist()
            assert one.scores.tolist() == other.scores.tolist()

    def test_saving_over_an_older_index(self, index: Any, tmp_path: Path) -> None:
        path = tmp_path / "index"
        index.save(path)
        smaller = self.make()
        smaller.build(self.ids()[: self.count - 1], self.items(0, self.count)[: self.count - 1])
        smaller.save(path)
        assert len(type(index).load(path)) == self.count - 1
        assert [p.name for p in tmp_path.iterdir()] == ["index"]

    @pytest.mark.parametrize("what", ["nothing", "empty", "text", "pointer", "folder"])
    def test_what_is_no_index_is_named(self, tmp_path: Path, what: str) -> None:
        if not self.single_file:
            pytest.skip("not kept in a file of ours")
        path = tmp_path / "index"
        pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
        contents = {"empty": "", "text": "hello " * 100, "pointer": pointer}
        if what == "folder":
            path.mkdir()
        elif what in contents:
            path.write_text(contents[what])
        with pytest.raises(NotAnIndex) as caught:
            type(self.make()).load(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)
        if what == "pointer":
            assert "Git LFS pointer" in str(caught.value)

    def test_any_damage_is_named_before_it_is_read(self, index: Any, tmp_path: Path) -> None:
        if not self.single_file:
            pytest.skip("not kept in a file of ours")
        path = tmp_path / "index"
        index.save(path)
        whole = path.read_bytes()
        rng = np.random.default_rng(0)
        header = range(whole.rindex(b'{"format"'), len(whole))
        for at in (0, 5, *header, *rng.integers(0, len(whole), 40)):
            damaged = bytearray(whole)
            damaged[at] ^= 1 << int(rng.integers(8))
            path.write_bytes(damaged)
            with pytest.raises(NotAnIndex):
                type(index).load(path)
        for size in (1, 30, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:size])
            with pytest.raises(NotAnIndex):
                type(index).load(path)


def taken(items: Any, rows: Sequence[int]) -> Any:
    """Rows of vectors, or texts, some several times."""
    return items[list(rows)] if isinstance(items, np.ndarray) else [items[row] for row in rows]


class MutableIndexContract(IndexContract):
    """Add and remove."""

    @abstractmethod
    def make(self) -> MutableIndex[Any]:
        """An empty index."""

    def test_added_items_are_found_and_the_others_still(self, index: Any) -> None:
        more = self.items(1, 20)
        index.add(np.arange(20), more)
        assert len(index) == self.count + 20
        right = sum(hit.ids[0] == i for i, hit in enumerate(index.search(more, 1)))
        assert right >= (20 if index.exact else 17)
        self.test_each_item_finds_itself_under_its_own_id(index)

    def test_repeats_come_and_go(self, index: Any, tmp_path: Path) -> None:
        items, own = self.items(0, self.count), int(self.ids()[3])
        index.add(np.arange(10), taken(items, [3] * 10))
        index.add([10, 11], taken(items, [3, 4]))
        assert len(index) == self.count + 12
        assert set(index.search(items[3:4], 12)[0].ids.tolist()) == {*range(11), own}
        index.remove([own, *range(0, 11, 2)])
        assert len(index) == self.count + 5
        assert set(index.search(items[3:4], 5)[0].ids.tolist()) == {1, 3, 5, 7, 9}
        index.save(tmp_path / "index")
        again = type(index).load(tmp_path / "index")
        assert set(again.search(items[3:4], 5)[0].ids.tolist()) == {1, 3, 5, 7, 9}
        again.remove([1, 3, 5, 7, 9])
        left = set(again.search(items[3:4], 20)[0].ids.tolist())
        assert not left & {own, *range(11)}
        assert again.search(items[4:5], 2)[0].ids.tolist() == [11, int(self.ids()[4])]
        again.add([2], items[3:4])
        assert again.search(items[3:4], 1)[0].ids.tolist() == [2]
        assert len(again) == self.count + 1

    def test_removed_items_are_gone_and_the_others_stay(self, index: Any) -> None:
        gone = self.ids()[10:60]
        index.remove(gone)
        assert len(index) == self.count - 50
        for hit in self.ask(index, self.count, 60):
            assert not set(gone.tolist()) & set(hit.ids.tolist())
        left = index.search(self.items(0, self.count)[100:120], 1)
        right = sum(hit.ids[0] == i for hit, i in zip(left, self.ids()[100:120], strict=True))
        assert right >= (20 if index.exact else 17)

    def test_a_removed_id_may_come_back_with_something_else(self, index: Any) -> None:
        chosen = self.ids()[3]
        index.remove([chosen])
        other = self.items(1, 1)
        index.add([chosen], other)
        assert index.search(other, 1)[0].ids.tolist() == [chosen]

    def test_an_id_that_is_there_is_refused_and_nothing_added(self, index: Any) -> None:
        with pytest.raises(RepeatedId, match=str(self.ids()[4])):
            index.add([1, self.ids()[4]], self.items(1, 2))
        assert len(index) == self.count
        index.add([1], self.items(1, 1))

    def test_an_unknown_id_is_refused_and_nothing_removed(self, index: Any) -> None:
        with pytest.raises(UnknownId, match="id 5 "):
            index.remove([self.ids()[0], 5])
        assert len(index) == self.count

    def test_all_may_go(self, index: Any) -> None:
        index.remove(self.ids())
        assert len(index) == 0
        assert [len(hit.ids) for hit in self.ask(index, 3)] == [0] * 5
        index.add([1, 2], self.items(1, 2))
        assert len(index) == 2

    def test_a_changed_index_is_saved_as_it_is(self, index: Any, tmp_path: Path) -> None:
        index.remove(self.ids()[:40])
        index.add(np.arange(10), self.items(1, 10))
        index.save(tmp_path / "index")
        again, count = type(index).load(tmp_path / "index"), len(index)
        assert len(again) == count
        for one, other in zip(self.ask(index, 20), self.ask(again, 20), strict=True):
            assert one.ids.tolist() == other.ids.tolist()
        again.add([11], self.items(2, 1))
        again.remove([11, 0])
        assert len(again) == count - 1
