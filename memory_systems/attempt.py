"""One attempt at a dialogue or a question: whom it asks, what that took, how it fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from pydantic import BaseModel

from memory_systems.base import Hit, SystemContext, SystemFailure
from memory_systems.search import rank
from recallbed.chat_models.base import ChatModel, Failure, Message, Request, Usage
from recallbed.corpus.records import MemoryItem
from recallbed.errors import UserError

Answer = TypeVar("Answer", bound=BaseModel)


class Attempt:
    """Asks the model and the retriever, adds up `usage`, and turns failures into SystemFailure.

    A failure carries all that the attempt took until then. BudgetReached and UserError pass
    through.
    """

    def __init__(
        self, context: SystemContext, reply_tokens: int, temperature: float | None = 0.0
    ) -> None:
        self.context, self.reply_tokens, self.temperature = context, reply_tokens, temperature
        self.usage = Usage()

    @property
    def chat(self) -> ChatModel:
        """The chat model; a UserError in one line where none was named."""
        if self.context.chat is None:
            raise UserError(
                "this needs a chat model and none was named;"
                " give --chat-model, such as --chat-model openai:MODEL"
            )
        return self.context.chat

    def search(self, query: str, items: Sequence[MemoryItem], k: int) -> tuple[Hit, ...]:
        """The best `k` of `items`, see `memory_systems.search.rank`."""
        try:
            found = rank(self.context.retriever, query, items, k)
        except SystemFailure as failure:
            raise SystemFailure(failure.cause, self.usage + failure.usage) from failure
        self.usage += found.usage
        return found.hits

    def ask(self, messages: Sequence[Message], schema: type[Answer]) -> Answer:
        """The model's answer as an instance of `schema`."""
        [answer] = self.ask_all([messages], schema)
        return answer

    def ask_all(self, prompts: Sequence[Sequence[Message]], schema: type[Answer]) -> list[Answer]:
        """The answers to prompts that don't hang on one another, sent together."""
        seed = None if self.temperature == 0 else self.context.seed
        requests = [
            Request(tuple(messages), schema, self.reply_tokens, self.temperature, seed)
            for messages in prompts
        ]
        replies = self.chat.complete_all(requests)
        for reply in replies:
            self.usage += reply.usage
        answers = []
        for reply in replies:
            if isinstance(reply, Failure):
                raise SystemFailure(reply.error, self.usage)
            assert isinstance(reply.parsed, schema)
            answers.append(reply.parsed)
        return answers
