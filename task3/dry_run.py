"""What a sweep's chat models would be asked, told before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping

from recallbed.chat_models.dry_run import Plan
from recallbed.chat_models.session import Chats, open_chats
from recallbed.errors import UserError
from recallbed.harness.progress import progress
from retrievers.attempt import prepare
from task3.config import SweepConfig
from task3.scoring import Scorer
from task3.setup import chat_models_of, open_sweep, places_of, task_size

HEDGE = (
    "tokens in: estimated where the tokenizer is a server's; tokens out and cost: the most that may"
    " come; re-asks and calls that hang on earlier replies: counted as far as they are made when no"
    " reply comes, so a run may make more calls or fewer"
)


def plan_sweep(config: SweepConfig) -> Mapping[str, Plan]:
    """By the models' names as given, what the sweep would send. Writes no run folder.

    Every pool goes through every retriever that asks a model, and the rows are thrown away: a call
    that isn't stored fails as not sent. Raises UserError as `run_sweep` does, and where no
    retriever asks a model.
    """
    with open_chats(config.chat) as chats:
        material, retrievers = open_sweep(config, chats)
        for label, retriever in retrievers.items():
            queries = (row.query for row in material.pools.rows)
            prepare(label, retriever, queries, material.pools.memories)
            notes = retriever.notes()
            if not chat_models_of(notes):
                continue
            scorer = Scorer(label, retriever, material.pools)
            places = places_of(material.pools)
            with progress(f"{label}, dry run", len(places)) as advance:
                for task in scorer.tasks(places, task_size(config, notes)):
                    scorer.run(task)
                    advance(len(task))
        plans = chats.plans()
    if not plans:
        raise UserError("--dry-run: no retriever here asks a chat model")
    return plans


def planned(chats: Chats) -> list[str]:
    """What a dry run of another command came to. Raises UserError if it asks no model."""
    plans = chats.plans()
    if not plans:
        raise UserError("--dry-run: no retriever here asks a chat model")
    return report(plans)


def report(plans: Mapping[str, Plan]) -> list[str]:
    """A line a model, and what the figures are."""
    return [*(plan.line(name) for name, plan in plans.items()), HEDGE]
