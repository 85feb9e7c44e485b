"""`python -m task4.score RUN_OR_PREDICTIONS`: judged answers, and what needs no judge."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from judges.options import JudgeOptions, kept_if_judged
from recallbed.corpus.options import Data, Split
from recallbed.harness.app import App
from recallbed.harness.options import AsJson
from task4.options import Abilities

app = App()


@app.command(
    on_stop=kept_if_judged,
    examples=(
        "recallbed task4 score runs/a",
        "recallbed task4 score runs/a --judge-model openai:MODEL --votes 3",
    ),
)
def score(
    answers: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN_OR_PREDICTIONS",
            help="Run folders, files of rows with benchmark_id and responses or of official rows,"
            " or a folder of official files; .jsonl or .jsonl.gz. All are scored together.",
        ),
    ],
    *,
    data: Data = None,
    split: Split = "dev",
    ability: Abilities = (),
    judge_options: JudgeOptions,
    as_json: AsJson = False,
) -> None:
    """Score answers: verdicts, retrieval and over-personalization.

    Verdicts are by dimension; over-personalization is memory used where it must not be.
    Without --judge-model all that needs no judge is reported, and what is missing is listed.
    """
    from recallbed.harness.fingerprint import canonical
    from recallbed.harness.plan import print_plans
    from recallbed.harness.terminal import say, say_json
    from task4.answers import plan_verdicts
    from task4.report import read_answered, score_answered

    judge = judge_options.named
    answered = read_answered(answers, data, split, ability)
    if judge is not None and judge.chat.dry_run:
        plans = plan_verdicts(judge, answered.questions, answered.matching.values)
        print_plans(plans, as_json=True)
        return
    report = score_answered(answered, judge)
    if as_json:
        say_json(canonical(report.to_json()))
    else:
        say(*report.lines())


if __name__ == "__main__":
    app()
