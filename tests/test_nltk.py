"""NLTK without downloads, in threads and workers, in any language."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nltk
import numpy as np
import pytest
from nltk.tokenize import NLTKWordTokenizer

from analysis.metrics import above_tied, ranked, recall_at
from indexes.tokens import MultilingualTokens, stemmer_languages
from recallbed.corpus.records import Memory
from recallbed.errors import UserError
from retrievers.bm25 import BM25
from task3.sweep import app
from tests.kit import ROOT, one_line_error, run

ROOMS = ("analysis", "corpus", "harness", "indexes", "retrievers", "task3")
# A network that is not there, and that writes down who asked for it.
NO_NETWORK = """
import os, socket

def refuse(*words, **named):
    with open(os.environ["ASKED_FOR_NETWORK"], "a") as file:
        file.write(repr(words) + chr(10))
    raise OSError("no network in this test")

class Socket(socket.socket):
    def connect(self, address):
        return super().connect(address) if self.family == socket.AF_UNIX else refuse(address)

socket.socket = Socket
socket.getaddrinfo = socket.create_connection = refuse
"""


class CleanMachine:
    """Python processes with an empty home, an empty NLTK_DATA, and no network."""

    def __init__(self, folder: Path) -> None:
        self.asked, self.nltk_data = folder / "asked", folder / "nltk_data"
        self.home, self.site = folder / "home", folder / "site"
        for path in (self.nltk_data, self.home, self.site):
            path.mkdir()
        (self.site / "sitecustomize.py").write_text(NO_NETWORK, encoding="utf-8")

    def python(self, *words: object) -> subprocess.CompletedProcess[str]:
        env = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
        env |= {
            "NLTK_DATA": str(self.nltk_data),
            "HOME": str(self.home),
            "PYTHONPATH": os.pathsep.join((str(self.site), str(ROOT))),
            "ASKED_FOR_NETWORK": str(self.asked),
            "PYTHONIOENCODING": "utf-8",
        }
        return subprocess.run(
            [sys.executable, *map(str, words)],
            cwd=self.home,
            env=env,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=300,
        )

    def untouched(self) -> bool:
        """Nothing was fetched, nor tried to be."""
        return not self.asked.exists() and not list(self.nltk_data.iterdir())


@pytest.fixture
def clean(tmp_path: Path) -> CleanMachine:
    folder = tmp_path / "machine"
    folder.mkdir()
    return CleanMachine(folder)


def scores(retriever: BM25, query: str, texts: list[str]) -> list[float]:
    found = retriever.score(query, [Memory(text) for text in texts]).scores
    return [float(score) for score in np.asarray(found)]


def recall(found: list[float], gold: int) -> float:
    return recall_at(1, *above_tied(ranked(found, len(found)), gold))


# No data, no network


def test_the_clean_machine_has_no_network_and_no_sentence_data(clean: CleanMachine) -> None:
    code = "import nltk; nltk.data.path[:] = []; nltk.word_tokenize('tea')"
    assert "LookupError" in clean.python("-c", code).stderr  # as reported
    code = "import urllib.request as u; u.urlopen('http://127.0.0.1:9', timeout=5)"
    assert "no network in this test" in clean.python("-c", code).stderr
    assert not clean.untouched()


def test_tokens_stems_and_stopwords_need_no_data(clean: CleanMachine) -> None:
    code = """
import json, nltk
nltk.data.path[:] = []  # nor data that someone installed for the whole machine
from indexes.stopwords import BY_SCRIPT, LATIN, stopwords
from indexes.tokens import MultilingualTokens, PaperTokens, stemmer_languages
text = "The teas, don't они книгами كتابها 绿茶 किताबें"
found = [MultilingualTokens(language)(text) for language in stemmer_languages()]
assert all(stopwords(language) for language in (*LATIN, *BY_SCRIPT.values()))
print(json.dumps([found, PaperTokens()(text)]))
"""
    done = clean.python("-c", code)
    assert done.returncode == 0, done.stderr
    [every, paper] = json.loads(done.stdout)
    assert all("绿茶" in content for content, _ in every)
    assert paper[0][0] == "tea"
    assert clean.untouched()


def test_a_whole_sweep_needs_no_data(clean: CleanMachine) -> None:
    words = ["--retriever", "bm25", "--retriever", "rank-bm25", "--limit", 4, "--json"]
    done = clean.python("-m", "task3.sweep", *words, "--distractors", 100, "--out", "run")
    assert done.returncode == 0, done.stderr
    assert [cell["scored"] for cell in json.loads(done.stdout)["cells"]] == [4, 4]
    assert clean.untouched()


def test_no_code_of_ours_downloads_anything() -> None:
    """A download that fails returns False and prints; what never downloads can't fail so."""
    for path in (path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                used = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Attribute):
                used = [ast.unparse(node)]
            else:
                continue
            assert not any(
                name.startswith(("nltk.download", "nltk.corpus", "nltk.data")) for name in used
            ), f"{path}:{node.lineno}"
    for name in ("Makefile", ".ci/run", "pyproject.toml"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert "nltk.download" not in text, name
        assert "nltk_data" not in text, name


def test_a_library_that_is_missing_fails_before_the_first_row(clean: CleanMachine) -> None:
    (clean.site / "nltk.py").write_text("raise ImportError('nltk is not installed')\n", "utf-8")
    words = ["--retriever", "bm25", "--limit", 1, "--distractors", 100, "--out", "run"]
    done = clean.python("-m", "task3.sweep", *words)
    assert done.returncode != 0
    assert "nltk is not installed" in done.stderr
    assert not (clean.home / "run" / "rows.jsonl").exists()


# Many processes


def test_eight_workers_and_one_write_the_same_bytes(clean: CleanMachine) -> None:
    rows = []
    for workers in (1, 8):
        words = ["--retriever", "bm25", "--limit", 40, "--distractors", "100,200,300"]
        out = clean.home / f"run{workers}"
        done = clean.python("-m", "task3.sweep", *words, "--workers", workers, "--out", out)
        assert done.returncode == 0, done.stderr
        rows.append((out / "rows.jsonl").read_bytes())
    assert rows[0].count(b"\n") == 120
    assert rows[0] == rows[1]
    assert clean.untouched()


# Many threads


THREADS = """
import json, sys, threading
from indexes.tokens import MultilingualTokens, PaperTokens

tokenizers = [MultilingualTokens(), MultilingualTokens("spanish"), PaperTokens()]
texts = [
    "I don't like running in the rain", "me gustan las canciones del mar", "люблю старые книги",
    "我喜欢喝绿茶", "ชอบดื่มชาเขียว", "मुझे किताबें पसंद हैं", "les chats de l'école",
] + [f"{a}{b}{c}" for a in ("كتب", "درس", "شاهد", "لعب", "فهم", "شرب", "تعلم", "سافر")
     for b in ("تم", "نا", "وا", "ت") for c in ("", "ه", "ها", "وها")]

def all_tokens():
    return [tokenize(text) for tokenize in tokenizers for text in texts]

found, wrong = [None] * 8, []
sys.setswitchinterval(1e-6)
barrier = threading.Barrier(8)

def work(number):
    barrier.wait()
    try:
        found[number] = all_tokens()
    except Exception as error:
        wrong.append(repr(error))

threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(json.dumps([found, wrong]))
"""


def test_eight_threads_at_once_get_the_tokens_of_one(clean: CleanMachine) -> None:
    alone = clean.python(
        "-c", THREADS.replace("Barrier(8)", "Barrier(1)").replace("range(8)", "[0]")
    )
    assert alone.returncode == 0, alone.stderr
    [[expected, *_], _] = json.loads(alone.stdout)
    for _ in range(2):
        done = clean.python("-c", THREADS)
        assert done.returncode == 0, done.stderr
        found, wrong = json.loads(done.stdout)
        assert wrong == []
        assert all(tokens == expected for tokens in found)
    assert clean.untouched()


def test_eight_threads_over_one_prepared_retriever() -> None:
    from concurrent.futures import ThreadPoolExecutor

    pool = [Memory(f"{word} {i}") for i in range(60) for word in ("tea", "старые книги", "绿茶")]
    queries = ["tea 7", "книга", "喝绿茶", "who are you", "tea 绿茶 книги"] * 8
    ours = BM25()
    ours.prepare(queries, pool)
    alone = [np.asarray(ours.score(query, pool).scores).tobytes() for query in queries]
    with ThreadPoolExecutor(8) as executor:
        found = executor.map(lambda q: np.asarray(ours.score(q, pool).scores).tobytes(), queries)
        assert list(found) == alone


# Quote marks


def test_quoted_words_find_the_word_and_not_the_quotes() -> None:
    pool = ['said "hi" today', "likes tea", "has cat", "runs far"]
    assert "``" in NLTKWordTokenizer().tokenize('"tea"')  # what has to be dropped
    found = scores(BM25(), '"tea"', pool)
    assert recall(found, 1) == 1
    assert found[0] == 0


@pytest.mark.parametrize(
    "quotes", ['""', "''", "“”", "‘’", "«»", "„“", "「」", "``", "＂＂", "()", "[]"]
)
def test_so_with_every_kind_of_quote(quotes: str) -> None:
    left, right = quotes
    pool = [f"said {left}hi{right} today", "likes tea", "has cat", "runs far"]
    found = scores(BM25(), f"{left}tea{right}", pool)
    assert recall(found, 1) == 1
    assert found[0] == 0


def test_no_token_is_punctuation() -> None:
    text = "``a'' -- \"b\" ... 'c' (d); e/f & g's $5 100% #tag @me"
    every = MultilingualTokens(stem=False, stop=False)(text).every
    assert every == ("a", "b", "c", "d", "e", "f", "g", "s", "5", "100", "tag", "me")


# Queries of stopwords


def test_a_query_of_stopwords_keeps_them() -> None:
    pool = ["Likes tea in the evening", "Asked who am I in a poem", "Has a cat", "Runs far"]
    found = scores(BM25(), "who am I", pool)
    assert recall(found, 1) == 1


@pytest.mark.parametrize(
    ("query", "pool"),
    [
        ("To be or not to be?", ["has a dog", "quotes to be or not to be daily"]),
        ("¿quién eres tú?", ["tiene perro", "pregunta quién eres tú cada día"]),
        ("кто ты", ["любит собак", "поёт песню кто ты каждый день"]),
        ("من هو", ["يحب الكلاب", "يسأل من هو كل يوم"]),
    ],
)
def test_in_other_languages_too(query: str, pool: list[str]) -> None:
    assert MultilingualTokens()(query).content == ()
    assert recall(scores(BM25(), query, pool), 1) == 1


def test_the_papers_tokens_keep_them_too() -> None:
    pool = ["likes tea", "asked who am i in a poem"]
    assert recall(scores(BM25(tokens="paper"), "who am I", pool), 1) == 1


def test_one_word_with_content_drops_the_stopwords() -> None:
    assert scores(BM25(), "who likes tea", ["who am I", "tea"])[0] == 0


# A language without a stemmer


@pytest.mark.parametrize("language", ["chinese", "klingon", "English", "zh", "", "porter"])
def test_a_language_without_a_stemmer_is_refused_before_the_run(
    language: str, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    words = ["--retriever", "bm25", "--set", f"bm25.language={language}", "--out", str(out)]
    one_line_error(
        run(app, *words, "--limit", "1", "--distractors", "100"),
        f"language={language}",
        "spanish",
        "stem=false",
    )
    assert not out.exists()


def test_without_stemming_any_language_goes_and_is_recorded(tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ["--retriever", "bm25", "--set", "bm25.language=chinese", "--set", "bm25.stem=false"]
    run(app, *words, "--limit", "1", "--distractors", "100", "--out", out, code=0)
    manifest = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    [retriever] = manifest["fingerprint"]["retrievers"]
    assert (retriever["settings"]["language"], retriever["settings"]["stem"]) == ("chinese", False)


@pytest.mark.parametrize(
    "settings", [{"language": "chinese"}, {"stem": False}, {"stopwords": False}]
)
def test_the_papers_tokens_ignore_no_setting_silently(settings: dict[str, Any]) -> None:
    """They are always stemmed by Porter and stopped in English: another wish must be refused."""
    with pytest.raises(UserError, match="paper"):
        BM25(tokens="paper", **settings)


@pytest.mark.parametrize("language", stemmer_languages())
def test_every_language_offered_is_stemmed_by_its_own(language: str) -> None:
    stemmer = nltk.stem.PorterStemmer() if language == "english" else None
    stemmer = stemmer or nltk.stem.SnowballStemmer(language)
    words = ["generalization", "nationalities", "canciones", "freundlichkeit"]
    found = MultilingualTokens(language, stop=False)(" ".join(words)).every
    assert list(found) == [stemmer.stem(word) for word in words]
