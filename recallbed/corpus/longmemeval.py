"""LongMemEval's public format: questions over histories of chat sessions.

What is a document and what is gold follows the benchmark's retrieval code (`src/retrieval/` of
github.com/xiaowu0162/LongMemEval); docs/longmemeval.md says where this differs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from recallbed.corpus.jsonl import Fields
from recallbed.corpus.user_file import read_json_list
from recallbed.errors import DataError

ROLES = ("user", "assistant")


class Level(StrEnum):
    """What one document is."""

    SESSION = "session"
    TURN = "turn"


@dataclass(frozen=True, slots=True)
class Question:
    """One instance as a query over a pool.

    `golds` are positions in `memories`, empty for an abstention and if no indexed turn of an
    answer session is marked. `silent_answers` counts answer sessions without a marked turn,
    `repeated_sessions` the sessions whose id stood earlier in the history, `empty_sessions` those
    without a turn of the roles that are indexed. `question_type` and `question_date` are None if
    the instance has none.
    """

    id: str
    query: str
    memories: tuple[str, ...]
    golds: tuple[int, ...]
    abstention: bool
    silent_answers: int
    repeated_sessions: int
    empty_sessions: int
    question_type: str | None = None
    question_date: str | None = None


def read_longmemeval(
    path: Path,
    level: Level,
    repairs: Counter[str],
    *,
    include_assistant: bool = False,
    dates: bool = False,
) -> Iterator[Question]:
    """The questions of `path` (.json or .json.gz) in file order; memory holds one instance.

    A document is one turn of the user, or all of a session's joined by a space; with
    `include_assistant` the assistant's turns count like the user's. `dates` puts the session's
    date before each document. `repairs` counts what was repaired in texts.

    Raises DataError, with the position and id of the instance, for whatever isn't in the format.
    """
    positions: dict[str, int] = {}
    roles = ROLES if include_assistant else ROLES[:1]
    for position, value in read_json_list(path):
        fields = _Instance(path, 0, repairs, f"instance [{position}]")
        name = fields.text(value, "question_id")
        fields = _Instance(path, 0, repairs, f"instance [{position}] (`{name}`)")
        before = positions.setdefault(name, position)
        if before != position:
            raise fields.fault(f"instance [{before}] has this question_id too")
        yield _question(name, value, fields, level, roles, dates)


@dataclass(frozen=True, slots=True)
class _Instance(Fields):
    """Takes fields out of an instance, whose place is a position in a list, not a line."""

    place: str

    def fault(self, what: str, todo: str = "") -> DataError:
        return DataError(f"{self.place}: {what}", self.path, todo=todo)


def _question(
    name: str,
    value: dict[str, Any],
    fields: Fields,
    level: Level,
    roles: tuple[str, ...],
    dates: bool,
) -> Question:
    sessions = list(fields.objects(value, "haystack_sessions"))
    ids = _texts(value, "haystack_session_ids", fields)
    days = _texts(value, "haystack_dates", fields)
    if not len(sessions) == len(ids) == len(days):
        raise fields.fault(
            f"{len(sessions)} haystack_sessions, {len(ids)} haystack_session_ids and {len(days)}"
            " haystack_dates: the three lists must be equally long"
        )
    abstention = name.endswith("_abs")
    answers = set() if abstention else set(_texts(value, "answer_session_ids", fields))
    lost = sorted(answers - set(ids))
    if lost:
        raise fields.fault(f"answer session `{lost[0]}` is not in the haystack")
    memories: list[str] = []
    golds: list[int] = []
    silent = empty = 0
    # A session may stand twice under one id: each of the two is a memory, each may be gold.
    for (where, session), session_id, day in zip(sessions, ids, days, strict=True):
        turns = list(_turns(session, where, fields, roles))
        marked = any(mark for _, mark in turns)
        empty += not turns
        silent += session_id in answers and not marked
        documents = turns
        if level is Level.SESSION:
            documents = [(" ".join(text for text, _ in turns), marked)]
        for text, mark in documents:
            if mark and session_id in answers:
                golds.append(len(memories))
            memories.append(f"[{day}] {text}" if dates else text)
    if not memories:
        raise fields.fault(f"the history holds no document at {level} level")
    return Question(
        id=name,
        query=fields.text(value, "question"),
        memories=tuple(memories),
        golds=tuple(golds),
        abstention=abstention,
        silent_answers=silent,
        repeated_sessions=len(ids) - len(set(ids)),
        empty_sessions=empty,
        question_type=fields.optional_text(value, "question_type"),
        question_date=fields.optional_text(value, "question_date"),
    )


def _turns(
    session: Any, where: str, fields: Fields, roles: tuple[str, ...]
) -> Iterator[tuple[str, bool]]:
    """(text, whether it is marked as evidence) of the turns of `roles`; all turns are checked."""
    for place, turn in fields.objects({where: session}, where):
        role = fields.take(turn, "role", str, place)
        if role not in ROLES:
            raise fields.fault(f"`{place}.role` is `{role}`", f"A role is {' or '.join(ROLES)}")
        mark = turn.get("has_answer")
        if mark is not None and not isinstance(mark, bool):
            raise fields.fault(f"field `{place}.has_answer` must be true or false")
        if role in roles:
            yield fields.text(turn, "content", place), bool(mark)
        else:
            fields.take(turn, "content", str, place)


def _texts(value: dict[str, Any], field: str, fields: Fields) -> list[str]:
    return [fields.text({where: one}, where) for where, one in fields.objects(value, field)]
