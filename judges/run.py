"""Runs of a judge over the items of a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from typing_extensions import override

from judges.options import JudgeOptions
from judges.verdicts import Unjudged, Verdict, from_row, to_row
from recallbed.chat_models.base import ChatModel
from recallbed.chat_models.session import Chats, open_chats
from recallbed.harness.experiment import execute, plan
from recallbed.harness.item_run import Done, ItemExperiment
from recallbed.harness.plan import Plan
from recallbed.harness.run_folder import RunFolder

JSON = Any


@dataclass(frozen=True, slots=True)
class Work:
    """What is judged: `items` returns each verdict; `settings` can change one."""

    items: Mapping[str, Callable[[], Verdict[Any]]]
    settings: JSON


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The verdict on each item; `facts` holds model, votes, run folder, usage and cost."""

    of: Mapping[str, Verdict[Any]]
    facts: Mapping[str, JSON]


class _JudgeRun(ItemExperiment):
    """Verdicts on the items that `make` returns for the judge's model."""

    measured = "items could be judged"

    def __init__(
        self,
        options: JudgeOptions,
        task: str,
        about: Mapping[str, JSON],
        make: Callable[[ChatModel], Work],
        chats: Chats,
    ) -> None:
        self.options, self.about, self.chats = options, about, chats
        self.chat = chats(options.model)
        self.work = make(self.chat)
        self.name, self.task = f"{task}-judge", task
        self.in_flight = options.chat.in_flight
        self.libraries = self.chat.libraries
        self.verdicts: dict[str, Verdict[Any]] = {}

    @property
    @override
    def label(self) -> str:
        return f"{self.task}, judge"

    @override
    def fingerprint(self) -> Mapping[str, JSON]:
        return {"task": f"{self.task}, judged", **self.about, "judge": self.work.settings}

    @override
    def items(self) -> Mapping[str, Callable[[], Done]]:
        return {name: partial(_done, judge) for name, judge in self.work.items.items()}

    @override
    def figures(self, folder: RunFolder) -> Mapping[str, JSON]:
        self.verdicts = {row["item"]: from_row(row["result"]) for row in folder.rows}
        return {"model": self.options.model, "votes": self.options.votes}

    @override
    def cost(self, tokens_in: int, tokens_out: int) -> float | None:
        price = self.chats.prices.by_model.get(self.chat.name)
        return None if price is None else round(price.of(tokens_in, tokens_out), 6)

    @override
    def plans(self) -> Mapping[str, Plan]:
        return self.chats.plans()


def judge_all(
    options: JudgeOptions, task: str, about: Mapping[str, JSON], make: Callable[[ChatModel], Work]
) -> Verdicts:
    """Return the verdicts on all items that `make` returns for the judge's model.

    `about` describes in the fingerprint what is judged. Raise UserError for invalid options,
    BudgetReached (finished verdicts are kept), and as `execute`.
    """
    with open_chats(options.chat) as chats:
        experiment = _JudgeRun(options, task, about, make, chats)
        outcome = execute(experiment, options.run)
    return Verdicts(experiment.verdicts, {**outcome.summary, "folder": str(outcome.path)})


def plan_all(options: JudgeOptions, make: Callable[[ChatModel], Work]) -> Mapping[str, Plan]:
    """Return what `judge_all` would send. Raise UserError for invalid options."""
    with open_chats(options.chat) as chats:
        return plan(_JudgeRun(options, "", {}, make, chats))


def _done(judge: Callable[[], Verdict[Any]]) -> Done:
    verdict = judge()
    cause = verdict.cause if isinstance(verdict, Unjudged) else None
    return Done(to_row(verdict), **verdict.usage.counts, error=cause)
