"""Verdicts on answers: a run over questions that can be stopped and taken up again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from chat_models.dry_run import Plan
from chat_models.session import ChatOptions, Chats, open_chats
from harness.fingerprint import code_hash, own_version, short_hash, versions
from harness.item_run import Done, is_item_row, run_items
from harness.run_folder import open_run
from judge.utilization import UtilizationJudge
from judge.verdicts import Unjudged, Verdict, from_row, to_row
from task4.answers import Said
from task4.questions import Question

JSON = Any


@dataclass(frozen=True, slots=True)
class JudgeOptions:
    """Who judges, how often, and where the verdicts are kept; None is a folder in `runs/`."""

    model: str
    votes: int = 1
    chats: ChatOptions = field(default_factory=ChatOptions)
    folder: Path | None = None


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The verdict on each answer, by the question's name, and who gave them at what cost."""

    of: Mapping[str, Verdict[Any]]
    facts: Mapping[str, JSON]


def judge_answers(
    options: JudgeOptions, questions: Sequence[Question], said: Mapping[str, Said], data: JSON
) -> Verdicts:
    """Judge the answers in `said`, each by its question's dimension; unjudged ones are tried again.

    `data` tells in the fingerprint which questions these are. Raises UserError for faulty options,
    for a folder that holds another run, and where the budget is reached: then what came is kept.
    """
    with open_chats(options.chats) as chats:
        judges, items = _prepare(options, chats, questions, said)
        texts = {name: said[name].text for name in items}
        libraries = chats(options.model).libraries
        fingerprint = {
            "task": "task4, answers judged",
            "data": data,
            "answers": {"count": len(texts), "hash": short_hash(texts)},
            "judges": {name: dict(judge.settings()) for name, judge in judges.items()},
            "code": {"version": own_version(), "sha256": code_hash()},
            "libraries": versions(sorted(libraries)),
        }
        path = options.folder or Path("runs") / f"task4-judge-{short_hash(fingerprint)}"
        with open_run(path, fingerprint, "resume", is_item_row) as folder:
            folder.write_manifest()
            in_flight = options.chats.in_flight
            run_items(folder, items, label="judge", in_flight=in_flight, retry_failed=True)
            rows = folder.rows
        counts = {
            key: sum(row[key] for row in rows) for key in ("calls", "tokens_in", "tokens_out")
        }
        price = chats.prices.by_model.get(chats(options.model).name)
        facts = {
            "model": options.model,
            "votes": options.votes,
            "folder": str(path),
            "prompts": sorted(
                {p for judge in judges.values() for p in judge.settings()["prompts"]}
            ),
            **counts,
            "cost": price and round(price.of(counts["tokens_in"], counts["tokens_out"]), 6),
        }
        return Verdicts({row["item"]: from_row(row["result"]) for row in rows}, facts)


def plan_judging(
    options: JudgeOptions, questions: Sequence[Question], said: Mapping[str, Said]
) -> Mapping[str, Plan]:
    """What `judge_answers` would send. Nothing is sent, and no folder written."""
    with open_chats(options.chats) as chats:
        for work in _prepare(options, chats, questions, said)[1].values():
            work()
        return chats.plans()


def _prepare(
    options: JudgeOptions, chats: Chats, questions: Sequence[Question], said: Mapping[str, Said]
) -> tuple[dict[str, UtilizationJudge], dict[str, Callable[[], Done]]]:
    asked = [question for question in questions if question.name in said]
    kinds = sorted({judged_as(question.dimension) for question in asked})
    chat = chats(options.model)
    judges = {kind: UtilizationJudge(chat, kind, options.votes) for kind in kinds}
    return judges, {
        question.name: partial(
            _judge, judges[judged_as(question.dimension)], question, said[question.name].text or ""
        )
        for question in asked
    }


def judged_as(dimension: str) -> str:
    """The judge's dimension: it tells the languages of emotional intelligence apart itself."""
    return "ei" if dimension.startswith("ei_") else dimension


def _judge(judge: UtilizationJudge, question: Question, answer: str) -> Done:
    verdict = judge(question.query.text, answer, question.memory.text, question.others)
    used = verdict.usage
    cause = verdict.cause if isinstance(verdict, Unjudged) else None
    return Done(to_row(verdict), used.calls, used.estimate_in, used.estimate_out, cause)
