"""Scoring of memory lists (tasks 1 and 2), and what became of a gold memory in task 4."""

import recallbed  # noqa: F401  (first: its guard against folders of the same names)
from memory_scoring.figures import SessionPairs, figures, figures_by_group
from memory_scoring.pairing import (
    ACCEPTED_FROM,
    ASSIGNMENTS,
    Pair,
    algorithmic_score,
    coverage,
    exact_pairs,
    greedy,
    hungarian,
    mean_score,
    similar_pairs,
)
from memory_scoring.similarity import pair_scores, text_similarity

__all__ = [
    "ACCEPTED_FROM",
    "ASSIGNMENTS",
    "Pair",
    "SessionPairs",
    "algorithmic_score",
    "coverage",
    "exact_pairs",
    "figures",
    "figures_by_group",
    "greedy",
    "hungarian",
    "mean_score",
    "pair_scores",
    "similar_pairs",
    "text_similarity",
]
