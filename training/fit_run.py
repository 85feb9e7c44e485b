"""What `python -m training.fit` does: a cross-validation, then one model of all sessions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import typer

from indexes.options import Store
from recallbed.corpus.custom import is_custom
from recallbed.corpus.options import Folds, PoolSeeds, Sizes
from recallbed.errors import UserError
from recallbed.harness.options import Seed
from recallbed.harness.run_options import Overwrite, Resume
from retrievers.trained import CARD_FILE, read_card
from training.adapter import Encoders
from training.card import BaseModel, Card, write_card
from training.examples import TrainingData, read_training_data
from training.folds import fold_name, fold_of
from training.measure import FIGURES_FILE, write_figures
from training.methods import METHODS
from training.options import TrainingOptions, refuse_folder

FEW_SESSIONS = 50
"""Below this number of sessions a gain is rarely larger than its interval: a remark says so."""


@dataclass(frozen=True, slots=True)
class FitConfig:
    """Whose memories are learned from, how, and the folder of the model."""

    PANEL: ClassVar[str] = "Training"
    data: Annotated[Path, typer.Argument(metavar="FILE", help="Your memories, a .jsonl file.")]
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of the trained model.")]
    method: Annotated[
        Literal["adapter", "finetune"],
        typer.Option(
            help="adapter: maps over frozen vectors, in a minute; finetune: the encoder itself."
        ),
    ] = "adapter"
    encoder: Encoders = ()
    folds: Folds = 5
    seed: Seed = 0
    distractors: Sizes = None
    pool_seeds: PoolSeeds = (0, 1, 2)
    resume: Resume = False
    overwrite: Overwrite = False
    store: Store = None

    def __post_init__(self) -> None:
        if not is_custom(self.data):
            raise UserError(
                f"{self.data}: fit takes a .jsonl file of your own memories. For a release use"
                " python -m training.adapter --data FOLDER"
            )
        if self.encoder and self.method != "adapter":
            raise UserError("--encoder: is for --method adapter")

    def options(self, out: Path, folds: int | None) -> TrainingOptions:
        """Return the options of one of the two trainings."""
        return TrainingOptions(
            out,
            self.data,
            folds=folds,
            seed=self.seed,
            distractors=self.distractors,
            pool_seeds=self.pool_seeds,
            resume=self.resume,
            overwrite=self.overwrite,
            store=self.store,
        )


@dataclass(frozen=True, slots=True)
class FittedModel:
    """The retriever that takes the model's folder, the folder of its folds, and their figures.

    `label` is the name of the trained retriever in the figures.
    """

    retriever: str
    label: str
    folds: Path
    figures: Mapping[str, Any]


def folds_folder(out: Path) -> Path:
    """Return the folder of the cross-validation of a model in `out`."""
    return out.with_name(f"{out.name}-folds")


def run_fit(config: FitConfig) -> FittedModel:
    """Cross-validate, train on all sessions, and write the figures into the model's card.

    With `resume`, a finished cross-validation of the same data is kept. Raises UserError for a
    folder that exists, and for too few sessions; DataError for a faulty file.
    """
    from recallbed.harness.terminal import note

    method = METHODS[config.method]
    folds = folds_folder(config.out)
    data = read_training_data(config.data)
    fold_of(data.examples, config.folds, config.seed)  # before any text is encoded
    if len(data.sessions) < FEW_SESSIONS:
        note(
            f"{config.data}: {len(data.sessions)} sessions are few to learn from."
            " Trust a gain only if its interval is above 0"
        )
    refuse_folder(config.out, config.overwrite or config.resume)
    kept = config.resume and (folds / FIGURES_FILE).is_file()
    if kept:
        _check_same(folds, data, config)
        figures = json.loads((folds / FIGURES_FILE).read_text(encoding="utf-8"))
    else:
        found = method.train(config.options(folds, config.folds), config.encoder)
        assert found is not None
        figures = found
    if not (config.resume and (config.out / CARD_FILE).is_file()):
        method.train(config.options(config.out, None), config.encoder)
    add_figures(config.out, figures)
    return FittedModel(method.retriever, method.label, folds, figures)


def _check_same(folds: Path, data: TrainingData, config: FitConfig) -> None:
    """Raise UserError if a finished cross-validation is of other data, another seed or number."""
    card = read_card(folds / fold_name(0))
    before = None if card is None else (card.get("data", {}).get("sha256"), card.get("seed"))
    now = (dict(data.provenance["sha256"]), config.seed)
    count = len(list(folds.glob("fold-*")))
    if before != now or count != config.folds:
        raise UserError(f"{folds}: is another cross-validation. Pass --overwrite or another --out")


def add_figures(folder: Path, figures: Mapping[str, Any]) -> None:
    """Write the figures of a cross-validation into the card of the model of all sessions."""
    content = read_card(folder)
    if content is None:
        raise UserError(f"{folder / CARD_FILE}: is missing")
    names = {field.name for field in fields(Card)}
    values = {key: value for key, value in content.items() if key in names}
    base = [BaseModel(**one) for one in content["base"]]
    write_figures(folder, figures)
    write_card(folder, Card(**{**values, "base": base, "figures": figures}))


def verdicts(found: FittedModel) -> Iterator[str]:
    """Return what is shown of the trained retriever at each size, and advice if it lost."""
    baseline, lost = found.figures["baseline"], False
    metrics = found.figures["retrievers"][found.label]
    for size in map(str, found.figures["distractors"]):
        gaps = {name: cells[size][f"minus {baseline}"] for name, cells in metrics.items()}
        more = [name for name, gap in gaps.items() if gap["low"] > 0]
        less = [name for name, gap in gaps.items() if gap["high"] < 0]
        lost = lost or bool(less)
        parts = [f"more at {', '.join(more)}"] * bool(more)
        parts += [f"less at {', '.join(less)}"] * bool(less)
        said = f"finds {' and '.join(parts)}" if parts else "is not shown to differ"
        yield f"{size} distractors: {found.label} {said}, compared with {baseline}"
    if lost:
        yield f"{found.label} is worse than {baseline}: keep {baseline}, or label more memories"
