"""The words that AlpsBench's released memories use for kinds of memories.

The labels are the paths that stand in the development rows often enough to be part of the scheme;
`UNMAPPED` is the release's own word for what no path fits.
"""

from __future__ import annotations

from typing import Literal

UNMAPPED = "UNMAPPED"
UNKNOWN = "unknown"

Type = Literal["direct", "indirect"]
TimeScope = Literal["long_term", "short_term", "recent", "current", "past", "unknown"]
Attitude = Literal["like", "dislike", "preference", "requirement", "constraint", "neutral"]
Label = Literal[
    "Personal_Background/Identity",
    "Personal_Background/Education",
    "Personal_Background/Occupation",
    "Personal_Background/Location",
    "Personal_Background/Family",
    "States_Experiences/Physical_State",
    "States_Experiences/Mental_State",
    "States_Experiences/Past_Experience",
    "Possessions/Important_Items",
    "Possessions/Pet",
    "Possessions/Car",
    "Preferences/Food",
    "Preferences/Entertainment",
    "Preferences/Music",
    "Preferences/Reading",
    "Preferences/Sports",
    "Preferences/Shopping",
    "Preferences/Travel_Mode",
    "Preferences/Interaction_Preferences",
    "Thoughts/Opinions/Positive",
    "Thoughts/Opinions/Negative",
    "Thoughts/Curiosity",
    "Thoughts/Goals/Short_Term",
    "Thoughts/Goals/Long_Term",
    "Plans/Schedule",
    "Plans/Commitments",
    "Social_Relationships/Family",
    "Social_Relationships/Friends",
    "Social_Relationships/Partners",
    "Social_Relationships/Colleagues",
    "Social_Relationships/Adversarial",
    "Constraints_and_Boundaries/Disliked_Topics",
    "Constraints_and_Boundaries/Sensitive_Topics",
    "Constraints_and_Boundaries/Do_Not_Remember",
    "UNMAPPED",
]
