"""A sweep from Python: `from task3 import evaluate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from recallbed.chat_models.session import ChatOptions
from recallbed.corpus.options import DataOptions, PoolOptions, Strategy
from recallbed.errors import UserError
from recallbed.harness.configurations import Configuration, is_label, parse_configurations
from recallbed.harness.options import parse_size
from recallbed.harness.run_options import RunOptions
from retrievers.base import Retriever
from retrievers.options import RetrieverOptions
from retrievers.registry import GivenInstance
from task3.notebook import Evaluation, whole_numbers
from task3.options import SweepConfig

if TYPE_CHECKING:
    pass

Named = Retriever | str
Retrievers = Named | Sequence[Named] | Mapping[str, Named]


def evaluate(
    retrievers: Retrievers,
    *,
    data: Path | str | None = None,
    split: str = "dev",
    distractors: int | Sequence[int] | None = None,
    pools: Strategy | None = None,
    pool_seeds: int | Sequence[int] = 0,
    k: int | Sequence[int] = (1, 5, 10),
    seed: int = 0,
    limit: int | None = None,
    settings: Mapping[str, object] | None = None,
    out: Path | str | None = None,
    overwrite: bool = False,
    retry_failed: bool = False,
    keep_going: bool = False,
    keep_scores: bool = False,
    workers: int = 1,
    store: Path | str | None = None,
    max_memory: int | str | None = None,
    chat: ChatOptions | None = None,
) -> Evaluation:
    """Measure recall of retrievers as distractors are added, as `python -m task3.sweep` does.

    `retrievers` holds instances, such as `BM25(k1=0.9)`, and names, such as `"minilm"` or
    `"label=name"`; a mapping gives labels. A label defaults to the registered name, with `-2` and
    so on for a repeat. `settings` are those of names, `{"label.key": value}`. For a file of your
    own, `distractors` implies `pools="nested"`. The other arguments are the command's options.

    Rows are equal to the command's. With `out` they are kept in that run folder, and a run that is
    already there is resumed (or replaced, with `overwrite`); without it they last as long as the
    result. Raises UserError, or DataError for faulty data, with what the command prints.
    """
    from analysis.curves import draw_run
    from analysis.runs import read_run
    from recallbed.corpus.custom import is_custom
    from task3.sweep_run import run_sweep

    sizes = None if distractors is None else whole_numbers("distractors", distractors, 1)
    if sizes and pools is None and data is not None and is_custom(Path(data)):
        pools = "nested"
    kept = None if out is not None else TemporaryDirectory(prefix="recallbed-")
    config = SweepConfig(
        _Given(
            store=None if store is None else str(store),
            max_memory=parse_size("max_memory", str(max_memory)) if max_memory else None,
            given=_configurations(retrievers, settings or {}),
        ),
        DataOptions(None if data is None else Path(data), split, limit),
        PoolOptions(pools, whole_numbers("pool_seeds", pool_seeds, 0), sizes),
        ks := whole_numbers("k", k, 1),
        seed,
        workers,
        keep_scores,
        RunOptions(
            Path(kept.name if kept else out or ""),
            resume=not overwrite,
            overwrite=overwrite,
            retry_failed=retry_failed,
            keep_going=keep_going,
        ),
        chat or ChatOptions(),
    )
    outcome = run_sweep(config)
    if kept is None:
        draw_run(outcome.path, ks)
    run = read_run(outcome.path)
    return Evaluation(run, ks, config.data.data, kept)


@dataclass(frozen=True)
class _Given(RetrieverOptions):
    given: tuple[Configuration, ...] = ()

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        return self.given


def _configurations(
    retrievers: Retrievers, settings: Mapping[str, object]
) -> tuple[Configuration, ...]:
    if isinstance(retrievers, Retriever | str):
        retrievers = [retrievers]
    labelled = isinstance(retrievers, Mapping)
    pairs = (
        retrievers.items() if isinstance(retrievers, Mapping) else ((None, r) for r in retrievers)
    )
    found: dict[str, Retriever | str] = {}
    for label, one in pairs:
        if not isinstance(one, Retriever | str):
            raise UserError(f"{one!r}: give an instance of a retriever, or a name")
        if isinstance(one, str):
            [named] = parse_configurations([f"{label}={one}" if label else one], [])
            found[_free(named.label, found, labelled or "=" in one)] = named.name
        else:
            default = GivenInstance.of("", one).name.rpartition(":")[2]
            found[_free(label or default, found, labelled)] = one
    words = [f"{key}={_text(value)}" for key, value in settings.items()]
    names = {label: one for label, one in found.items() if isinstance(one, str)}
    for word in words:
        if word.partition(".")[0] in found.keys() - names.keys():
            raise UserError(f"settings {word}: give the settings of an instance to its constructor")
    by_name = {}
    if names or words or not found:
        typed = parse_configurations([f"{label}={name}" for label, name in names.items()], words)
        by_name = {one.label: one for one in typed}
    return tuple(
        by_name[label] if isinstance(one, str) else GivenInstance.of(label, one)
        for label, one in found.items()
    )


def _free(label: str, taken: Mapping[str, object], exact: bool) -> str:
    """Return `label`, with a number if it is taken and was not chosen by the user."""
    if not is_label(label):
        raise UserError(f"label {label!r}: use letters, digits, - and _")
    if label in taken and exact:
        raise UserError(f"the label `{label}` is used twice")
    labels = (label if n == 1 else f"{label}-{n}" for n in range(1, len(taken) + 2))
    return next(one for one in labels if one not in taken)


def _text(value: object) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
