"""Base class of rerankers that ask a chat model, with many queries in progress at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

import numpy as np
from typing_extensions import override

from recallbed.chat_models import (
    ChatModel,
    Chats,
    Message,
    PromptFile,
    Reply,
    Request,
    Usage,
    fence_for,
    harmless_line,
)
from recallbed.chat_models.base import Failure
from recallbed.chat_models.budget import estimate_text
from recallbed.errors import UserError
from retrievers.base import Retriever, RetrieverError, RunContext
from retrievers.explanation import ModelReply, RerankerEvidence
from retrievers.recorded import chat_name
from retrievers.rerank.base import Reranked, Reranker, Shortlist, order_key
from retrievers.rerank.replies import (
    CUT,
    UNUSABLE,
    Best,
    Order,
    listed_before_the_cut,
    usable_labels,
)


class ShortlistPrompt(PromptFile):
    """A prompt file with the slots `rule`, `data` and `count`, and any others."""

    def build(self, query: str, texts: Sequence[str], **slots: Any) -> tuple[Message, ...]:
        """Return the messages that show `texts` under the labels [1], [2], … with `query`.

        Query and texts are data: one line each, inside one fence.
        """
        fence = fence_for([query, *texts])
        lines = [f"Query: {harmless_line(query)}", "", "Memories:"]
        lines += [f"[{label}] {harmless_line(text)}" for label, text in enumerate(texts, 1)]
        data = fence.put("\n".join(lines))
        return self.fill(rule=fence.rule, data=data, count=len(texts), **slots)


def shortlist_prompt(name: str) -> ShortlistPrompt:
    """Return the prompt in `prompts/<name>.md` of this package."""
    return ShortlistPrompt.load("retrievers.rerank", name)


ChatResult = Reply | Failure
Steps = Generator[list[Request], list[ChatResult], list[int]]
"""Yields requests that may be sent together, receives their replies, and returns the order found:
numbers of texts, best first. Texts that it leaves out rank below, in first-stage order with ties.
"""
PromptOrder = Literal["first-stage", "shuffled", "reversed"]


@dataclass(slots=True)
class RerankState:
    """The state of one query while it is reranked: cost and repairs of its replies."""

    shortlist: Shortlist
    usage: Usage = field(default_factory=Usage)
    repairs: Counter[str] = field(default_factory=Counter)
    shown: dict[int, None] = field(default_factory=dict)
    replies: int = 0
    unusable: int = 0
    prompts: dict[tuple[Message, ...], tuple[int, ...]] | None = None
    """The texts that each prompt shows, in its order; None unless they are to be kept."""


class PromptReranker(Reranker):
    """A reranker whose `steps` ask `model` (`openai:MODEL`, `local:…`) for replies in JSON.

    After an unusable reply the candidates of its prompt keep their order, which is counted; with
    `unusable=fail` a query without any usable reply fails. A failed call (time-out, rate limit, …)
    always fails its query.
    """

    prompt_name: ClassVar[str]
    setting_names: ClassVar[tuple[str, ...]] = ("max_tokens", "unusable")
    """Attributes that its settings record in addition to model and prompt."""
    chat: ChatModel
    sound_places: int | None = None
    """The number of first places that can be found for any first-stage order, if limited."""

    def __init__(
        self,
        model: str,
        first_stage: str = "minilm",
        depth: int | None = 20,
        max_tokens: int = 1024,
        unusable: Literal["keep", "fail"] = "keep",
    ) -> None:
        super().__init__(first_stage, depth)
        if max_tokens < 1:
            raise UserError(f"max_tokens={max_tokens}: must be at least 1")
        self.model, self.max_tokens, self.unusable = model, max_tokens, unusable

    @classmethod
    @override
    def from_run(cls, settings: Mapping[str, Any], run: RunContext) -> Self:
        if "model" not in settings:
            raise UserError("a chat model is needed. Add --set LABEL.model=openai:MODEL")
        made = super().from_run(settings, run)
        made._use((run.chats or Chats())(made.model))
        return made

    @classmethod
    def asking(
        cls,
        chat: ChatModel,
        first_stage: Retriever | None = None,
        *,
        seed: int = 0,
        **settings: Any,
    ) -> Self:
        """Return a reranker that asks an existing model, over an existing first stage."""
        made = cls(model=chat.name, **settings)
        made.seed = seed
        made._use(chat)
        made._arguments = None
        if first_stage is not None:
            made._set_first_stage(first_stage)
        return made

    def _use(self, chat: ChatModel) -> None:
        self.chat = chat
        self.libraries = tuple(sorted({*self.libraries, *chat.libraries}))

    @property
    def prompt(self) -> ShortlistPrompt:
        """The prompt of this paradigm."""
        return shortlist_prompt(self.prompt_name)

    @override
    def own_settings(self) -> Mapping[str, Any]:
        return {
            "model": dict(self.chat.settings()),
            "prompt": self.prompt.identity,
            **{name: getattr(self, name) for name in self.setting_names},
        }

    @override
    def notes(self) -> Mapping[str, Any]:
        sound = {} if self.sound_places is None else {"sound_places": self.sound_places}
        return {**super().notes(), "chat_model": self.chat.name, **sound}

    def steps(self, state: RerankState) -> Steps:
        """Order one shortlist: see `Steps`."""
        raise NotImplementedError

    @override
    def rerank_all(self, shortlists: Sequence[Shortlist]) -> list[Reranked | RetrieverError]:
        states = [RerankState(shortlist) for shortlist in shortlists]
        running = {i: self.steps(state) for i, state in enumerate(states)}
        found: dict[int, Reranked | RetrieverError] = {}
        answers: dict[int, list[ChatResult]] = {}
        while running:
            asked: dict[int, list[Request]] = {}
            for i, steps in list(running.items()):
                try:
                    asked[i] = steps.send(answers[i]) if i in answers else next(steps)
                except StopIteration as end:
                    found[i] = self._ordered(states[i], end.value)
                except RetrieverError as error:
                    found[i] = error
                if i in found:
                    del running[i]
            flat = iter(self.chat.complete_all([one for each in asked.values() for one in each]))
            answers = {i: [next(flat) for _ in requests] for i, requests in asked.items()}
        return [found[i] for i in range(len(shortlists))]

    @override
    def evidence(
        self, shortlist: Shortlist, numbers: Sequence[int]
    ) -> Mapping[int, RerankerEvidence]:
        """Return the replies to the prompts that showed these texts, as far as they are stored."""
        found: dict[int, list[ModelReply]] = {number: [] for number in numbers}
        for shown, answer in self._stored_replies(shortlist):
            for label, number in enumerate(shown, 1):
                if number in found:
                    text = answer.text
                    if isinstance(answer, Failure):
                        text = text or answer.cause.value
                    found[number].append(ModelReply(text, label))
        return {n: RerankerEvidence(replies=tuple(one)) for n, one in found.items() if one}

    def _stored_replies(self, shortlist: Shortlist) -> Iterator[tuple[tuple[int, ...], ChatResult]]:
        """The texts that each prompt shows, and its reply, up to the first that is not stored."""
        state = RerankState(shortlist, prompts={})
        steps = self.steps(state)
        if len(shortlist.texts) < 2:
            return
        try:
            requests = next(steps)
            while True:
                answers: list[ChatResult] = []
                for request in requests:
                    answer = self.chat.recall(request)
                    if answer is None:
                        return
                    answers.append(answer)
                    assert state.prompts is not None
                    yield state.prompts[request.messages], answer
                requests = steps.send(answers)
        except (StopIteration, RetrieverError):
            return

    @classmethod
    @override
    def arguments_of(cls, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**super().arguments_of(settings), "model": chat_name(settings["model"])}

    def _ordered(self, state: RerankState, order: Sequence[int]) -> Reranked | RetrieverError:
        if self.unusable == "fail" and state.replies and state.replies == state.unusable:
            kinds = ", ".join(sorted(kind for kind in state.repairs if state.repairs[kind]))
            return RetrieverError(f"no reply could be used ({kinds})")
        values = -len(order) - np.searchsorted(
            np.unique(-state.shortlist.scores), -state.shortlist.scores
        )
        values[list(order)] = -np.arange(len(order))
        shown = list(state.shown) if len(state.shown) == len(values) else None
        return Reranked(values, state.usage, state.repairs, shown)

    # The building blocks of `steps`.

    def request(
        self, state: RerankState, numbers: Sequence[int], schema: Any, **slots: Any
    ) -> Request:
        """Return the prompt that shows these texts of the shortlist in this order."""
        texts = [state.shortlist.texts[i] for i in numbers]
        messages = self.prompt.build(state.shortlist.query, texts, **slots)
        if state.prompts is not None:
            state.prompts[messages] = tuple(numbers)
        return Request(messages, schema, self.max_tokens)

    def fits(self, messages: Sequence[Message]) -> bool:
        """Whether prompt and reply fit the model's context; True if that is unknown."""
        context = self.chat.context
        return context is None or self.chat.count_tokens(messages) + self.max_tokens <= context

    def arranged(
        self, state: RerankState, numbers: Sequence[int], order: PromptOrder, salt: str = ""
    ) -> list[int]:
        """Return the texts, given best first, in the order of the prompt."""
        if order == "reversed":
            return list(reversed(numbers))
        if order == "shuffled":
            shortlist = state.shortlist
            return sorted(
                numbers,
                key=lambda i: order_key(self.seed, shortlist.query, shortlist.texts[i], salt),
            )
        return list(numbers)

    def read_order(
        self,
        state: RerankState,
        request: Request,
        answer: ChatResult,
        shown: Sequence[int],
        expected: int | None = None,
    ) -> list[int]:
        """Return the texts that a reply puts first. `shown` is the order of the prompt.

        Raises RetrieverError if the call failed.
        """
        labels: Sequence[int] = ()
        if self._usable(state, answer):
            assert isinstance(answer, Reply)
            assert isinstance(answer.parsed, Order)
            labels = answer.parsed.order
        elif isinstance(answer, Failure) and answer.text and UNUSABLE[answer.cause] == CUT:
            labels = listed_before_the_cut(answer)
            if not labels:
                return []
            if not answer.usage.calls:  # a user's own model that counts complete replies only
                tokens_in = self.chat.count_tokens(request.messages)
                tokens_out = estimate_text(answer.text)
                state.usage += Usage(
                    1, unreported=1, estimated_in=tokens_in, estimated_out=tokens_out
                )
            state.unusable -= 1
        else:
            return []
        wanted = len(shown) if expected is None else expected
        return [shown[n - 1] for n in usable_labels(labels, len(shown), wanted, state.repairs)]

    def read_best(self, state: RerankState, answer: ChatResult, shown: Sequence[int]) -> int | None:
        """Return the text that a reply names as the best, None if it names none.

        Raises RetrieverError if the call failed.
        """
        if not self._usable(state, answer):
            return None
        assert isinstance(answer, Reply)
        assert isinstance(answer.parsed, Best)
        labels = usable_labels([answer.parsed.best], len(shown), 0, state.repairs)
        return shown[labels[0] - 1] if labels else None

    def _usable(self, state: RerankState, answer: ChatResult) -> bool:
        state.usage += answer.usage
        state.replies += 1
        if isinstance(answer, Reply):
            state.repairs.update(answer.repairs)
            return True
        if answer.cause not in UNUSABLE:
            raise RetrieverError(answer.error)
        state.unusable += 1
        state.repairs[UNUSABLE[answer.cause]] += 1
        return False
