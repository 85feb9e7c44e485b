"""Folds for cross-validation: parts of the sessions that share no query and no gold."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from indexes.language import normalise
from recallbed.corpus.sessions import query_digest
from recallbed.errors import UserError
from recallbed.harness.files import write_atomically
from recallbed.harness.fingerprint import canonical
from retrievers.folds import FOLDS_FILE
from training.examples import TrainingExample


def fold_of(examples: Iterable[TrainingExample], k: int, seed: int = 0) -> dict[str, int]:
    """Return the fold of each session, 0 to k - 1.

    Sessions that share the text of a query or of a memory, case and spaces aside, are in one fold:
    else a model would be tested on what it was trained on. Groups of sessions are taken in the
    order of a hash of `seed` and their first session, each into the fold with the fewest sessions.

    Raises UserError for fewer than two folds, and for fewer groups than folds.
    """
    if k < 2:
        raise UserError(f"--folds {k}: at least 2 are needed")
    groups = sorted(_groups(examples), key=lambda group: _order(seed, group[0]))
    if len(groups) < k:
        raise UserError(
            f"--folds {k}: {sum(map(len, groups))} sessions make {len(groups)} groups that share"
            " no query and no gold. Give fewer folds"
        )
    sizes, found = [0] * k, {}
    for group in groups:
        fold = sizes.index(min(sizes))
        sizes[fold] += len(group)
        found.update(dict.fromkeys(group, fold))
    return found


def _order(seed: int, session: str) -> bytes:
    return hashlib.blake2b(f"{seed}\x00{session}".encode(), digest_size=8).digest()


def _groups(examples: Iterable[TrainingExample]) -> list[list[str]]:
    """Connected sessions, each group sorted."""
    root: dict[str, str] = {}
    holder: dict[tuple[str, str], str] = {}

    def top(session: str) -> str:
        while root[session] != session:
            root[session] = root[root[session]]
            session = root[session]
        return session

    for one in examples:
        root.setdefault(one.session, one.session)
        for key in (("query", text_key(one.query)), ("memory", text_key(one.memory))):
            other = holder.setdefault(key, one.session)
            root[top(one.session)] = top(other)
    members: dict[str, list[str]] = {}
    for session in sorted(root):
        members.setdefault(top(session), []).append(session)
    return list(members.values())


def text_key(text: str) -> str:
    """Return a text as it is compared with others: normalised, spaces as one."""
    return " ".join(normalise(text).split())


def train_sessions(folds: Mapping[str, int], held_out: int) -> frozenset[str]:
    """Return the sessions that the model of a fold is trained on."""
    return frozenset(session for session, fold in folds.items() if fold != held_out)


def fold_name(fold: int) -> str:
    """Return the name of a fold's folder, next to folds.json."""
    return f"fold-{fold}"


def write_folds(
    folder: Path,
    retriever: str,
    setting: str,
    queries: Mapping[str, int],
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Write folds.json, which the retriever `folds` reads.

    `queries` maps the text of each query to the fold that did not see it; the file holds digests.
    `setting` is the setting of `retriever` that takes the folder of a fold, `settings` the others.
    """
    numbers = sorted(set(queries.values()))
    content = {
        "format": 1,
        "retriever": retriever,
        "setting": setting,
        "settings": dict(settings or {}),
        "folds": [fold_name(number) for number in range(numbers[-1] + 1)],
        "fold_of": {query_digest(query): fold for query, fold in sorted(queries.items())},
    }
    write_atomically(folder / FOLDS_FILE, canonical(content) + "\n")
