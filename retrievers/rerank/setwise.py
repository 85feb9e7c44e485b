"""Setwise reranking: the model names the best of a group, in a tournament of groups.

After Zhuang et al. 2024, "A Setwise Approach for Effective and Highly Efficient Zero-shot Ranking
with Large Language Models".
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Literal

from typing_extensions import override

from recallbed.chat_models import Request
from recallbed.errors import UserError
from retrievers.base import RetrieverError
from retrievers.registry import register
from retrievers.rerank.prompt_reranker import ChatResult, PromptReranker, RerankState, Steps
from retrievers.rerank.replies import Best

Group = tuple[int, ...]
Tournament = Generator[list[Group], list[int], list[int]]
"""Yields groups that may be compared at once, receives their winners, returns the order."""


class ComparisonReranker(PromptReranker):
    """Finds the best `top` of the first stage's best `depth` by comparing groups of `size`."""

    prompt_name = "choose.v1"
    setting_names = (*PromptReranker.setting_names, "top")
    size: int

    def __init__(
        self,
        model: str,
        first_stage: str = "minilm",
        depth: int = 20,
        top: int = 10,
        max_tokens: int = 256,
        unusable: Literal["keep", "fail"] = "keep",
    ) -> None:
        super().__init__(model, first_stage, depth, max_tokens, unusable)
        if top < 1:
            raise UserError(f"top={top}: must be at least 1")
        self.top = self.sound_places = top

    def requests(self, state: RerankState, group: Group) -> list[Request]:
        """Return the requests that compare a group."""
        raise NotImplementedError

    def winner(self, state: RerankState, group: Group, answers: Sequence[ChatResult]) -> int:
        """Return the winner by these replies, or the first of the group if none wins."""
        raise NotImplementedError

    @override
    def steps(self, state: RerankState) -> Steps:
        games = tournament(range(len(state.shortlist.texts)), self.top, self.size)
        won: list[int] | None = None
        while True:
            try:
                groups = next(games) if won is None else games.send(won)
            except StopIteration as end:
                order: list[int] = end.value
                return order
            asked = [self.requests(state, group) for group in groups]
            if not all(self.fits(one.messages) for requests in asked for one in requests):
                raise RetrieverError("context too long for a group of candidates")
            answers = iter((yield [one for requests in asked for one in requests]))
            won = [
                self.winner(state, group, [next(answers) for _ in requests])
                for group, requests in zip(groups, asked, strict=True)
            ]


@register("setwise")
class Setwise(ComparisonReranker):
    """Compares `size` candidates per call, shown in first-stage order."""

    setting_names = (*ComparisonReranker.setting_names, "size")

    def __init__(
        self,
        model: str,
        first_stage: str = "minilm",
        depth: int = 20,
        top: int = 10,
        size: int = 4,
        max_tokens: int = 256,
        unusable: Literal["keep", "fail"] = "keep",
    ) -> None:
        super().__init__(model, first_stage, depth, top, max_tokens, unusable)
        if size < 2:
            raise UserError(f"size={size}: must be at least 2")
        self.size = size

    @override
    def requests(self, state: RerankState, group: Group) -> list[Request]:
        return [self.request(state, group, Best)]

    @override
    def winner(self, state: RerankState, group: Group, answers: Sequence[ChatResult]) -> int:
        found = self.read_best(state, answers[0], group)
        return group[0] if found is None else found


def tournament(numbers: Sequence[int], best: int, size: int) -> Tournament:
    """Return the `best` of `numbers`, in order, by comparisons of few.

    The winner of each group reaches the next round. For each further place only the groups on the
    path of the last winner are compared again without it, as in a heap.

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
