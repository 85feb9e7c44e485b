"""The answers of a run of task 4, read back from its rows, and where each gold memory went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memory_scoring.gold_search import GoldSearch, search_for_gold, stored_memories
from memory_scoring.questions import UserQuestion
from recallbed.errors import UserError
from recallbed.harness.fingerprint import short_hash
from recallbed.harness.item_run import is_item_row
from recallbed.harness.run_folder import ROWS, is_count, read_manifest, read_rows

_OWN_SEARCH = "own"
"""The retriever by which a run says that it used the search of its system."""


@dataclass(frozen=True, slots=True)
class RunAnswer:
    """The answer to one question, or the cause of its failure.

    `used` is the memory that it claims to use, "" for none. `search` is None if it failed.
    `left_out` counts the hits, or without a search the oldest memories, that did not fit into the
    prompt. `ranks_left_out` are the ranks of these hits, from 1; None in runs of earlier versions.
    """

    error: str | None
    text: str = ""
    used: str = ""
    search: GoldSearch | None = None
    left_out: int = 0
    ranks_left_out: frozenset[int] | None = frozenset()


def read_run_answers(run: Path, questions: Mapping[str, UserQuestion]) -> dict[str, RunAnswer]:
    """Return the answers of the run in `run` to `questions`, both by the questions' names.

    Questions of rows that the run does not have are left out. Raise UserError for rows that are
    damaged, cut short, or not of task 4.
    """
    path = run / ROWS
    rows, whole = read_rows(path, _is_answer_row, "a row of a run of task 4")
    if whole < path.stat().st_size:
        raise UserError(
            f"{path}:{len(rows) + 1}: the row is cut short. Finish the run with --resume"
        )
    by_row: dict[str, list[UserQuestion]] = {}
    for question in questions.values():
        by_row.setdefault(question.row.benchmark_id, []).append(question)
    found: dict[str, RunAnswer] = {}
    depth = _own_search_depth(run)
    for row in rows:
        for question in by_row.get(row["item"], ()):
            if row["error"] is not None:
                found[question.name] = RunAnswer(row["error"])
        if row["error"] is not None:
            continue
        memories = stored_memories(row["result"])
        for one in row["result"]["responses"]:
            asked = questions.get(f"{row['item']} {one['query_id']}")
            if asked is None:
                continue
            if one["error"] is not None:
                found[asked.name] = RunAnswer(one["error"])
                continue
            hits = [position for position, _ in one["hits"]]
            search = search_for_gold(asked.memory, asked.row.history, memories, hits, depth)
            left_out = one.get("left_out", 0)
            unseen = one.get("hits_left_out", None if left_out else [])
            found[asked.name] = RunAnswer(
                None,
                one["answer"] or "",
                one["used_memory_fact"] or "",
                search,
                left_out,
                None if unseen is None else frozenset(hit + 1 for hit in unseen),
            )
    return found


def _own_search_depth(run: Path) -> int:
    """Return how many hits a run asked of its system's own search; 0 if it used a retriever."""
    match read_manifest(run):
        case {"fingerprint": {"retriever": {"name": name}, "system": {"settings": {"k": int(k)}}}}:
            return k if name == _OWN_SEARCH else 0
        case _:
            return 0


def answers_identity(texts: Mapping[str, str]) -> dict[str, Any]:
    """Return what identifies judged answers in the fingerprint of a judge's run.

    `texts` are the answers by the questions' names.
    """
    return {"count": len(texts), "hash": short_hash(texts)}


def _is_answer_row(row: Any) -> bool:
    if not is_item_row(row):
        return False
    if row["error"] is not None:
        return True
    result = row["result"]
    if not isinstance(result, dict):
        return False
    items, responses = result.get("memory_items"), result.get("responses")
    return (
        isinstance(items, list)
        and all(isinstance(item, dict) and isinstance(item.get("value"), str) for item in items)
        and isinstance(responses, list)
        and all(map(_is_response, responses))
    )


def _is_response(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("query_id"), str):
        return False
    if value.get("error") is not None:
        return isinstance(value["error"], str)
    hits = value.get("hits")
    return (
        {"error", "answer", "used_memory_fact"} <= value.keys()
        and all(isinstance(value[key], str | None) for key in ("answer", "used_memory_fact"))
        and isinstance(hits, list)
        and all(isinstance(hit, list) and len(hit) == 2 for hit in hits)
        and is_count(value.get("left_out", 0))
        and isinstance(value.get("hits_left_out", []), list)
        and all(map(is_count, value.get("hits_left_out", [])))
    )
