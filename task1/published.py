"""`python -m task1.published RECORDED`: our matcher beside the published leaderboard, as Markdown.

RECORDED holds a file of prediction rows a model, named like the model: `gpt-5.2.jsonl`.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

import typer

from memory_scoring.score_options import Assign, AssignmentName, ScoreOptions
from recallbed.corpus.options import Data, Split
from recallbed.harness.app import App

app = App()
FIGURES = ("precision", "recall", "f1")
ALIKE = 0.02
"""Published F1 that differ by no more than this put two models in no order."""
SAME = {"deepseek-v3.2": "DeepSeek Reasoner"}
"""Recorded names that aren't the leaderboard's in small letters."""
PAPER_RECALL = {
    "GPT-4.1-mini": (0.5526, 0.0032),
    "DeepSeek Reasoner": (0.5386, 0.4716),
    "Llama-4 Maverick": (0.1862, 0.0337),
    "Qwen3-max": (0.4399, 0.3586),
}
"""Recall of direct and of indirect memories, where the text of the paper (4.1.1) gives it."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One model: `ours` as `memory_scoring.figures` gives it, `published` by the same names.

    `by_type` is our breakdown of direct and indirect memories.
    """

    model: str
    ours: dict[str, Any]
    published: dict[str, float]
    by_type: dict[str, Any]

    @property
    def largest_difference(self) -> float:
        """Of precision, recall and F1."""
        return max(abs(float(self.ours[name]) - self.published[name]) for name in FIGURES)


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

    say(*markdown(compare(recorded, data, split, assign)))


def compare(
    recorded: Path, data: Path | None, split: str, assign: AssignmentName = "hungarian"
) -> list[Compared]:
    """Every model of the folder that the leaderboard knows, in the leaderboard's order by F1.

    Raises UserError where there is none, and what reading predictions and data raises.
    """
    from memory_scoring import Matched, breakdown, figures
    from memory_scoring.answers import sort_out
    from memory_scoring.scoring import pair_up
    from recallbed.corpus.inputs import read_inputs
    from recallbed.corpus.task1 import TASK1
    from recallbed.errors import UserError

    board = leaderboard()
    inputs = read_inputs(data, split, TASK1, with_gold=True)
    found = []
    for path in sorted(recorded.glob("*.jsonl")):
        model = SAME.get(path.stem) or _on_board(path.stem, board)
        if model is None:
            continue
        answers = sort_out(inputs, path)
        pairs, _ = pair_up(answers, ScoreOptions(path, data, split, "match", assign))
        sessions = [
            Matched(answers.rows[name].session_id, answers.gold(name), answers.items[name], its)
            for name, its in pairs.items()
        ]
        by_type = breakdown(sessions, lambda item: item.type or "")
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
        if abs(gap := one.published["f1"] - other.published["f1"]) > ALIKE
        and gap * (one.ours["f1"] - other.ours["f1"]) <= 0
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
                for cell in (_figure(one.ours, name), f"{one.published[name]:.3f}")
            ]
            + [f"{one.ours['algorithmic_score']:.1f}", f"{one.published['algorithmic_score']:.1f}"]
            for one in models
        ),
    )
    worst = max(models, key=lambda one: one.largest_difference)
    yield ""
    yield (
        f"{models[0].ours['sessions']} sessions. Largest difference in precision, recall or F1:"
        f" {worst.largest_difference:.3f} ({worst.model})."
    )
    wrong = misordered(models)
    yield (
        f"Order by F1 where published F1 differ by more than {ALIKE}: "
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
            + [
                f"{one.by_type[kind][name]['mean']:.3f}"
                for name in ("recall", "recall_as_such")
                for kind in ("direct", "indirect")
            ]
            + [f"{value:.3f}" for value in PAPER_RECALL.get(one.model, ())]
            for one in models
        ),
    )


def _figure(ours: dict[str, Any], name: str) -> str:
    if name != "f1":
        return f"{ours[name]:.3f}"
    interval = ours["intervals"][name]
    return f"{ours[name]:.3f} [{interval['low']:.3f}, {interval['high']:.3f}]"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(heads) + " |"
    yield "| --- |" + " ---: |" * (len(heads) - 1)
    for row in rows:
        yield "| " + " | ".join([*row, *[""] * (len(heads) - len(row))]) + " |"


def _on_board(stem: str, board: Iterable[str]) -> str | None:
    return next((name for name in board if name.lower().replace(" ", "-") == stem), None)


if __name__ == "__main__":
    app()
