"""`python -m task3.score PREDICTIONS.jsonl`: anyone's predictions against the references."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from judges.options import JudgeOptions, kept_if_judged
from recallbed.corpus.options import DataOptions, PoolOptions
from recallbed.harness.app import App
from recallbed.harness.options import AsJson, Without

if TYPE_CHECKING:
    from recallbed.harness.plan import Plan
    from task3.used_memory import UseOptions

app = App()


@app.command(
    on_stop=kept_if_judged,
    examples=(
        "recallbed score predictions.jsonl",
        "recallbed score FILE.jsonl --use judge --judge-model openai:MODEL",
    ),
)
def score(
    predictions: Annotated[
        Path,
        typer.Argument(help="Rows with benchmark_id and selected_memory_id; .jsonl or .jsonl.gz."),
    ],
    *,
    data: Annotated[DataOptions, Without("limit")],
    pools: Annotated[PoolOptions, Without("pools", "pool_seeds")],
    exclude: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Queries to leave out, one benchmark_id per line: scores with and without them.",
        ),
    ] = None,
    use: Annotated[
        Literal["overlap", "judge"] | None,
        typer.Option(help="Report whether the gold was used, by overlap of the reason or a judge."),
    ] = None,
    judge_options: JudgeOptions,
    as_json: AsJson = False,
) -> None:
    """Score predictions of task 3 by exact match.

    Prints accuracy over answered queries, coverage, accuracy with unanswered queries counted as
    wrong, and every cause with its count and first lines. A faulty line does not stop the rest.
    """
    from recallbed.harness.fingerprint import canonical
    from recallbed.harness.plan import print_plans
    from recallbed.harness.terminal import say, say_json
    from task3.used_memory import use_options

    judge = judge_options.named
    options = use_options(use, judge)
    if judge is not None and judge.chat.dry_run:
        plans = plan_file(predictions, data.data, data.split, pools.size, judge)
        print_plans(plans, as_json=True)
        return
    result = score_file(predictions, data.data, data.split, pools.size, exclude, options)
    if as_json:
        say_json(canonical(result))
    else:
        say(*describe(result))


def score_file(
    path: Path,
    data: Path | None,
    split: str,
    size: int | None,
    exclude: Path | None = None,
    use: UseOptions | None = None,
) -> dict[str, Any]:
    """What --json prints.

    Raises DataError for faulty data or a split without references, and UserError where no line of
    `path` answers a query, for a faulty exclusion list and for one that leaves no query, and where
    a judge judges nothing.
    """
    from recallbed.errors import UserError
    from task3.exact_match import figures, read_exclusions, shared_gold_ids

    file, found, verdicts, others, scores = _open(path, data, split, size)
    known = {row.benchmark_id for row in file.rows}
    left_out = None if exclude is None else read_exclusions(exclude, known)
    kept = [row for row in file.rows if row.benchmark_id not in (left_out or ())]
    if not kept:
        raise UserError(f"{exclude}: leaves out every query")
    result = {
        "predictions": str(path),
        "split": split,
        "size": file.size,
        "lines": found.lines,
        "lines_of_no_query": others,
        "without_answer_or_reason": found.incomplete.as_json(),
        "mended": dict(found.mended),
        "shared_gold_ids": shared_gold_ids(file.rows),
        "all": scores,
    }
    if left_out is not None:
        result["excluded"] = len(left_out)
        result["without_excluded"] = figures(kept, verdicts)
    if use is not None:
        from task3.used_memory import Predicted

        predicted = Predicted(file, found.rows, verdicts)
        uses = predicted.uses(use)
        result["use"] = predicted.figures(file.rows, uses, use)
        if left_out is not None:
            result["use_without_excluded"] = predicted.figures(kept, uses, use)
    return result


def plan_file(
    path: Path, data: Path | None, split: str, size: int | None, judge: JudgeOptions
) -> Mapping[str, Plan]:
    """What a judge of use would be sent, by its name. Raises as `score_file` does."""
    from task3.used_memory import Predicted

    file, found, verdicts, _, _ = _open(path, data, split, size)
    return Predicted(file, found.rows, verdicts).plan(judge)


def _open(path: Path, data: Path | None, split: str, size: int | None) -> tuple[Any, ...]:
    """The data, the predictions, the verdict on each query, lines of no query, exact figures."""
    from recallbed.corpus.predictions import read_predictions
    from recallbed.errors import UserError
    from task3.exact_match import figures, judge
    from task3.released import load_released

    file = load_released(data, split, size)
    _require_gold(file)
    found = read_predictions(path)
    verdicts, unknown = judge(file.rows, found.rows)
    others = {
        "unknown": unknown.as_json(),
        "without_benchmark_id": found.nameless.as_json(),
        "malformed": found.malformed.as_json(),
    }
    scores = figures(file.rows, verdicts)
    if not scores["answered"]:
        raise UserError(_nothing_used(path, found.lines, {**scores["causes"], **others}))
    return file, found, verdicts, others, scores


def _require_gold(file: Any) -> None:
    from recallbed.errors import DataError

    if any(row.gold is None for row in file.rows):
        raise DataError(
            "no reference_output.jsonl beside it, so nothing can be scored",
            path=file.path,
            todo="Choose a split that has references",
        )


def _nothing_used(path: Path, lines: int, causes: Mapping[str, Any]) -> str:
    counted = {k: v for k, v in causes.items() if v["count"] and k != "missing"}
    first = next((v["faults"][0] for v in counted.values() if "faults" in v), "")
    listed = "; ".join(f"{NAMES[cause]}: {tally['count']}" for cause, tally in counted.items())
    return f"{path}: not one of {lines} lines answers a query ({listed})" + (first and f"; {first}")


NAMES = {
    "correct": "correct",
    "wrong": "wrong",
    "not_in_pool": "selected id not in the pool",
    "null_or_empty": "selected id null or empty",
    "faulty": "selected id missing or not a text",
    "repeated": "benchmark_id repeated, none counted",
    "missing": "missing, no row",
    "unknown": "unknown, no such query",
    "without_benchmark_id": "benchmark_id missing or not a text",
    "malformed": "malformed line",
}


def describe(result: Mapping[str, Any]) -> Iterator[str]:
    """The result as lines of text."""
    where = f"{result['split']}, task3/d{result['size']}"
    yield f"{result['predictions']}: {result['lines']} lines, scored on {where}"
    yield f"all {result['all']['asked']} queries"
    yield from _scores(result["all"])
    yield from _use(result.get("use"))
    if "excluded" in result:
        left, asked = result["without_excluded"]["asked"], result["all"]["asked"]
        yield f"without the {result['excluded']} excluded, {left} queries"
        yield from _scores(result["without_excluded"])
        yield (
            f"  if every excluded gold is wrong, a faultless system gets {left / asked:.4f}"
            f" ({left} / {asked}) on all"
        )
        yield from _use(result.get("use_without_excluded"))
    yield "lines that belong to no query"
    yield from _causes(result["lines_of_no_query"])
    incomplete = result["without_answer_or_reason"]
    if incomplete["count"]:
        yield f"used all the same, without answer or reason: {_tally(incomplete)}"
    for kind, count in sorted(result["mended"].items()):
        yield f"mended: {kind} x {count}"
    if result["shared_gold_ids"]:
        yield (
            f"note: in {result['shared_gold_ids']} pools the gold's id stands on other memories"
            " too, and choosing one of those counts as correct"
        )


def _use(figures: Mapping[str, Any] | None) -> Iterator[str]:
    from task3.used_memory import describe_use

    if figures is not None:
        yield from describe_use(figures)


def _scores(scores: Mapping[str, Any]) -> Iterator[str]:
    correct = scores["causes"]["correct"]["count"]
    asked, answered = scores["asked"], scores["answered"]
    for name, key, n in (
        ("accuracy over answered queries", "accuracy_over_answered", answered),
        ("accuracy, unanswered as wrong", "accuracy_unanswered_as_wrong", asked),
    ):
        found = scores[key]
        if found is None:
            yield f"  {name:<38} none was answered"
            continue
        interval = f"95 % [{found['low']:.4f}, {found['high']:.4f}] {found['method']}"
        yield f"  {name:<38} {found['mean']:.4f}  ({correct} / {n})  {interval}"
    yield f"  {'coverage, answered / asked':<38} {scores['coverage']:.4f}  ({answered} / {asked})"
    yield from _causes(scores["causes"])


def _causes(causes: Mapping[str, Any]) -> Iterator[str]:
    for cause, tally in causes.items():
        place = "model_input lines" if cause == "missing" else "lines"
        yield f"    {NAMES[cause]:<36} {_tally(tally, place)}"
        yield from (f"      {fault}" for fault in tally.get("faults", ()))


def _tally(tally: Mapping[str, Any], place: str = "lines") -> str:
    if not tally["count"]:
        return "0"
    more = ", ..." if tally["count"] > len(tally["lines"]) else ""
    return f"{tally['count']:<6} ({place} {', '.join(map(str, tally['lines']))}{more})"


if __name__ == "__main__":
    app()
