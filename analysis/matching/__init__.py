"""Which predicted memories are which gold ones, and how much that comes to. Pure functions.

Whatever decides (equal fields, likeness, a judge), the outcome is a one-to-one list of `Pair`, and
every figure derives from such lists.
"""

from analysis.matching.assignment import ASSIGNMENTS, greedy, hungarian
from analysis.matching.exact import exact_pairs
from analysis.matching.figures import Matched, breakdown, figures, pooled
from analysis.matching.likeness import pair_score, pair_scores, text_similarity
from analysis.matching.pairs import Pair, coverage
from analysis.matching.similar import ACCEPTED_FROM, algorithmic_score, mean_score, similar_pairs

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
