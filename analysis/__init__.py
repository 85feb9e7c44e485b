"""What a finished run shows: metrics, statistics, tables, curves."""
