"""The trainings that `training.fit` can run, by name, each with the retriever of its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from training.options import TrainingOptions

Figures = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Method:
    """A training: it writes the folder of its options, and returns the figures of its folds.

    It takes the options, and the encoders of an adapter as they are typed.

    The folder is used as the setting `model` of `retriever`; `label` is its name in the figures.
    """

    retriever: str
    label: str
    train: Callable[[TrainingOptions, Sequence[str]], Figures | None]


def _adapter(options: TrainingOptions, encoders: Sequence[str]) -> Figures | None:
    from retrievers.base import RunContext
    from training.adapter import AdapterOptions
    from training.adapter_run import AdapterTraining, cross_validate
    from training.options import whole_folder

    data, run = options.read(), RunContext(options.seed, store=options.store_path())
    # A third of the default rate for up to three times as many steps: the best number of steps
    # depends on the data, and is found on a part of it.
    how = AdapterOptions(encoder=tuple(encoders), steps=60, rate=0.01, early_stopping=True)
    command = options.command_line("training.fit", how)
    config = how.config(options.seed, options.chosen_kinds)
    training = AdapterTraining(config, data, run, command)
    if options.folds is None:
        with whole_folder(options.out, options.overwrite or options.resume) as draft:
            training.train(data.sessions, draft)
        return None
    material = options.material()
    with options.opened() as folder:
        return cross_validate(training, material, folder, options.folds, options.resume)


def _finetune(options: TrainingOptions, encoders: Sequence[str]) -> Figures | None:
    from training.finetune_options import FinetuneConfig
    from training.finetune_run import finetune

    return finetune(FinetuneConfig(options)).figures


METHODS: Mapping[str, Method] = {
    "adapter": Method("adapted", "adapted", _adapter),
    "finetune": Method("dense", "finetuned", _finetune),
}
