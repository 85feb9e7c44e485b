"""Who goes with whom, given how alike all are: one to one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float64]
Assignment = Callable[[Scores], list[tuple[int, int]]]


def hungarian(scores: Scores) -> list[tuple[int, int]]:
    """The (row, column) pairs with the largest sum of scores, by row (Kuhn 1955).

    Raises ModuleNotFoundError, in words for a user, where scipy isn't installed.
    """
    try:
        from scipy.optimize import linear_sum_assignment
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "--assign hungarian needs scipy: pip install scipy, or give --assign greedy"
        ) from None
    rows, columns = linear_sum_assignment(scores, maximize=True)
    return [(int(row), int(column)) for row, column in zip(rows, columns, strict=True)]


def greedy(scores: Scores) -> list[tuple[int, int]]:
    """The highest score first, then the highest among what is left; equal ones by position."""
    free = np.array(scores, float)
    found = []
    for _ in range(min(free.shape)):
        row, column = divmod(int(free.argmax()), free.shape[1])
        found.append((row, column))
        free[row, :] = free[:, column] = -np.inf
    return sorted(found)


ASSIGNMENTS: Mapping[str, Assignment] = {"hungarian": hungarian, "greedy": greedy}
