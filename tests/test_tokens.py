"""What texts become in every script and language, without downloads, in threads and workers."""

import ast
import json
import os
import re
import subprocess
import sys
import unicodedata
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st
from nltk.stem import PorterStemmer, SnowballStemmer

from indexes.language import BY_SCRIPT, ENGLISH_127, LATIN, latin_language, normalise, stopwords
from indexes.tokens import MultilingualTokens, PaperTokens, Tokenizer, stemmer_languages
from recallbed.corpus.records import Memory
from recallbed.errors import UserError
from retrievers.bm25 import BM25
from task3.sweep import app
from tests.kit import HANG, ROOT, one_line_error, read_json, run
from tests.test_bm25_pools import recall, scores

tokens = MultilingualTokens()
plain = MultilingualTokens(stem=False, stop=False)

# Letters, marks, digits, quotes, spaces and invisible characters of many scripts.
TEXTS = st.text(
    st.sampled_from(
        "aeiSTtŞğİıéñßﬁＴ 'ʼ’\"“_-.,?!0٣½я́жаيكِتةंक़िกิำ้茶喝々ーカガ한ក្ខ\u200b\u00ad\ufeff\t\n\x00👍🏽"
    )
    | st.characters(exclude_categories=["Cs"]),
    max_size=40,
)


# --- normalising


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ＴＥＡ", "tea"),  # full width
        ("ﬁne ﬂat", "fine flat"),  # ligatures
        ("café", "cafe\u0301"),  # composed and decomposed
        ("straße", "STRASSE"),
        ("ΣΊΣΥΦΟΣ", "Σίσυφος"),  # both small sigmas
        ("ｶﾞｰﾃﾞﾝ", "ガーデン"),  # half-width katakana
        ("고양이", unicodedata.normalize("NFD", "고양이")),  # Hangul from its letters
        ("ﻛﺘﺎﺏ", "كتاب"),  # Arabic presentation forms
        ("क़लम", "क\u093cलम"),  # nukta
        ("①②", "12"),
    ],
)
def test_nfkc_and_case_folding_make_spellings_equal(one: str, other: str) -> None:
    assert plain(one).every == plain(other).every != ()


@pytest.mark.parametrize(
    "invisible",
    ["\u200b", "\u200c", "\u200d", "\u2060", "\ufeff", "\u00ad", "\u200e", "\u202e", "\x00"],
)
def test_a_character_without_width_does_not_cut_a_word(invisible: str) -> None:
    assert plain(f"choco{invisible}late").every == ("chocolate",)
    assert plain(f"{invisible}绿{invisible}茶").every == ("绿茶",)


@pytest.mark.parametrize(
    ("with_selector", "without"), [("葛\U000e0100飾", "葛飾"), ("1\ufe0f", "1"), ("စ\ufe00ာ", "စာ")]
)
def test_a_variation_selector_has_no_width_either(with_selector: str, without: str) -> None:
    assert plain(with_selector).every == plain(without).every


def test_an_invisible_character_does_not_part_a_mark_from_its_base() -> None:
    assert plain("cafe\u200b\u0301").every == plain("café").every


@pytest.mark.parametrize("space", ["\t", "\n", "\r\n", "\u00a0", "\u3000", "\u2028", "\u0085"])
def test_every_kind_of_space_parts_words(space: str) -> None:
    assert plain(f"green{space}tea").every == ("green", "tea")


# --- words, marks and quotes


WORDS = {
    "the Turkish capital dotted i is an i": ("İstanbul I\u0307stanbul ISTANBUL", "istanbul " * 3),
    "the Turkish dotless i stays itself": ("ısırgan", "ısırgan"),
    # `\w+` would cut Hindi words at each vowel sign.
    "marks stay with their base": ("मुझे किताबें पसंद हैं।", "मुझे किताबें पसंद हैं"),
    "an inner apostrophe": ("o'clock п'ять rock’n’roll", "o'clock п'ять rock'n'roll"),
    "hyphen, slash and point": ("tea/coffee well-known 3.5", "tea coffee well known 3 5"),
    "digits": ("Born 1987, ٣ cats", "born 1987 ٣ cats"),
    "quotes": ("“tea” ‘tea’ \"tea\" 'tea' «tea» „tea‟ ``tea''", "tea " * 7),
    "brackets and marks": ("(tea) [tea], tea... —tea— ¿tea? ¡tea!", "tea " * 6),
    "punctuation": (
        "``a'' -- \"b\" ... 'c' (d); e/f & g's $5 100% #tag @me",
        "a b c d e f g s 5 100 tag me",
    ),
    "pairs of Chinese": ("喜欢喝绿茶", "喜欢 欢喝 喝绿 绿茶"),
    "pairs of katakana": ("コーヒー", "コー ーヒ ヒー"),
    "pairs of Japanese": ("お茶が好き", "お茶 茶が が好 好き"),
    "a repetition mark": ("時々", "時々"),
    "pairs of Hangul": ("고양이가", "고양 양이 이가"),
    "a character beyond U+FFFF": ("𠮷野家", "𠮷野 野家"),
    "single characters": ("茶, 茶 カ 집 ก้", "茶 茶 カ 집 ก้"),
    "no pair crosses punctuation or a space": ("喝茶。养猫 看书", "喝茶 养猫 看书"),
    "scripts are separated": ("我用iPhone手机3年 卡拉OK", "我用 iphone 手机 3 年 卡拉 ok"),
}


@pytest.mark.parametrize("case", WORDS)
def test_words(case: str) -> None:
    text, expected = WORDS[case]
    assert plain(text).every == tuple(expected.split())


def test_arabic_words_match_with_and_without_vowel_marks() -> None:
    assert tokens("كِتَابٌ").every == tokens("كتاب").every
    assert len(plain("كِتَابٌ جَدِيدٌ").every) == 2


def test_hebrew_points_stay_inside_the_word() -> None:
    assert len(plain("שָׁלוֹם עוֹלָם").every) == 2


@pytest.mark.parametrize("text", ["", " \n", "???", "...", "\"''\"", "— – -", "👍🏽 ❤️", "___", "'"])
def test_a_text_without_letters_or_digits_has_no_tokens(text: str) -> None:
    assert tokens(text) == ((), ())


@pytest.mark.parametrize("apostrophe", ["'", "\u2019", "\uff07"])
def test_an_apostrophe_may_be_curly(apostrophe: str) -> None:
    text = f"I{apostrophe}m sure we{apostrophe}ve fed Ana{apostrophe}s cat"
    assert tokens(text) == tokens(text.replace(apostrophe, "'"))
    assert tokens(text).content == ("sure", "fed", "ana", "cat")


@pytest.mark.parametrize(
    "contraction",
    ["I'm", "you're", "we've", "she'll", "he'd", "it's", "don't", "isn't", "can't", "won't"],
)
def test_a_contraction_leaves_no_content(contraction: str) -> None:
    # In a sentence, for "wo" alone is a German stopword and "ca" a French one.
    assert tokens(f"The cat and {contraction} for the tea").content == ("cat", "tea")


# --- scripts without spaces


def test_thai_pairs_are_of_clusters_with_their_marks() -> None:
    pairs = plain("กินข้าว").every
    assert pairs == ("กิน", "นข้", "ข้า", "าว")
    assert not any(unicodedata.category(pair[0]).startswith("M") for pair in pairs)


@pytest.mark.parametrize("word", ["ភាសាខ្មែរ", "မြန်မာ", "ພາສາລາວ"])
def test_khmer_burmese_and_lao_are_cut_into_pairs_too(word: str) -> None:
    pairs = plain(word).every
    clusters = regex.findall(r"\X", unicodedata.normalize("NFKC", word))
    assert pairs == tuple(a + b for a, b in pairwise(clusters))
    assert len(pairs) > 1


def test_a_phrase_inside_a_longer_run_shares_its_pairs() -> None:
    assert set(plain("绿茶").every) <= set(plain("我每天都喝绿茶和咖啡").every)


# --- stopwords


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("I am afraid of the dark", ("afraid", "dark")),
        ("me gusta el té de la tarde", ("gusta", "té", "tarde")),
        ("les chats sont dans la cuisine", ("chats", "cuisine")),
        ("ich habe keine Angst vor der Nacht", ("angst", "nacht")),
        ("не люблю холодный кофе", ("люблю", "холодный", "кофе")),
        ("मुझे किताब में शब्द", ("मुझे", "किताब", "शब्द")),
        ("هذا من المدينة", ("المدينة",)),
    ],
)
def test_stopwords_go_by_the_language_of_the_text(text: str, content: tuple[str, ...]) -> None:
    assert MultilingualTokens(stem=False)(text).content == content


@pytest.mark.parametrize("language", [*LATIN, *BY_SCRIPT.values()])
def test_every_language_has_a_list_of_words_as_texts_spell_them(language: str) -> None:
    """A list that holds `"word",` or an unnormalised spelling would silently stop nothing."""
    words = stopwords(language)
    assert len(words) > 50
    assert [word for word in words if word != normalise(word)] == []
    assert [word for word in words if '"' in word or "," in word] == []


@pytest.mark.parametrize("word", ["и", "не", "это", "من", "في", "على", "में", "और", "है"])
def test_the_commonest_words_of_each_script_are_stopwords(word: str) -> None:
    assert tokens(word).content == ()


def test_the_english_list_has_the_127_words_of_the_paper() -> None:
    assert len(ENGLISH_127) == 127
    assert {"i", "yourselves", "now", "don"} <= ENGLISH_127


def test_a_language_without_a_list_has_no_stopwords() -> None:
    assert stopwords("klingon") == frozenset()


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("english", ""),
        ("english", "Owns a red car"),
        ("english", "quokka"),
        ("english", "la quokka de"),  # two words are no evidence
        ("spanish", "la quokka de los"),
        ("english", "the die is cast in die van der car"),
        ("english", "die die die die"),  # a repeated word counts once
        ("french", "je suis dans la cuisine avec les chats"),
        ("german", "ich habe keine Angst vor der Nacht"),
    ],
)
def test_a_language_needs_three_stopwords_more_than_english_has(language: str, text: str) -> None:
    assert latin_language(text.lower().split()) == language


def test_a_long_text_of_another_language_needs_no_share_of_its_words() -> None:
    words = [f"mot{i}" for i in range(500)] + ["dans", "avec", "pour", "leurs", "the"]
    assert latin_language(words) == "french"


def test_the_language_setting_is_the_language_of_a_short_text() -> None:
    german = MultilingualTokens("german", stem=False)
    assert german("der Hund ist").content == ("hund",)
    assert tokens("der Hund ist").content == ("der", "hund", "ist")
    assert german("what they do is for the tea in the sea").content == ("tea", "sea")
    # The stopwords of this language are not distinguished, so English stays the default.
    assert MultilingualTokens("danish", stem=False)("the tea of it").content == ("tea",)


@given(st.lists(st.sampled_from(["car", "son", "tea", "red", "hat", "owns"]), max_size=5))
def test_no_content_word_of_a_few_english_words_is_lost(words: list[str]) -> None:
    if len({"car", "son", "hat"} & set(words)) < 3:
        assert (
            plain(" ".join(words)).every == MultilingualTokens(stem=False)(" ".join(words)).content
        )


def test_stopwords_can_be_kept() -> None:
    kept = MultilingualTokens(stop=False)("the tea of the sea")
    assert kept.content == kept.every == ("the", "tea", "of", "the", "sea")


# --- stems


def test_the_language_setting_leaves_other_scripts_to_their_own_stemmers() -> None:
    text = "книгами المدرسة किताबें 绿茶叶"
    russian, *_ = MultilingualTokens("spanish")(text).every
    assert MultilingualTokens("spanish")(text) == MultilingualTokens("english")(text)
    assert russian == SnowballStemmer("russian").stem("книгами")


def test_scripts_without_a_stemmer_are_left_as_they_are() -> None:
    assert tokens("किताबें βιβλία ספרים").every == ("किताबें", "βιβλία", "ספרים")


def test_stemming_can_be_switched_off() -> None:
    assert MultilingualTokens(stem=False)("running книгами").every == ("running", "книгами")


def test_a_stem_never_depends_on_what_was_stemmed_before() -> None:
    """NLTK's Arabic stemmer forgets to reset `suffixes_verb_step1_success` between words."""
    alone = SnowballStemmer("arabic").stem("سافرتم")
    # The cache must not hide it: a word longer than any other test uses goes first.
    assert tokens("شاهدتموه").every
    assert tokens("سافرتم").every == (alone,)


@given(st.lists(st.text("كتبتمونهاسفرشدلع", min_size=2, max_size=8), min_size=1, max_size=6))
def test_arabic_stems_are_those_of_a_fresh_stemmer(words: list[str]) -> None:
    every = tokens(" ".join(words)).every
    assert every == tuple(SnowballStemmer("arabic").stem(normalise(w)) or w for w in words)


# --- the paper's tokens


def test_paper_tokens_are_word_characters_lower_cased_stopped_and_stemmed() -> None:
    text = "The runner's Teas, it's 3.5 café_latte"
    words = re.findall(r"\w+", text.lower())
    stem = PorterStemmer().stem
    found = PaperTokens()(text)
    assert found.every == tuple(stem(word) for word in words)
    assert found.content == tuple(stem(word) for word in words if word not in ENGLISH_127)
    assert found.content == ("runner", "tea", "3", "5", "café_latt")


def test_paper_tokens_take_a_run_of_chinese_as_one_word() -> None:
    assert PaperTokens()("喜欢喝绿茶").every == ("喜欢喝绿茶",)


# --- laws


@pytest.mark.parametrize("tokenizer", [tokens, plain, PaperTokens()], ids=["multi", "raw", "paper"])
@given(text=TEXTS)
def test_content_is_part_of_every_and_no_token_is_empty(tokenizer: Tokenizer, text: str) -> None:
    content, every = tokenizer(text)
    assert Counter(content) <= Counter(every)
    assert all(every)


@given(TEXTS)
def test_every_token_holds_a_letter_or_a_digit(text: str) -> None:
    assert all(regex.search(r"[\p{L}\p{N}]", token) for token in plain(text).every)


@given(TEXTS)
def test_canonically_equal_texts_have_equal_tokens(text: str) -> None:
    assert tokens(unicodedata.normalize("NFD", text)) == tokens(unicodedata.normalize("NFC", text))


@given(TEXTS)
def test_a_text_in_capitals_has_the_same_tokens(text: str) -> None:
    # Only where raising loses nothing, unlike the dotless i.
    if text.upper().casefold() == text.casefold():
        assert tokens(text.upper()) == tokens(text)


@given(st.lists(TEXTS, max_size=6), st.randoms(use_true_random=False))
def test_tokens_never_depend_on_what_came_before(texts: list[str], rng) -> None:
    first = {text: tokens(text) for text in texts}
    rng.shuffle(texts)
    assert {text: tokens(text) for text in texts} == first


def test_an_elided_article_leaves_its_word_free_to_match() -> None:
    assert MultilingualTokens(stem=False)("l'eau qu'une dell'arte").content == (
        "eau",
        "une",
        "arte",
    )
    assert tokens("vitamin D").content == ("vitamin", "d")


PACKAGES = ("analysis", "recallbed", "indexes", "retrievers", "task3")
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

    def python(self, *words: object, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        env = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
        env |= {
            "NLTK_DATA": str(self.nltk_data),
            "HOME": str(self.home),
            "PYTHONPATH": os.pathsep.join((str(self.site), str(ROOT))),
            "ASKED_FOR_NETWORK": str(self.asked),
            "PYTHONIOENCODING": "utf-8",
        }
        command = [sys.executable, *map(str, words)]
        done = subprocess.run(
            command, cwd=self.home, env=env, capture_output=True, encoding="utf-8", timeout=HANG
        )
        assert code in (None, done.returncode), done.stderr
        return done

    def untouched(self) -> bool:
        """Nothing was fetched, nor tried to be."""
        return not self.asked.exists() and not list(self.nltk_data.iterdir())


@pytest.fixture
def clean(tmp_path: Path) -> CleanMachine:
    folder = tmp_path / "machine"
    folder.mkdir()
    return CleanMachine(folder)


# --- no data, no network


def test_the_clean_machine_has_no_network_and_no_sentence_data(clean: CleanMachine) -> None:
    code = "import nltk; nltk.data.path[:] = []; nltk.word_tokenize('tea')"
    assert "LookupError" in clean.python("-c", code, code=1).stderr  # as reported
    code = "import urllib.request as u; u.urlopen('http://127.0.0.1:9', timeout=5)"
    assert "no network in this test" in clean.python("-c", code, code=1).stderr
    assert not clean.untouched()


def test_tokens_stems_and_stopwords_need_no_data(clean: CleanMachine) -> None:
    code = """
import json, nltk
nltk.data.path[:] = []  # nor data that someone installed for the whole machine
from indexes.language import BY_SCRIPT, LATIN, stopwords
from indexes.tokens import MultilingualTokens, PaperTokens, stemmer_languages
text = "The teas, don't они книгами كتابها 绿茶 किताबें"
found = [MultilingualTokens(language)(text) for language in stemmer_languages()]
assert all(stopwords(language) for language in (*LATIN, *BY_SCRIPT.values()))
print(json.dumps([found, PaperTokens()(text)]))
"""
    done = clean.python("-c", code)
    [every, paper] = json.loads(done.stdout)
    assert all("绿茶" in content for content, _ in every)
    assert paper[0][0] == "tea"
    assert clean.untouched()


def test_a_whole_sweep_needs_no_data(clean: CleanMachine) -> None:
    words = ["--retriever", "bm25", "--retriever", "rank-bm25", "--limit", 4, "--json"]
    done = clean.python("-m", "task3.sweep", *words, "--distractors", 100, "--out", "run")
    assert [cell["scored"] for cell in json.loads(done.stdout)["cells"]] == [4, 4]
    assert clean.untouched()


def test_no_code_of_ours_downloads_anything() -> None:
    """A download that fails returns False and prints; what never downloads can't fail so."""
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
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
    done = clean.python("-m", "task3.sweep", *words, code=None)
    assert done.returncode != 0
    assert "nltk is not installed" in done.stderr
    assert not (clean.home / "run" / "rows.jsonl").exists()


# --- many processes


def test_four_workers_and_one_write_the_same_bytes(clean: CleanMachine) -> None:
    rows = []
    for workers in (1, 4):
        words = ["--retriever", "bm25", "--limit", 40, "--distractors", "100,200,300"]
        out = clean.home / f"run{workers}"
        clean.python("-m", "task3.sweep", *words, "--workers", workers, "--out", out)
        rows.append((out / "rows.jsonl").read_bytes())
    assert rows[0].count(b"\n") == 120
    assert rows[0] == rows[1]
    assert clean.untouched()


# --- many threads


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
    [[expected, *_], _] = json.loads(alone.stdout)
    for _ in range(2):
        found, wrong = json.loads(clean.python("-c", THREADS).stdout)
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


# --- quote marks


@pytest.mark.parametrize(
    "quotes", ['""', "''", "“”", "‘’", "«»", "„“", "「」", "``", "＂＂", "()", "[]"]
)
def test_quoted_words_find_the_word_and_not_the_quotes(quotes: str) -> None:
    left, right = quotes
    pool = [f"said {left}hi{right} today", "likes tea", "has cat", "runs far"]
    found = scores(BM25(), f"{left}tea{right}", pool)
    assert recall(found, 1) == 1
    assert found[0] == 0


# --- queries of stopwords


@pytest.mark.parametrize(
    ("query", "pool"),
    [
        ("To be or not to be?", ["has a dog", "quotes to be or not to be daily"]),
        ("¿quién eres tú?", ["tiene perro", "pregunta quién eres tú cada día"]),
        ("кто ты", ["любит собак", "поёт песню кто ты каждый день"]),
        ("من هو", ["يحب الكلاب", "يسأل من هو كل يوم"]),
    ],
)
def test_a_query_of_stopwords_keeps_them(query: str, pool: list[str]) -> None:
    assert MultilingualTokens()(query).content == ()
    assert recall(scores(BM25(), query, pool), 1) == 1


def test_the_papers_tokens_keep_stopwords_of_a_query_of_stopwords() -> None:
    pool = ["likes tea", "asked who am i in a poem"]
    assert recall(scores(BM25(tokens="paper"), "who am I", pool), 1) == 1


def test_one_word_with_content_drops_the_stopwords() -> None:
    assert scores(BM25(), "who likes tea", ["who am I", "tea"])[0] == 0


# --- a language without a stemmer


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
    [retriever] = read_json(out / "manifest.json")["fingerprint"]["retrievers"]
    assert (retriever["settings"]["language"], retriever["settings"]["stem"]) == ("chinese", False)


@pytest.mark.parametrize(
    "settings", [{"language": "chinese"}, {"stem": False}, {"stopwords": False}]
)
def test_the_papers_tokens_ignore_no_setting_silently(settings: dict[str, Any]) -> None:
    """They are always stemmed by Porter and stopped in English: another setting must be refused."""
    with pytest.raises(UserError, match="paper"):
        BM25(tokens="paper", **settings)


@pytest.mark.parametrize("language", stemmer_languages())
def test_every_language_offered_is_stemmed_by_its_own(language: str) -> None:
    stemmer = PorterStemmer() if language == "english" else SnowballStemmer(language)
    words = [
        "generalization",
        "nationalities",
        "canciones",
        "freundlichkeit",
        "generously",
        "skies",
    ]
    words += ["running", "flying", "relational", "corriendo", "bibliotecas", "felizmente"]
    found = MultilingualTokens(language, stop=False)(" ".join(words)).every
    assert list(found) == [stemmer.stem(word) for word in words]
