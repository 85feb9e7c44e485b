"""Query likelihood: the probability of the query after a memory, by a language model.

After Ponte and Croft 1998, "A Language Modeling Approach to Information Retrieval", with a
pretrained model in place of counts as in Sachan et al. 2022, "Improving Passage Retrieval with
Zero-Shot Question Generation".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, Self

from typing_extensions import override

from recallbed.chat_models import (
    Cause,
    ChatModel,
    DryRun,
    Failure,
    TokenScorer,
    Usage,
    harmless_line,
)
from recallbed.chat_models.budget import estimate_text
from recallbed.errors import UserError
from recallbed.harness.fingerprint import short_hash
from retrievers.base import RetrieverError, RunContext
from retrievers.explanation import RerankerEvidence
from retrievers.hybrid import PUBLIC_DEV, as_leg, weighted_sum
from retrievers.registry import register
from retrievers.rerank.base import Reranked, Shortlist
from retrievers.rerank.pointwise import by_value
from retrievers.rerank.prompt_reranker import PromptReranker

WEIGHT = 0.65
"""Weight of the likelihood, fitted on AlpsBench's public dev split: docs/query_likelihood.md."""
MODEL = "local:smollm2"
PROMPT = "query-likelihood.v1"


@register("query-likelihood")
class QueryLikelihood(PromptReranker):
    """Mixes the first stage with log P(query | memory), a mean over the query's tokens.

    A candidate's value is (1 - weight) z(first stage) + weight z(likelihood), z the standard score
    among the candidates. The default `weight` was fitted on dev, for SmolLM2 over MiniLM's best
    ten. Candidates without a likelihood (their prompt is too long) are counted by cause and rank
    below the others in first-stage order; a query without any likelihood fails.
    """

    def __init__(
        self,
        model: str = MODEL,
        first_stage: str = "minilm",
        depth: int = 10,
        weight: float | None = None,
    ) -> None:
        super().__init__(model, first_stage, depth)
        if weight is not None and not 0 <= weight <= 1:
            raise UserError(f"weight={weight:g}: must be from 0 to 1")
        self.weight = WEIGHT if weight is None else weight
        self.fitted_on = (PUBLIC_DEV,) if weight is None else ()

    @classmethod
    @override
    def from_run(cls, settings: Mapping[str, Any], run: RunContext) -> Self:
        return super().from_run({"model": MODEL, **settings}, run)

    def _use(self, chat: ChatModel) -> None:
        if not isinstance(chat, TokenScorer | DryRun):
            raise UserError(
                f"{chat.name} reports no log-probabilities of a text. Use a local model"
            )
        super()._use(chat)

    @override
    def own_settings(self) -> Mapping[str, Any]:
        return {
            "model": dict(self.chat.settings()),
            "prompt": f"{PROMPT} {short_hash(_template())}",
            "weight": self.weight,
        }

    @override
    def rerank_all(self, shortlists: Sequence[Shortlist]) -> list[Reranked | RetrieverError]:
        # One by one: what else is in a batch changes the last digits of a likelihood.
        return [self.mixed(shortlist, self.likelihoods(shortlist)) for shortlist in shortlists]

    @override
    def evidence(
        self, shortlist: Shortlist, numbers: Sequence[int]
    ) -> Mapping[int, RerankerEvidence]:
        found = self.likelihoods(shortlist.part(numbers))
        name = "mean log P(query token)"
        return {
            number: RerankerEvidence(value, name)
            for number, value in zip(numbers, found, strict=True)
            if not isinstance(value, Failure)
        }

    def likelihoods(self, shortlist: Shortlist) -> list[float | Failure]:
        """Return the mean log-probability of the query's tokens after each text (natural log)."""
        if not isinstance(self.chat, TokenScorer):
            return [Failure(Cause.NOT_SENT)] * len(shortlist.texts)
        query = " " + harmless_line(shortlist.query)
        answers = self.chat.log_probabilities(
            [(prompt_of(text), query) for text in shortlist.texts]
        )
        return [a if isinstance(a, Failure) else a.total / max(a.tokens, 1) for a in answers]

    def mixed(
        self, shortlist: Shortlist, likelihoods: Sequence[float | Failure]
    ) -> Reranked | RetrieverError:
        """Return the candidates by the mixture of likelihood and first stage."""
        scored = {i: value for i, value in enumerate(likelihoods) if not isinstance(value, Failure)}
        legs = as_leg(shortlist.scores[list(scored)]), as_leg(list(scored.values()))
        mixture = weighted_sum(legs, (1 - self.weight, self.weight), "zscore")
        found = list(likelihoods)
        for i, value in zip(scored, mixture.tolist(), strict=True):
            found[i] = value
        # No model's interface counts the tokens of bare text.
        read = [estimate_text(f"{prompt_of(text)} {shortlist.query}") for text in shortlist.texts]
        return by_value(shortlist, found, [Usage(1, unreported=1, estimated_in=n) for n in read])


@cache
def _template() -> str:
    file = resources.files("retrievers.rerank").joinpath("prompts", f"{PROMPT}.md")
    return file.read_text(encoding="utf-8").strip()


def prompt_of(text: str) -> str:
    """Return the text before the query: no chat, since the model may not be a chat model."""
    return _template().replace("{memory}", harmless_line(text))
