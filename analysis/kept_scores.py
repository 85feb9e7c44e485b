"""scores.jsonl of a run (`--keep-scores`), read back: all scores of a pool, not only the best."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.metrics import ranked
from analysis.runs import Run
from recallbed.errors import UserError
from recallbed.harness.checksums import unseal
from recallbed.harness.run_folder import SCORES

Float32s = NDArray[np.float32]


def scores_line(line: bytes) -> dict[str, Any]:
    """Return the object of a line of scores; empty if it is damaged."""
    try:
        value, undamaged = unseal(line)
    except (ValueError, RecursionError):
        return {}
    return value if undamaged and isinstance(value, dict) else {}


def scores_in(kept: Mapping[str, Any], size: int) -> Float32s | None:
    """Return the scores of a line, (size,); None if it has none for a pool of `size`."""
    scores = kept.get("scores")
    if not isinstance(scores, list) or not all(type(score) is float for score in scores):
        return None
    try:
        return ranked(scores, size)
    except ValueError:
        return None


def kept_scores(run: Run, sizes: Mapping[int, int]) -> dict[int, Float32s]:
    """Return the scores of scored rows of a run, finished or not, by row number from 0.

    `sizes` has the pool size of each wanted row. Empty if the run keeps no scores. Raise UserError
    for a line that does not hold the scores of its row.
    """
    path = run.path / SCORES
    found: dict[int, Float32s] = {}
    if not path.exists() or not sizes:
        return found
    last = max(sizes)
    with path.open("rb") as stream:
        for number, line in enumerate(stream):
            if number > last:
                break
            if number not in sizes or run.rows[number].error is not None:
                continue
            row, kept = run.rows[number], scores_line(line)
            of = tuple(kept.get(key) for key in ("query", "retriever", "distractors", "pool"))
            scores = scores_in(kept, sizes[number])
            if scores is None or of != (row.query, row.retriever, row.distractors, row.pool):
                raise UserError(
                    f"{path}:{number + 1}: not the scores of its row."
                    " Start the sweep again with --overwrite"
                )
            found[number] = scores
    return found
