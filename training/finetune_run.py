"""What `python -m training.finetune` does: trainings by fold and seed, then folders of models."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from indexes.compact import read_compact
from indexes.model_folder import model_hash, resolve_model
from recallbed.corpus.sessions import session_digest, session_key
from recallbed.errors import UserError
from recallbed.harness.files import write_atomically
from recallbed.harness.fingerprint import canonical, code_identity, difference, versions
from retrievers.base import Retriever
from retrievers.trained import trained_sessions
from training.encoder_training import EpochResult
from training.examples import TrainingData
from training.finetune_options import MODEL, FinetuneConfig, model_label
from training.finetuning import LIBRARIES, Finetuning, Part
from training.folds import fold_name, fold_of, train_sessions, write_folds
from training.options import TrainingOptions, refuse_folder, whole_folder

_FINGERPRINT = "training.json"


@dataclass(frozen=True, slots=True)
class Finetuned:
    """What was made: the epochs of each training by part and seed, and the figures of the folds.

    `kept` is the share of the change of weights that a compact model keeps, by part.
    """

    epochs: Mapping[tuple[str, int], Sequence[EpochResult]]
    kept: Mapping[str, float]
    figures: Mapping[str, Any] | None


def work_folder(out: Path) -> Path:
    """Return the folder of the checkpoints of a training that writes `out`."""
    return out.with_name(f"{out.name}.checkpoints")


def require_libraries() -> None:
    """Raise UserError if the libraries of the trainer are not installed."""
    if not all(importlib.util.find_spec(name) for name in ("accelerate", "datasets", "torch")):
        raise UserError("fine-tuning needs more packages. Run: pip install 'recallbed[train]'")


def finetune(config: FinetuneConfig, known: Mapping[str, Any] | None = None) -> Finetuned:
    """Train, resuming from checkpoints if the options say so, and write `options.out`.

    `known` are the figures of the same fine-tuning with folds, for the card.

    Checkpoints are in a folder next to it, which is removed at the end. Raises UserError for a
    model that cannot be trained, and if there is another training in these folders.
    """
    require_libraries()
    options = config.options
    work = work_folder(options.out)
    # What an interrupted training was to replace may be there, or its own result.
    replaces = options.overwrite or (options.resume and (work / _FINGERPRINT).is_file())
    refuse_folder(options.out, replaces)
    data = options.read()
    folds = None if options.folds is None else fold_of(data.examples, options.folds, options.seed)
    parts = _parts(data, folds)
    name, base = config.encoder.base_model, resolve_model(config.encoder.base_model)
    if config.encoder.compact and read_compact(base) is not None:
        raise UserError(f"--compact: {name} is a compact model. Start from a whole one")
    seen = set(trained_sessions([base]))
    if folds is not None and (both := seen & {session_digest(one) for one in folds}):
        raise UserError(
            f"{name}: was trained on {len(both)} of these {len(folds)} sessions, so"
            " cross-validation says nothing. Start from another --base-model"
        )
    _open(work, _fingerprint(config, data), options)
    trainer = Finetuning(config, data, work, known)
    epochs: dict[tuple[str, int], Sequence[EpochResult]] = {}
    kept: dict[str, float] = {}
    for part in parts:
        for seed in range(options.seed, options.seed + config.encoder.seeds):
            epochs[part.name, seed] = trainer.train(part, seed)
    with whole_folder(options.out, replaces) as draft:
        for part in parts:
            folder = draft if folds is None else draft / part.name
            folder.mkdir(exist_ok=True)
            kept |= trainer.write(part, folder, epochs)
        figures = None if folds is None else _measured(config, data, folds, draft)
    shutil.rmtree(work)
    return Finetuned(epochs, kept, figures)


def _parts(data: TrainingData, folds: Mapping[str, int] | None) -> list[Part]:
    if folds is None:
        return [Part("model", frozenset(data.sessions))]
    numbers = sorted(set(folds.values()))
    return [Part(fold_name(number), train_sessions(folds, number)) for number in numbers]


def _fingerprint(config: FinetuneConfig, data: TrainingData) -> dict[str, Any]:
    """All that can change the weights."""
    import torch

    return {
        "settings": config.settings(),
        "base": model_hash(resolve_model(config.encoder.base_model)),
        "data": dict(data.provenance),
        "seed": config.options.seed,
        "folds": config.options.folds,
        "device": config.encoder.device,
        "threads": torch.get_num_threads(),
        "versions": versions(LIBRARIES),
        "code": code_identity(),
    }


def _open(work: Path, fingerprint: Mapping[str, Any], options: TrainingOptions) -> None:
    """Make the folder of checkpoints, or check that an existing one is of the same training."""
    path = work / _FINGERPRINT
    if work.exists() and options.overwrite:
        shutil.rmtree(work)
    if path.is_file():
        if not options.resume:
            raise UserError(
                f"{work}: holds an unfinished training. Pass --resume, --overwrite or another --out"
            )
        try:
            before = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: cannot be read ({error}). Pass --overwrite") from None
        if found := difference(before, json.loads(canonical(fingerprint))):
            raise UserError(f"{work}: is another training ({found}). Pass another --out")
        return
    work.mkdir(exist_ok=True)
    write_atomically(path, canonical(fingerprint) + "\n")


def _measured(
    config: FinetuneConfig, data: TrainingData, folds: Mapping[str, int], out: Path
) -> dict[str, Any]:
    """Write the folds' file and figures into `out`; return the figures."""
    from retrievers.base import RunContext
    from retrievers.dense import Dense
    from training.measure import held_out_figures, measure, write_figures

    options = config.options
    material = options.material()
    rows = material.pools.rows
    fold = {i: folds[key] for i, row in enumerate(rows) if (key := session_key(row)) in folds}
    write_folds(out, "dense", "model", {rows[i].query: number for i, number in fold.items()})
    run = RunContext(seed=options.seed, store=options.store_path())
    frozen = {
        "minilm" if name == MODEL else model_label(name): Dense.from_run(
            {"model": name, "device": config.encoder.device}, run
        )
        for name in dict.fromkeys([MODEL, config.encoder.base_model])
    }
    tuned = {
        number: Dense(str(out / fold_name(number)), device=config.encoder.device)
        for number in sorted(set(folds.values()))
    }
    found = measure(
        material,
        {
            **{label: partial(_same, leg) for label, leg in frozen.items()},
            "finetuned": lambda i: tuned[fold[i]],
        },
        rows=list(fold),
    )
    figures = held_out_figures(found, material, "minilm", len(tuned), options.seed)
    write_figures(out, figures)
    return figures


def _same(retriever: Retriever, row: int) -> Retriever:
    return retriever
