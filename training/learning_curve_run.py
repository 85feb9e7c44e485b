"""What `python -m training.learning_curve` does: adapters of growing parts of each fold's rest."""

from __future__ import annotations

import csv
import hashlib
import io
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import typer

from analysis.statistics import Bootstrap, rounded
from indexes.options import Store
from recallbed.corpus.material import Material
from recallbed.corpus.options import Data, Folds, PoolSeeds, Sizes, Split
from recallbed.corpus.sessions import session_key
from recallbed.errors import UserError
from recallbed.harness.files import write_atomically
from recallbed.harness.fingerprint import canonical
from recallbed.harness.options import Seed, numbers
from recallbed.harness.progress import progress
from recallbed.harness.run_options import Overwrite
from retrievers.adapted import Adapted
from retrievers.base import Retriever, RunContext
from retrievers.dense import Dense
from training.adapter import AdapterOptions, Encoders
from training.examples import TrainingData
from training.folds import fold_of, train_sessions
from training.measure import BASELINE, BASELINE_MODEL, KS, HeldOut, held_out_figures, measure
from training.options import TrainingOptions

JSON_FILE, CSV_FILE = "learning_curve.json", "learning_curve.csv"
COMMAND = "python -m training.learning_curve"


@dataclass(frozen=True, slots=True)
class LearningCurveConfig:
    """Which data, which numbers of training sessions, and the folder of the result."""

    PANEL: ClassVar[str] = "Training"
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of the curve.")]
    data: Data = None
    split: Split = "dev"
    sessions: Annotated[
        tuple[int, ...],
        typer.Option(metavar="N,...", help="Numbers of training sessions; all is added."),
        numbers(2),
    ] = (50, 100, 200)
    encoder: Encoders = ()
    folds: Folds = 5
    seed: Seed = 0
    distractors: Sizes = None
    pool_seeds: PoolSeeds = (0, 1, 2)
    overwrite: Overwrite = False
    store: Store = None


@dataclass(frozen=True, slots=True)
class LearningCurve:
    """Recall by label, one per number of sessions in ascending order, next to minilm.

    `counts` has the number of training sessions of each label; that of all sessions is the mean
    over folds. `last_step` is the gain of the last label over the one before, by size.
    """

    figures: Mapping[str, Any]
    counts: Mapping[str, float]
    last_step: Mapping[str, Mapping[str, Any]]


class _Models:
    """The adapter of a label for each fold, one label at a time in memory."""

    def __init__(self, folder: Path, fold: Sequence[int], run: RunContext) -> None:
        self.folder, self.fold, self.run = folder, fold, run
        self._label, self._built = "", dict[int, Retriever]()

    def of(self, label: str, row: int) -> Retriever:
        if label != self._label:
            self._label, self._built = label, {}
        fold = self.fold[row]
        if fold not in self._built:
            model = str(self.folder / f"{label}-{fold}")
            self._built[fold] = Adapted.from_run({"model": model, "device": "cpu"}, self.run)
        return self._built[fold]


def run_learning_curve(config: LearningCurveConfig) -> LearningCurve:
    """Train and measure, and write both files. Raises UserError and DataError."""
    from training.adapter_run import AdapterTraining

    options = TrainingOptions(
        config.out,
        config.data,
        config.split,
        seed=config.seed,
        distractors=config.distractors,
        pool_seeds=config.pool_seeds,
        store=config.store,
    )
    data = options.read()
    parts = sessions_by_part(data, config)
    _refuse(config)
    folds = fold_of(data.examples, config.folds, config.seed)
    material = options.material()
    fold = [folds.get(session_key(row), 0) for row in material.pools.rows]
    run = RunContext(seed=config.seed, store=options.store_path())
    how = AdapterOptions(encoder=config.encoder).config(config.seed)
    training = AdapterTraining(how, data, run, COMMAND)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with progress("adapters", len(parts)) as advance:
            for (label, number), sessions in parts.items():
                place = folder / f"{label}-{number}"
                place.mkdir()
                training.train(sessions, place)
                advance(1)
        labels = list(dict.fromkeys(label for label, _ in parts))
        models = _Models(folder, fold, run)
        base = Dense.from_run({"model": BASELINE_MODEL, "device": "cpu"}, run)
        retrievers = {BASELINE: lambda row: base}
        retrievers |= {label: _of(models, label) for label in labels}
        found = measure(material, retrievers)
    return _written(config, material, found, parts)


def _of(models: _Models, label: str) -> Any:
    return lambda row: models.of(label, row)


def _refuse(config: LearningCurveConfig) -> None:
    """Raise UserError if the files cannot be written, before any work is done for them."""
    from recallbed.harness.files import refuse_output

    if not config.out.parent.is_dir():
        raise UserError(f"{config.out}: there is no folder {config.out.parent}. Make it first")
    if config.out.exists() and not config.out.is_dir():
        raise UserError(f"{config.out}: is not a folder. Give another --out")
    config.out.mkdir(exist_ok=True)
    for name in (JSON_FILE, CSV_FILE):
        refuse_output(config.out / name, config.overwrite)


def sessions_by_part(
    data: TrainingData, config: LearningCurveConfig
) -> dict[tuple[str, int], frozenset[str]]:
    """Return the training sessions of each label and fold, growing: 50 are among the 100.

    Raises UserError for a number of sessions that a fold does not have.
    """
    folds = fold_of(data.examples, config.folds, config.seed)
    rest = {
        number: sorted(train_sessions(folds, number), key=lambda one: _order(config.seed, one))
        for number in sorted(set(folds.values()))
    }
    least = min(map(len, rest.values()))
    if config.sessions and config.sessions[-1] >= least:
        raise UserError(
            f"--sessions {config.sessions[-1]}: with {config.folds} folds of {len(folds)} sessions"
            f" a model is trained on {least}. Give smaller numbers, or more --folds"
        )
    found = {}
    for count in (*config.sessions, None):
        label = "all sessions" if count is None else f"{count} sessions"
        for number, sessions in rest.items():
            found[label, number] = frozenset(sessions[:count])
    return found


def _order(seed: int, session: str) -> bytes:
    return hashlib.blake2b(f"curve:{seed}\x00{session}".encode(), digest_size=8).digest()


def _written(
    config: LearningCurveConfig,
    material: Material,
    found: HeldOut,
    parts: Mapping[tuple[str, int], frozenset[str]],
) -> LearningCurve:
    figures = held_out_figures(found, material, BASELINE, config.folds, config.seed)
    by_label: dict[str, list[int]] = {}
    for (label, _), sessions in parts.items():
        by_label.setdefault(label, []).append(len(sessions))
    counts = {label: sum(sizes) / len(sizes) for label, sizes in by_label.items()}
    curve = LearningCurve(figures, counts, _last_step(found, list(counts), config.seed))
    content = {**figures, "training_sessions": counts, "last_step": curve.last_step}
    write_atomically(config.out / JSON_FILE, canonical(rounded(content)) + "\n")
    write_atomically(config.out / CSV_FILE, curve_csv(curve))
    return curve


def _last_step(found: HeldOut, labels: Sequence[str], seed: int) -> dict[str, dict[str, Any]]:
    """By size, the difference in recall@1 between the last two labels, in pairs."""
    if len(labels) < 2:
        return {}
    before, last = (found.recalls[label] for label in labels[-2:])
    keys = [key for key in last if key[1] == KS[0]]
    bootstrap = Bootstrap(found.sessions, seed)
    gaps = bootstrap.intervals(np.array([last[key] - before[key] for key in keys]), (-1.0, 1.0))
    return {str(size): gap.to_json() for (size, _), gap in zip(keys, gaps, strict=True)}


def curve_csv(curve: LearningCurve) -> str:
    """Return one line per number of sessions, metric and size; minilm has 0 sessions."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("sessions", "metric", "distractors", "mean", "low", "high"))
    for label, metrics in curve.figures["retrievers"].items():
        for metric, by_size in metrics.items():
            for size, cell in by_size.items():
                count = f"{curve.counts.get(label, 0):g}"
                writer.writerow((count, metric, size, cell["mean"], cell["low"], cell["high"]))
    return out.getvalue()


def curve_lines(curve: LearningCurve) -> Iterator[str]:
    """Return what the last step brought, one line per size."""
    labels = list(curve.counts)
    for size, gap in curve.last_step.items():
        yield (
            f"from {curve.counts[labels[-2]]:g} to {curve.counts[labels[-1]]:g} training sessions:"
            f" R@1 {gap['mean']:+.4f} [{gap['low']:+.4f}, {gap['high']:+.4f}] at {size} distractors"
        )
