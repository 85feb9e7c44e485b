"""What is measured: typed records, loaders, validation, pools, the embedded sample."""

from corpus.errors import DataError
from corpus.layout import sample_root
from corpus.records import Memory, Task3File, Task3Row

__all__ = ["DataError", "Memory", "Task3File", "Task3Row", "sample_root"]
