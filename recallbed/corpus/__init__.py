"""What is measured: typed records, loaders, validation, pools, the embedded sample."""

from recallbed.corpus.layout import sample_root
from recallbed.corpus.records import Memory, Task3File, Task3Row
from recallbed.errors import DataError

__all__ = ["DataError", "Memory", "Task3File", "Task3Row", "sample_root"]
