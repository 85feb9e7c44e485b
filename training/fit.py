"""`python -m training.fit my.jsonl --out FOLDER`: a retriever that learns from your memories."""

from __future__ import annotations

from recallbed.harness.app import App
from training.fit_run import FitConfig

app = App()


@app.command(
    examples=(
        "recallbed train fit my.jsonl --out mine",
        "recallbed train fit my.jsonl --out mine --distractors 100,300",
    )
)
def fit(config: FitConfig) -> None:
    """Train a retriever on your own labelled memories.

    The file has the form of sweep --data. The retriever is tested by cross-validation: the sessions
    are divided into folds; for each fold a model is trained on the others and measured on it, next
    to minilm. Then one model is trained on all sessions and written to --out, with these figures in
    its card. The models of the folds stay in a folder next to it, for --retriever folds.
    """
    import resource
    import time

    from recallbed.harness.terminal import note, say
    from recallbed.harness.text_table import print_tables
    from training.fit_run import run_fit, verdicts
    from training.measure import figures_table

    started = time.monotonic()
    found = run_fit(config)
    print_tables([figures_table(found.figures)])
    say(*verdicts(found))
    minutes = (time.monotonic() - started) / 60
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    out, label = config.out, found.retriever
    note(
        f"{minutes:.1f} minutes, peak memory {peak:.1f} GiB",
        f"{out}: use it with --retriever {label} --set {label}.model={out}",
        f"{found.folds}: its cross-validation, --retriever folds --set folds.folder={found.folds}",
    )


if __name__ == "__main__":
    app()
