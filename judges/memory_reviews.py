"""Judge of tasks 1 and 2 that reviews what a matcher paired, and what it left over.

AlpsBench's blended score is the mean of the algorithmic score and of a judge's score, 100 minus
penalties. The release names the errors (docs/evaluation_metric.md), not the penalties. Those here
give the recorded judge's score in all 43 recorded rows. The wording of the prompt is ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, Field
from typing_extensions import override

from judges.prompt import JudgePrompt, Number, quoted
from judges.verdicts import Judged
from judges.voting import Ballot, Judge, JudgeQuestion, lower_median
from recallbed.chat_models.base import ChatModel, Message
from recallbed.chat_models.prompts import harmless_line
from recallbed.corpus.records import MemoryItem, Turn

Finding: TypeAlias = tuple[str, int, str, int]
"""(list: pair, missing or extra; position in it from 0; error; severity 0 to 3)."""
Findings: TypeAlias = tuple[Finding, ...]
MISSING, HALLUCINATED = "MISSING", "HALLUCINATED"
PENALTIES: Mapping[str, float] = {
    "VALUE_DRIFT": 12,
    "HALLUCINATION": 15,
    "LABEL_WRONG": 6,
    "TYPE_WRONG": 6,
    "OVERGENERAL": 3,
    "UNDERGENERAL": 3,
    MISSING: 10,
    HALLUCINATED: 15,
}
"""Points at severity 1; at 0, 2 and 3 a half, one and a half, and twice as many."""
JUDGE_WEIGHT = 0.5
REVIEWED = "memories reviewed"
"""In the fingerprint of runs of this judge, whose verdicts are no pairs."""
OUT_OF_RANGE, REPEATED = "review with an unknown number", "memory reviewed twice"
UNREVIEWED = "memory without a review"
MAX_TOKENS = 8192


def review_score(findings: Findings) -> float:
    """Return 100 minus the penalties, at least 0."""
    lost = sum(PENALTIES[error] * (1 + severity) / 2 for _, _, error, severity in findings)
    return max(0.0, 100.0 - lost)


def blended_score(algorithmic: float, review: float) -> float:
    """Return the mean of two scores from 0 to 100, as the recorded final scores are."""
    return (1 - JUDGE_WEIGHT) * algorithmic + JUDGE_WEIGHT * review


Severity = Annotated[Number, Field(ge=0, le=3)]


class _PairReview(BaseModel):
    number: Number
    evidence: str
    error: Annotated[
        Literal[
            "EQUIVALENT",
            "VALUE_DRIFT",
            "HALLUCINATION",
            "LABEL_WRONG",
            "TYPE_WRONG",
            "OVERGENERAL",
            "UNDERGENERAL",
        ],
        BeforeValidator(lambda value: value.strip().upper() if isinstance(value, str) else value),
    ]
    severity: Severity

    def found(self) -> str | None:
        return None if self.error == "EQUIVALENT" else self.error


class _MissingReview(BaseModel):
    number: Number
    evidence: str
    should_have_extracted: bool
    severity: Severity

    def found(self) -> str | None:
        return MISSING if self.should_have_extracted else None


class _ExtraReview(BaseModel):
    number: Number
    evidence: str
    hallucinated: bool
    severity: Severity

    def found(self) -> str | None:
        return HALLUCINATED if self.hallucinated else None


class _Reviews(BaseModel):
    pairs: list[_PairReview]
    missing: list[_MissingReview]
    extra: list[_ExtraReview]


class ReviewJudge(
    Judge[
        [
            Sequence[Turn],
            Sequence[tuple[MemoryItem, MemoryItem]],
            Sequence[MemoryItem],
            Sequence[MemoryItem],
        ],
        Findings,
    ]
):
    """Finds the errors of paired memories, and those among the memories without a partner.

    With several votes an entry has an error if more than half of the valid votes find one: the most
    frequent (of equal ones the first by name), with the lower median of its severities.
    """

    def __init__(self, chat: ChatModel, votes: int = 1) -> None:
        ballot = Ballot(chat, votes, _Reviews, _decide, MAX_TOKENS)
        super().__init__(ballot, "memory_reviews.v1")

    @override
    def question(
        self,
        dialogue: Sequence[Turn],
        pairs: Sequence[tuple[MemoryItem, MemoryItem]],
        missing: Sequence[MemoryItem],
        extra: Sequence[MemoryItem],
    ) -> JudgeQuestion[Findings]:
        [prompt] = self._prompts
        if not pairs and not missing and not extra:
            return JudgeQuestion((), lambda answers: Judged((), prompt=prompt.identity))
        lists = [
            [f"gold: {_line(gold)} | predicted: {_line(other)}" for gold, other in pairs],
            [_line(item) for item in missing],
            [_line(item) for item in extra],
        ]
        sizes = (len(pairs), len(missing), len(extra))
        messages = _messages(prompt, dialogue, lists)
        return self._ballot.question(prompt, messages, partial(_findings, sizes))


def _line(item: MemoryItem) -> str:
    about = ", ".join(part for part in (item.label, item.type) if part)
    return harmless_line(f"{item.text} ({about})" if about else item.text)


def _messages(
    prompt: JudgePrompt, dialogue: Sequence[Turn], lists: Sequence[Sequence[str]]
) -> tuple[Message, ...]:
    spoken = "\n".join(f"{turn.role}: {turn.text}" for turn in dialogue)
    parts = [f"DIALOGUE\n{quoted(spoken)}"]
    for heading, lines in zip(("PAIRS", "MISSING", "EXTRA"), lists, strict=True):
        numbered = "\n".join(f"[{n}] {line}" for n, line in enumerate(lines, 1))
        parts.append(f"{heading}\n{numbered or '(none)'}")
    return prompt.over("\n\n".join(parts), [spoken, *(line for lines in lists for line in lines)])


def _findings(sizes: Sequence[int], reply: _Reviews, repairs: Counter[str]) -> Findings:
    found = [
        *_errors("pair", sizes[0], reply.pairs, repairs),
        *_errors("missing", sizes[1], reply.missing, repairs),
        *_errors("extra", sizes[2], reply.extra, repairs),
    ]
    return tuple(sorted(found))


def _errors(
    kind: str,
    size: int,
    reviews: Sequence[_PairReview] | Sequence[_MissingReview] | Sequence[_ExtraReview],
    repairs: Counter[str],
) -> Iterator[Finding]:
    seen: set[int] = set()
    for review in reviews:
        position, error = review.number - 1, review.found()
        if not 0 <= position < size:
            repairs[OUT_OF_RANGE] += 1
        elif position in seen:
            repairs[REPEATED] += 1
        else:
            seen.add(position)
            if error is not None:
                yield kind, position, error, review.severity
    if len(seen) < size:
        repairs[UNREVIEWED] += size - len(seen)


def _decide(votes: Sequence[Findings]) -> Findings:
    by_entry: dict[tuple[str, int], list[Finding]] = {}
    for vote in votes:
        for finding in vote:
            by_entry.setdefault(finding[:2], []).append(finding)
    found = []
    for (kind, position), findings in by_entry.items():
        if 2 * len(findings) > len(votes):
            times = Counter(error for _, _, error, _ in findings)
            error = min(times, key=lambda name: (-times[name], name))
            severities = [severity for _, _, name, severity in findings if name == error]
            found.append((kind, position, error, lower_median(severities)))
    return tuple(sorted(found))
