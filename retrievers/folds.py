"""Cross-validation as a retriever: each query is scored by the model that did not see it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from typing_extensions import override

from recallbed.corpus.records import Memory
from recallbed.corpus.sessions import query_digest
from recallbed.errors import UserError
from recallbed.harness.configurations import Configuration
from recallbed.harness.input_text import STRICT_JSON
from retrievers.base import (
    JSON,
    BatchRetriever,
    NotScored,
    Retriever,
    RetrieverError,
    RunContext,
    Scored,
)
from retrievers.explanation import Explanation
from retrievers.registry import build_with, describe_leg, register

FOLDS_FILE = "folds.json"
UNKNOWN = "the query is in no fold of the cross-validation"


@register("folds")
class Folds(BatchRetriever):
    """The models of a cross-validation, from the folder that a training with `--folds` wrote.

    Its folds.json names a retriever and the setting that takes a model's folder, and maps digests
    of queries to folds. A query that is in no fold is not scored: every model may have seen it.
    """

    def __init__(self, folder: str = "") -> None:
        if not folder:
            raise UserError("`folds` needs a setting; give folder=FOLDER, as --folds wrote it")
        self.folder = Path(folder).expanduser()
        self._file = _FoldsFile.read(self.folder / FOLDS_FILE)
        self._models: tuple[Retriever, ...] = ()

    @classmethod
    @override
    def from_run(cls, settings: Mapping[str, Any], run: RunContext) -> Self:
        made = cls(**settings)
        made._build(run)
        return made

    def _build(self, run: RunContext) -> None:
        file = self._file
        self._models = tuple(
            build_with(
                Configuration(
                    name,
                    file.retriever,
                    {**file.settings, file.setting: str(self.folder / name)},
                ),
                run,
            )
            for name in file.folds
        )
        every = self._models
        self.libraries = tuple(sorted({name for one in every for name in one.libraries}))
        self.fitted_on = tuple(sorted({rows for one in every for rows in one.fitted_on}))

    @property
    def models(self) -> tuple[Retriever, ...]:
        """The model of each fold; outside a run, with the legs that are registered."""
        if not self._models:
            self._build(RunContext())
        return self._models

    def fold_of(self, query: str) -> int | None:
        """Return the number of the fold that did not see a query; None if it is in none."""
        return self._file.fold_of.get(query_digest(query))

    @override
    def saw(self, query: str, session: str) -> bool:
        fold = self.fold_of(query)
        return fold is not None and self.models[fold].saw(query, session)

    @override
    def settings(self) -> Mapping[str, Any]:
        file = self._file
        models = [describe_leg(*one) for one in zip(file.folds, self.models, strict=True)]
        return {"folder": self.folder.name, "queries": file.sha256, "folds": models}

    @override
    def notes(self) -> Mapping[str, Any]:
        named = zip(self._file.folds, self.models, strict=True)
        notes = {name: dict(one.notes()) for name, one in named}
        return {"folds": {name: found for name, found in notes.items() if found}}

    @property
    @override
    def pool_independent(self) -> bool:
        return all(one.pool_independent for one in self.models)

    @override
    def prepare(self, queries: Sequence[str], memories: Sequence[Memory]) -> None:
        for fold, members in self._by_fold(queries).items():
            self.models[fold].prepare_once([queries[i] for i in members], memories)

    @override
    def trust(self, query: str) -> float:
        fold = self.fold_of(query)
        return 0.0 if fold is None else self.models[fold].trust(query)

    @override
    def score_batch(
        self, queries: Sequence[str], pools: Sequence[Sequence[Memory]]
    ) -> list[Scored | RetrieverError]:
        found: list[Scored | RetrieverError] = [RetrieverError(UNKNOWN)] * len(queries)
        for fold, members in self._by_fold(queries).items():
            asked, given = [queries[i] for i in members], [pools[i] for i in members]
            for i, one in zip(members, self.models[fold].results(asked, given), strict=True):
                found[i] = one.error if isinstance(one, NotScored) else one
        return found

    def _by_fold(self, queries: Iterable[str]) -> dict[int, list[int]]:
        """The numbers of the queries of each fold, without those that are in none."""
        found: dict[int, list[int]] = {}
        for number, query in enumerate(queries):
            fold = self.fold_of(query)
            if fold is not None:
                found.setdefault(fold, []).append(number)
        return dict(sorted(found.items()))

    @override
    def explain(
        self, query: str, pool: Sequence[Memory], positions: Sequence[int]
    ) -> Sequence[Explanation]:
        fold = self.fold_of(query)
        return () if fold is None else self.models[fold].explain(query, pool, positions)


class _FoldsFile:
    """The content of folds.json."""

    def __init__(self, content: Mapping[str, Any], sha256: str) -> None:
        self.retriever: str = content["retriever"]
        self.setting: str = content["setting"]
        self.settings = {key: _typed(value) for key, value in content["settings"].items()}
        self.folds: tuple[str, ...] = tuple(content["folds"])
        self.fold_of: dict[str, int] = dict(content["fold_of"])
        self.sha256 = sha256
        names = (self.retriever, self.setting, *self.folds, *self.settings, *self.fold_of)
        places = self.fold_of.values()
        if content["format"] != 1:
            raise UserError(f"format {content['format']} is not known here")
        if not all(isinstance(name, str) for name in names) or not self.folds:
            raise TypeError
        if not all(type(i) is int and 0 <= i < len(self.folds) for i in places):
            raise ValueError
        if ":" in self.retriever or any(Path(name).name != name for name in self.folds):
            raise ValueError  # a file names neither code nor folders elsewhere

    @classmethod
    def read(cls, path: Path) -> _FoldsFile:
        """Raise UserError if there is no such file, or if it has another form."""
        import hashlib

        try:
            raw = path.read_bytes()
        except OSError as error:
            raise UserError(
                f"{path}: cannot be read ({error.strerror}). Give the folder that a training with"
                " --folds wrote"
            ) from None
        try:
            return cls(STRICT_JSON.decode(raw.decode()), hashlib.sha256(raw).hexdigest()[:16])
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise UserError(
                f"{path}: is not a folds.json as a training with --folds writes it"
            ) from None


def _typed(value: JSON) -> str:
    """A setting as it is typed on a command line."""
    if isinstance(value, str):
        return value
    return "none" if value is None else json.dumps(value)
