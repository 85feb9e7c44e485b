"""Pointwise reranking: each candidate is judged by itself, by log-probabilities if available.

The yes/no judgement is after Liang et al. 2022, "Holistic Evaluation of Language Models", the
grades after Zhuang et al. 2024, "Beyond Yes and No: Improving Zero-Shot LLM Rankers via Scoring
Fine-Grained Relevance Labels".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, Field, field_validator
from typing_extensions import override

from recallbed.chat_models import Cause, Failure, Reply, TokenScorer, Usage
from retrievers.base import RetrieverError
from retrievers.explanation import RerankerEvidence
from retrievers.registry import register
from retrievers.rerank.base import Reranked, Shortlist, evidence_of
from retrievers.rerank.prompt_reranker import (
    ChatResult,
    PromptReranker,
    RerankState,
    ShortlistPrompt,
    Steps,
    shortlist_prompt,
)

YES, NO = "Yes", "No"


class Grade(BaseModel):
    """How much an answer depends on a memory."""

    grade: Literal[0, 1, 2, 3] = Field(description="3 for decisive, 0 for unrelated")

    @field_validator("grade", mode="before")
    @classmethod
    def _number(cls, value: Any) -> Any:
        return int(value) if isinstance(value, str) and value.strip() in "0123" else value


@register("pointwise")
class Pointwise(PromptReranker):
    """Asks for each candidate whether the answer depends on it: one prompt per candidate.

    A local model orders by log P(yes) - log P(no). Any other model gives a grade from 0 to 3, and
    the first stage orders equal grades. A candidate without a judgement is counted by its cause and
    ranks below the others in first-stage order; a query without any judgement fails.
    """

    def __init__(
        self, model: str, first_stage: str = "minilm", depth: int = 20, max_tokens: int = 256
    ) -> None:
        super().__init__(model, first_stage, depth, max_tokens, unusable="fail")

    @property
    def prompt(self) -> ShortlistPrompt:
        """The prompt for log-probabilities, or that for grades."""
        return shortlist_prompt(
            "yes-no.v1" if isinstance(self.chat, TokenScorer) else "pointwise.v1"
        )

    @override
    def rerank_all(self, shortlists: Sequence[Shortlist]) -> list[Reranked | RetrieverError]:
        if isinstance(self.chat, TokenScorer):
            return [self._by_odds(shortlist, self.chat) for shortlist in shortlists]
        return super().rerank_all(shortlists)

    @override
    def evidence(
        self, shortlist: Shortlist, numbers: Sequence[int]
    ) -> Mapping[int, RerankerEvidence]:
        if not isinstance(self.chat, TokenScorer):
            return super().evidence(shortlist, numbers)
        found = self._by_odds(shortlist.part(numbers), self.chat)
        return evidence_of("log P(yes) - log P(no)", numbers, found)

    def _by_odds(self, shortlist: Shortlist, scorer: TokenScorer) -> Reranked | RetrieverError:
        prompts = [self.prompt.build(shortlist.query, [text]) for text in shortlist.texts]
        answers = scorer.log_probabilities([(p, reply) for p in prompts for reply in (YES, NO)])
        odds: list[float | Failure] = []
        for yes, no in zip(answers[::2], answers[1::2], strict=True):
            if isinstance(yes, Failure) or isinstance(no, Failure):
                odds.append(yes if isinstance(yes, Failure) else no)  # type: ignore[arg-type]
            else:
                odds.append(yes.total - no.total)
        tokens = [self.chat.count_tokens(prompt) for prompt in prompts]
        return by_value(shortlist, odds, [Usage(1, reported_in=read) for read in tokens])

    @override
    def steps(self, state: RerankState) -> Steps:
        requests = {i: self.request(state, [i], Grade) for i in range(len(state.shortlist.texts))}
        sent = [i for i, request in requests.items() if self.fits(request.messages)]
        too_long: ChatResult = Failure(Cause.CONTEXT)
        answers = dict.fromkeys(requests, too_long)
        answers |= zip(sent, (yield [requests[i] for i in sent]), strict=True)
        grades = {i: self._grade(state, answer) for i, answer in answers.items()}
        found = {i: grade for i, grade in grades.items() if grade is not None}
        return sorted(found, key=lambda i: (-found[i], i))

    def _grade(self, state: RerankState, answer: ChatResult) -> int | None:
        if isinstance(answer, Failure) and answer.cause is Cause.CONTEXT:
            state.replies += 1
            state.unusable += 1
            state.repairs[answer.cause.value] += 1
            return None
        if not self._usable(state, answer):
            return None
        assert isinstance(answer, Reply)
        assert isinstance(answer.parsed, Grade)
        return answer.parsed.grade


def by_value(
    shortlist: Shortlist, values: Sequence[float | Failure], usages: Sequence[Usage]
) -> Reranked | RetrieverError:
    """Return the candidates by value; failed ones below in first-stage order, counted by cause.

    `usages` is the cost of each candidate that did not fail. An error if all have failed.
    """
    scored = {i: value for i, value in enumerate(values) if not isinstance(value, Failure)}
    causes = Counter(value.cause.value for value in values if isinstance(value, Failure))
    if not scored:
        return RetrieverError(", ".join(sorted(causes)))
    found = (
        min(scored.values())
        - 1.0
        - np.searchsorted(np.unique(-shortlist.scores), -shortlist.scores)
    )
    found[list(scored)] = list(scored.values())
    return Reranked(found, sum((usages[i] for i in scored), Usage()), causes)
