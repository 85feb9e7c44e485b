"""Task 2, update: what memories become after a new dialogue."""

import recallbed  # noqa: F401  (first: its guard against folders of the same names)
