"""Task 1, extraction: which memories a system finds in a dialogue."""
