"""Task 3, retrieval: find the one memory that matters among distractors."""

import recallbed  # noqa: F401  (first: its guard against folders of the same names)
