"""Prompts of rerankers: the list of candidates that goes into a prompt file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recallbed.chat_models import Message, PromptFile, fence_for, one_line


class ShortlistPrompt(PromptFile):
    """A prompt file with the slots `rule`, `data` and `count`, and whatever else it names."""

    def build(self, query: str, texts: Sequence[str], **slots: Any) -> tuple[Message, ...]:
        """The messages that show `texts` under the labels [1], [2], … and ask about `query`.

        The query and the texts are data: on one line each, inside one fence.
        """
        fence = fence_for([query, *texts])
        lines = [f"Query: {one_line(query)}", "", "Memories:"]
        lines += [f"[{label}] {one_line(text)}" for label, text in enumerate(texts, 1)]
        data = fence.put("\n".join(lines))
        return self.fill(rule=fence.rule, data=data, count=len(texts), **slots)


def shortlist_prompt(name: str) -> ShortlistPrompt:
    """The prompt in `prompts/<name>.md` of this package."""
    return ShortlistPrompt.load("retrievers.rerank", name)
