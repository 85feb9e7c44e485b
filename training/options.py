"""Options that the commands of training share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from indexes.options import Store
from recallbed.corpus.options import Data, OtherFolds, PoolSeeds, Sizes, Split, Strategy
from recallbed.errors import UserError
from recallbed.harness.options import Seed
from recallbed.harness.run_options import Overwrite, Resume
from training.examples import KINDS, Kind

if TYPE_CHECKING:
    from recallbed.corpus.material import Material
    from training.examples import TrainingData

Epochs = Annotated[
    int,
    typer.Option(min=1, help="Passes over the examples.", rich_help_panel="Training"),
]
Figures = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="crossvalidation.json of the same training with --folds, for the card.",
    ),
]


def known_figures(figures: Path | None, folds: int | None) -> dict[str, Any] | None:
    """Return the content of the file of --figures; None without it.

    Raises UserError for another file, and with --folds, which makes figures of its own.
    """
    from training.measure import read_figures

    if figures is None:
        return None
    if folds is not None:
        raise UserError("--figures is for a model of all sessions. Leave --folds out")
    return read_figures(figures)


@dataclass(frozen=True)
class TrainingOptions:
    """What is learned from, how it is tested, and the folder of the result.

    `folds` None trains one model on all sessions; a number trains one for each fold, on the
    sessions outside it, and measures each on the sessions inside.
    """

    PANEL: ClassVar[str] = "Training"
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of the trained model.")]
    data: Data = None
    split: Split = "dev"
    kinds: Annotated[
        tuple[str, ...],
        typer.Option(
            "--examples",
            metavar="|".join(KINDS),
            help="Kind of examples; may be repeated. Default: those that are best for the trainer.",
        ),
    ] = ()
    folds: OtherFolds = None
    seed: Seed = 0
    distractors: Sizes = None
    pool_seeds: PoolSeeds = (0, 1, 2)
    resume: Resume = False
    overwrite: Overwrite = False
    store: Store = None

    def __post_init__(self) -> None:
        if self.resume and self.overwrite:
            raise UserError("--overwrite excludes --resume")
        for kind in self.kinds:
            if kind not in KINDS:
                raise UserError(f"--examples {kind}: choose one of {', '.join(KINDS)}")

    @property
    def chosen_kinds(self) -> tuple[Kind, ...]:
        """The kinds of examples that were asked for; empty for those of the trainer."""
        return tuple(kind for kind in KINDS if kind in self.kinds)

    def read(self) -> TrainingData:
        """Return the data. Raises UserError and DataError as `read_training_data` does."""
        from training.examples import read_training_data

        return read_training_data(self.data, self.split, self.chosen_kinds or KINDS)

    def material(self) -> Material:
        """Return the pools to be measured on: nested if sizes are given, else as `gather` does.

        Raises DataError as `gather` does.
        """
        from recallbed.corpus.material import gather

        strategy: Strategy | None = "nested" if self.distractors else None
        return gather(self.data, self.split, strategy, self.distractors, self.pool_seeds)

    def store_path(self) -> Path | None:
        """Return the embedding store's file; None for none."""
        from indexes.embedding_store import choose_store

        return choose_store(self.store)

    def command_line(self, module: str, *more: Any) -> str:
        """Return the command with the options that are not the defaults, without paths.

        `more` are the other option dataclasses of the command.
        """
        words = [f"python -m {module}"]
        for options in (self, *more):
            for field in fields(options):
                value = getattr(options, field.name)
                if field.name not in _NO_EFFECT and value != field.default:
                    words += _typed_option(field.name, value)
        return " ".join(words)

    @contextmanager
    def opened(self) -> Iterator[Path]:
        """Yield the folder --out for the parts of a longer training, which an interruption keeps.

        Raises UserError as `refuse_folder` does, unless it is to be resumed.
        """
        import shutil

        if not self.resume:
            refuse_folder(self.out, self.overwrite)
            shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir(exist_ok=True)
        yield self.out


_NO_EFFECT = ("store", "resume", "overwrite")
_OPTION_NAMES = {"kinds": "examples"}


def _typed_option(name: str, value: Any) -> list[str]:
    option = f"--{_OPTION_NAMES.get(name, name).replace('_', '-')}"
    if isinstance(value, bool):
        return [option] if value else []
    if isinstance(value, Path):
        return [option, "DATA" if name == "data" else "FOLDER"]
    if isinstance(value, tuple) and isinstance(value[0], int):
        return [option, ",".join(map(str, value))]
    values = value if isinstance(value, tuple) else (value,)
    return [word for one in values for word in (option, _without_path(str(one)))]


def _without_path(word: str) -> str:
    """A model, or a model and its weight; of a folder, the name alone."""
    name, equals, weight = word.rpartition("=")
    return f"{shown_model(name)}={weight}" if equals else shown_model(word)


def shown_model(name: str) -> str:
    """Return the name of a model as a card holds it: of a folder, without the path."""
    return Path(name).resolve().name if name and Path(name).is_dir() else name


@contextmanager
def whole_folder(out: Path, overwrite: bool) -> Iterator[Path]:
    """Yield a draft that becomes the folder `out` at the end; after an error `out` is as it was.

    Raises UserError if `out` exists and may not be replaced.
    """
    import shutil

    from recallbed.harness.files import drafted_folder

    refuse_folder(out, overwrite)
    with drafted_folder(out) as draft:
        yield draft
        if out.exists():
            old = out.with_name(f".{out.name}.old")
            shutil.rmtree(old, ignore_errors=True)
            out.rename(old)
            draft.rename(out)
            shutil.rmtree(old)
        else:
            draft.rename(out)


_TRAINED = ("training_card.json", "folds.json", "fold-0/training_card.json")


def refuse_folder(out: Path, overwrite: bool) -> None:
    """Raise UserError if a folder cannot be written, before any work is done for it."""
    if not out.parent.is_dir():
        raise UserError(f"{out}: there is no folder {out.parent}. Make it first")
    if out.exists() and not out.is_dir():
        raise UserError(f"{out}: is not a folder. Give another --out")
    if out.exists() and any(out.iterdir()):
        if not overwrite:
            raise UserError(f"{out}: already exists. Pass another --out or --overwrite")
        if not any((out / name).is_file() for name in _TRAINED):
            raise UserError(f"{out}: holds no trained model, so it is not replaced. Give another")
