"""The rows that a retriever may be measured on: none of a session that it was trained on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from recallbed.corpus.material import Material
from recallbed.corpus.records import Task3Row
from recallbed.corpus.sessions import session_key
from recallbed.errors import UserError
from recallbed.harness.failures import cause_of
from recallbed.harness.terminal import note
from retrievers.base import Retriever

_INSTEAD = "by cross-validation: --folds 5 of the command that trained it, then --retriever folds"


Labelled = Iterable[tuple[str, Retriever]]


def only_unseen(material: Material, retrievers: Labelled, leave_out: bool) -> Material:
    """Return the material without the rows that a retriever was trained on.

    Raise UserError as `unseen_rows` does.
    """
    return material.only(unseen_rows(retrievers, asked_of(material.pools.rows), leave_out))


def asked_of(rows: Iterable[Task3Row]) -> list[tuple[str, str]]:
    """Return the query and the session of each row, for `unseen_rows`."""
    return [(row.query, session_key(row)) for row in rows]


def unseen_rows(
    retrievers: Labelled, rows: Sequence[tuple[str, str]], leave_out: bool
) -> list[int]:
    """Return the numbers of the rows that no retriever was trained on.

    `rows` are pairs of a query and the name of its session (`session_key`). Raise UserError if a
    retriever was trained on some of them and they are not to be left out, or if none remains.
    """
    seen: dict[str, set[int]] = {}
    for label, one in retrievers:
        seen.setdefault(label, set()).update(_seen(label, one, rows))
    out: set[int] = set().union(*seen.values())
    if not out:
        return list(range(len(rows)))
    total = len({session for _, session in rows})
    named = ", ".join(
        f"{label} was trained on {len({rows[i][1] for i in numbers})}"
        for label, numbers in seen.items()
        if numbers
    )
    if not leave_out:
        raise UserError(
            f"{named} of these {total} sessions, so its recall here says nothing."
            f" Leave them out with --unseen, or measure it {_INSTEAD}"
        )
    if len(out) == len(rows):
        raise UserError(
            f"--unseen: no row is left ({named} of these {total} sessions). Measure it {_INSTEAD}"
        )
    note(f"--unseen: {len(out)} of {len(rows)} rows left out ({named} of these {total} sessions)")
    return [number for number in range(len(rows)) if number not in out]


def _seen(label: str, retriever: Retriever, rows: Sequence[tuple[str, str]]) -> set[int]:
    try:
        return {number for number, row in enumerate(rows) if retriever.saw(*row)}
    except (MemoryError, UserError):
        raise
    except Exception as error:  # of a user's class
        raise UserError(f"{label}: `saw` failed ({cause_of(error)})") from error
