"""From a run folder or a file of answers to all that can be said of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from judges.options import JudgeOptions
from recallbed.errors import UserError
from recallbed.harness.item_run import is_item_row
from recallbed.harness.run_folder import PREDICTIONS, ROWS, read_rows
from task4.answers import AnswerFile, Answers, match, read_answers
from task4.figures import (
    UNUSED,
    answered,
    by_dimension,
    judged,
    over_personalization,
    retrieval,
)
from task4.found import Found, find, stored_memories
from task4.judging import judge_answers
from task4.questions import Question, questions_of
from task4.rows import Rows
from task4.rows import read_rows as read_task4

JSON = Any
NO_JUDGE = "no judge was named: there are no verdicts (give --judge-model)"
NO_HITS = "predictions hold no hits: nothing is known of retrieval (give the run folder)"
NO_USE = "no answer tells what it used (used_memory_fact)"


@dataclass(frozen=True, slots=True)
class Material:
    """The questions of a split, what a file answers, and what its run found, if it is a run."""

    source: Path
    file: AnswerFile
    rows: Rows
    questions: Sequence[Question]
    answers: Answers
    found: Mapping[str, Found] | None


def gather(source: Path, data: Path | None, split: str, abilities: Iterable[int] = ()) -> Material:
    """Read `source`, a run folder or a file, beside the references of a split.

    Of a run without `abilities` only those are asked that it answers. Raises DataError for faulty
    data, and UserError where not one line answers a question.
    """
    path = source / PREDICTIONS if source.is_dir() else source
    if not path.exists():
        raise UserError(f"{source}: neither a finished run with {PREDICTIONS} nor a file")
    file = read_answers(path)
    rows = read_task4(data, split, abilities, with_gold=True)
    questions = questions_of(rows.rows.values())
    if not list(abilities):
        named = {name for name, _ in file.said}
        there = {q.row.ability for q in questions if q.row.benchmark_id in named}
        questions = [q for q in questions if q.row.ability in there]
    answers = match(file, questions)
    if not answers.of:
        raise UserError(_nothing_used(path, file, questions, answers))
    found = None
    if source.is_dir():
        found = _found(source / ROWS, {q.name: q for q in questions})
    return Material(source, file, rows, questions, answers, found)


def _nothing_used(
    path: Path, file: AnswerFile, questions: Sequence[Question], answers: Answers
) -> str:
    causes = answered(questions, answers)["causes"]
    causes |= {name: tally.as_json() for name, tally in answers.others.items()}
    told = {k: v for k, v in causes.items() if v["count"] and k != "missing"}
    first = next((tally["faults"][0] for tally in told.values() if "faults" in tally), "")
    listed = "; ".join(f"{name}: {tally['count']}" for name, tally in told.items())
    return f"{path}: not one of {file.lines} lines answers a question ({listed})" + (
        first and f"; {first}"
    )


def _found(path: Path, questions: Mapping[str, Question]) -> dict[str, Found]:
    found: dict[str, Found] = {}
    rows, whole = read_rows(path, is_item_row, "a row of a run of task 4")
    if whole < path.stat().st_size:
        raise UserError(
            f"{path}:{len(rows) + 1}: the row is cut short. Finish the run with --resume"
        )
    for row in rows:
        if row["error"] is not None:
            continue
        memories = stored_memories(row["result"])
        for one in row["result"]["responses"]:
            question = questions.get(f"{row['item']} {one['query_id']}")
            if question is not None and one["error"] is None:
                places = [place for place, _ in one["hits"]]
                found[question.name] = find(question.memory, question.row.history, memories, places)
    return found


def score(material: Material, judge: JudgeOptions | None = None) -> dict[str, JSON]:
    """What --json prints. Raises UserError where a judge could judge nothing."""
    verdicts = None
    if judge is not None:
        data = {"split": material.rows.data["split"], "tracks": material.rows.data["tracks"]}
        verdicts = judge_answers(judge, material.questions, material.answers.of, data)
    dimensions: dict[str, JSON] = {}
    for name, questions in by_dimension(material.questions).items():
        dimensions[name] = {
            **answered(questions, material.answers),
            "judge": None if verdicts is None else judged(name, questions, verdicts.of),
            "retrieval": None if material.found is None else retrieval(questions, material.found),
        }
    unused = {
        name: over_personalization(group, material.answers.of)
        for name, group in by_dimension(material.questions).items()
        if name in UNUSED
    }
    missing = [NO_JUDGE] if verdicts is None else []
    missing += [NO_HITS] if material.found is None else []
    if all(one.used is None for one in material.answers.of.values()):
        missing.append(NO_USE)
    return {
        "predictions": str(material.source),
        "split": material.rows.data["split"],
        "sample": material.rows.data["sample"],
        "lines": material.file.lines,
        "others": {name: tally.as_json() for name, tally in material.answers.others.items()},
        "mended": dict(material.file.mended),
        "dimensions": dimensions,
        "retrieval": None
        if material.found is None
        else retrieval(material.questions, material.found),
        "over_personalization": unused,
        "judge": None if verdicts is None else dict(verdicts.facts),
        "missing": missing,
    }
