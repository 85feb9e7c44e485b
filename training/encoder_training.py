"""Training a text encoder on pairs: epochs, mined negatives, early stopping, checkpoints.

Finished and interrupted trainings end with equal weights: a checkpoint holds the optimizer, the
state of the random generators and the negatives of its epoch. A folder of a training holds

    checkpoint-<step>/    what the trainer saved; whole if it has a progress.json
    best.safetensors      the trained parameters of the best epoch, if any were held out
    weights.safetensors   the result: written last, together with history.json
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import typer

from indexes.encoder import Role
from recallbed.harness.files import write_atomically
from recallbed.harness.progress import progress
from training.negatives import Floats
from training.options import Epochs
from training.pairs import MinedNegatives, Numbers, PairBatches, TextPairs

WEIGHTS, HISTORY = "weights.safetensors", "history.json"
_BEST, _PROGRESS, _MINED = "best.safetensors", "progress.json", "mined.npy"
_WARM_UP = 0.1
"""The share of steps in which the learning rate rises."""
_ENCODED = 2048  # texts at once


@dataclass(frozen=True, slots=True)
class Recipe:
    """How an encoder is trained on pairs. All but `checkpoint_every` can change the weights."""

    PANEL: ClassVar[str] = "Recipe"
    epochs: Epochs = 3
    batch_size: Annotated[int, typer.Option(min=2, help="Pairs per step.")] = 32
    learning_rate: Annotated[
        float, typer.Option(min=0, help="Highest learning rate; it rises, then falls to 0.")
    ] = 5e-5
    loss_temperature: Annotated[
        float, typer.Option(min=1e-3, help="Cosines are divided by it in the loss.")
    ] = 0.05
    negatives: Annotated[
        int, typer.Option(min=0, help="Hard negatives per pair and epoch, in addition to others'.")
    ] = 2
    mined: Annotated[
        int,
        typer.Option(min=1, help="Hard negatives are drawn from the best N memories of the bank."),
    ] = 40
    mine: Annotated[
        Literal["once", "epoch"],
        typer.Option(help="Find the best memories by the base model, or anew in each epoch."),
    ] = "once"
    patience: Annotated[
        int,
        typer.Option(min=1, help="Epochs without gain on held-out sessions before it stops."),
    ] = 1
    weight_decay: Annotated[float, typer.Option(min=0, help="Weight decay of AdamW.")] = 0.01
    checkpoint_every: Annotated[
        int, typer.Option(min=0, help="Steps between checkpoints within an epoch; 0 for none.")
    ] = 100


@dataclass(frozen=True, slots=True)
class EpochResult:
    """An epoch of a training: mean loss, and mean reciprocal rank of the held-out golds."""

    epoch: int
    loss: float
    held_out: float | None


class EncoderTraining:
    """One training of `model` on the pairs numbered `train`, in a folder of its own.

    `held` numbers the pairs held out for early stopping, none for a fixed number of epochs. The
    model is trained in place; parameters that need no gradient stay as they are. `label` is shown
    with the progress. `vectors` are those of all queries and memories by the model as it is, if
    they are known.
    """

    def __init__(
        self,
        model: Any,
        pairs: TextPairs,
        train: Numbers,
        held: Numbers,
        recipe: Recipe,
        prompts: dict[Role, str],
        folder: Path,
        seed: int,
        label: str = "training",
        vectors: dict[Role, Floats] | None = None,
    ) -> None:
        self.model, self.pairs, self.train, self.held = model, pairs, train, held
        self.recipe, self.prompts, self.folder = recipe, prompts, folder
        self.seed, self.label = seed, label
        self.negatives = MinedNegatives(pairs, train, recipe.negatives, recipe.mined, seed)
        self.history: list[EpochResult] = []
        self.losses: list[float] = []
        self.stopped = False
        self._vectors = None if vectors is None else (0, vectors)

    @property
    def steps(self) -> int:
        """Steps per epoch."""
        return -(-len(self.train) // self.recipe.batch_size)

    def run(self) -> list[EpochResult]:
        """Train, or resume from the last checkpoint in the folder, and write the result there.

        A finished training is not repeated.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / WEIGHTS).is_file():
            self._run()
        for path in (*_checkpoints(self.folder), self.folder / _BEST):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        known = json.loads((self.folder / HISTORY).read_text(encoding="utf-8"))
        return [EpochResult(**one) for one in known]

    def _run(self) -> None:
        last = _last_checkpoint(self.folder)
        if last is not None:
            self._restore(last)
        if not self.stopped:
            self._train(last)
        if len(self.held):
            self.load(self.folder / _BEST)
        write_atomically(self.folder / HISTORY, history_json(self.history))
        self._keep(self.folder / WEIGHTS)

    def _train(self, checkpoint: Path | None) -> None:
        from training.ranking_trainer import ranking_trainer

        batches = PairBatches(self.model, self.pairs, self.negatives, self.prompts)
        trainer = ranking_trainer(
            self.model,
            self.recipe,
            self.train,
            batches,
            self.folder,
            self.seed,
            warm_up=int(_WARM_UP * self.steps * self.recipe.epochs),
        )
        with ExitStack() as stack:
            left = self.steps * self.recipe.epochs - _step_of(checkpoint)
            advance = stack.enter_context(progress(self.label, left))
            trainer.follow(self, advance)
            trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))

    def begin_epoch(self, step: int) -> None:
        """Mine negatives for the epoch that step `step` is the first of, unless restored."""
        epoch, mined = step // self.steps, self.negatives.epoch >= 0
        if self.negatives.epoch == epoch:
            return
        if self.recipe.negatives and not (mined and self.recipe.mine == "once"):
            vectors = self.vectors(step)
            self.negatives.mine(epoch, vectors["query"], vectors["memory"])
        else:
            self.negatives.epoch = epoch

    def end_epoch(self, step: int) -> bool:
        """Measure the epoch that ends with `step`; return whether training is to stop."""
        epoch = step // self.steps - 1
        held_out = None
        if len(self.held):
            vectors = self.vectors(step)
            held_out = held_out_rank(self.pairs, self.held, vectors["query"], vectors["memory"])
        self.history.append(EpochResult(epoch, float(np.mean(self.losses)), held_out))
        self.losses.clear()
        if held_out is not None:
            figures = [one.held_out or 0.0 for one in self.history]
            best = int(np.argmax(figures))  # the first of equal ones
            if best == len(figures) - 1:
                self._keep(self.folder / _BEST)
            self.stopped = len(figures) - 1 - best >= self.recipe.patience
        return self.stopped

    def vectors(self, step: int) -> dict[Role, Floats]:
        """Unit vectors of all queries and memories by the model as it is after `step` steps."""
        if self._vectors is None or self._vectors[0] != step:
            texts: dict[Role, Sequence[str]]
            texts = {"query": self.pairs.queries, "memory": self.pairs.memories}
            total = sum(map(len, texts.values()))
            with progress(f"{self.label}: encoding", total) as advance:
                made = {
                    role: encoded(self.model, some, self.prompts[role], advance)
                    for role, some in texts.items()
                }
            self._vectors = step, made
        return self._vectors[1]

    def save_progress(self, step: int) -> None:
        """Add to the trainer's checkpoint what it does not know; progress.json makes it whole."""
        checkpoint = self.folder / f"checkpoint-{step}"
        made = BytesIO()
        np.save(made, self.negatives.found)
        write_atomically(checkpoint / _MINED, made.getvalue())
        known = {
            "mined_in": self.negatives.epoch,
            "losses": self.losses,
            "history": json.loads(history_json(self.history)),
            "stopped": self.stopped,
        }
        write_atomically(checkpoint / _PROGRESS, json.dumps(known))

    def _restore(self, checkpoint: Path) -> None:
        known = json.loads((checkpoint / _PROGRESS).read_text(encoding="utf-8"))
        self.negatives.found = np.load(checkpoint / _MINED)
        self.negatives.epoch = known["mined_in"]
        self.losses = known["losses"]
        self.history = [EpochResult(**one) for one in known["history"]]
        self.stopped = known["stopped"]

    def _keep(self, path: Path) -> None:
        """Write the trained parameters."""
        from safetensors.torch import save

        found = trained_parameters(self.model)
        kept = {name: p.detach().cpu().contiguous() for name, p in found.items()}
        write_atomically(path, save(kept))

    def load(self, path: Path) -> None:
        """Set the trained parameters to those in a file."""
        from safetensors.torch import load_file

        load_trained(self.model, load_file(path))


def trained_parameters(model: Any) -> dict[str, Any]:
    """Return the parameters that are trained, by name."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def load_trained(model: Any, values: dict[str, Any]) -> None:
    """Set the trained parameters to `values`, which has all their names."""
    import torch

    with torch.no_grad():
        for name, parameter in trained_parameters(model).items():
            parameter.copy_(values[name])


def encoded(
    model: Any,
    texts: Sequence[str],
    prompt: str = "",
    advance: Callable[[int], None] = lambda n: None,
) -> Floats:
    """Return unit vectors of texts by a loaded model without dropout, (len(texts), width)."""
    found = []
    for start in range(0, len(texts), _ENCODED):
        some = list(texts[start : start + _ENCODED])
        found.append(
            model.encode(
                some,
                prompt=prompt,
                batch_size=64,
                normalize_embeddings=True,
                show_progress_bar=False,
                convert_to_numpy=True,
            )
        )
        advance(len(some))
    return np.concatenate(found)


def held_out_rank(pairs: TextPairs, chosen: Numbers, queries: Floats, memories: Floats) -> float:
    """Return the mean reciprocal rank of the golds of some pairs among the bank.

    Memories that may not be negatives are left out; one that scores as high as the gold is ranked
    before it.
    """
    found = []
    for start in range(0, len(chosen), 256):
        some = chosen[start : start + 256]
        asked = queries[pairs.query[some]]
        scores = asked @ memories[: pairs.bank].T
        golds = np.einsum("ij,ij->i", asked, memories[pairs.gold[some]])
        above = (scores >= golds[:, None]) & pairs.allowed(some)[:, : pairs.bank]
        found.append(1 / (1 + above.sum(axis=1)))
    return float(np.concatenate(found).mean())


def history_json(history: Sequence[EpochResult]) -> str:
    """Return the epochs of a training as JSON."""
    rows = [{"epoch": h.epoch, "loss": h.loss, "held_out": h.held_out} for h in history]
    return json.dumps(rows, indent=1) + "\n"


def _checkpoints(folder: Path) -> list[Path]:
    """The trainer's checkpoints, whole or not, by step."""
    named = [p for p in folder.iterdir() if re.fullmatch(r"checkpoint-\d+", p.name)]
    return sorted(named, key=_step_of)


def _step_of(checkpoint: Path | None) -> int:
    return 0 if checkpoint is None else int(checkpoint.name.rpartition("-")[2])


def _last_checkpoint(folder: Path) -> Path | None:
    """The last whole checkpoint; the others of an interrupted run are removed."""
    whole = None
    for path in _checkpoints(folder):
        if (path / _PROGRESS).is_file():
            whole = path
        else:
            shutil.rmtree(path)
    return whole
