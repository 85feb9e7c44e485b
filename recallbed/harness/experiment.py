"""Experiments: the one way from settings to a finished run folder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from recallbed.errors import UserError
from recallbed.harness.failures import Failures, FirstFailures
from recallbed.harness.files import file_name, write_atomically
from recallbed.harness.fingerprint import canonical, code_identity, short_hash, versions
from recallbed.harness.plan import Plan, checked_plans
from recallbed.harness.run_folder import ROWS, SUMMARY, RunFolder, note_reused, open_run
from recallbed.harness.run_options import RunOptions

if TYPE_CHECKING:
    from recallbed.harness.run_folder import Scores

JSON = Any
Row = dict[str, Any]
K = TypeVar("K")


class Finished(NamedTuple):
    """A row, the seconds that it took, and the scores of its pool if they are kept."""

    row: Row
    seconds: float
    scores: Scores = None


class HasSummary(Protocol):
    """A summary as a dataclass, with its content of summary.json."""

    def to_json(self) -> Mapping[str, JSON]:
        """Return the content of summary.json."""


S = TypeVar("S", bound="Mapping[str, JSON] | HasSummary")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[S]):
    """The folder of a finished run, and its report as the experiment made it."""

    path: Path
    report: S

    @property
    def summary(self) -> Mapping[str, JSON]:
        """The content of summary.json."""
        return self.report if isinstance(self.report, Mapping) else self.report.to_json()


class Experiment(ABC, Generic[K, S]):
    """What is measured: rows in a fixed order, each with a key that is known before it is made.

    `name` names the folder in `runs/`; `libraries` are the distributions that can change a row.
    `measured` completes "not one of 12 ...".
    """

    name: str
    libraries: Collection[str] = ()
    seed: int | None = None
    keep_scores: bool = False
    measured: str = "rows could be scored"

    @abstractmethod
    def fingerprint(self) -> Mapping[str, JSON]:
        """Return all that can change a row, besides code, libraries and seed."""

    @abstractmethod
    def keys(self) -> Sequence[K]:
        """Return the keys of all rows, in their order."""

    @abstractmethod
    def is_row(self, row: Any) -> bool:
        """Return whether a value read from rows.jsonl has the form of a row."""

    @abstractmethod
    def is_row_of(self, row: Row, key: K) -> bool:
        """Return whether a kept row is the row of `key`."""

    @abstractmethod
    def part(self, key: K) -> str:
        """Return the part of the run that `key` is in: each stops by itself if it only fails."""

    @abstractmethod
    def produce(self, keys: Sequence[K]) -> Iterator[Sequence[Finished]]:
        """Yield the rows of `keys` in that order, in batches that are written together."""

    @abstractmethod
    def summarise(self, folder: RunFolder) -> S:
        """Return the report on all rows, and write what else the folder shall hold."""

    def rehearse(self) -> None:
        """Make the requests of a run, of which the chat models of a dry run send none."""

    def plans(self) -> Mapping[str, Plan]:
        """Return by name of chat model what was planned since it was opened for a dry run."""
        return {}

    def opened(self, folder: RunFolder) -> AbstractContextManager[None]:
        """Return a context that holds while rows are made in `folder`."""
        return nullcontext()


def execute(experiment: Experiment[K, S], run: RunOptions) -> Outcome[S]:
    """Make every row of `experiment` that `run.out` does not hold yet, and the summary.

    Raises UserError if the folder holds another run or rows of another plan, if the first ten rows
    of a part fail in the same way, and if no row succeeded; then rows and summary are kept.
    """
    fingerprint = {
        **experiment.fingerprint(),
        "code": code_identity(),
        "libraries": versions(sorted(experiment.libraries)),
        **({} if experiment.seed is None else {"seed": experiment.seed}),
    }
    path, on_existing = run.out, run.on_existing
    if path is None:
        name = file_name(experiment.name)[:60]
        path = Path("runs") / f"{name}-{short_hash(fingerprint)}"
        on_existing = "resume" if on_existing == "refuse" else on_existing
    with open_run(path, fingerprint, on_existing, experiment.is_row) as folder:
        with experiment.opened(folder):
            make_rows(experiment, folder, run)
        folder.write_manifest()
        outcome = Outcome(path, experiment.summarise(folder))
        write_atomically(path / SUMMARY, canonical(outcome.summary) + "\n")
        errors = [row["error"] for row in folder.rows]
    if None not in errors:
        raise UserError(
            f"{path}: not one of {len(errors)} {experiment.measured} ({Failures(errors)})"
        )
    return outcome


def make_rows(experiment: Experiment[K, S], folder: RunFolder, run: RunOptions) -> None:
    """Make the rows that an open folder lacks, and with `run.retry_failed` its failed ones."""
    keys = experiment.keys()
    _check_kept_rows(experiment, folder, keys)
    kept = len(folder.rows)
    if run.retry_failed:
        failed = [i for i, row in enumerate(folder.rows) if row["error"] is not None]
        kept -= len(failed)
        _repeat(experiment, folder, keys, failed)
    end = 0
    for part, members in groupby(keys, experiment.part):
        size = len(list(members))
        start, end = max(end, len(folder.rows)), end + size
        if start < end:
            begun = end - start < size
            first = FirstFailures(part, keep_going=run.keep_going or begun)
            _append(experiment, folder, keys[start:end], first)
    note_reused(kept, len(folder.rows) - kept)


def _check_kept_rows(experiment: Experiment[K, S], folder: RunFolder, keys: Sequence[K]) -> None:
    for number, row in enumerate(folder.rows, 1):
        if number > len(keys) or not experiment.is_row_of(row, keys[number - 1]):
            raise UserError(
                f"{folder.path / ROWS}:{number}: not the row that belongs here."
                " Start again with --overwrite"
            )


def _append(
    experiment: Experiment[K, S], folder: RunFolder, keys: Sequence[K], first: FirstFailures
) -> None:
    held: list[Finished] = []

    def write() -> None:
        scores = [one.scores for one in held] if experiment.keep_scores else None
        folder.append([one.row for one in held], [one.seconds for one in held], scores)
        held.clear()

    for batch in experiment.produce(keys):
        held += batch
        first.see(one.row["error"] for one in batch)
        if held and first.decided:  # a run that stops at its first rows keeps none of them
            write()
    if held:
        write()


def _repeat(
    experiment: Experiment[K, S], folder: RunFolder, keys: Sequence[K], failed: Sequence[int]
) -> None:
    """Make failed rows again. If that is interrupted, those that were made are kept."""
    rows = list(folder.rows)
    scores: dict[int, Scores] = {}
    left = iter(failed)
    try:
        for batch in experiment.produce([keys[i] for i in failed]) if failed else ():
            for one in batch:
                i = next(left)
                rows[i], scores[i] = one.row, one.scores
    finally:
        folder.rewrite(rows, scores if experiment.keep_scores else None)


def plan(experiment: Experiment[K, S]) -> Mapping[str, Plan]:
    """Return by name of chat model what `execute` would send. Sends and writes nothing.

    The chat models of `experiment` are those of a dry run. Raises UserError if it asks no model.
    """
    experiment.rehearse()
    return checked_plans(experiment.plans())
