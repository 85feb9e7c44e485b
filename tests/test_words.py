"""indexes/words.py and porter.py give NLTK's tokens and stems, without its import."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.stem import PorterStemmer, SnowballStemmer
from nltk.tokenize import NLTKWordTokenizer

from corpus import sample_root
from corpus.dataset import load_dataset
from indexes import porter
from indexes.snowball import LANGUAGES, stemmer_class
from indexes.words import split_words
from tests.conftest import HOUSE

HEAVY = ("nltk", "sklearn", "pandas", "pyarrow", "torch", "scipy", "matplotlib")
FRAGMENTS = (
    *("don't", "can't", "'tis", "'twas", "cannot", "gimme", "gonna ", "wanna", "more'n", "d'ye"),
    *("I'm", "they'll", "n't", "'s", "'S ", "'re", "'ve", "l'eau", "1,000", "3.5", "U.S.", "é"),
    *(" ", "\n", "\t", "\u00a0", "'", "''", '"', "`", "``", "’", "“", "”", "«", "»", "’s"),
    *(".", "..", "...", ",", ":", ";", "--", "\u2014", "(", ")", "<", "[", "{", "$", "*", "?", "!"),
    *("绿茶", "чай", "شاي", "_", "a", "B", "\u0130", "\u017f"),
)
ENDINGS = (
    *("", "s", "ss", "sses", "ies", "ied", "eed", "ed", "ing", "y", "e", "ll", "l", "alli", "bli"),
    *("logi", "fulli", "ational", "tional", "ization", "iveness", "icate", "ative", "ical", "ness"),
    *("ement", "ment", "ent", "ion", "ous", "ize", "at", "bl", "iz"),
)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    data = load_dataset(sample_root(), "dev")
    return [*(memory.text for memory in data.bank), *(row.query for row in data.smallest.rows)]


def test_words_and_stems_of_the_sample_are_nltks(texts: list[str]) -> None:
    tokenize, stem = NLTKWordTokenizer().tokenize, PorterStemmer().stem
    for text in texts:
        assert split_words(text) == tokenize(text)
        for word in split_words(text):
            assert porter.stem(word) == stem(word)


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=3), max_size=9))
def test_words_are_nltks(parts: list[str]) -> None:
    text = "".join(parts)
    assert split_words(text) == NLTKWordTokenizer().tokenize(text)


@settings(max_examples=1000, deadline=None)
@given(
    st.text("aeiouystrlngbcdzwxkA'", max_size=6),
    st.sampled_from(ENDINGS),
    st.sampled_from(ENDINGS),
)
def test_stems_are_nltks(start: str, middle: str, end: str) -> None:
    word = start + middle + end
    assert porter.stem(word) == PorterStemmer().stem(word)


@pytest.mark.parametrize(
    "word", ["sky", "skies", "dying", "news", "innings", "succeed", "ies", "eed", "ing", "", "Ÿ"]
)
def test_stems_of_irregular_words_are_nltks(word: str) -> None:
    assert porter.stem(word) == PorterStemmer().stem(word)


def test_the_languages_are_those_of_nltk() -> None:
    assert set(LANGUAGES) == {*SnowballStemmer.languages} - {"porter"}
    assert stemmer_class() is SnowballStemmer  # nltk is loaded here already


def test_a_sweep_of_bm25_begins_without_any_large_package(tmp_path: Path) -> None:
    """The sample holds Russian and Arabic, which NLTK's Snowball stemmers stem."""
    program = (
        "import json, sys\n"
        "from task3 import run\n"
        "from task3.sweep import app\n"
        "def stop(*words):\n"
        "    print(json.dumps(sorted(sys.modules)))\n"
        "    raise SystemExit\n"
        "run.run_tasks = stop\n"
        f"app(['--retriever', 'bm25', '--out', {str(tmp_path / 'run')!r}])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=HOUSE, timeout=120
    )
    loaded = json.loads(done.stdout)
    assert "task3.scoring" in loaded, done.stderr
    assert not set(HEAVY) & set(loaded)


def test_nltk_is_whole_for_whoever_imports_it_later() -> None:
    program = (
        "import sys\n"
        "from indexes.snowball import stemmer_class\n"
        "stem = stemmer_class()('russian').stem\n"
        "assert not {'nltk', 'scipy', 'sklearn'} & set(sys.modules)\n"
        "import scipy.stats\n"
        "from nltk.metrics.association import fisher_exact\n"
        "assert fisher_exact is scipy.stats.fisher_exact\n"
        "print(stem('книгами'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=HOUSE, timeout=120
    )
    assert done.stdout == SnowballStemmer("russian").stem("книгами") + "\n", done.stderr
