"""Task 3, retrieval: find the one memory that matters among distractors."""

import os
import sys
from pathlib import Path

# `python -m task3.sweep` puts the working folder first, where a user's own `analysis/` would shadow
# ours. It is searched last instead, for the user's classes; a checkout is left as it is.
if sys.argv[:1] == ["-m"] and sys.path[:1] == [os.getcwd()] != [str(Path(__file__).parents[1])]:
    sys.path.append(sys.path.pop(0))
