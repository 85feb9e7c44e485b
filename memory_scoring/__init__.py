"""Which predicted memories are which gold ones, and how much that comes to. Pure functions.

Whatever decides (equal fields, likeness, a judge), the outcome is a one-to-one list of `Pair`, and
every figure derives from such lists.
"""

import recallbed  # noqa: F401  (first: its guard against folders of the same names)
from memory_scoring.assignment import ASSIGNMENTS, greedy, hungarian
from memory_scoring.exact import exact_pairs
from memory_scoring.figures import Matched, breakdown, figures, pooled
from memory_scoring.pairs import Pair, coverage
from memory_scoring.similar import ACCEPTED_FROM, algorithmic_score, mean_score, similar_pairs
from memory_scoring.similarity import pair_score, pair_scores, text_similarity

__all__ = [
    "ACCEPTED_FROM",
    "ASSIGNMENTS",
    "Matched",
    "Pair",
    "algorithmic_score",
    "breakdown",
    "coverage",
    "exact_pairs",
    "figures",
    "greedy",
    "hungarian",
    "mean_score",
    "pair_score",
    "pair_scores",
    "pooled",
    "similar_pairs",
    "text_similarity",
]
