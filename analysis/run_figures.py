"""Figures of runs of tasks 1, 2 and 4 and of answers of task 3, by session, question or query.

A figure belongs to a scale: the matcher, or a judge by name. Figures of two scales are never one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis.statistics import Interval, mean_interval
from analysis.task_runs import HASH, FinishedRun, data_root, load_run_data, other_data
from analysis.traces import STEPS, TracedRun, trace_run
from analysis.verdict_runs import VerdictRun, two_of_a_judge
from judges.verdicts import Judged
from memory_scoring.figures import SessionPairs
from memory_scoring.pairing import Pair, similar_pairs
from memory_scoring.predictions import PredictedSessions, match_sessions
from memory_scoring.questions import DIMENSIONS
from memory_scoring.similarity import USED_FROM
from recallbed.corpus.inputs import read_inputs
from recallbed.corpus.stream import Track
from recallbed.corpus.tracks import TASK1, TASK2
from recallbed.harness.item_run import is_item_row
from recallbed.harness.run_folder import ROWS, read_rows

MATCHER = "matcher"
"""The scale of tasks 1 and 2 without a judge: the matcher of `taskN.score`."""
FROM_RUN = "counted in the run"
"""The scale of figures of task 4 that need no judge."""
MEMORY_FIGURES = ("precision", "recall", "f1")
GRADES_BOUNDS = (1.0, 5.0)
_TRACKS: Mapping[str, Track[Any]] = {"task1": TASK1, "task2": TASK2}
_KEYS = ("memory_items", "answer")


@dataclass(frozen=True, slots=True)
class RunFigure:
    """One figure of a run on one scale, by session (tasks 1, 2), query (3) or question (4).

    `values` has the scored ones only; `sessions` names the session of every one that was to be
    scored. Values lie within `bounds`.
    """

    name: str
    scale: str
    values: Mapping[str, float]
    sessions: Mapping[str, str]
    seed: int = 0
    bounds: tuple[float, float] = (0.0, 1.0)

    @property
    def interval(self) -> Interval | None:
        """The mean over the scored with its 95 % interval over sessions; None without any."""
        clusters = [self.sessions[name] for name in self.values]
        return mean_interval(list(self.values.values()), clusters, self.seed, self.bounds)


def run_figures(
    run: FinishedRun, data: Path | None, verdicts: Sequence[VerdictRun] = ()
) -> tuple[list[RunFigure], list[VerdictRun]]:
    """Return the figures of a run, and those `verdicts` that are on its answers.

    Raise DataError for faulty data, and UserError if `data` is not what the run was made on, and
    for damaged rows or rows of which none can be scored.
    """
    if run.task == "task4":
        traced = trace_run(run, data, verdicts)
        return answer_figures(traced), [traced.verdicts] if traced.verdicts else []
    if run.kind == "answers":
        return _choice_figures(run, data, verdicts)
    return _memory_figures(run, data, verdicts)


def answer_figures(traced: TracedRun) -> list[RunFigure]:
    """Return the verdicts by dimension, if there are any, and the steps of the gold memory."""
    seed, traces, found = traced.run.seed, traced.traces, []
    every = {one.question: one.session for one in traces}
    for dimension in DIMENSIONS if traced.verdicts is not None else ():
        mine = [one for one in traces if one.dimension == dimension]
        if not mine:
            continue
        assert traced.verdicts is not None
        found.append(
            RunFigure(
                dimension,
                traced.verdicts.scale,
                {one.question: one.value for one in mine if one.value is not None},
                {one.question: one.session for one in mine},
                seed,
                GRADES_BOUNDS if dimension.startswith("ei_") else (0.0, 1.0),
            )
        )
    for number, step in enumerate(STEPS[1:], 1):
        answered = [one for one in traces if one.passed > 0]
        values = {one.question: float(one.passed > number) for one in answered}
        found.append(RunFigure(step, FROM_RUN, values, every, seed))
    return found


def _memory_figures(
    run: FinishedRun, data: Path | None, verdicts: Sequence[VerdictRun]
) -> tuple[list[RunFigure], list[VerdictRun]]:
    sessions = _predicted(run, data)
    sides = sessions.sides
    pairs = {MATCHER: {name: similar_pairs(*both) for name, both in sides.items()}}
    mine = [one for one in verdicts if one.run.task == run.task]
    mine = [one for one in mine if one.judges_file(sessions.matching.file.sha256)]
    for one in mine:
        if one.scale in pairs:
            raise two_of_a_judge(one, run)
        pairs[one.scale] = {
            name: tuple(Pair(gold, predicted, 1.0) for gold, predicted in verdict.value)
            for name, verdict in one.of.items()
            if isinstance(verdict, Judged) and name in sides
        }
    found = []
    every = {name: row.session_id for name, row in sessions.rows.items()}
    for scale, by_session in pairs.items():
        rates = {
            name: SessionPairs(every[name], *sides[name], paired).coverage
            for name, paired in by_session.items()
        }
        for i, figure in enumerate(MEMORY_FIGURES):
            values = {name: rate[i] for name, rate in rates.items()}
            found.append(RunFigure(figure, scale, values, every, run.seed))
    return found, mine


def _predicted(run: FinishedRun, data: Path | None) -> PredictedSessions[Any]:
    """The sessions of the run's rows with what it predicts for them."""
    made_on = run.fingerprint["data"]
    root = data_root(run.path, made_on, data)
    inputs = read_inputs(root, run.split, _TRACKS[run.task], with_gold=True)
    if inputs.sha256[:HASH] != str(made_on.get("sha256"))[:HASH]:
        raise other_data(run.path, root, run.split)
    rows, _ = read_rows(run.path / ROWS, is_item_row, f"a row of a run of {run.task}")
    asked = {row["item"] for row in rows}
    kept = {name: row for name, row in inputs.rows.items() if name in asked}
    return match_sessions(replace(inputs, rows=kept), run.path, _KEYS)


def _choice_figures(
    run: FinishedRun, data: Path | None, verdicts: Sequence[VerdictRun]
) -> tuple[list[RunFigure], list[VerdictRun]]:
    """The figures of a model's answers of task 3, whose judges say whether the gold was used."""
    rows, mine = _choice_rows(run), verdicts_on_choices(run, verdicts)
    of_query = {
        row.benchmark_id: row.session_id
        for row in load_run_data(run.path, run.fingerprint, data).smallest.rows
    }
    sessions = {row["item"]: of_query[row["item"]] for row in rows}
    results = {row["item"]: row["result"] for row in rows if row["error"] is None}
    chosen = {name: float(one["correct"]) for name, one in results.items()}
    shown = {name: float(one["gold_shown"]) for name, one in results.items()}
    used = {name: float(one["overlap"] >= USED_FROM) for name, one in results.items()}
    figures = [
        RunFigure("recall@1", "exact", chosen, sessions),
        RunFigure("gold shown", FROM_RUN, shown, sessions),
        RunFigure("used", "overlap of the reason", used, sessions),
    ]
    for one in mine:
        if any(other.scale == one.scale for other in figures):
            raise two_of_a_judge(one, run)
        judged = {n: float(v.value) for n, v in one.of.items() if isinstance(v, Judged)}
        figures.append(RunFigure("used", one.scale, judged, sessions))
    return [replace(figure, seed=run.seed) for figure in figures], mine


def verdicts_on_choices(run: FinishedRun, verdicts: Sequence[VerdictRun]) -> list[VerdictRun]:
    """Return those `verdicts` that are on the answers of task 3 of `run`."""
    mine = [one for one in verdicts if one.run.task == "task3"]
    if not mine:
        return []
    texts = {
        row["item"]: (row["result"]["answer"] or "", row["result"]["reason"] or "")
        for row in _choice_rows(run)
        if row["error"] is None
    }
    return [one for one in mine if one.judges_choices(texts)]


def _choice_rows(run: FinishedRun) -> list[dict[str, Any]]:
    return read_rows(run.path / ROWS, _is_choice_row, "a row of a run of task 3")[0]


def _is_choice_row(row: Any) -> bool:
    if not is_item_row(row):
        return False
    result = row["result"]
    return row["error"] is not None or (
        isinstance(result, dict)
        and all(isinstance(result.get(key), bool) for key in ("correct", "gold_shown"))
        and isinstance(result.get("overlap"), float | int)
        and all(isinstance(result.get(key), str | None) for key in ("answer", "reason"))
    )
