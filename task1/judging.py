"""Pairs by a judge: a run over sessions that can be stopped and taken up again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from judges.memory_pairs import PairJudge
from judges.summary import rate
from judges.verdicts import Judged, Unjudged, from_row, to_row
from memory_scoring.score_options import JudgeOptions
from recallbed.chat_models.dry_run import Plan
from recallbed.chat_models.session import open_chats
from recallbed.corpus.records import MemoryItem
from recallbed.harness.fingerprint import code_hash, own_version, short_hash, versions
from recallbed.harness.item_run import Done, is_item_row, run_items
from recallbed.harness.run_folder import open_run

JSON = Any
Sides = tuple[tuple[MemoryItem, ...], tuple[MemoryItem, ...]]


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What a judge made of sessions: the `pairs` of those that it judged, and how it went.

    `facts` tells model, prompts, folder, judged and unjudged by cause, disagreement, what it took.
    """

    pairs: Mapping[str, tuple[tuple[int, int], ...]]
    facts: Mapping[str, JSON]


def judge_sessions(
    options: JudgeOptions, task: str, sessions: Mapping[str, Sides], about: Mapping[str, JSON]
) -> Verdicts:
    """Judge each session's gold and predicted memories; `about` tells in the fingerprint which.

    Raises UserError for faulty options, for a folder that holds another run, and where the budget
    is reached or nothing could be judged: then what came is kept.
    """
    with open_chats(options.chats) as chats:
        chat = chats(options.chat_model)
        judge = PairJudge(chat, options.votes)
        fingerprint = {
            "task": f"{task}, memories paired by a judge",
            **about,
            "judge": judge.settings(),
            "code": {"version": own_version(), "sha256": code_hash()},
            "libraries": versions(sorted(chat.libraries)),
        }
        path, on_existing = options.out, options.on_existing
        if path is None:
            path = Path("runs") / f"{task}-judge-{short_hash(fingerprint)}"
            on_existing = "resume" if on_existing == "refuse" else on_existing
        with open_run(path, fingerprint, on_existing, sound=is_item_row) as folder:
            run_items(
                folder,
                {name: partial(_judge, judge, sides) for name, sides in sessions.items()},
                label=f"{task}, judge",
                in_flight=options.chats.in_flight,
                retry_failed=options.retry_failed,
            )
            return _collect(path, options.chat_model, judge, folder.rows)


def plan_judging(options: JudgeOptions, sessions: Mapping[str, Sides]) -> Mapping[str, Plan]:
    """What `judge_sessions` would send. Nothing is sent, and no folder written."""
    with open_chats(options.chats) as chats:
        judge = PairJudge(chats(options.chat_model), options.votes)
        for sides in sessions.values():
            judge(*sides)
        return chats.plans()


def _judge(judge: PairJudge, sides: Sides) -> Done:
    verdict = judge(*sides)
    used = verdict.usage
    cause = verdict.cause if isinstance(verdict, Unjudged) else None
    return Done(to_row(verdict), used.calls, used.estimate_in, used.estimate_out, cause)


def _collect(path: Path, model: str, judge: PairJudge, rows: list[dict[str, JSON]]) -> Verdicts:
    verdicts = {row["item"]: from_row(row["result"]) for row in rows}
    facts = rate(list(verdicts.values()), None).require(f"{path}").as_json()
    del facts["score"]  # the figures of tasks 1 and 2 are made elsewhere
    return Verdicts(
        {name: verdict.value for name, verdict in verdicts.items() if isinstance(verdict, Judged)},
        {
            "folder": str(path),
            "model": model,
            "prompts": judge.settings()["prompts"],
            **facts,
            **{key: sum(row[key] for row in rows) for key in ("calls", "tokens_in", "tokens_out")},
        },
    )
