"""Where each question of task 4 lost its gold memory: `python -m analysis.waterfall RUN...`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from analysis.task_runs import VerdictRuns
from recallbed.corpus.layout import SAMPLE_NOTE
from recallbed.corpus.options import Data
from recallbed.errors import UserError
from recallbed.harness.app import App
from recallbed.harness.options import AsJson
from recallbed.harness.terminal import note, say_json
from recallbed.harness.text_table import TextTable, print_tables

if TYPE_CHECKING:
    from analysis.statistics import Interval
    from analysis.traces import Trace, TracedRun

app = App()
OUTCOMES = ("right", "wrong", "unjudged", "no verdict")


@dataclass(frozen=True, slots=True)
class Waterfall:
    """The questions of one dimension, or of a group of dimensions, of one run.

    `reached` counts the questions whose gold memory passed this step and all before it, `asked`
    first. `lost` counts each question at the first step that it did not pass, or under `used` if
    it passed all; by outcome, so that all counts together are the questions. `shares` are those of
    `reached`, over the questions, with 95 % intervals over sessions.
    """

    name: str
    asked: int
    reached: Mapping[str, int]
    lost: Mapping[str, Mapping[str, int]]
    shares: Mapping[str, Interval | None]
    names_memory_otherwise: int
    shown_is_assumed: int

    @property
    def used_and_right(self) -> int:
        """Questions whose memory passed every step, judged right."""
        return self.lost["none"]["right"]

    @property
    def judged(self) -> bool:
        """Whether there is a verdict on any answer."""
        return any(by["right"] + by["wrong"] + by["unjudged"] for by in self.lost.values())

    def to_json(self) -> dict[str, Any]:
        """Return all counts, and the shares with their intervals."""
        return {
            "asked": self.asked,
            "reached": dict(self.reached),
            "used_and_right": self.used_and_right if self.judged else None,
            "lost_at": {step: dict(by) for step, by in self.lost.items()},
            "names_the_memory_though_lost": self.names_memory_otherwise,
            "shown_is_assumed": self.shown_is_assumed,
            "shares": {name: one and one.to_json() for name, one in self.shares.items()},
        }


def waterfall(name: str, traces: Sequence[Trace], seed: int = 0) -> Waterfall:
    """Return the counts of `traces`, a part of a run."""
    from analysis.statistics import mean_interval
    from analysis.traces import STEPS

    lost = {step: Counter[str]() for step in (*STEPS, "none")}
    for one in traces:
        lost[one.lost_at or "none"][one.outcome] += 1
    clusters = [one.session for one in traces]
    passed = {
        step: [float(one.passed > number) for one in traces] for number, step in enumerate(STEPS)
    }
    return Waterfall(
        name=name,
        asked=len(traces),
        reached={step: int(sum(values)) for step, values in passed.items()},
        lost={step: {key: by[key] for key in OUTCOMES} for step, by in lost.items()},
        shares={step: mean_interval(values, clusters, seed) for step, values in passed.items()},
        names_memory_otherwise=sum(one.names_memory and one.lost_at is not None for one in traces),
        shown_is_assumed=sum(one.shown_is_assumed for one in traces),
    )


@dataclass(frozen=True, slots=True)
class RunWaterfall:
    """The waterfalls of one run: of each dimension, of the two groups of them, and of all."""

    traced: TracedRun
    parts: Sequence[Waterfall]

    def to_json(self) -> dict[str, Any]:
        """Return what --json prints for a run."""
        run, verdicts = self.traced.run, self.traced.verdicts
        traces = self.traced.traces
        return {
            "run": str(run.path),
            "system": run.system,
            "split": run.split,
            "sample": run.sample,
            "searched": any(one.searched for one in traces),
            "judge": None if verdicts is None else verdicts.scale.removeprefix("judge "),
            "verdicts": None if verdicts is None else str(verdicts.run.path),
            "parts": {part.name: part.to_json() for part in self.parts},
        }

    def tables(self) -> Iterator[TextTable]:
        """Return one table of the steps, and one of where questions were lost."""
        run, verdicts = self.traced.run, self.traced.verdicts
        judged = "no verdicts" if verdicts is None else verdicts.scale
        table = TextTable(
            f"{run.system} ({run.path}): questions whose gold memory got this far; {judged}",
            ("dimension", "asked", *self.parts[0].reached, "used and right"),
        )
        for part in self.parts:
            right = part.used_and_right if part.judged else "-"
            table.add(part.name, part.asked, *part.reached.values(), right)
        yield table
        [total] = [part for part in self.parts if part.name == ALL]
        table = TextTable(
            f"{run.system}: the first step at which the memory was lost, and the verdict",
            ("lost at", "questions", *OUTCOMES),
        )
        for step, by in total.lost.items():
            name = "none: used" if step == "none" else f"not {step}"
            table.add(name, sum(by.values()), *by.values())
        table.add("all", total.asked, *(sum(b[o] for b in total.lost.values()) for o in OUTCOMES))
        yield table


ALL = "all"


def run_waterfall(traced: TracedRun) -> RunWaterfall:
    """Return the waterfalls of a run; raise UserError if it has no question."""
    from memory_scoring.questions import DIMENSIONS, UNUSED

    groups = {
        **{name: [name] for name in DIMENSIONS},
        "memory to be used": [name for name in DIMENSIONS if name not in UNUSED],
        "memory not to be used": list(UNUSED),
        ALL: list(DIMENSIONS),
    }
    parts = []
    for name, dimensions in groups.items():
        mine = [one for one in traced.traces if one.dimension in dimensions]
        if mine:
            parts.append(waterfall(name, mine, traced.run.seed))
    if not parts:
        raise UserError(f"{traced.run.path}: the run has no question")
    return RunWaterfall(traced, parts)


@app.command(
    "waterfall",
    examples=(
        "recallbed waterfall runs/a",
        "recallbed waterfall runs/a runs/b --verdicts runs/judge --json",
    ),
)
def waterfall_command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders of task 4.")],
    verdicts: VerdictRuns = (),
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Show where the questions of task 4 lost their gold memory.

    Steps: the question was answered, the memory is in the store, the search found it, it was shown
    to the model, the answer names it, and the answer was judged right. A question counts at a step
    if its memory passed all steps before. Verdicts are joined with the run whose answers they
    judge.
    """
    from analysis.task_runs import open_finished
    from analysis.traces import trace_run
    from analysis.verdict_runs import no_such_answers, read_verdict_run
    from recallbed.harness.fingerprint import canonical

    finished = [open_finished(path) for path in runs]
    for run in finished:
        if run.kind != "system" or run.task != "task4":
            raise UserError(f"{run.path}: not a run of task 4 (`python -m task4.run`)")
    judged = [read_verdict_run(path) for path in verdicts]
    found = [run_waterfall(trace_run(run, data, judged)) for run in finished]
    used = {one.traced.verdicts.run.path for one in found if one.traced.verdicts is not None}
    if left := [one for one in judged if one.run.path not in used]:
        raise no_such_answers(left, runs)
    if as_json:
        say_json(canonical([one.to_json() for one in found]))
        return
    print_tables(table for one in found for table in one.tables())
    note(*_remarks(found))


def _remarks(found: Sequence[RunWaterfall]) -> Iterator[str]:
    if any(one.traced.run.sample for one in found):
        yield SAMPLE_NOTE
    for one in found:
        run = one.traced.run
        if not any(trace.searched for trace in one.traced.traces):
            yield f"{run.path}: the system does not search; found means stored"
        if one.traced.verdicts is None:
            yield f"{run.path}: no verdicts. Judge it with task4 score, then pass --verdicts"
        [total] = [part for part in one.parts if part.name == ALL]
        if named := total.names_memory_otherwise:
            yield f"{run.path}: {named} answers name the memory although a step before was missed"
        if assumed := total.shown_is_assumed:
            yield (
                f"{run.path}: shown is approximate for {assumed} questions: the run does not say"
                " which hits did not fit into the prompt, so the last ones are taken"
            )


if __name__ == "__main__":
    app()
