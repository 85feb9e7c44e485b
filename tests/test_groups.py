"""Groups of queries: what each grouping says of a small pool, their order, and filters."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.compare import app as compare
from analysis.groups import GROUPINGS, field_names, group_of, groupings, parse_where
from analysis.near_duplicates import NearDuplicates, nearly_equal, word_list
from analysis.ranked_pools import material_of, ranked_pools
from analysis.runs import read_run
from indexes.language import evident_language, script_of
from recallbed.corpus.material import Material, gather
from recallbed.errors import UserError
from task3.sweep import app as sweep
from tests.kit import one_line_error, run, run_json, write_lines

Own = Callable[..., Material]


@pytest.fixture
def own(tmp_path: Path) -> Own:
    """Pools as given: each of the arguments is (query, memories, gold, further fields)."""

    def make(*rows: tuple[str, list[Any], Any, dict[str, Any]]) -> Material:
        lines = [
            {"query": query, "memories": memories, "gold": gold, **more}
            for query, memories, gold, more in rows
        ]
        return gather(write_lines(tmp_path / "my.jsonl", lines))

    return make


def groups(name: str, material: Material) -> list[str]:
    """The group of each query in its only pool."""
    grouping = group_of(name, material)
    [pools] = material.pools.pools.values()
    pairs = zip(material.pools.rows, pools, strict=True)
    return [grouping.group(query, pool) for query, pool in pairs]


@pytest.mark.parametrize(
    ("text", "language", "script"),
    [
        ("I love pizza", "english", "Latin"),
        ("What is my blood type?", "english", "Latin"),
        ("pizza Berlin", None, "Latin"),
        ("me gusta la pizza", None, "Latin"),
        ("¿Dónde está la casa de los padres?", "spanish", "Latin"),
        ("我喜欢喝绿茶", "chinese", "Han"),
        ("ねこがすき", "japanese", "Kana"),
        ("Люблю чай", "russian", "Cyrillic"),
        ("שלום", "hebrew", "Hebrew"),
        ("สวัสดี", "thai", "Thai"),
        ("ᓄᓇᕗᑦ", "other", "other"),
        ("42 ?!", None, None),
        ("", None, None),
    ],
)
def test_language_and_script(text: str, language: str | None, script: str | None) -> None:
    assert evident_language(text) == language
    assert script_of(text) == script


def test_what_the_query_and_gold_are(own: Own) -> None:
    food = {"text": "Likes green tea", "label": "Preferences/Food"}
    material = own(
        ("Which tea is the one that I like?", [food, "b"], 0, {}),
        ("我喜欢什么茶", [food, {"text": "喜欢喝绿茶", "label": "Preferences/Drink"}], [0, 1], {}),
        ("绿茶", [food, "b"], 0, {}),
        ("42", [food, {"text": "b", "label": "Plans"}], [0, 1], {}),
        ("tea?", ["b", {"text": "tea " * 30}], 1, {}),
    )
    assert groups("language", material) == ["english", "chinese", "chinese", "unknown", "unknown"]
    same = ["same", "partly", "different", "unknown", "same"]
    assert groups("script_match", material) == same
    labels = ["Preferences", "Preferences", "Preferences", "several labels", "no label"]
    assert groups("label", material) == labels
    paths = ["Preferences/Food", "several labels", "Preferences/Food", "several labels", "no label"]
    assert groups("label_path", material) == paths
    # Five Han characters count as two and a half words, so the mean of the second is 2.75.
    assert groups("length", material) == ["up to 5"] * 4 + ["21 to 50"]


def test_overlap_is_the_share_of_the_content_words_of_the_query(own: Own) -> None:
    words = " ".join(f"word{i}" for i in range(9))
    material = own(
        ("Do I like the teas?", ["liked a tea", "b"], 0, {}),  # like and tea, as stems
        ("Which tea?", ["cats", "tea"], 0, {}),
        ("Which tea?", ["cats", "tea"], [0, 1], {}),  # of several golds the best
        (f"tea {words}", ["tea", "b"], 0, {}),  # one of ten
        ("???", ["tea", "b"], 0, {}),
        ("who am I", ["who", "b"], 0, {}),  # without content words all words count
    )
    assert groups("overlap", material) == [
        *("over 50 %", "0 %", "over 50 %", "up to 10 %", "unknown", "up to 50 %"),
    ]


def test_near_duplicates_are_counted_without_the_golds(own: Own) -> None:
    near = ["Likes green tea with milk", "likes green tea with honey", "Likes Green Tea with milk!"]
    material = own(
        ("a", [*near, "Owns a cat"], 0, {}),  # 4 of 6 words, and all
        ("b", [*near, "Owns a cat"], [0, 1], {}),
        ("c", [*near, "Owns a cat"], 3, {}),
        ("d", ["喜欢喝绿茶", "我喜欢喝绿茶", "b"], 0, {}),  # 4 of 5 pairs
        ("e", ["👍", "👍", "👍", "👎"], 0, {}),
    )
    assert groups("near_duplicates", material) == ["2 to 4", "1", "0", "1", "2 to 4"]


def test_near_duplicates_agree_with_sets() -> None:
    texts = [f"{a} {b} {c}" for a in "abc" for b in "abd" for c in "xyz"] + ["", "", "a"]
    index = NearDuplicates(texts, 0.5)
    held = [set(word_list(text)) or {""} for text in texts]
    for i, mine in enumerate(held):
        assert index.of(i).tolist() == [
            j for j, other in enumerate(texts) if nearly_equal(texts[i], other, 0.5)
        ]
        expected = [j for j, other in enumerate(held) if len(mine & other) >= len(mine | other) / 2]
        assert index.of(i).tolist() == expected


def test_words_are_runs_of_letters_and_digits() -> None:
    words = ["it", "s", "a", "b", "3", "5", "x", "y"]
    assert word_list("It's A_B 3.5 x-y") == words
    assert word_list("It's A_B 3.5 x-y é, 喜欢茶 c") == [*words, "é", "喜欢", "欢茶", "c"]


def test_position_is_in_thirds_for_small_pools_and_tenths_for_large(own: Own) -> None:
    pool = [f"m{i}" for i in range(6)]
    material = own(*((f"q{i}", pool, i, {}) for i in (0, 1, 2, 5)))
    assert groups("position", material) == ["third 1", "third 1", "third 2", "third 3"]
    large = [f"m{i}" for i in range(200)]
    material = own(*((f"q{i}", large, i, {}) for i in (0, 19, 20, 199)))
    assert groups("position", material) == ["tenth 1", "tenth 1", "tenth 2", "tenth 10"]


def test_direct_is_the_type_of_the_gold_in_task_1() -> None:
    material = gather()
    grouping = group_of("direct", material)
    assert grouping.groups(material) == ["direct", "indirect"]
    # Types are of the session's own memories.
    for query in material.pools.rows[:20]:
        types = material.data.types[query.session_id]
        assert types[query.gold_memory.text] in ("direct", "indirect")


def test_direct_needs_a_release(own: Own) -> None:
    material = own(("q", ["a", "b"], 0, {}))
    with pytest.raises(UserError, match="does not tell"):
        group_of("direct", material)
    assert "direct" not in groupings(material)


FIELDS: list[dict[str, Any]] = [
    {"category": "b", "turns": 10, "label": "own", "id": 1},
    {"category": "a", "turns": 9, "label": "own", "tags": ["x", "y"]},
    {"category": "b", "turns": 9.5, "label": "mine", "tags": {"a": True}},
    {"category": "", "turns": 100, "label": "own", "always": 1},
    {"category": None, "turns": 9, "label": "own", "always": 1},
]


def test_further_fields_are_groups(own: Own) -> None:
    rows = [(f"q{i}", ["a", "b"], 0, more) for i, more in enumerate(FIELDS)]
    material = own(*rows)
    assert groups("category", material) == ["b", "a", "b", "no value", "no value"]
    assert group_of("category", material).groups(material) == ["b", "a", "no value"]
    assert group_of("turns", material).groups(material) == ["9", "9.5", "10", "100"]
    assert groups("tags", material)[1:3] == ['["x", "y"]', '{"a": true}']
    # A field with the name of a grouping has a prefix.
    assert groups("label", material) == ["no label"] * 5
    assert groups("field:label", material) == ["own", "own", "mine", "own", "own"]
    assert groups("field:category", material) == groups("category", material)
    assert field_names(material) == ["category", "turns", "label", "tags", "always"]
    built_in = [name for name in GROUPINGS if name != "direct"]
    assert groupings(material) == [*built_in, "category", "turns", "field:label", "tags", "always"]


def test_an_unknown_name_names_the_known_ones(own: Own) -> None:
    material = own(("q", ["a", "b"], 0, {"category": "x"}))
    with pytest.raises(UserError, match=r"no grouping `colour`.* language, .*direct, category"):
        group_of("colour", material)


def test_a_filter_of_several_conditions(own: Own) -> None:
    rows = [(f"q{i}", ["a", "b"], 0, more) for i, more in enumerate(FIELDS)]
    material = own(*rows)
    [pools] = material.pools.pools.values()

    def kept(*words: str) -> list[int]:
        keeps = parse_where(words, material).keeps
        pairs = enumerate(zip(material.pools.rows, pools, strict=True))
        return [i for i, pair in pairs if keeps(*pair)]

    assert kept() == [0, 1, 2, 3, 4]
    assert kept("category=b") == [0, 2]
    assert kept("category=b", "category=a") == [0, 1, 2]
    assert kept("category=b", "field:label=own") == [0]
    assert kept("tags=" + '["x", "y"]') == [1]
    chosen = parse_where(["category=b", "turns=9", "category=a"], material)
    assert str(chosen) == "category=a or b, turns=9"


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("category", "write NAME=VALUE"),
        ("colour=red", "no grouping `colour`: choose one of language"),
        ("category=c", "--where category=c: no query has it. Choose one of b, a, no value"),
        ("category=", "no query has it"),
    ],
)
def test_a_filter_that_is_none(own: Own, word: str, said: str) -> None:
    rows = [(f"q{i}", ["a", "b"], 0, more) for i, more in enumerate(FIELDS)]
    with pytest.raises(UserError, match=said.replace(".", "\\.")):
        parse_where([word], own(*rows))


def test_a_row_of_a_run_has_the_group_of_its_query_and_pool(tmp_path: Path) -> None:
    words = (
        "--limit",
        12,
        "--distractors",
        "10,20",
        "--pool-seeds",
        "0,1",
        "--out",
        tmp_path / "r",
    )
    run(sweep, "--retriever", "overlap", "--pools", "nested", *words, code=0)
    found = read_run(tmp_path / "r")
    material = material_of(found, None)
    ranked = list(ranked_pools(found, material))
    assert len(ranked) == 12 * 2 * 2
    for name in groupings(material):
        one, again = group_of(name, material), group_of(name, material)
        keeps = parse_where([f"{name}={one.groups(material)[0]}"], material)
        assert any(map(keeps, ranked))
        for row in ranked:
            assert one(row) == again.find(row.query, row.pool)


def test_compare_takes_a_filter(tmp_path: Path) -> None:
    rows = [
        {"query": f"which item{i}", "memories": [f"item{i}", "b"], "gold": i % 2, "kind": i % 3}
        for i in range(9)
    ]
    data = write_lines(tmp_path / "my.jsonl", rows)
    labels = ("--retriever", "bm25", "--retriever", "overlap")
    run(sweep, *labels, "--data", data, "--out", tmp_path / "r", "--k", 1, code=0)
    words = (f"{tmp_path / 'r'}:bm25", f"{tmp_path / 'r'}:overlap", "--data", data, "--k", 1)
    assert [one["n"] for one in run_json(compare, *words)] == [9]
    assert [one["n"] for one in run_json(compare, *words, "--where", "kind=1")] == [3]
    both = ("--where", "kind=1", "--script", "Latin")
    assert [one["n"] for one in run_json(compare, *words, *both)] == [3]
    one_line_error(run(compare, *words, "--where", "kind=3"), "kind=3: no query has it", "0, 1, 2")
    by_pool = ("--where", "position=third 1")
    one_line_error(run(compare, *words, *by_pool), "--where position: differs by pool")
