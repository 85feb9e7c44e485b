"""Task 4, utilization: whether the memory that matters is used, and no other."""
