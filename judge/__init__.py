"""Who says right or wrong: structured verdicts of a model, and their agreement with people."""
