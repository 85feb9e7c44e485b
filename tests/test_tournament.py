"""Finding the best few by comparing few."""

import math
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrievers.rerank.setwise import Group, tournament


def play(
    numbers: Sequence[int], best: int, size: int, judge: Callable[[Group], int]
) -> tuple[list[int], list[Group], int]:
    """The order found, all groups asked for, and in how many turns."""
    games = tournament(numbers, best, size)
    asked: list[Group] = []
    turns = 0
    try:
        groups = next(games)
        while True:
            asked += groups
            turns += 1
            groups = games.send([judge(group) for group in groups])
    except StopIteration as end:
        return end.value, asked, turns


@given(st.permutations(range(23)), st.integers(1, 23), st.integers(1, 30), st.integers(2, 6))
def test_a_judge_with_an_order_gets_its_best_in_order(
    worth: list[int], count: int, best: int, size: int
) -> None:
    order, asked, _ = play(
        range(count), best, size, lambda group: max(group, key=worth.__getitem__)
    )
    assert order == sorted(range(count), key=lambda n: -worth[n])[:best]
    assert all(2 <= len(group) <= size for group in asked)
    assert all(list(group) == sorted(group) for group in asked)  # as they were given
    assert len(set(asked)) == len(asked)  # no group is compared twice


@given(st.data(), st.integers(2, 20), st.integers(1, 20), st.integers(2, 5))
def test_for_any_judge_the_best_are_distinct(
    data: st.DataObject, count: int, best: int, size: int
) -> None:
    order, _, _ = play(range(count), best, size, lambda g: data.draw(st.sampled_from(g)))
    assert len(order) == len(set(order)) == min(best, count)
    assert set(order) <= set(range(count))


@pytest.mark.parametrize(("size", "first", "each"), [(2, 19, 5), (4, 8, 3), (20, 1, 1)])
def test_it_takes_few_comparisons(size: int, first: int, each: int) -> None:
    """About n / (size - 1) for the winner, then a path of log n / log size for each place."""
    _, asked, _ = play(range(20), 1, size, min)
    assert len(asked) == first
    _, asked, _ = play(range(20), 10, size, min)
    assert len(asked) <= first + 9 * each
    assert each == math.ceil(math.log(20) / math.log(size))


def test_first_rounds_are_asked_for_at_once() -> None:
    _, _, turns = play(range(64), 1, 4, min)
    assert turns == 3


def test_the_two_first_meet_last() -> None:
    _, asked, _ = play(range(16), 1, 2, min)
    assert [group for group in asked if {0, 1} <= set(group)] == [(0, 1)]
    assert asked[-1] == (0, 1)
