"""`python -m analysis.import FILE --label NAME --out RUN`: other people's results as a run.

No module can be imported by this name; the console script names `analysis.import_command`.
"""

# ruff: noqa: N999
from analysis.import_command import main

if __name__ == "__main__":
    main()
