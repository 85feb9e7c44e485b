"""`python -m judges.recorded PATH`: the benchmark's recorded judge items as verdicts.

The release contains, for a few answers per track, the verdicts of its own judge. Each item becomes
a verdict: for tasks 1 and 2 the accepted pairs, by the items' own ids; for task 3 whether the
memory was used; for task 4 pass or fail, and for its ability 5 three grades per response.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from judges.verdicts import MISSING_GRADE, Grades, Judged, Unjudged, Verdict
from recallbed.errors import DataError
from recallbed.harness.app import App
from recallbed.harness.options import AsJson
from recallbed.harness.run_options import Overwrite

if TYPE_CHECKING:
    from recallbed.corpus.jsonl import Fields

NO_VERDICT, NO_GRADE = "no verdict recorded", "no grade recorded"
REPEATED = "memory paired twice"
ABILITIES = {1: "pa", 2: "pf", 3: "vra", 4: "cf"}
IdPairs = tuple[tuple[str, str], ...]
app = App()


@dataclass(frozen=True, slots=True)
class Recorded:
    """One answer of `model` and the recorded judge's verdict on it.

    `item` is the benchmark_id of the row, for task 4 the query_id; `row` always names the row.
    `measure` is `pairs`, `used_memory` or a dimension of task 4 (`pf` alone: the files do not say
    which of the two).
    """

    line: int
    track: str
    item: str
    row: str
    model: str
    measure: str
    verdict: Verdict[Any]


@dataclass(slots=True)
class RecordedFile:
    """The items of one file, and its unreadable lines: (line, error)."""

    path: Path
    items: list[Recorded] = field(default_factory=list)
    faults: list[tuple[int, str]] = field(default_factory=list)
    rows: int = 0


def read_recorded(path: Path) -> RecordedFile:
    """Read one `<track>.jsonl`; a faulty line does not stop the rest.

    Raise DataError for a file that cannot be read at all.
    """
    from recallbed.corpus.jsonl import read_jsonl

    found = RecordedFile(path)

    def fault(error: DataError) -> None:
        found.rows += 1
        found.faults.append((error.line or 0, str(error)))

    for line, value in read_jsonl(path, Counter(), on_fault=fault):
        found.rows += 1
        try:
            found.items += _items(value, path, line)
        except DataError as error:
            found.faults.append((line, str(error)))
    return found


def recorded_files(path: Path) -> list[Path]:
    """Return the file itself, or the .jsonl files of a folder by name."""
    if path.is_dir():
        files = sorted(p for p in path.iterdir() if p.name.endswith((".jsonl", ".jsonl.gz")))
        if not files:
            raise DataError("no .jsonl file here", path)
        return files
    return [path]


def _items(value: Mapping[str, Any], path: Path, line: int) -> Iterator[Recorded]:
    from recallbed.corpus.jsonl import Fields

    fields = Fields(path, line, Counter())
    task, model = fields.text(value, "task"), fields.text(value, "model")
    session, name = fields.text(value, "session_id"), fields.text(value, "canonical_id")
    row = f"{session}__{name}" if task == "task1" else name
    output = value.get("judge_output")
    read = _READERS.get(task)
    if read is None:
        raise fields.fault(f"unknown task `{task}`. Known are {', '.join(_READERS)}")
    measure, verdicts = read(value, output, fields)
    for item, verdict in verdicts:
        yield Recorded(line, task, item or row, row, model, measure, verdict)


_Read = tuple[str, list[tuple[str, Verdict[Any]]]]
_Reader: TypeAlias = "Callable[[Mapping[str, Any], Any, Fields], _Read]"


def _pairs(value: Mapping[str, Any], output: Any, fields: Fields) -> _Read:
    if output is None:
        return "pairs", [("", Unjudged(NO_VERDICT))]
    kept: dict[str, str] = {}
    repairs: Counter[str] = Counter()
    for name, review in fields.objects(output, "pair_reviews", "judge_output"):
        gold, predicted = (fields.text(review, key, name) for key in ("gold_id", "pred_id"))
        if not _flag(review.get("ok"), f"{name}.ok", fields):
            continue
        if gold in kept or predicted in kept.values():
            repairs[REPEATED] += 1
        else:
            kept[gold] = predicted
    pairs: IdPairs = tuple(kept.items())
    return "pairs", [("", Judged(pairs, (_raw(output),), (pairs,), repairs=dict(repairs)))]


def _used(value: Mapping[str, Any], output: Any, fields: Fields) -> _Read:
    if output is None:
        return "used_memory", [("", Unjudged(NO_VERDICT))]
    place = "judge_output.used_memory"
    used = _flag(output.get("used_memory") if isinstance(output, dict) else None, place, fields)
    return "used_memory", [("", Judged(used, (_raw(output),), (used,)))]


def _passed(measure: str) -> _Reader:
    def read(value: Mapping[str, Any], output: Any, fields: Fields) -> _Read:
        [query] = _queries(value, 1, fields)
        if output is None:
            return measure, [(query, Unjudged(NO_VERDICT))]
        score = fields.number(output, "score", "judge_output")
        if score not in (0, 1):
            raise fields.fault(f"field `judge_output.score` must be 0 or 1, not {score}")
        return measure, [(query, Judged(score == 1, (_raw(output),), (score == 1,)))]

    return read


def _graded(value: Mapping[str, Any], output: Any, fields: Fields) -> _Read:
    rows = [row for _, row in fields.objects(value, "judge_output")]
    queries = _queries(value, len(rows), fields)
    return "ei", [(query, _grades(row, fields)) for query, row in zip(queries, rows, strict=True)]


def _grades(row: Any, fields: Fields) -> Verdict[Grades]:
    names = ("resonation", "expression", "reception")
    output = [fields.number(row, name, "judge_output") for name in names]
    numbers = [number for number in output if number is not None]
    if not numbers:
        return Unjudged(NO_GRADE, (_raw(row),))
    if not all(number in range(1, 6) for number in numbers):
        raise fields.fault(f"a grade of {numbers} is not a whole number from 1 to 5")
    grades = Grades(*(None if number is None else int(number) for number in output))
    missing = len(names) - len(numbers)
    repairs = {MISSING_GRADE: missing} if missing else {}
    return Judged(grades, (_raw(row),), (grades,), repairs=repairs)


def _flag(value: Any, name: str, fields: Fields) -> bool:
    if not isinstance(value, bool):
        raise fields.fault(f"field `{name}` must be true or false")
    return value


def _queries(value: Mapping[str, Any], count: int, fields: Fields) -> Sequence[str]:
    output = fields.take(value, "model_output", dict)
    responses = list(fields.objects(output, "responses", "model_output"))
    if len(responses) != count:
        raise fields.fault(f"{len(responses)} responses for {count} verdicts")
    return [fields.text(response, "query_id", name) for name, response in responses]


_READERS: dict[str, _Reader] = {
    "task1": _pairs,
    "task2": _pairs,
    "task3": _used,
    **{f"task4/ability{ability}": _passed(name) for ability, name in ABILITIES.items()},
    "task4/ability5": _graded,
}


def _raw(output: Any) -> str:
    return json.dumps(output, ensure_ascii=False)


def counts(file: RecordedFile) -> dict[str, Any]:
    """Return the counts of a file as JSON."""
    verdicts = [item.verdict for item in file.items]
    return {
        "file": file.path.name,
        "rows": file.rows,
        "items": len(file.items),
        "judged": sum(isinstance(verdict, Judged) for verdict in verdicts),
        "unjudged": dict(Counter(v.cause for v in verdicts if isinstance(v, Unjudged))),
        "repairs": dict(
            sum((Counter(v.repairs) for v in verdicts if isinstance(v, Judged)), Counter[str]())
        ),
        "models": dict(sorted(Counter(item.model for item in file.items).items())),
        "unreadable": [{"line": line, "fault": text} for line, text in file.faults],
    }


def as_rows(item: Recorded) -> list[dict[str, Any]]:
    """Return an item as rows for `judges.agreement`.

    Pairs give a row per reviewed pair, whose `item` is the row's name and the ids of gold and
    prediction. A pair that was reviewed twice has its first verdict.
    """
    from judges.verdicts import to_row

    kept = to_row(item.verdict)
    head = {key: getattr(item, key) for key in ("track", "item", "row", "model", "measure")}
    if item.measure != "pairs" or not isinstance(item.verdict, Judged):
        return [{**head, "verdict": kept["verdict"], "cause": kept["cause"]}]
    rows: dict[str, dict[str, Any]] = {}
    for review in json.loads(item.verdict.raw[0])["pair_reviews"]:
        name = f"{item.item} {review['gold_id']} {review['pred_id']}"
        rows.setdefault(name, {**head, "item": name, "verdict": review["ok"], "cause": None})
    return list(rows.values())


@app.command(
    examples=(
        "recallbed recorded recorded/dev/judge",
        "recallbed recorded recorded/dev/judge/task3.jsonl --out verdicts.jsonl",
    )
)
def recorded(
    path: Annotated[Path, typer.Argument(help="recorded/<split>/judge, or one file of it.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Verdicts to write, for `recallbed agreement`."),
    ] = None,
    as_json: AsJson = False,
    overwrite: Overwrite = False,
) -> None:
    """Read the benchmark's recorded verdicts.

    Counts them by track. Exit code 2 if a line cannot be read.
    """
    from recallbed.harness.files import refuse_output, write_atomically
    from recallbed.harness.terminal import say_result

    if out is not None:
        refuse_output(out, overwrite)
    files = [read_recorded(file) for file in recorded_files(path)]
    if out is not None:
        rows = (row for file in files for item in file.items for row in as_rows(item))
        write_atomically(out, "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows))
    found = [counts(file) for file in files]
    say_result(found, describe_recorded(found), as_json)
    if any(file.faults for file in files):
        raise SystemExit(2)


def describe_recorded(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Return the counts as lines of text."""
    for one in found:
        line = f"{one['file']}: {one['rows']} rows, {one['items']} items, {one['judged']} judged"
        for cause, count in {**one["unjudged"], **one["repairs"]}.items():
            line += f"; {cause}: {count}"
        yield line
        yield from (f"  unreadable: {fault['fault']}" for fault in one["unreadable"])


if __name__ == "__main__":
    app()
