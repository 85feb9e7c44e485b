"""`python -m training.learning_curve --data FOLDER --out curve`: recall by training sessions."""

from __future__ import annotations

from recallbed.harness.app import App
from training.learning_curve_run import LearningCurveConfig

app = App()


@app.command(
    examples=(
        "recallbed train learning-curve --data FOLDER --out curve",
        "recallbed train learning-curve --data my.jsonl --sessions 20,40,80 --out curve",
    )
)
def learning_curve(config: LearningCurveConfig) -> None:
    """Measure what more training sessions bring.

    Each fold of the sessions is measured with adapters that were trained on 50, 100, 200 and all
    sessions of the other folds, all on the same queries, next to minilm. The gain of the last step
    shows what more data may bring. Writes learning_curve.json and learning_curve.csv to --out.
    """
    from recallbed.harness.terminal import note, say
    from recallbed.harness.text_table import print_tables
    from training.learning_curve_run import curve_lines, run_learning_curve
    from training.measure import figures_table

    found = run_learning_curve(config)
    print_tables([figures_table(found.figures)])
    say(*curve_lines(found))
    note(f"{config.out}/ holds learning_curve.json and learning_curve.csv")


if __name__ == "__main__":
    app()
