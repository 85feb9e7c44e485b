"""Run folders of all tasks and of judges: what each is, and the data that it was made on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from recallbed.corpus.layout import sample_root
from recallbed.errors import UserError
from recallbed.harness.run_folder import SUMMARY, read_manifest

if TYPE_CHECKING:
    from recallbed.corpus.dataset import Dataset

JSON = Any
RunKind = Literal["sweep", "answers", "system", "verdicts"]
SYSTEM_TASKS = ("task1", "task2", "task4")
HASH = 32
"""Digits of a data hash that cover the inputs, with references and without."""

VerdictRuns = Annotated[
    tuple[Path, ...],
    typer.Option(
        metavar="FOLDER",
        help="Run folder of a judge's verdicts on the answers of a run. May be repeated.",
    ),
]


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run folder with a summary. `kind` says which command made it.

    `task` is task1, task2, task3 or task4; of verdicts, the task of what was judged.
    """

    path: Path
    kind: RunKind
    task: str
    fingerprint: Mapping[str, JSON]
    summary: Mapping[str, JSON]

    @property
    def sample(self) -> bool:
        """Whether it was made on the embedded sample."""
        return bool(self.fingerprint["data"].get("sample"))

    @property
    def split(self) -> str:
        """The split of the data."""
        return str(self.fingerprint["data"]["split"])

    @property
    def seed(self) -> int:
        """The seed of the run, from which intervals are drawn."""
        return int(self.fingerprint.get("seed", 0))

    @property
    def system(self) -> str:
        """What was measured, as tables name it: a memory system with its retriever and models.

        Of answers of task 3, the model with the retriever that chose for it.
        """
        if self.kind == "answers":
            settings = self.fingerprint["answer"].get("model", {})
            name = f"{'openai' if 'address' in settings else 'local'}:{self.summary.get('model')}"
            shown = self.summary.get("shown")
            label = shown.get("label") if isinstance(shown, dict) else None
            return f"{name} over {label}" if label else name
        models = ", ".join(self.summary.get("chat_models") or ())
        name = str(self.summary.get("system", self.fingerprint.get("system", {}).get("name")))
        if name == "llm" and models:  # the plain model, as the paper names it
            return models
        label = str(self.fingerprint["retriever"]["label"])
        return f"{name} over {label}{models and f', {models}'}"


def open_finished(path: Path) -> FinishedRun:
    """Return the finished run in `path`.

    Raise UserError if it is not a run folder, not finished, or a run of another kind.
    """
    fingerprint = read_manifest(path)["fingerprint"]
    kind, task = _kind(fingerprint)
    if kind is None:
        raise UserError(f"{path}: not a run of task 1, 2, 3 or 4, nor of a judge of their answers")
    if kind != "verdicts" and not _has_data(fingerprint):
        raise UserError(f"{path}: the manifest does not say which data the run was made on")
    file = path / SUMMARY
    try:
        summary = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: the run is not finished. Finish it with --resume") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file}: cannot be read ({error})") from None
    if not isinstance(summary, dict):
        raise UserError(f"{file}: not the summary of a run")
    return FinishedRun(path, kind, task, fingerprint, summary)


def has_items(word: str) -> bool:
    """Return whether `word` names a run of task 1, 2 or 4 or answers of task 3, finished or not."""
    try:
        return _kind(read_manifest(Path(word))["fingerprint"])[0] in ("system", "answers")
    except UserError:
        return False


def _kind(fingerprint: Mapping[str, JSON]) -> tuple[RunKind | None, str]:
    name = fingerprint.get("task")
    task = name.partition(",")[0] if isinstance(name, str) else ""
    if "judge" in fingerprint and task in (*SYSTEM_TASKS, "task3"):
        return "verdicts", task
    retriever = fingerprint.get("retriever")
    if name in SYSTEM_TASKS and isinstance(retriever, dict) and "label" in retriever:
        return "system", task
    if "answer" in fingerprint and "pools" in fingerprint:
        return "answers", "task3"
    if "retrievers" in fingerprint and "pools" in fingerprint:
        return "sweep", "task3"
    return None, ""


def _has_data(fingerprint: Mapping[str, JSON]) -> bool:
    data = fingerprint.get("data")
    return isinstance(data, dict) and isinstance(data.get("split"), str)


def data_root(path: Path, made_on: Mapping[str, JSON], data: Path | None) -> Path:
    """Return the folder of the data of the run in `path`: `data`, or the embedded sample.

    `made_on` is the field `data` of its fingerprint. Raise UserError if it is other data, and
    `data` is None, and for a folder that is missing.
    """
    if data is not None and not data.exists():
        raise UserError(f"--data {data}: no such folder")
    if made_on.get("sample"):
        return sample_root()
    if data is None:
        raise UserError(
            f"{path}: this run is not of the embedded sample. Name its data with --data"
        )
    return data


def load_run_data(
    path: Path, fingerprint: Mapping[str, JSON], data: Path | None, split: str | None = None
) -> Dataset:
    """Return the data of a run of task 3, with the pools that it was released with.

    `split` is that of the run by default. Raise DataError for faulty data, and UserError if it is
    not what the run was made on.
    """
    from recallbed.corpus.dataset import load_dataset

    made_on, pools = fingerprint["data"], fingerprint["pools"]
    root = data_root(path, made_on, data)
    split = split or made_on["split"]
    released = pools["strategy"] == "released" and not made_on.get("own")
    found = load_dataset(root, split, tuple(pools["distractors"]) if released else ())
    if found.sha256 != made_on["sha256"]:
        raise other_data(path, root, split, "--data and --split")
    return found


def other_data(path: Path, root: Path, split: str, options: str = "--data") -> UserError:
    """Return the error for data with another hash than that of the run in `path`."""
    return UserError(
        f"{root}: split {split} is not the data that {path} was made on (another hash)."
        f" Name that data with {options}"
    )
