"""Task 4, utilization: whether the memory that matters is used, and no other."""

import recallbed  # noqa: F401  (first: its guard against folders of the same names)
