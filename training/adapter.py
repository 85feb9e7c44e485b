"""`python -m training.adapter --out FOLDER`: linear maps over frozen embeddings, as `adapted`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from recallbed.errors import UserError
from recallbed.harness.app import App
from training.options import Figures, TrainingOptions, known_figures

if TYPE_CHECKING:
    from collections.abc import Sequence

    from training.adapter_run import AdapterConfig
    from training.examples import Kind

app = App()
Encoders = Annotated[
    tuple[str, ...],
    typer.Option(
        metavar="MODEL[=WEIGHT]",
        help="Encoder of an adapter and its weight; may be repeated."
        " Default: all-mpnet-base-v2=1 and use=0.6.",
    ),
]


@dataclass(frozen=True)
class AdapterOptions:
    """How the maps are trained; the defaults are those of `AdapterRecipe`."""

    PANEL: ClassVar[str] = "Training"
    encoder: Encoders = ()
    steps: Annotated[int, typer.Option(min=1, help="Steps of gradient descent.")] = 20
    rate: Annotated[float, typer.Option(min=1e-6, help="Learning rate.")] = 0.03
    momentum: Annotated[float, typer.Option(min=0, max=0.999, help="Momentum.")] = 0.9
    batch: Annotated[int, typer.Option(min=1, help="Texts per step.")] = 128
    bank: Annotated[int, typer.Option(min=1, help="Most memories per step.")] = 1500
    temperature: Annotated[
        float, typer.Option(min=1e-3, help="Temperature of the contrastive loss.")
    ] = 0.05
    pull: Annotated[
        float, typer.Option(min=0, help="Weight of the squared distance from the identity.")
    ] = 0.001
    runs: Annotated[int, typer.Option(min=1, help="Trainings whose maps are averaged.")] = 5
    rank: Annotated[
        int, typer.Option(min=1, help="Rank of each map's difference to the identity.")
    ] = 64
    least_trust: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            help="Least factor of an encoder in a query that it cannot read; 1 for no factor.",
        ),
    ] = 0.05
    early_stopping: Annotated[
        bool,
        typer.Option(
            "--early-stopping",
            help="Find the number of steps, at most --steps, on a fold of the training sessions.",
        ),
    ] = False

    def config(self, seed: int, kinds: Sequence[Kind] = ()) -> AdapterConfig:
        """Return the same as it is used, on `kinds` of examples, or those that are best.

        Raises UserError for a malformed encoder.
        """
        from dataclasses import fields

        from training.adapter_fit import AdapterRecipe
        from training.adapter_run import BEST_KINDS, DEFAULT_ENCODERS, AdapterConfig

        recipe = AdapterRecipe(**{f.name: getattr(self, f.name) for f in fields(AdapterRecipe)})
        encoders = tuple(map(_parsed, self.encoder)) or DEFAULT_ENCODERS
        names = [name for name, _ in encoders]
        if len(set(names)) < len(names):
            raise UserError(f"--encoder: {names} names an encoder twice")
        chosen = tuple(kinds) or BEST_KINDS
        return AdapterConfig(encoders, recipe, self.early_stopping, seed, chosen, self.least_trust)


def _parsed(word: str) -> tuple[str, float]:
    name, equals, weight = word.rpartition("=")
    if not equals:
        return word, 1.0
    try:
        value = float(weight)
    except ValueError:
        value = -1.0
    if not name or not 0 < value < float("inf"):
        raise UserError(f"--encoder {word}: write it as MODEL or MODEL=WEIGHT, a weight above 0")
    return name, value


@app.command(
    on_stop="finished folds are kept; continue with --resume",
    examples=(
        "recallbed train adapter --data DATA --out adapted",
        "recallbed train adapter --data DATA --folds 5 --out adapted-folds",
    ),
)
def adapter(
    options: TrainingOptions,
    how: AdapterOptions,
    figures: Figures = None,
) -> None:
    """Train two linear maps over frozen embeddings.

    Writes adapter.safetensors, adapter.json, training_card.json and README.md for the retriever
    adapted. With --folds, a model for each fold in a folder of its own, folds.json for the
    retriever folds, and crossvalidation.json.
    """
    from recallbed.harness.fingerprint import difference
    from recallbed.harness.terminal import note
    from recallbed.harness.text_table import print_tables
    from retrievers.base import RunContext
    from training.adapter_run import AdapterTraining, cross_validate
    from training.measure import figures_table
    from training.options import refuse_folder, whole_folder

    config = how.config(options.seed, options.chosen_kinds)
    found: Any = known_figures(figures, options.folds)
    if not options.resume:
        refuse_folder(options.out, options.overwrite)
    data = options.read()
    run = RunContext(options.seed, store=options.store_path())
    training = AdapterTraining(config, data, run, options.command_line("training.adapter", how))
    if found is not None and (change := difference(found.get("training"), training.identity())):
        raise UserError(f"{figures}: is of another training ({change})")
    if options.folds is None:
        with whole_folder(options.out, options.overwrite or options.resume) as draft:
            training.train(data.sessions, draft, found)
        note(
            f"{options.out}/ holds the model. Use it: --retriever adapted"
            f" --set adapted.model={options.out}"
        )
        return
    material = options.material()
    with options.opened() as folder:
        found = cross_validate(training, material, folder, options.folds, options.resume)
    print_tables([figures_table(found)])
    note(
        f"{options.out}/ holds a model per fold. Measure it: --retriever cv=folds"
        f" --set cv.folder={options.out}"
    )


if __name__ == "__main__":
    app()
