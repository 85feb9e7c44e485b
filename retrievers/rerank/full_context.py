"""Full-context retrieval: the whole pool in one prompt, as in the paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from typing_extensions import override

from recallbed.errors import UserError
from retrievers.base import RetrieverError
from retrievers.registry import register
from retrievers.rerank.base import NO_FIRST_STAGE
from retrievers.rerank.prompt_reranker import PromptOrder, PromptReranker, RerankState, Steps
from retrievers.rerank.replies import Order


@register("full-context")
class FullContext(PromptReranker):
    """Shows all memories of the pool and asks for the best `top`. The others tie below them.

    With a `first_stage` the others keep its order, and `order=first-stage` shows all by it. If pool
    and reply do not fit the model's context, the pool is split by its order in the prompt into the
    fewest parts that fit; the best `top` of each are shown together (or split again). The number of
    parts is counted as the repair `split`.
    """

    prompt_name = "full-context.v1"
    setting_names = (*PromptReranker.setting_names, "top", "order")

    def __init__(
        self,
        model: str,
        first_stage: str = NO_FIRST_STAGE,
        top: int = 10,
        order: PromptOrder = "shuffled",
        max_tokens: int = 1024,
        unusable: Literal["keep", "fail"] = "keep",
    ) -> None:
        super().__init__(model, first_stage, None, max_tokens, unusable)
        if top < 1:
            raise UserError(f"top={top}: must be at least 1")
        self.top = self.sound_places = top
        self.order = order

    @override
    def steps(self, state: RerankState) -> Steps:
        contenders, turn = list(range(len(state.shortlist.texts))), 0
        while True:
            shown = self.arranged(state, contenders, self.order, salt=str(turn) if turn else "")
            if turn == 0:
                state.shown |= dict.fromkeys(shown)
            parts = self._parts(state, shown)
            requests = [self.request(state, p, Order, top=min(self.top, len(p))) for p in parts]
            answers = yield requests
            best = [
                self.read_order(state, request, answer, part, min(self.top, len(part)))
                for request, answer, part in zip(requests, answers, parts, strict=True)
            ]
            if len(parts) == 1:
                return best[0]
            state.repairs["split"] += len(parts)
            # A part without a usable reply keeps its first ones.
            through = {i for p, b in zip(parts, best, strict=True) for i in (b or p)[: self.top]}
            if len(through) >= len(contenders):
                raise RetrieverError(
                    "context too long: splitting the pool leaves as many candidates"
                )
            contenders, turn = [i for i in contenders if i in through], turn + 1

    def _parts(self, state: RerankState, shown: Sequence[int]) -> list[list[int]]:
        """The fewest parts of nearly equal length that fit the context."""
        for count in range(1, len(shown) // 2 + 1):
            parts = [list(shown[i::count]) for i in range(count)]
            if all(
                self.fits(self.request(state, part, Order, top=self.top).messages) for part in parts
            ):
                return parts
        raise RetrieverError("context too long for two memories")
