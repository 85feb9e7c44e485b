"""`python -m task3.sweep --retriever bm25`: recall of retrievers as distractors are added."""

from __future__ import annotations

from recallbed.harness.app import App
from recallbed.harness.options import AsJson
from recallbed.harness.run_options import KEPT
from task3.options import SweepConfig

app = App()


@app.command(
    on_stop=KEPT,
    examples=(
        "recallbed sweep --retriever bm25",
        "recallbed sweep --retriever bm25 --set bm25.k1=0.9 --distractors 100,1000",
    ),
)
def sweep(config: SweepConfig, as_json: AsJson = False) -> None:
    """Measure recall of retrievers as distractors are added.

    Writes manifest.json, rows.jsonl, summary.json, curve.csv and curve.png to the run folder.
    """
    from analysis.curves import draw_run
    from analysis.tables import print_table, remarks
    from recallbed.harness.fingerprint import canonical
    from recallbed.harness.plan import print_plans
    from recallbed.harness.terminal import note, say_json
    from task3.sweep_run import plan_sweep, run_sweep

    if config.chat.dry_run:
        print_plans(plan_sweep(config), as_json)
        return
    outcome = run_sweep(config)
    draw_run(outcome.path, config.ks, outcome.report)
    if as_json:
        note(*remarks(outcome.report))
        say_json(canonical(outcome.summary))
    else:
        print_table(outcome.path, outcome.report)
    note(f"{outcome.path}/ holds rows, summary, curve.png and curve.csv")


if __name__ == "__main__":
    app()
