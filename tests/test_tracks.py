"""Typed rows of all twelve tracks: what is read, what is left behind, and how it streams."""

import gc
import gzip
import re
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, fields, replace
from functools import reduce
from operator import getitem, setitem
from pathlib import Path
from typing import Any

import pytest

from recallbed.corpus import DataError, Memory, sample_root
from recallbed.corpus.records import (
    Evidence,
    MemoryItem,
    Query,
    Task1Row,
    Task2Row,
    Task3Row,
    Task4Gold,
    Task4Row,
    Turn,
)
from recallbed.corpus.stream import Track, stream
from recallbed.corpus.tracks import NAMES, track, tracks_in
from tests.kit import checked, read_lines, strings_in, write_lines
from tests.kit import edit_line as edit

INPUT, REFERENCE = "model_input.jsonl", "reference_output.jsonl"
SAMPLE = sample_root() / "dev"
SAMPLE_TRACKS = tuple(name for name in NAMES if (SAMPLE / name).is_dir())
Line = dict[str, Any]


# Small files of every track. The validator's tests use them as well.


def small_row(name: str, number: int, mark: str = "") -> tuple[Line, Line]:
    """The two raw lines of one row of a track; `mark` stands in every text that is read."""

    def t(words: str) -> str:
        return f"{words}{mark}"

    def item(key: str, words: str) -> Line:
        return {
            "memory_id": t(key),
            "type": t("direct"),
            "label": t("Pets/Hens"),
            "value": t(words),
            "confidence": 0.5,
            "time_scope": t("long_term"),
            "preference_attitude": t("likes"),
            "emotion": t("calm"),
            "evidence": {"session_id": t("s"), "utterance_index": 1, "text": t("evident")},
        }

    def turns(words: str) -> list[Line]:
        return [
            {"role": t("user"), "text": t(f"{words} asked")},
            {"role": t("assistant"), "text": t(f"{words} told")},
        ]

    head = {"benchmark_id": t(f"q{number}-"), "session_id": t(f"s{number}-")}
    if name == "task1":
        sessions = [{"turns": turns("first")}, {"turns": turns("second")}]
        items = [item("m1", "keeps two hens"), {"value": t("bare")}]
        return {**head, "input": {"sessions": sessions}}, {**head, "gold": {"memory_items": items}}
    if name == "task2":
        body = {
            "old_dialogue": turns("old"),
            "new_dialogue": turns("new"),
            "memory": [item("m1", "keeps two hens"), item("m2", "rows at dawn")],
        }
        answer = [item("m1", "keeps two hens"), item("m2_updated", "rows at dusk")]
        return {**head, "input": body}, {**head, "gold": {"answer": answer}}
    if name.startswith("task3/"):
        pool = [
            {"memory_id": t(f"m{i}"), "value": t(f"text {i} "), "label": t("Pets/Hens")}
            for i in range(int(name.removeprefix("task3/d")) + 1)
        ]
        body = {"query": t("who needs feeding"), "candidate_memories": pool}
        return {**head, "input": body}, {**head, "gold": {"selected_memory": pool[1]}}
    queries = [
        {"query_id": t("q:0"), "query": t("what now"), "category": t("Advice")},
        {"query_id": t("q:1"), "query": t("what then")},
    ]
    body = {"queries": queries, "audit_context": {"conversation": turns("once")}}
    gold = {
        "selected_memory": item("m1", "keeps two hens"),
        "extracted_memory": [item("m1", "keeps two hens"), item("m2", "rows at dawn")],
    }
    return {**head, "input": body}, {**head, "gold": gold}


def write_track(split: Path, name: str, rows: int = 3, mark: str = "") -> Path:
    """A track of `rows` small rows below the folder `split`; gives back its folder."""
    pairs = [small_row(name, number, mark) for number in range(rows)]
    write_lines(split / name / INPUT, [one for one, _ in pairs])
    write_lines(split / name / REFERENCE, [other for _, other in pairs])
    return split / name


def rows_of(split: Path, name: str, **options: Any) -> Iterator[Any]:
    return stream(split, checked(Track, track(name)), Counter(), **options)


def read(split: Path, name: str) -> list[Any]:
    """All rows of a track, the first fault raised."""
    return list(rows_of(split, name))


def assert_fault(split: Path, name: str, path: Path, line: int | None, *words: str) -> None:
    """The first fault of a track: its file, its line and what it says."""
    with pytest.raises(DataError) as caught:
        read(split, name)
    assert (caught.value.path, caught.value.line) == (path, line)
    for part in words:
        assert part in str(caught.value)


# What a row holds


def full_item(key: str, text: str) -> MemoryItem:
    return MemoryItem(
        text=text,
        id=key,
        label="Pets/Hens",
        type="direct",
        confidence=0.5,
        time_scope="long_term",
        attitude="likes",
        emotion="calm",
        evidence=Evidence("s", (1,), "evident"),
    )


def two_turns(words: str) -> tuple[Turn, ...]:
    return Turn("user", f"{words} asked"), Turn("assistant", f"{words} told")


def expected(name: str, number: int) -> Any:
    """The typed row of `small_row(name, number)`, written out by hand."""
    head: Any = {"benchmark_id": f"q{number}-", "session_id": f"s{number}-", "line": number + 1}
    hens, rows = full_item("m1", "keeps two hens"), full_item("m2", "rows at dawn")
    if name == "task1":
        dialogue = (*two_turns("first"), *two_turns("second"))
        return Task1Row(**head, dialogue=dialogue, gold=(hens, MemoryItem("bare")))
    if name == "task2":
        return Task2Row(
            **head,
            old_dialogue=two_turns("old"),
            new_dialogue=two_turns("new"),
            memories=(hens, rows),
            gold=(hens, full_item("m2_updated", "rows at dusk")),
        )
    if name.startswith("task3/"):
        size = int(name.removeprefix("task3/d"))
        return Task3Row(
            **head,
            query="who needs feeding",
            candidates=tuple(Memory(f"text {i} ", "Pets/Hens") for i in range(size + 1)),
            memory_ids=tuple(f"m{i}" for i in range(size + 1)),
            gold=1,
        )
    return Task4Row(
        **head,
        ability=int(name.removeprefix("task4_ability")),
        queries=(Query("q:0", "what now", "Advice"), Query("q:1", "what then")),
        history=two_turns("once"),
        gold=Task4Gold(hens, (hens, rows)),
    )


def test_there_are_twelve_tracks() -> None:
    assert (
        *("task1", "task2"),
        *("task3/d100", "task3/d300", "task3/d500", "task3/d700", "task3/d1000"),
        *("task4_ability1", "task4_ability2", "task4_ability3"),
        *("task4_ability4", "task4_ability5"),
    ) == NAMES
    for name in NAMES:
        assert checked(Track, track(name)).name == name


@pytest.mark.parametrize("name", NAMES)
def test_a_small_file_of_every_track_becomes_typed_rows(tmp_path: Path, name: str) -> None:
    write_track(tmp_path, name)
    assert read(tmp_path, name) == [expected(name, number) for number in range(3)]


@pytest.mark.parametrize("name", NAMES)
def test_gz_is_read_like_the_plain_file(tmp_path: Path, name: str) -> None:
    plain = write_track(tmp_path / "plain", name)
    packed = tmp_path / "packed" / name
    packed.mkdir(parents=True)
    for file in (INPUT, REFERENCE):
        (packed / f"{file}.gz").write_bytes(gzip.compress((plain / file).read_bytes()))
    assert read(tmp_path / "packed", name) == read(tmp_path / "plain", name)


def raw_expectation(name: str, given: Line, reference: Line) -> dict[str, Any]:
    """What the documentation says is read of a raw row, taken by plain indexing."""

    def item(raw: Line) -> Line:
        evidence = raw.get("evidence")
        found = evidence and evidence["utterance_index"]
        same = ("label", "type", "confidence", "time_scope", "emotion")
        return {
            "text": raw["value"],
            "id": raw.get("memory_id"),
            "attitude": raw.get("preference_attitude"),
            **{key: raw.get(key) for key in same},
            "evidence": evidence
            and {
                "session_id": evidence["session_id"],
                "utterances": tuple(found if isinstance(found, list) else [found]),
                "text": evidence["text"],
            },
        }

    def turns(raw: list[Line]) -> tuple[Line, ...]:
        return tuple({"role": turn["role"], "text": turn["text"]} for turn in raw)

    body, gold = given["input"], reference["gold"]
    found: dict[str, Any]
    if name == "task1":
        found = {
            "dialogue": turns([turn for s in body["sessions"] for turn in s["turns"]]),
            "gold": tuple(map(item, gold["memory_items"])),
        }
    elif name == "task2":
        found = {
            "old_dialogue": turns(body["old_dialogue"]),
            "new_dialogue": turns(body["new_dialogue"]),
            "memories": tuple(map(item, body["memory"])),
            "gold": tuple(map(item, gold["answer"])),
        }
    elif name.startswith("task3/"):
        pool = body["candidate_memories"]
        values = [candidate["value"] for candidate in pool]
        found = {
            "query": body["query"],
            "candidates": tuple({"text": c["value"], "label": c["label"]} for c in pool),
            "memory_ids": tuple(candidate["memory_id"] for candidate in pool),
            "gold": values.index(gold["selected_memory"]["value"]),
            "more_golds": (),
            "fields": {},
            "unnamed": False,
        }
    else:
        found = {
            "ability": int(name[-1]),
            "queries": tuple(
                {"query_id": q["query_id"], "text": q["query"], "category": q.get("category")}
                for q in body["queries"]
            ),
            "history": turns(body["audit_context"]["conversation"]),
            "gold": {
                "selected": item(gold["selected_memory"]),
                "memories": tuple(map(item, gold["extracted_memory"])),
            },
        }
    return {"benchmark_id": given["benchmark_id"], "session_id": given["session_id"], **found}


def test_the_sample_has_twelve_rows_or_more_of_tasks_1_2_and_4() -> None:
    assert {name for name in NAMES if not name.startswith("task3/d") or name == "task3/d100"} == {
        *SAMPLE_TRACKS
    }
    for name in SAMPLE_TRACKS:
        assert len(read(SAMPLE, name)) >= 12


@pytest.mark.parametrize("name", SAMPLE_TRACKS)
def test_every_row_of_the_sample_is_what_its_file_says(name: str) -> None:
    raw = zip(read_lines(SAMPLE / name / INPUT), read_lines(SAMPLE / name / REFERENCE), strict=True)
    rows = read(SAMPLE, name)
    for line, (row, (given, reference)) in enumerate(zip(rows, raw, strict=True), 1):
        assert asdict(row) == {**raw_expectation(name, given, reference), "line": line}


def test_ability_5_of_the_sample_has_rows_with_several_queries_and_categories() -> None:
    rows = read(SAMPLE, "task4_ability5")
    assert max(len(row.queries) for row in rows) > 1
    for row in rows:
        assert len({query.query_id for query in row.queries}) == len(row.queries)
        assert all(query.category for query in row.queries)


@pytest.mark.parametrize("ability", range(1, 6))
def test_a_task_4_row_may_hold_one_query_or_many(tmp_path: Path, ability: int) -> None:
    name = f"task4_ability{ability}"
    place = write_track(tmp_path, name)
    many = [{"query_id": f"q:{i}", "query": f"ask {i}"} for i in range(40)]
    edit(place / INPUT, 1, lambda row: row["input"].update(queries=many[:1]))
    edit(place / INPUT, 2, lambda row: row["input"].update(queries=many))
    one, forty, _ = read(tmp_path, name)
    assert one.queries == (Query("q:0", "ask 0"),)
    assert [query.text for query in forty.queries] == [f"ask {i}" for i in range(40)]


@pytest.mark.parametrize(
    ("index", "utterances"), [(3, (3,)), ([1, 4], (1, 4)), ([], ()), (None, ())]
)
def test_evidence_names_one_utterance_or_several(
    tmp_path: Path, index: Any, utterances: tuple[int, ...]
) -> None:
    path = write_track(tmp_path, "task1", rows=1) / REFERENCE

    def change(row: Line) -> None:
        row["gold"]["memory_items"][0]["evidence"]["utterance_index"] = index

    edit(path, 1, change)
    evidence = read(tmp_path, "task1")[0].gold[0].evidence
    assert evidence == Evidence("s", utterances, "evident")


def test_all_but_the_text_of_a_memory_may_be_null_or_missing(tmp_path: Path) -> None:
    path = write_track(tmp_path, "task1", rows=1) / REFERENCE
    keys = [*small_row("task1", 0)[1]["gold"]["memory_items"][0]]
    nulls = {**dict.fromkeys(keys), "value": "rows"}
    edit(path, 1, lambda row: row["gold"].update(memory_items=[nulls, {"value": "rows"}]))
    assert read(tmp_path, "task1")[0].gold == (MemoryItem("rows"), MemoryItem("rows"))


# What is withheld


def leaky(value: Any) -> Any:
    """The value with a telling entry more in every object it holds."""
    if isinstance(value, list):
        return [leaky(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    names = "stratum canonical_id reasoning label_suggestion selected_memory_id memory_key task"
    return {
        "zz_note": "zz-leak",
        **{key: leaky(inner) for key, inner in value.items()},
        **dict.fromkeys([*names.split(), "updated_at"], "zz-leak"),
        "metadata": {"controls": "zz-leak", "gold": ["zz-leak"]},
        "model_input": {"selected_memory": {"memory_id": "zz-leak", "value": "zz-leak"}},
        "memory_stage1_candidates": ["zz-leak"],
        "dialogue": [{"role": "zz-leak", "text": "zz-leak"}],
    }


@pytest.mark.parametrize("name", NAMES)
def test_nothing_but_the_whitelist_changes_what_is_read(tmp_path: Path, name: str) -> None:
    place = write_track(tmp_path, name)
    plain = read(tmp_path, name)
    for file in (INPUT, REFERENCE):
        write_lines(place / file, [leaky(row) for row in read_lines(place / file)])
    assert "zz-leak" in (place / INPUT).read_text("utf-8")
    rows = read(tmp_path, name)
    assert rows == plain
    assert "zz-leak" not in repr(rows)


@pytest.mark.parametrize("name", NAMES)
def test_no_reference_reaches_a_field_of_the_input(tmp_path: Path, name: str) -> None:
    place = write_track(tmp_path, name)
    with_gold = read(tmp_path, name)
    (place / REFERENCE).unlink()
    assert [replace(row, gold=None) for row in with_gold] == read(tmp_path, name)


@pytest.mark.parametrize("name", NAMES)
def test_every_text_of_an_input_row_comes_from_the_input_file(tmp_path: Path, name: str) -> None:
    place = write_track(tmp_path, name)
    # Texts of the reference that can't be in the input by chance; task 3 repeats its gold.
    if not name.startswith("task3/"):

        def mark(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: mark(inner) for key, inner in value.items()}
            if isinstance(value, list):
                return [mark(inner) for inner in value]
            return f"{value} zz-gold" if isinstance(value, str) else value

        edit(place / REFERENCE, 2, lambda row: row.update(gold=mark(row["gold"])))
    row = read(tmp_path, name)[1]
    given = set(strings_in(read_lines(place / INPUT)[1]))
    assert {*strings_in(asdict(replace(row, gold=None)))} - given <= {
        f.name for f in fields(row)
    } | {
        *("role", "text", "label", "query_id", "category"),
        *("id", "type", "confidence", "time_scope", "attitude", "emotion", "evidence"),
        *("utterances",),
    }
    assert "zz-gold" not in repr(replace(row, gold=None))
    assert ("zz-gold" in repr(row.gold)) is not name.startswith("task3/")


def test_ability_1_carries_its_gold_in_the_input_and_the_row_does_not(
    flawed_sample: Path,
) -> None:
    raw = read_lines(flawed_sample / "dev" / "task4_ability1" / INPUT)
    for row, given in zip(read(flawed_sample / "dev", "task4_ability1"), raw, strict=True):
        leaked = given["input"]["model_input"]["selected_memory"]["value"]
        assert row.gold.selected.text == leaked
        assert leaked not in set(strings_in(asdict(replace(row, gold=None))))
        assert row.history


def test_task_2_metadata_names_the_changed_memory_and_the_row_does_not(
    flawed_sample: Path,
) -> None:
    # An item that is replaced or added must be found in the dialogue, so its new text is nowhere.
    for row in read(flawed_sample / "dev", "task2"):
        before = {item.text for item in row.memories}
        changed = {item.text for item in row.gold} - before
        assert changed
        assert not changed & set(strings_in(asdict(replace(row, gold=None))))


def test_a_row_has_no_field_beyond_those_documented() -> None:
    head = {"benchmark_id", "session_id", "line", "gold"}
    for kind, own in (
        (Task1Row, {"dialogue"}),
        (Task2Row, {"old_dialogue", "new_dialogue", "memories"}),
        (Task3Row, {"query", "candidates", "memory_ids", "more_golds", "fields", "unnamed"}),
        (Task4Row, {"ability", "queries", "history"}),
    ):
        assert {field.name for field in fields(kind)} == head | own


# References beside inputs


@pytest.mark.parametrize("name", NAMES)
def test_without_references_rows_have_no_gold(tmp_path: Path, name: str) -> None:
    (write_track(tmp_path, name) / REFERENCE).unlink()
    wanted = [replace(expected(name, number), gold=None) for number in range(3)]
    assert read(tmp_path, name) == wanted


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("order", [(4, 3, 2, 1, 0), (1, 2, 3, 4, 0), (4, 0, 1, 2, 3)])
def test_references_may_come_in_any_order(
    tmp_path: Path, name: str, order: tuple[int, ...]
) -> None:
    path = write_track(tmp_path, name, rows=5) / REFERENCE
    rows = read_lines(path)
    write_lines(path, [rows[i] for i in order])
    found = sorted(read(tmp_path, name), key=lambda row: row.line)
    assert found == [expected(name, number) for number in range(5)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("gone", [1, 2, 3])
@pytest.mark.parametrize(("file", "other"), [(REFERENCE, INPUT), (INPUT, REFERENCE)])
def test_a_row_missing_from_one_file_is_named_at_its_place_in_the_other(
    tmp_path: Path, name: str, gone: int, file: str, other: str
) -> None:
    place = write_track(tmp_path, name)
    rows = read_lines(place / file)
    write_lines(place / file, rows[: gone - 1] + rows[gone:])
    assert_fault(tmp_path, name, place / other, gone, f"`q{gone - 1}-` has no row in {file}")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("file", [INPUT, REFERENCE])
def test_a_repeated_id_is_named_with_both_lines(tmp_path: Path, name: str, file: str) -> None:
    place = write_track(tmp_path, name)
    edit(place / file, 3, lambda row: row.update(benchmark_id="q0-"))
    assert_fault(tmp_path, name, place / file, 3, "`q0-` appears twice, first on line 1")


@pytest.mark.parametrize("name", NAMES)
def test_references_without_inputs_are_not_a_track_of_nothing(tmp_path: Path, name: str) -> None:
    (write_track(tmp_path, name) / INPUT).unlink()
    assert_fault(tmp_path, name, tmp_path / name, None, "no model_input.jsonl")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("file", [INPUT, REFERENCE])
@pytest.mark.parametrize("content", ["", "\n\r\n", " \r\n\r\n", "\ufeff"])
def test_an_empty_file_is_a_fault(tmp_path: Path, name: str, file: str, content: str) -> None:
    place = write_track(tmp_path, name)
    (place / file).write_bytes(content.encode())
    assert_fault(tmp_path, name, place / file, None, "empty")


# Faults of a field, by file and line


# The fields that are read of a track, by file, as messages name them.
READ = {
    "task1": {
        INPUT: "benchmark_id session_id input input.sessions input.sessions[1].turns"
        " input.sessions[1].turns[0].role input.sessions[1].turns[0].text",
        REFERENCE: "benchmark_id gold gold.memory_items gold.memory_items[0].value"
        " gold.memory_items[0].evidence.text",
    },
    "task2": {
        INPUT: "session_id input.old_dialogue input.new_dialogue input.new_dialogue[1].text"
        " input.memory input.memory[1].value",
        REFERENCE: "gold.answer gold.answer[0].value",
    },
    "task4_ability1": {
        INPUT: "session_id input.queries input.queries[1].query input.queries[0].query_id"
        " input.audit_context input.audit_context.conversation"
        " input.audit_context.conversation[1].role",
        REFERENCE: "gold.selected_memory gold.selected_memory.value gold.extracted_memory"
        " gold.extracted_memory[1].value",
    },
}
required_fields = pytest.mark.parametrize(
    ("name", "file", "field"),
    [
        (name, file, field)
        for name, files in READ.items()
        for file, names in files.items()
        for field in names.split()
    ],
)


def keys_of(field: str) -> list[str | int]:
    """The keys that lead to a field such as `input.sessions[1].turns`."""
    return [int(key) if key.isdigit() else key for key in re.findall(r"\w+", field)]


def inner(row: Any, keys: list[str | int]) -> Any:
    return reduce(getitem, keys, row)


@required_fields
def test_a_missing_field_is_named(tmp_path: Path, name: str, file: str, field: str) -> None:
    *keys, last = keys_of(field)
    path = write_track(tmp_path, name) / file
    edit(path, 2, lambda row: inner(row, keys).pop(last))
    assert_fault(tmp_path, name, path, 2, f"{path}:2: field `{field}` is missing")


@pytest.mark.parametrize("wrong", [None, 7, True, 0.5], ids=repr)
@required_fields
def test_a_field_of_another_type_is_named(
    tmp_path: Path, name: str, file: str, field: str, wrong: Any
) -> None:
    *keys, last = keys_of(field)
    path = write_track(tmp_path, name) / file
    edit(path, 2, lambda row: setitem(inner(row, keys), last, wrong))
    words = (f"field `{field}` must be", f"not {type(wrong).__name__}")
    assert_fault(tmp_path, name, path, 2, *words)


@required_fields
def test_a_text_a_list_and_an_object_are_not_taken_for_each_other(
    tmp_path: Path, name: str, file: str, field: str
) -> None:
    *keys, last = keys_of(field)
    right = type(inner(small_row(name, 0)[file == REFERENCE], [*keys, last]))
    for wrong in ("x", ["x"], {"x": "y"}):
        if not isinstance(wrong, right):
            path = write_track(tmp_path, name) / file
            edit(path, 2, lambda row, wrong=wrong: setitem(inner(row, keys), last, wrong))
            assert_fault(tmp_path, name, path, 2, f"field `{field}` must be")


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        ("confidence", "0.9"),
        ("confidence", True),
        ("confidence", [0.9]),
        ("label", 3),
        ("emotion", {}),
        ("memory_id", 1),
        ("evidence", "said so"),
        ("evidence", {"text": "x", "utterance_index": "3"}),
        ("evidence", {"text": "x", "utterance_index": [1, None]}),
        ("evidence", {"text": "x", "utterance_index": True}),
        ("evidence", {"text": "x", "session_id": 5}),
    ],
)
def test_an_optional_field_of_another_type_is_named_too(
    tmp_path: Path, key: str, wrong: Any
) -> None:
    path = write_track(tmp_path, "task2") / REFERENCE
    edit(path, 2, lambda row: row["gold"]["answer"][1].update({key: wrong}))
    assert_fault(tmp_path, "task2", path, 2, f"gold.answer[1].{key}")


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1" + "0" * 400], ids=["inf", "-inf", "int"])
def test_a_number_that_no_float_holds_is_a_fault(tmp_path: Path, number: str) -> None:
    # JSON allows them; float() raises OverflowError for the integer and turns the others into inf.
    path = write_track(tmp_path, "task1") / REFERENCE
    path.write_text(path.read_text("utf-8").replace("0.5", number, 1), encoding="utf-8")
    assert_fault(tmp_path, "task1", path, 1, "gold.memory_items[0].confidence")


@pytest.mark.parametrize("ability", range(1, 6))
def test_a_task_4_row_without_a_query_is_a_fault(tmp_path: Path, ability: int) -> None:
    name = f"task4_ability{ability}"
    path = write_track(tmp_path, name) / INPUT
    edit(path, 2, lambda row: row["input"].update(queries=[]))
    assert_fault(tmp_path, name, path, 2, "`input.queries` is empty")


# Streaming


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("file", [INPUT, REFERENCE])
def test_rows_come_before_a_fault_further_on_is_read(tmp_path: Path, name: str, file: str) -> None:
    path = write_track(tmp_path, name, rows=4) / file
    path.write_bytes(path.read_bytes() + b"{broken\n")
    rows = rows_of(tmp_path, name)
    assert [next(rows) for _ in range(4)] == [expected(name, number) for number in range(4)]
    with pytest.raises(DataError, match=":5: not valid JSON"):
        next(rows)


def test_nothing_is_opened_before_the_first_row_is_asked_for(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, "task1")
    write_track(tmp_path, "task1")
    assert next(rows) == expected("task1", 0)


def peak_bytes(split: Path, name: str) -> int:
    """The most memory that Python held while all rows of a track went by.

    The least of two goes: threads that other tests left in this process allocate, too.
    """
    peaks = []
    for _ in range(2):
        gc.collect()
        tracemalloc.start()
        try:
            assert sum(1 for _ in rows_of(split, name)) > 0
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    return min(peaks)


@pytest.mark.large
@pytest.mark.parametrize("name", ["task1", "task2", "task3/d100", "task4_ability5"])
def test_memory_holds_a_row_and_not_the_file(tmp_path: Path, name: str) -> None:
    def measure(rows: int) -> tuple[int, int]:
        place = write_track(tmp_path, name, rows, mark="~" * 80)
        size = sum((place / file).stat().st_size for file in (INPUT, REFERENCE))
        return size, peak_bytes(tmp_path, name)

    (small, low), (large, high) = measure(10), measure(50)
    # What stays is an id and a line number a row. A row itself takes more than its text in a file.
    assert high - low < 0.3 * (large - small)


@pytest.mark.large
def test_references_a_few_rows_out_of_step_hold_only_those(tmp_path: Path) -> None:
    path = write_track(tmp_path, "task2", rows=120) / REFERENCE
    in_step = peak_bytes(tmp_path, "task2")
    rows = read_lines(path)
    write_lines(path, [*rows[5:], *rows[:5]])
    few = peak_bytes(tmp_path, "task2")
    write_lines(path, [*reversed(rows)])
    assert few < 1.3 * in_step
    # The check can fail: backwards, half the file has to wait.
    assert peak_bytes(tmp_path, "task2") > 1.3 * in_step


def test_with_a_listener_every_fault_is_reported_and_the_other_rows_come(tmp_path: Path) -> None:
    place = write_track(tmp_path, "task2", rows=6)
    edit(place / INPUT, 2, lambda row: row["input"].pop("memory"))
    edit(place / REFERENCE, 4, lambda row: row["gold"].pop("answer"))
    edit(place / REFERENCE, 6, lambda row: row.pop("benchmark_id"))
    faults: list[DataError] = []
    rows = list(rows_of(tmp_path, "task2", on_fault=faults.append))
    assert [row.benchmark_id for row in rows] == ["q0-", "q2-", "q4-"]
    places = [(error.path and error.path.name, error.line) for error in faults]
    assert places == [(INPUT, 2), (REFERENCE, 4), (REFERENCE, 6), (INPUT, 6)]


# Names and folders


@pytest.mark.parametrize(
    "name",
    [
        *("", "task", "task3", "task3/", "task3/d", "task3/d0", "task3/d01", "task3/d-5"),
        *("task3/d100/", "task3/d1e2", "Task1", "task1 ", "task4", "task4_ability0"),
        *("task4_ability6", "task4_ability11", "d100", "task3/d100\n"),
    ],
)
def test_an_unknown_name_is_no_track(name: str) -> None:
    assert track(name) is None


def test_tracks_come_in_the_order_of_the_release_then_sizes_that_were_not_released(
    tmp_path: Path,
) -> None:
    for name in (*reversed(NAMES), "task3/d7"):
        write_track(tmp_path, name, rows=1)
    assert read(tmp_path, "task3/d7") == [expected("task3/d7", 0)]
    found, others = tracks_in(tmp_path)
    assert [t.name for t in found] == [*NAMES, "task3/d7"]
    assert others == []


def test_folders_that_hold_no_track_are_named(tmp_path: Path) -> None:
    write_track(tmp_path, "task1", rows=1)
    for stranger in ("notes", "task2", "task3/dx", "task4_ability9"):
        (tmp_path / stranger).mkdir(parents=True)
    (tmp_path / "README.md").write_text("no folder", "utf-8")
    found, others = tracks_in(tmp_path)
    assert [t.name for t in found] == ["task1"]
    assert sorted(others) == ["notes", "task2", "task3/dx", "task4_ability9"]
