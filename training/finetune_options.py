"""What `training.finetune` is asked to do."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import typer

from recallbed.errors import UserError
from training.encoder_training import Recipe
from training.options import TrainingOptions

MODEL = "all-MiniLM-L6-v2"


@dataclass(frozen=True, slots=True)
class EncoderOptions:
    """Which encoder is trained, how much of it, and in which form it is written."""

    PANEL: ClassVar[str] = "Encoder"
    base_model: Annotated[
        str,
        typer.Option(
            help="Sentence-transformers model to start from: a packaged name, a folder or a hub"
            " name."
        ),
    ] = MODEL
    freeze_layers: Annotated[
        int,
        typer.Option(
            min=0, help="Freeze the embeddings and the lowest N layers, which saves time; 0 none."
        ),
    ] = 3
    max_length: Annotated[
        int, typer.Option(min=8, help="Truncate texts at N tokens in training.")
    ] = 128
    hold_out: Annotated[
        int,
        typer.Option(
            min=0,
            help="Hold out one of N folds of the training sessions for early stopping; 0 none.",
        ),
    ] = 0
    seeds: Annotated[
        int, typer.Option(min=1, help="Train with N seeds and write the mean of the weights.")
    ] = 1
    compact: Annotated[
        bool,
        typer.Option(help="Write the differences to the base model, as matrices of low rank."),
    ] = False
    rank: Annotated[int, typer.Option(min=1, help="Rank of the differences of --compact.")] = 32
    device: Annotated[
        Literal["auto", "cpu", "cuda"], typer.Option(help="Device; auto is CUDA if available.")
    ] = "cpu"

    def __post_init__(self) -> None:
        if self.hold_out == 1:
            raise UserError("--hold-out 1: would leave nothing to train on. Give 0, or 2 or more")


@dataclass(frozen=True, slots=True)
class FinetuneConfig:
    """A fine-tuning: on what, of which encoder, and by which recipe."""

    options: TrainingOptions
    encoder: EncoderOptions = EncoderOptions()
    recipe: Recipe = Recipe()

    def settings(self) -> dict[str, Any]:
        """Return all but the data and the seed that can change the weights."""
        found = {**asdict(self.encoder), **asdict(self.recipe)}
        unused = ["checkpoint_every", "device", *(() if self.encoder.compact else ("rank",))]
        return {
            **{name: value for name, value in found.items() if name not in unused},
            "base_model": model_label(self.encoder.base_model),
        }


def model_label(model: str) -> str:
    """Return the name of a base model without the path of a local folder."""
    path = Path(model).expanduser()
    return path.name if path.is_dir() else model
