"""indexes/tokens.py and indexes/stopwords.py: what texts become, in every script."""

import re
import unicodedata
from collections import Counter
from itertools import pairwise

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st
from nltk.stem import PorterStemmer, SnowballStemmer

from indexes.stopwords import (
    BY_SCRIPT,
    ENGLISH_127,
    LATIN,
    latin_language,
    stopwords,
)
from indexes.tokens import (
    MultilingualTokens,
    PaperTokens,
    Tokenizer,
    normalise,
    stemmer_languages,
)

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


@pytest.mark.parametrize("spelling", ["İstanbul", "I\u0307stanbul", "istanbul", "ISTANBUL"])
def test_the_turkish_capital_dotted_i_is_an_i(spelling: str) -> None:
    assert plain(spelling).every == ("istanbul",)


def test_the_turkish_dotless_i_stays_itself() -> None:
    assert plain("ısırgan").every == ("ısırgan",)


@pytest.mark.parametrize(
    "invisible",
    ["\u200b", "\u200c", "\u200d", "\u2060", "\ufeff", "\u00ad", "\u200e", "\u202e", "\x00"],
)
def test_a_character_without_width_does_not_cut_a_word(invisible: str) -> None:
    assert plain(f"choco{invisible}late").every == ("chocolate",)
    assert plain(f"{invisible}绿{invisible}茶").every == ("绿茶",)


@pytest.mark.parametrize(
    ("with_selector", "without"),
    [("葛\U000e0100飾", "葛飾"), ("1\ufe0f", "1"), ("စ\ufe00ာ", "စာ")],
)
def test_a_variation_selector_has_no_width_either(with_selector: str, without: str) -> None:
    assert plain(with_selector).every == plain(without).every


def test_an_invisible_character_does_not_part_a_mark_from_its_base() -> None:
    assert plain("cafe\u200b\u0301").every == plain("café").every


@pytest.mark.parametrize("space", ["\t", "\n", "\r\n", "\u00a0", "\u3000", "\u2028", "\u0085"])
def test_every_kind_of_space_parts_words(space: str) -> None:
    assert plain(f"green{space}tea").every == ("green", "tea")


# --- words, marks and quotes


def test_hindi_marks_stay_with_their_base() -> None:
    # `\w+` would cut both words at each vowel sign.
    assert plain("मुझे किताबें पसंद हैं।").every == ("मुझे", "किताबें", "पसंद", "हैं")


def test_arabic_words_match_with_and_without_vowel_marks() -> None:
    assert tokens("كِتَابٌ").every == tokens("كتاب").every
    assert len(plain("كِتَابٌ جَدِيدٌ").every) == 2


def test_hebrew_points_stay_inside_the_word() -> None:
    assert len(plain("שָׁלוֹם עוֹלָם").every) == 2


def test_quotes_and_punctuation_leave_no_token() -> None:
    text = "“tea” ‘tea’ \"tea\" 'tea' «tea» „tea‟ (tea) [tea], tea... —tea— ¿tea? ¡tea! ``tea''"
    assert set(plain(text).every) == {"tea"}


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


def test_an_inner_apostrophe_keeps_a_word_whole() -> None:
    assert plain("o'clock п'ять rock’n’roll").every == ("o'clock", "п'ять", "rock'n'roll")


def test_a_hyphen_or_slash_parts_words() -> None:
    assert plain("tea/coffee well-known 3.5").every == ("tea", "coffee", "well", "known", "3", "5")


def test_digits_are_tokens() -> None:
    assert plain("Born 1987, ٣ cats").every == ("born", "1987", "٣", "cats")


# --- scripts without spaces


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("喜欢喝绿茶", ("喜欢", "欢喝", "喝绿", "绿茶")),
        ("コーヒー", ("コー", "ーヒ", "ヒー")),
        ("お茶が好き", ("お茶", "茶が", "が好", "好き")),
        ("時々", ("時々",)),
        ("고양이가", ("고양", "양이", "이가")),
        ("𠮷野家", ("𠮷野", "野家")),  # a character beyond U+FFFF is one character
    ],
)
def test_runs_become_pairs_of_characters(text: str, pairs: tuple[str, ...]) -> None:
    assert plain(text).every == pairs


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


@pytest.mark.parametrize("one", ["茶", "カ", "집", "ก้"])
def test_a_run_of_one_character_is_a_token(one: str) -> None:
    assert tokens(one) == ((one,), (one,))
    assert plain(f"{one}, {one}").every == (one, one)


def test_pairs_never_cross_punctuation_or_a_space() -> None:
    assert plain("喝茶。养猫 看书").every == ("喝茶", "养猫", "看书")


def test_scripts_are_parted_where_they_meet() -> None:
    assert plain("我用iPhone手机3年").every == ("我用", "iphone", "手机", "3", "年")
    assert plain("卡拉OK").every == ("卡拉", "ok")


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


COMMON = {
    "russian": ("и", "не", "это"),
    "arabic": ("من", "في", "على"),
    "hindi": ("में", "और", "है"),
}


@pytest.mark.parametrize("language", BY_SCRIPT.values())
def test_the_commonest_words_of_each_script_are_stopped(language: str) -> None:
    for word in COMMON[language]:
        assert tokens(word).content == (), word


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
    # Nothing tells the stopwords of this language apart, so English stays the default.
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


def test_english_stems_are_porters() -> None:
    words = ["running", "generously", "skies", "flying", "relational"]
    assert list(tokens(" ".join(words)).content) == [PorterStemmer().stem(w) for w in words]


def test_another_language_is_stemmed_by_its_snowball_stemmer() -> None:
    words = ["canciones", "corriendo", "bibliotecas", "felizmente"]
    found = MultilingualTokens("spanish")(" ".join(words)).every
    assert list(found) == [SnowballStemmer("spanish").stem(w) for w in words]
    assert found != tokens(" ".join(words)).every


def test_the_language_setting_leaves_other_scripts_to_their_own_stemmers() -> None:
    text = "книгами المدرسة किताबें 绿茶叶"
    russian, *_ = MultilingualTokens("spanish")(text).every
    assert MultilingualTokens("spanish")(text) == MultilingualTokens("english")(text)
    assert russian == SnowballStemmer("russian").stem("книгами")


def test_scripts_without_a_stemmer_are_left_as_they_are() -> None:
    assert tokens("किताबें βιβλία ספרים").every == ("किताबें", "βιβλία", "ספרים")


def test_stemming_can_be_switched_off() -> None:
    assert MultilingualTokens(stem=False)("running книгами").every == ("running", "книгами")


@pytest.mark.parametrize("language", stemmer_languages())
def test_every_language_offered_has_a_stemmer(language: str) -> None:
    assert MultilingualTokens(language)("information").every != ()


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
def test_tokens_never_depend_on_what_came_before(texts: list[str], rng) -> None:  # type: ignore[no-untyped-def]
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
