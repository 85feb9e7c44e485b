"""A tournament of groups that finds the best few by comparisons of few, without any model.

The winner of each group reaches the next round. For each further place only the groups on the path
of the last winner are compared again without it, as in a heap.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

Group = tuple[int, ...]
Tournament = Generator[list[Group], list[int], list[int]]
"""Yields groups that may be compared at once, receives their winners, returns the order."""


def tournament(numbers: Sequence[int], best: int, size: int) -> Tournament:
    """Return the `best` of `numbers`, in order.

    Groups have two to `size` numbers in the given order. The first takes about n / (size - 1)
    comparisons, each further one log(n) / log(size).
    """
    place = {number: i for i, number in enumerate(numbers)}
    # Neighbours of the given order are compared late: the first ranks are spread over the groups.
    groups = -(-len(numbers) // size)
    rounds: list[list[list[int]]] = [[list(numbers[i::groups]) for i in range(groups)]]
    winners: list[list[int | None]] = []
    while True:
        winners.append((yield from _play(rounds[-1], place)))
        if len(rounds[-1]) == 1:
            break
        through = [w for w in winners[-1] if w is not None]
        width = -(-len(through) // size)
        rounds.append([through[i::width] for i in range(width)])
    order: list[int] = []
    while len(order) < min(best, len(numbers)):
        champion = winners[-1][0]
        assert champion is not None
        order.append(champion)
        if len(order) < min(best, len(numbers)):
            yield from _replace(champion, rounds, winners, place)
    return order


def _play(
    groups: Sequence[Sequence[int]], place: dict[int, int]
) -> Generator[list[Group], list[int], list[int | None]]:
    """The winner of each group, None for an empty one; a single number wins uncompared."""
    ordered = [tuple(sorted(group, key=place.__getitem__)) for group in groups]
    asked = [group for group in ordered if len(group) > 1]
    won = iter((yield asked) if asked else [])
    return [next(won) if len(group) > 1 else group[0] if group else None for group in ordered]


def _replace(
    champion: int,
    rounds: list[list[list[int]]],
    winners: list[list[int | None]],
    place: dict[int, int],
) -> Generator[list[Group], list[int], None]:
    """Remove the champion and compare again its group of each round."""
    gone: int | None = champion
    coming: int | None = None
    for depth, groups in enumerate(rounds):
        at = next(i for i, group in enumerate(groups) if gone in group)
        groups[at] = [n for n in groups[at] if n != gone]
        if depth > 0 and coming is not None:
            groups[at].append(coming)
        before = winners[depth][at]
        [after] = yield from _play([groups[at]], place)
        winners[depth][at] = after
        gone, coming = before, after
