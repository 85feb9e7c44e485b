"""`python -m analysis.import FILE --label NAME --out RUN`: other people's results as a run.

No module can be imported by this name; the console script names `analysis.importing`.
"""

# ruff: noqa: N999
from analysis.importing import app

if __name__ == "__main__":
    app()
