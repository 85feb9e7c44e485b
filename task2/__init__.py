"""Task 2, update: what memories become after a new dialogue."""
