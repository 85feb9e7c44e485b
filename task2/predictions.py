"""Reading anyone's prediction rows of task 2: the whole updated list of memories.

The contract's key is `memory_items`. The references call the same list `answer`, and the public
scorer takes that too.
"""

from __future__ import annotations

from pathlib import Path

from memory_scoring.answers import Answers, read_answers
from recallbed.corpus.records import Task2Row
from recallbed.corpus.task2 import TASK2

KEYS = ("memory_items", "answer")


def read_update_rows(path: Path, data: Path | None, split: str) -> Answers[Task2Row]:
    """The sessions of a split and what the file predicts for them. Raises as `read_answers`."""
    return read_answers(path, data, split, TASK2, KEYS)
