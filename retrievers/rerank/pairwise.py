"""Pairwise reranking: two candidates at a time, in both orders to cancel position bias.

After Qin et al. 2024, "Large Language Models are Effective Text Rankers with Pairwise Ranking
Prompting".
"""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from recallbed.chat_models import Request
from retrievers.registry import register
from retrievers.rerank.prompt_reranker import ChatResult, RerankState
from retrievers.rerank.replies import Best
from retrievers.rerank.setwise import ComparisonReranker, Group


@register("pairwise")
class Pairwise(ComparisonReranker):
    """Compares two candidates in two calls, one per order; the majority wins.

    If the calls contradict each other, the first stage decides, which is counted as the repair
    `conflict`.
    """

    size = 2

    @override
    def requests(self, state: RerankState, group: Group) -> list[Request]:
        return [self.request(state, shown, Best) for shown in (group, group[::-1])]

    @override
    def winner(self, state: RerankState, group: Group, answers: Sequence[ChatResult]) -> int:
        points = dict.fromkeys(group, 0)
        for answer, shown in zip(answers, (group, group[::-1]), strict=True):
            named = self.read_best(state, answer, shown)
            if named is not None:
                points[named] += 1
        first, second = group
        if points[first] == points[second] == 1:
            state.repairs["conflict"] += 1
        return second if points[second] > points[first] else first
