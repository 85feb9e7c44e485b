"""NLTK's tokenizer and stemmers are loaded without the large packages that nltk imports."""

import json
from pathlib import Path

import pytest
from nltk.stem import PorterStemmer, SnowballStemmer

from indexes.tokens import nltk_functions
from tests.kit import ROOT, python

HEAVY = ("sklearn", "pandas", "pyarrow", "torch", "scipy", "matplotlib")


def test_they_are_those_of_nltk() -> None:
    assert nltk_functions().porter("relational") == PorterStemmer().stem("relational") == "relat"
    assert nltk_functions().split_words("I don't.") == ["I", "do", "n't", "."]


def test_a_stemmer_that_is_loaded_already_is_taken() -> None:
    program = (
        "from nltk.stem import SnowballStemmer\n"
        "from indexes.tokens import nltk_functions\n"
        "assert nltk_functions().snowball is SnowballStemmer"
    )
    assert python("-c", program).returncode == 0


def test_a_sweep_of_bm25_begins_without_any_large_package(tmp_path: Path) -> None:
    """The sample holds Russian and Arabic, which NLTK's Snowball stemmers stem."""
    program = (
        "import json, sys\n"
        "from task3 import sweep_run\n"
        "from task3.sweep import app\n"
        "def stop(*words):\n"
        "    print(json.dumps(sorted(sys.modules)))\n"
        "    raise SystemExit\n"
        "sweep_run.run_tasks = stop\n"
        f"app(['--retriever', 'bm25', '--out', {str(tmp_path / 'run')!r}])\n"
    )
    done = python("-c", program, cwd=ROOT)
    loaded = json.loads(done.stdout)
    assert "task3.pool_scoring" in loaded, done.stderr
    assert not set(HEAVY) & set(loaded)


@pytest.mark.slow
def test_nltk_is_whole_for_whoever_imports_it_later() -> None:
    program = (
        "import sys\n"
        "from indexes.tokens import nltk_functions\n"
        "stem = nltk_functions().snowball('russian').stem\n"
        "assert not {'nltk', 'scipy', 'sklearn'} & set(sys.modules)\n"
        "import scipy.stats\n"
        "from nltk.metrics.association import fisher_exact\n"
        "assert fisher_exact is scipy.stats.fisher_exact\n"
        "print(stem('книгами'))\n"
    )
    done = python("-c", program, cwd=ROOT)
    assert done.stdout == SnowballStemmer("russian").stem("книгами") + "\n", done.stderr
