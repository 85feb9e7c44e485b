"""Task 1, extraction: which memories a system finds in a dialogue."""

import recallbed  # noqa: F401  (first: its guard against folders of the same names)
