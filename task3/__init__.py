"""Task 3, retrieval: find the one memory that matters among distractors."""

from typing import TYPE_CHECKING, Any

import recallbed  # noqa: F401  (first: its guard against folders of the same names)

if TYPE_CHECKING:
    from task3.evaluation import evaluate
    from task3.notebook import Evaluation

__all__ = ["Evaluation", "evaluate"]


def __getattr__(name: str) -> Any:
    # Loaded when it is first used: commands import this package too.
    if name in __all__:
        from task3 import evaluation

        return getattr(evaluation, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
