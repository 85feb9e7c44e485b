"""A run of a judge over items that can be stopped and taken up again, for tasks 3 and 4."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from judges.options import JudgeOptions
from judges.verdicts import Judged, Unjudged, Verdict, from_row, to_row
from recallbed.chat_models.base import ChatModel
from recallbed.chat_models.dry_run import Plan
from recallbed.chat_models.session import open_chats
from recallbed.errors import UserError
from recallbed.harness.failures import Failures
from recallbed.harness.fingerprint import code_identity, short_hash, versions
from recallbed.harness.item_run import Done, is_item_row, run_items
from recallbed.harness.run_folder import open_run

JSON = Any


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be judged: `items` gives each verdict, `settings` all that can change one."""

    items: Mapping[str, Callable[[], Verdict[Any]]]
    settings: JSON


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The verdict on each item, and who gave them, where they lie, and what they took."""

    of: Mapping[str, Verdict[Any]]
    facts: Mapping[str, JSON]


def judge_all(
    options: JudgeOptions, task: str, about: Mapping[str, JSON], make: Callable[[ChatModel], Work]
) -> Verdicts:
    """The verdicts on all items that `make` gives for the judge's model.

    `about` tells in the fingerprint what is judged. Raises UserError for faulty options, for a
    folder that holds another run, where the budget is reached (what came is kept), and where not
    one item could be judged.
    """
    with open_chats(options.chat) as chats:
        chat = chats(options.model)
        work = make(chat)
        fingerprint = {
            "task": f"{task}, judged",
            **about,
            "judge": work.settings,
            "code": code_identity(),
            "libraries": versions(sorted(chat.libraries)),
        }
        path, on_existing = options.run.out, options.run.on_existing
        if path is None:
            path = Path("runs") / f"{task}-judge-{short_hash(fingerprint)}"
            on_existing = "resume" if on_existing == "refuse" else on_existing
        with open_run(path, fingerprint, on_existing, is_item_row) as folder:
            run_items(
                folder,
                {name: partial(_done, judge) for name, judge in work.items.items()},
                label=f"{task}, judge",
                in_flight=options.chat.in_flight,
                retry_failed=options.run.retry_failed,
            )
            rows = folder.rows
        sums = {key: sum(row[key] for row in rows) for key in ("calls", "tokens_in", "tokens_out")}
        price = chats.prices.by_model.get(chat.name)
    found = {row["item"]: from_row(row["result"]) for row in rows}
    if not any(isinstance(one, Judged) for one in found.values()):
        causes = Failures(row["error"] for row in rows)
        raise UserError(f"{path}: none of {len(rows)} items could be judged ({causes})")
    facts = {
        "model": options.model,
        "votes": options.votes,
        "folder": str(path),
        **sums,
        "cost": price and round(price.of(sums["tokens_in"], sums["tokens_out"]), 6),
    }
    return Verdicts(found, facts)


def plan_all(options: JudgeOptions, make: Callable[[ChatModel], Work]) -> Mapping[str, Plan]:
    """By the model's name, what `judge_all` would send. Nothing is sent, and no folder written."""
    with open_chats(options.chat) as chats:
        for judge in make(chats(options.model)).items.values():
            judge()
        return chats.plans()


def _done(judge: Callable[[], Verdict[Any]]) -> Done:
    verdict = judge()
    used = verdict.usage
    cause = verdict.cause if isinstance(verdict, Unjudged) else None
    return Done(to_row(verdict), **used.counts, error=cause)
