"""Judge of tasks 1 and 2: which predicted memory means the same as which gold memory.

The model sees two numbered lists and returns pairs of numbers from 1. A pair with a number that is
not on its list is dropped; a memory that is paired twice keeps its first pair. Both are counted.
Positions in the verdict start at 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from pydantic import BaseModel, Field, model_validator
from typing_extensions import override

from judges.prompt import JudgePrompt, Number
from judges.verdicts import Judged, Pairs
from judges.voting import Ballot, Judge, JudgeQuestion
from recallbed.chat_models.base import ChatModel, Message
from recallbed.chat_models.prompts import harmless_line
from recallbed.corpus.records import MemoryItem

OUT_OF_RANGE, REPEATED = "pair with an unknown number", "memory paired twice"
MAX_TOKENS = 4096


class _Pair(BaseModel):
    evidence: str = Field(description="What both memories say, briefly.")
    gold: Number = Field(description="Number on the list of gold memories.")
    predicted: Number = Field(description="Number on the list of predicted memories.")


class _Reply(BaseModel):
    pairs: list[_Pair]

    @model_validator(mode="before")
    @classmethod
    def _bare_list(cls, value: Any) -> Any:
        return {"pairs": value} if isinstance(value, list) else value


class PairJudge(Judge[[Sequence[MemoryItem], Sequence[MemoryItem]], Pairs]):
    """Pairs gold and predicted memories by meaning, one to one.

    With several votes a pair is kept if more than half of the valid votes have it, so the result
    is one to one again. A verdict holds (gold position, predicted position), by gold.
    """

    def __init__(self, chat: ChatModel, votes: int = 1) -> None:
        super().__init__(Ballot(chat, votes, _Reply, _common, MAX_TOKENS), "memory_pairs.v1")

    @override
    def question(
        self, gold_items: Sequence[MemoryItem], predicted_items: Sequence[MemoryItem]
    ) -> JudgeQuestion[Pairs]:
        [prompt] = self._prompts
        if not gold_items or not predicted_items:  # no pair is possible, so there is no call
            return JudgeQuestion((), lambda answers: Judged((), prompt=prompt.identity))
        messages = _messages(prompt, gold_items, predicted_items)
        read = partial(_clean, len(gold_items), len(predicted_items))
        return self._ballot.question(prompt, messages, read)


def _messages(
    prompt: JudgePrompt, gold: Sequence[MemoryItem], predicted: Sequence[MemoryItem]
) -> tuple[Message, ...]:
    lists = [[_line(item) for item in items] for items in (gold, predicted)]
    body = "\n\n".join(
        f"{heading}\n" + "\n".join(f"[{n}] {line}" for n, line in enumerate(lines, 1))
        for heading, lines in zip(("GOLD MEMORIES", "PREDICTED MEMORIES"), lists, strict=True)
    )
    return prompt.over(body, [line for lines in lists for line in lines])


def _line(item: MemoryItem) -> str:
    """Return the text with its label, because some texts are a single word."""
    return harmless_line(f"{item.text} ({item.label})" if item.label else item.text)


def _clean(golds: int, predicted: int, reply: _Reply, repairs: Counter[str]) -> Pairs:
    kept: dict[int, int] = {}
    for pair in reply.pairs:
        gold, other = pair.gold - 1, pair.predicted - 1
        if not (0 <= gold < golds and 0 <= other < predicted):
            repairs[OUT_OF_RANGE] += 1
        elif gold in kept or other in kept.values():
            # An exact repeat changes nothing but is counted too.
            repairs[REPEATED] += 1
        else:
            kept[gold] = other
    return tuple(sorted(kept.items()))


def _common(votes: Sequence[Pairs]) -> Pairs:
    # Conflicting pairs would have to be in one vote, since both have a majority.
    count = Counter(pair for vote in votes for pair in vote)
    return tuple(sorted(pair for pair, times in count.items() if 2 * times > len(votes)))
