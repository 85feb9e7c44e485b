"""`python -m training.finetune --out FOLDER`: fine-tune a sentence encoder on labelled memories."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recallbed.harness.app import App
from recallbed.harness.text_table import TextTable, print_tables
from training.finetune_options import FinetuneConfig
from training.finetune_run import finetune, work_folder
from training.options import Figures, known_figures

if TYPE_CHECKING:
    from training.finetune_run import Finetuned

app = App()


@app.command(
    on_stop="checkpoints are kept; resume with --resume",
    examples=(
        "recallbed train finetune --data DATA --out finetuned",
        "recallbed train finetune --data DATA --out finetuned-folds --folds 5",
    ),
)
def finetune_command(
    config: FinetuneConfig,
    figures: Figures = None,
) -> None:
    """Fine-tune a sentence encoder on queries and their memories.

    The folder is used with --retriever dense --set dense.model=FOLDER. With --folds it holds a
    model for each fold, used with --retriever folds --set folds.folder=FOLDER, and their recall on
    sessions that they were not trained on is printed.
    """
    import resource
    import time

    from recallbed.harness.terminal import note, say
    from training.measure import figures_table

    options = config.options
    known = known_figures(figures, options.folds)
    if options.resume and not work_folder(options.out).exists() and _finished(config):
        note(f"{options.out}: is finished already")
        return
    started = time.monotonic()
    found = finetune(config, known)
    print_tables([epochs_table(found)])
    if found.figures is not None:
        print_tables([figures_table(found.figures)])
    for part, share in found.kept.items():
        say(f"{part}: {share:.1%} of the squared change of the weights is kept")
    minutes = (time.monotonic() - started) / 60
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    note(f"{minutes:.1f} minutes, peak memory {peak:.1f} GiB")
    if options.folds is None:
        note(f"{options.out}: use it with --retriever dense --set dense.model={options.out}")
    else:
        note(f"{options.out}: measure it with --retriever folds --set folds.folder={options.out}")


def _finished(config: FinetuneConfig) -> bool:
    from retrievers.trained import CARD_FILE
    from training.measure import FIGURES_FILE

    return any((config.options.out / name).is_file() for name in (CARD_FILE, FIGURES_FILE))


def epochs_table(found: Finetuned) -> TextTable:
    """Return the epochs of all trainings: loss, and the held-out golds' mean reciprocal rank."""
    table = TextTable("Epochs", ("model", "seed", "epoch", "loss", "held-out MRR"), keys=1)
    for (part, seed), epochs in found.epochs.items():
        for one in epochs:
            held_out = "" if one.held_out is None else f"{one.held_out:.4f}"
            table.add(part, str(seed), str(one.epoch + 1), f"{one.loss:.4f}", held_out)
    return table


if __name__ == "__main__":
    app()
