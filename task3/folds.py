"""Folds of sessions, known before anything is scored."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from recallbed.errors import UserError


def folds_of(sessions: Sequence[str], folds: int) -> NDArray[np.int64]:
    """The fold of each session, 0 to folds - 1, by a hash of its id: (len(sessions),).

    A session is in the same fold whatever else the data holds. Raises UserError for fewer than two
    folds, and for a fold that no session falls into.
    """
    if folds < 2:
        raise UserError(f"--folds {folds}: at least 2 are needed")
    numbers = [
        int.from_bytes(hashlib.blake2b(session.encode(), digest_size=8).digest(), "big") % folds
        for session in sessions
    ]
    empty = sorted(set(range(folds)) - set(numbers))
    if empty:
        raise UserError(
            f"--folds {folds}: {len(set(sessions))} sessions leave fold {empty[0]} empty."
            " Give fewer"
        )
    return np.array(numbers, np.int64)
