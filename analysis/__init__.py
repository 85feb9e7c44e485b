"""What a finished run shows: metrics, statistics, tables, curves."""

import recallbed  # noqa: F401  (first: its guard against folders of the same names)
