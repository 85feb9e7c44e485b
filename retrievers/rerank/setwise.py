"""Setwise reranking: the model names the best of a group, in a tournament of groups.

After Zhuang et al. 2024, "A Setwise Approach for Effective and Highly Efficient Zero-shot Ranking
with Large Language Models".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from typing_extensions import override

from recallbed.chat_models import Request
from recallbed.errors import UserError
from retrievers.base import RetrieverError
from retrievers.registry import register
from retrievers.rerank.prompt_reranker import ChatResult, PromptReranker, RerankState, Steps
from retrievers.rerank.replies import Best
from retrievers.rerank.tournament import Group, tournament


class ComparisonReranker(PromptReranker):
    """Finds the best `top` of the first stage's best `depth` by comparing groups of `size`."""

    prompt_name = "choose.v1"
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
        self.top = top

    @override
    def own_settings(self) -> Mapping[str, Any]:
        return {**super().own_settings(), "top": self.top}

    @override
    def notes(self) -> Mapping[str, Any]:
        return {**super().notes(), "sound_places": self.top}

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
    def own_settings(self) -> Mapping[str, Any]:
        return {**super().own_settings(), "size": self.size}

    @override
    def requests(self, state: RerankState, group: Group) -> list[Request]:
        return [self.request(state, group, Best)]

    @override
    def winner(self, state: RerankState, group: Group, answers: Sequence[ChatResult]) -> int:
        found = self.read_best(state, answers[0], group)
        return group[0] if found is None else found
