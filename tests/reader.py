"""Answers for the scripted server: a reader of rerankers' prompts that knows which texts matter."""

import re
from collections.abc import Callable
from typing import Any

from retrievers.rerank import testing
from tests.scripted_server import Call

Worth = Callable[[str, str], float]
"""How much a text matters for a query."""


def shown(call: Call) -> tuple[str, dict[int, str]]:
    """The query and the labelled texts of a reranker's prompt."""
    return testing.shown(call.prompt)


def reader(worth: Worth) -> Callable[[Call], Any]:
    """Reads whatever a reranker asks; texts of equal worth by their label."""

    def answer(call: Call) -> Any:
        query, texts = shown(call)
        order = sorted(texts, key=lambda label: (-worth(query, texts[label]), label))
        if 'one field, "best"' in call.prompt:
            return {"best": order[0]}
        top = re.search(r"Name the (\d+) memories", call.prompt)
        return {"order": order[: int(top[1])] if top else order}

    return answer


def knows(*golds: str) -> Worth:
    """Golds, as one line, are worth 1, all else nothing."""
    lines = {" ".join(gold.split()) for gold in golds}
    return lambda query, text: float(text in lines)
