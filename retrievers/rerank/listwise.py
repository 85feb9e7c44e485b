"""Listwise reranking: a sliding window over the candidates, from the last to the first.

After Sun et al. 2023, "Is ChatGPT Good at Search?" (RankGPT).
"""

from __future__ import annotations

from typing import Literal

from typing_extensions import override

from recallbed.errors import UserError
from retrievers.base import RetrieverError
from retrievers.registry import register
from retrievers.rerank.prompt_reranker import PromptOrder, PromptReranker, RerankState, Steps
from retrievers.rerank.replies import Order


@register("listwise")
class Listwise(PromptReranker):
    """Orders the first stage's best `depth` in windows of `window`, from the last to the first.

    A window moves by `stride`, so that one pass can find the first `window - stride` places. With
    `depth` up to `window` there is one call per query. `order` is the order of the candidates in
    the prompt. If a prompt does not fit the model's context, the windows of that query are made
    smaller, which is counted as the repair `smaller window`.
    """

    prompt_name = "listwise.v1"
    setting_names = (*PromptReranker.setting_names, "window", "stride", "order")

    def __init__(
        self,
        model: str,
        first_stage: str = "minilm",
        depth: int = 20,
        window: int = 20,
        stride: int = 10,
        order: PromptOrder = "first-stage",
        max_tokens: int = 1024,
        unusable: Literal["keep", "fail"] = "keep",
    ) -> None:
        super().__init__(model, first_stage, depth, max_tokens, unusable)
        if window < 2:
            raise UserError(f"window={window}: must be at least 2")
        if not 1 <= stride < window:
            raise UserError(
                f"stride={stride}: must be from 1 to {window - 1}, less than the window"
            )
        self.window, self.stride, self.order = window, stride, order
        self.sound_places = depth if depth <= window else window - stride

    @override
    def steps(self, state: RerankState) -> Steps:
        ranking = list(range(len(state.shortlist.texts)))
        window, stride = self._fitting(state)
        end = len(ranking)
        while end > 1:
            start = max(0, end - window)
            before = ranking[start:end]
            shown = self.arranged(state, before, self.order, salt=str(start))
            state.shown |= dict.fromkeys(shown)
            request = self.request(state, shown, Order)
            [answer] = yield [request]
            first = self.read_order(state, request, answer, shown)
            ranking[start:end] = [*first, *(i for i in before if i not in set(first))]
            if start == 0:
                break
            end -= stride
        return ranking

    def _fitting(self, state: RerankState) -> tuple[int, int]:
        """The largest window, and its stride, in which the longest texts fit the context."""
        texts = state.shortlist.texts
        longest = sorted(range(len(texts)), key=lambda i: (-len(texts[i].encode()), texts[i]))
        window = self.window
        while not self.fits(self.request(state, longest[:window], Order).messages):
            window = min(window, len(texts)) // 2
            if window < 2:
                raise RetrieverError("context too long for two candidates")
        if window == self.window:
            return window, self.stride
        state.repairs["smaller window"] += 1
        return window, max(1, window * self.stride // self.window)
