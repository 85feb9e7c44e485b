"""`python -m task3.answer --chat-model openai:M`: a model chooses a memory and answers with it."""

from __future__ import annotations

from collections.abc import Mapping

from recallbed.harness.app import App
from recallbed.harness.failures import with_reason
from recallbed.harness.options import AsJson
from recallbed.harness.run_options import KEPT
from task3.options import AnswerConfig

app = App()


@app.command(
    on_stop=KEPT,
    examples=(
        "recallbed answer --chat-model openai:MODEL --dry-run",
        "recallbed answer --chat-model openai:MODEL --retriever bm25 --depth 10",
    ),
)
def answer(config: AnswerConfig, as_json: AsJson = False) -> None:
    """Have a chat model choose a memory of each pool and answer with it.

    The paper scores models so. Without --retriever the whole pool is shown. Pools hold 100
    distractors by default. Writes manifest.json, rows.jsonl, summary.json and predictions.jsonl to
    the run folder; `recallbed score` reads the last.
    """
    _run(config, as_json)


def _run(config: AnswerConfig, as_json: bool) -> None:
    from recallbed.harness.fingerprint import canonical
    from recallbed.harness.plan import print_plans
    from recallbed.harness.terminal import note, say, say_json
    from task3.answer_run import plan_answers, run_answers

    if config.chat.dry_run:
        print_plans(plan_answers(config), as_json)
        return
    outcome = run_answers(config)
    if as_json:
        say_json(canonical(outcome.summary))
    tell = note if as_json else say
    tell(*_lines(outcome.summary))
    note(f"{outcome.path}/ holds predictions.jsonl, rows and summary")


def _lines(summary: Mapping[str, object]) -> list[str]:
    lines = [f"{summary['answered']} of {summary['attempted']} queries answered"]
    for name, key in (
        ("recall@1, exact", "recall_at_1"),
        ("gold among what was shown", "gold_shown"),
        ("gold used, by overlap of the reason", "used_by_overlap"),
    ):
        if isinstance(found := summary[key], dict):
            lines.append(
                f"  {name:<36} {found['mean']:.4f}  95 % [{found['low']:.4f}, {found['high']:.4f}]"
            )
    failed, reasons = summary["failed"], summary["reasons"]
    assert isinstance(failed, dict)
    assert isinstance(reasons, dict)
    for cause, count in failed.items():
        lines.append(f"  failed, {with_reason(cause, reasons.get(cause, ''))}: {count}")
    return lines


if __name__ == "__main__":
    app()
