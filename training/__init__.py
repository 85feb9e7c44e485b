"""How a retriever learns: examples, folds, negatives, the trainers, cards of what they made."""

import recallbed  # noqa: F401  (first: its guard against folders of the same names)
