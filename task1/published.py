"""`python -m task1.published RECORDED`: our matcher and the published leaderboard, as Markdown.

RECORDED holds a file of prediction rows per model, named like the model: `gpt-5.2.jsonl`.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memory_scoring.score_options import Assign, AssignmentName, ScoreOptions
from recallbed.corpus.options import Data, Split
from recallbed.harness.app import App

if TYPE_CHECKING:
    from analysis.statistics import Interval
    from memory_scoring.figures import GroupFigures, SessionFigures

app = App()
FIGURES = ("precision", "recall", "f1")
KINDS = ("direct", "indirect")
SAME_ORDER = 0.02
"""Published F1 that differ by no more than this put two models in no order."""
SAME = {"deepseek-v3.2": "DeepSeek Reasoner"}
"""Recorded names that are not the leaderboard's in lower case."""
PAPER_RECALL = {
    "GPT-4.1-mini": (0.5526, 0.0032),
    "DeepSeek Reasoner": (0.5386, 0.4716),
    "Llama-4 Maverick": (0.1862, 0.0337),
    "Qwen3-max": (0.4399, 0.3586),
}
"""Recall of direct and of indirect memories, if the text of the paper (4.1.1) gives it."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One model: our figures, the published ones by the same names, and ours by memory type."""

    model: str
    ours: SessionFigures
    published: Mapping[str, float]
    by_type: Mapping[str, GroupFigures]

    def mean(self, name: str) -> float:
        """Return our mean of a figure."""
        return self.ours.mean(name) or 0.0

    @property
    def largest_difference(self) -> float:
        """The largest difference in precision, recall and F1."""
        return max(abs(self.mean(name) - self.published[name]) for name in FIGURES)


@app.command(
    examples=(
        "recallbed task1 published recorded/dev/task1 --data release",
        "recallbed task1 published recorded/dev/task1 --data release --assign greedy",
    )
)
def published(
    recorded: Annotated[Path, typer.Argument(help="Folder of MODEL.jsonl, prediction rows.")],
    data: Data = None,
    split: Split = "dev",
    assign: Assign = "hungarian",
) -> None:
    """Compare scores of recorded answers with the leaderboard."""
    from recallbed.harness.terminal import say

    say(*markdown(compare_models(recorded, data, split, assign)))


def compare_models(
    recorded: Path, data: Path | None, split: str, assign: AssignmentName = "hungarian"
) -> list[Compared]:
    """Every model of the folder that the leaderboard knows, in the leaderboard's order by F1.

    Raise UserError if there is none, and what reading predictions and data raises.
    """
    from memory_scoring import SessionPairs, figures, figures_by_group
    from memory_scoring.predictions import match_sessions
    from memory_scoring.scoring import pair_up
    from recallbed.corpus.inputs import read_inputs
    from recallbed.corpus.tracks import TASK1
    from recallbed.errors import UserError

    board = leaderboard()
    inputs = read_inputs(data, split, TASK1, with_gold=True)
    found = []
    for path in sorted(recorded.glob("*.jsonl")):
        model = SAME.get(path.stem) or _on_board(path.stem, board)
        if model is None:
            continue
        answers = match_sessions(inputs, path)
        pairs, _ = pair_up(answers, ScoreOptions(path, data, split, "match", assign))
        sides = answers.sides
        sessions = [
            SessionPairs(inputs.rows[name].session_id, *sides[name], found_pairs)
            for name, found_pairs in pairs.items()
        ]
        by_type = figures_by_group(sessions, lambda item: item.type or "")
        found.append(Compared(model, figures(sessions, graded=True), board[model], by_type))
    if not found:
        raise UserError(f"{recorded}: holds no MODEL.jsonl of a model on the leaderboard")
    return sorted(found, key=lambda one: -one.published["f1"])


def leaderboard() -> dict[str, dict[str, float]]:
    """The public leaderboard of task 1 by model: precision, recall, f1, algorithmic_score."""
    text = files("analysis.published").joinpath("leaderboard_task1.csv").read_text("utf-8")
    return {
        row["model"]: {
            **{name: float(row[name]) for name in FIGURES},
            "algorithmic_score": float(row["score"]),
        }
        for row in csv.DictReader(text.splitlines())
    }


def misordered(models: Sequence[Compared]) -> list[tuple[str, str]]:
    """The pairs of models whose published F1 differ by more than 0.02 the other way than ours."""
    return [
        (one.model, other.model)
        for one, other in combinations(models, 2)
        if abs(gap := one.published["f1"] - other.published["f1"]) > SAME_ORDER
        and gap * (one.mean("f1") - other.mean("f1")) <= 0
    ]


def markdown(models: Sequence[Compared]) -> Iterator[str]:
    """The two tables, and what they come to."""
    yield from _table(
        [
            *("model", "precision", "published", "recall", "published"),
            *("F1 [95 %]", "published", "score", "published"),
        ],
        (
            [one.model]
            + [
                cell
                for name in FIGURES
                for cell in (_figure(one, name), f"{one.published[name]:.3f}")
            ]
            + [f"{one.mean('algorithmic_score'):.1f}", f"{one.published['algorithmic_score']:.1f}"]
            for one in models
        ),
    )
    worst = max(models, key=lambda one: one.largest_difference)
    yield ""
    yield (
        f"{models[0].ours.sessions} sessions. Largest difference in precision, recall or F1:"
        f" {worst.largest_difference:.3f} ({worst.model})."
    )
    wrong = misordered(models)
    yield (
        f"Order by F1 if published F1 differ by more than {SAME_ORDER}: "
        + ("; ".join(f"{a} and {b} swapped" for a, b in wrong) if wrong else "the same")
        + "."
    )
    yield ""
    yield from _table(
        [
            *("model", "direct", "indirect", "direct as such", "indirect as such"),
            *("paper, direct", "paper, indirect"),
        ],
        (
            [one.model]
            + [_recall(one.by_type[kind].recall) for kind in KINDS]
            + [_recall(one.by_type[kind].recall_as_such) for kind in KINDS]
            + [f"{value:.3f}" for value in PAPER_RECALL.get(one.model, ())]
            for one in models
        ),
    )


def _recall(found: Interval | None) -> str:
    return "-" if found is None else f"{found.mean:.3f}"


def _figure(model: Compared, name: str) -> str:
    interval = model.ours.means[name]
    if name != "f1" or interval is None:
        return f"{model.mean(name):.3f}"
    return f"{interval.mean:.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(heads) + " |"
    yield "| --- |" + " ---: |" * (len(heads) - 1)
    for row in rows:
        yield "| " + " | ".join([*row, *[""] * (len(heads) - len(row))]) + " |"


def _on_board(stem: str, board: Iterable[str]) -> str | None:
    return next((name for name in board if name.lower().replace(" ", "-") == stem), None)


if __name__ == "__main__":
    app()
