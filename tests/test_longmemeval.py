"""`python -m recallbed.corpus.convert longmemeval`: memories, golds and every fault."""

import gzip
import json
import os
import signal
import subprocess
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import Result

from recallbed.corpus import DataError, user_file
from recallbed.corpus.convert import app
from recallbed.corpus.custom import load_custom
from recallbed.corpus.longmemeval import Level, read_longmemeval
from recallbed.corpus.user_file import read_json_list
from recallbed.corpus.validate import app as validator
from task3.sweep import app as sweep
from tests.kit import LFS, ROOT, one_line_error, run, run_json

Instance = dict[str, Any]


def user(text: str, marked: bool | None = None) -> Instance:
    return {"role": "user", "content": text} | ({} if marked is None else {"has_answer": marked})


def assistant(text: str, marked: bool | None = None) -> Instance:
    return user(text, marked) | {"role": "assistant"}


def instance(name: str, question: str, history: dict[str, Any], answers: list[str]) -> Instance:
    """`history` maps a session id to its turns; a trailing `'` is dropped, so ids may repeat."""
    return {
        "question_id": name,
        "question_type": "single-session-user",
        "question": question,
        "answer": 3,
        "question_date": "2031/02/09 (Sun) 10:00",
        "haystack_dates": [f"2031/01/{day:02d} (Thu) 08:30" for day in range(1, len(history) + 1)],
        "haystack_session_ids": [session.rstrip("'") for session in history],
        "haystack_sessions": list(history.values()),
        "answer_session_ids": answers,
    }


GARDEN = [
    user("The quinces by the shed ripened.", False),
    assistant("Lovely! Jelly keeps well.", False),
    user("I boiled eleven jars of quince jelly.", True),
]
LOOM = [user("My loom needs a new reed."), assistant("Measure its dents first."), user("Fifteen.")]
FERRY = [user("Which ferry did you name?", False), assistant("The Heron, at noon.", True)]
MARKET = [user("I sold four jars of jelly at the fair.", True), assistant("Well done.", False)]


def fixture() -> list[Instance]:
    """A list that shares nothing with any other, so that a test may change it."""
    made = [
        # Two answer sessions, and a filler that stands twice.
        instance(
            "jam",
            "How many jars of quince jelly are left?",
            {"f1": LOOM, "answer_1": GARDEN, "f1'": LOOM, "answer_2": MARKET, "f2": []},
            ["answer_2", "answer_1"],
        ),
        # The evidence is what the assistant said.
        instance(
            "ferry", "Which ferry leaves at noon?", {"answer_3": FERRY, "f3": LOOM}, ["answer_3"]
        ),
        # Nothing answers it; its answer session only resembles an answer.
        instance(
            "plums_abs", "How many plums?", {"answer_4_abs": GARDEN, "f4": LOOM}, ["answer_4_abs"]
        ),
        # A gold session that stands twice: both are gold. Its twin f5 isn't one.
        instance(
            "twice",
            "How many jars were boiled?",
            {"answer_5": GARDEN, "f5": GARDEN, "answer_5'": GARDEN},
            ["answer_5"],
        ),
    ]
    return cast(list[Instance], json.loads(json.dumps(made)))


def write(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def convert(
    file: Path, out: Path, *more: str, level: str = "session", code: int | None = None
) -> Result:
    arguments = ["longmemeval", str(file), "--level", level, "--out", str(out), *more]
    return run(app, *arguments, code=code)


def rows(path: Path) -> list[dict[str, Any]]:
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(line) for line in raw.split(b"\n")[:-1]]


def converted(tmp_path: Path, value: Any, *more: str, level: str = "session") -> dict[str, Any]:
    """The rows by id, with the report under ""."""
    out = tmp_path / "out.jsonl"
    found = convert(
        write(tmp_path / "in.json", value), out, *more, "--overwrite", level=level, code=0
    )
    return {row["id"]: row for row in rows(out)} | {"": found.stderr}


def refused(tmp_path: Path, value: Any, *more: str, level: str = "session") -> str:
    """The one line that `value` (bytes: the file as it is) is refused with; nothing is left."""
    file = tmp_path / "in.json"
    if isinstance(value, bytes):
        file.write_bytes(value)
    else:
        write(file, value)
    found = convert(file, tmp_path / "out.jsonl", *more, level=level)
    assert [path.name for path in tmp_path.iterdir()] == ["in.json"], "nothing half-written"
    line = one_line_error(found)
    assert line.startswith(f"error: {file}:")
    return line.removeprefix(f"error: {file}:").strip()


def test_a_session_is_the_users_turns_joined_by_a_space(tmp_path: Path) -> None:
    found = converted(tmp_path, fixture())
    assert list(found)[:-1] == ["jam", "ferry", "plums_abs", "twice"]
    assert found["jam"] == {
        "id": "jam",
        "query": "How many jars of quince jelly are left?",
        "memories": [
            "My loom needs a new reed. Fifteen.",
            "The quinces by the shed ripened. I boiled eleven jars of quince jelly.",
            "My loom needs a new reed. Fifteen.",
            "I sold four jars of jelly at the fair.",
            "",
        ],
        "gold": [1, 3],
        "question_type": "single-session-user",
        "question_date": "2031/02/09 (Sun) 10:00",
    }


def test_a_turn_is_gold_where_it_is_marked_in_an_answer_session(tmp_path: Path) -> None:
    found = converted(tmp_path, fixture(), level="turn")
    assert found["jam"]["memories"] == [
        "My loom needs a new reed.",
        "Fifteen.",
        "The quinces by the shed ripened.",
        "I boiled eleven jars of quince jelly.",
        "My loom needs a new reed.",
        "Fifteen.",
        "I sold four jars of jelly at the fair.",
    ]
    assert found["jam"]["gold"] == [3, 6]
    assert found["twice"]["gold"] == [1, 5], "the marked turn of a filler, 3, is not gold"


@pytest.mark.parametrize("level", ["session", "turn"])
def test_hard_57_a_repeated_session_id_is_two_memories(tmp_path: Path, level: str) -> None:
    found = converted(tmp_path, fixture(), level=level)
    twice = found["twice"]
    assert len(twice["memories"]) == (3 if level == "session" else 6)
    golds = [twice["memories"][gold] for gold in twice["gold"]]
    assert len(golds) == 2
    assert golds[0] == golds[1]
    assert "repeated session ids: 2 in 2 histories" in found[""]
    assert load_custom(tmp_path / "out.jsonl").file.rows[-1].golds == tuple(twice["gold"])


@pytest.mark.parametrize("level", ["session", "turn"])
def test_without_the_assistant_its_evidence_is_no_gold(tmp_path: Path, level: str) -> None:
    found = converted(tmp_path, fixture(), level=level)
    assert found["ferry"]["gold"] == []
    assert "4 questions: 2 with gold, 1 abstentions, 1 without gold at this level" in found[""]
    assert "without a marked turn, so not gold: 1" in found[""]


def test_include_assistant_indexes_both_roles_in_order(tmp_path: Path) -> None:
    found = converted(tmp_path, fixture(), "--include-assistant")
    assert found["ferry"]["memories"][0] == "Which ferry did you name? The Heron, at noon."
    assert found["ferry"]["gold"] == [0]
    assert "4 questions: 3 with gold, 1 abstentions, 0 without gold" in found[""]
    turns = converted(tmp_path, fixture(), "--include-assistant", level="turn")
    assert turns["ferry"]["memories"][1] == "The Heron, at noon."
    assert turns["ferry"]["gold"] == [1]


def test_an_abstention_has_no_gold_whatever_is_marked(tmp_path: Path) -> None:
    found = converted(tmp_path, fixture())
    assert found["plums_abs"]["gold"] == []
    assert load_custom(tmp_path / "out.jsonl").abstentions == ("ferry", "plums_abs")
    # Its answer sessions are not used, so they need not be there; `_abs` elsewhere says nothing.
    two = fixture()[2:]
    two[0]["answer_session_ids"] = ["answer_elsewhere"]
    two[1]["question_id"] = "not_abs_olutely"
    found = converted(tmp_path, two)
    assert found["not_abs_olutely"]["gold"] == [0, 2]


def test_an_answer_session_counts_only_if_a_turn_of_it_is_marked(tmp_path: Path) -> None:
    changed = fixture()
    for turn in changed[0]["haystack_sessions"][3]:
        turn["has_answer"] = False
    for turn in changed[3]["haystack_sessions"][1]:
        turn.pop("has_answer", None)
    found = converted(tmp_path, changed)
    assert found["jam"]["gold"] == [1]
    assert "without a marked turn, so not gold: 2" in found[""]


def test_dates_stand_before_each_memory_and_nowhere_else(tmp_path: Path) -> None:
    plain = converted(tmp_path, fixture(), level="turn")["jam"]
    dated = converted(tmp_path, fixture(), "--dates", level="turn")["jam"]
    assert dated["memories"][2] == "[2031/01/02 (Thu) 08:30] The quinces by the shed ripened."
    assert dated["memories"][0] != dated["memories"][4], "the two copies have their own dates"
    assert [text.partition("] ")[2] for text in dated["memories"]] == plain["memories"]
    assert (dated["query"], dated["gold"]) == (plain["query"], plain["gold"])


def test_the_report_on_stderr(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    changed = fixture()
    changed[0]["haystack_session_ids"][4] = "f1"  # now three times
    found = convert(write(tmp_path / "in.json", changed), out)
    assert found.stdout == ""
    assert found.stderr.replace(f"{out}: ", "").splitlines() == [
        "4 questions: 2 with gold, 1 abstentions, 1 without gold at this level",
        "memories a question: 2 to 5, median 2.5",
        "golds a question that has any: 2 to 2, median 2",
        "answer sessions without a marked turn, so not gold: 1",
        "repeated session ids: 3 in 2 histories, each kept as a memory of its own",
        "empty sessions: 1",
    ]


def test_texts_are_repaired_and_counted(tmp_path: Path) -> None:
    odd = fixture()
    odd[0]["question"] = "left\ud800?\x00"
    odd[0]["haystack_sessions"][0] = [user("a\udfff\u2028b"), assistant("not \ud800 indexed")]
    found = converted(tmp_path, odd)
    assert found["jam"]["query"] == "left\ufffd?\ufffd"
    assert found["jam"]["memories"][0] == "a\ufffd\u2028b"
    assert "repaired: NUL x 1" in found[""]
    assert "repaired: lone surrogate x 2" in found[""]
    assert load_custom(tmp_path / "out.jsonl").file.repairs == Counter()


def test_gzip_in_and_out_and_a_byte_order_mark(tmp_path: Path) -> None:
    packed = tmp_path / "in.json.gz"
    packed.write_bytes(gzip.compress(b"\xef\xbb\xbf" + json.dumps(fixture(), indent=1).encode()))
    plain, small = tmp_path / "out.jsonl", tmp_path / "out.jsonl.gz"
    for out in (plain, small):
        assert convert(packed, out).exit_code == 0
    assert gzip.decompress(small.read_bytes()) == plain.read_bytes()
    assert small.read_bytes()[4:8] == bytes(4), "no time of day in its header"


# Faults


Change = Callable[[Instance], Any]


def put(path: str, value: Any) -> Change:
    """Set the field at a path such as `haystack_sessions/0/1/content`."""

    def change(one: Any) -> None:
        *steps, last = path.split("/")
        for step in steps:
            one = one[int(step) if isinstance(one, list) else step]
        one[int(last) if isinstance(one, list) else last] = value

    return change


LENGTHS = "the three lists must be equally long"
FAULTS: list[tuple[Change, str]] = [
    (lambda one: one["haystack_dates"].pop(), LENGTHS),
    (lambda one: one["haystack_session_ids"].append("f9"), LENGTHS),
    (lambda one: one["haystack_sessions"].clear(), LENGTHS),
    (put("answer_session_ids", ["answer_5", "answer_8"]), "`answer_8` is not in the haystack"),
    (put("haystack_sessions/0/1/content", 7), "`haystack_sessions[0][1].content` must be a string"),
    (put("haystack_sessions/0/0/content", None), "`haystack_sessions[0][0].content` must be a str"),
    (put("haystack_sessions/2/0/role", "narrator"), "`haystack_sessions[2][0].role` is `narrator`"),
    (put("haystack_sessions/2/0/role", None), "`haystack_sessions[2][0].role` must be a string"),
    (put("haystack_sessions/1/2/has_answer", "yes"), "[1][2].has_answer` must be true or false"),
    (put("haystack_sessions/1/2", "hello"), "`haystack_sessions[1][2]` must be an object, not str"),
    (put("haystack_sessions/1", {"a": 1}), "`haystack_sessions[1]` must be a list, not dict"),
    (put("haystack_sessions", None), "`haystack_sessions` must be a list, not NoneType"),
    (put("haystack_session_ids/1", 5), "`haystack_session_ids[1]` must be a string, not int"),
    (put("haystack_dates/0", 2031), "`haystack_dates[0]` must be a string, not int"),
    (put("answer_session_ids", "answer_5"), "`answer_session_ids` must be a list, not str"),
    (put("question", 5), "`question` must be a string, not int"),
    (lambda one: one.pop("question"), "`question` is missing"),
    (lambda one: one.pop("answer_session_ids"), "`answer_session_ids` is missing"),
]


@pytest.mark.parametrize(("change", "message"), FAULTS, ids=[message for _, message in FAULTS])
def test_a_fault_is_one_line_with_position_and_id(
    tmp_path: Path, change: Change, message: str
) -> None:
    changed = fixture()
    change(changed[3])
    line = refused(tmp_path, changed)
    assert line.startswith("instance [3] (`twice`): ")
    assert message in line


def test_a_question_id_that_stands_twice_or_is_none(tmp_path: Path) -> None:
    line = refused(tmp_path, [*fixture(), fixture()[1]])
    assert line == "instance [4] (`ferry`): instance [1] has this question_id too"
    nameless = fixture()
    nameless[2]["question_id"] = 12
    line = refused(tmp_path, nameless)
    assert line == "instance [2]: field `question_id` must be a string, not int"


def test_a_history_without_a_document(tmp_path: Path) -> None:
    silent = [fixture()[0], instance("none", "What?", {"f": [assistant("Hm.")]}, [])]
    line = refused(tmp_path, silent, level="turn")
    assert line == "instance [1] (`none`): the history holds no document at turn level"
    assert converted(tmp_path, silent)["none"]["memories"] == [""]


@pytest.mark.parametrize(
    "value", [[], [instance("a_abs", "What?", {"f": LOOM}, [])], [fixture()[1]]]
)
def test_a_file_without_any_gold_is_refused(tmp_path: Path, value: list[Instance]) -> None:
    line = refused(tmp_path, value)
    assert line.startswith(f"not one of {len(value)} questions has a gold at session level")


TEXT = json.dumps(fixture()).encode()
FILES: dict[str, tuple[bytes, str]] = {
    "empty": (b" \n", "the file is empty"),
    "pointer": (LFS.encode(), "this is a Git LFS pointer"),
    "an object": (b'{"data": []}', "the file must hold one JSON list, and starts with '{'"),
    "lines": (TEXT[1:-1], "the file must hold one JSON list"),
    "words": (b"no data here", "the file must hold one JSON list, and starts with 'n'"),
    "a list of lists": (b"[[1]]", "instance [0]: expected an object, found '[', at character 1"),
    "a comma too many": (TEXT[:-1] + b",]", "instance [4]: expected an object, found ']'"),
    "no comma": (TEXT[:-1] + b" {}]", "instance [4]: expected `,` or `]`, found '{'"),
    "cut inside": (TEXT[: len(TEXT) // 2], "the file breaks off"),
    "cut between": (TEXT[:-1], "instance [4]: the file breaks off"),
    "cut at a comma": (TEXT[:-1] + b",", "instance [4]: the file breaks off"),
    "only a bracket": (b"[", "instance [0]: the file breaks off"),
    "more behind": (TEXT + b"[]", "instance [4]: unexpected text after the end of the list"),
    "not JSON": (b"[{'question_id': 1}" + b" " * 99 + b"]", "instance [0]: not valid JSON"),
    "NaN": (b'[{"a": NaN}]', "instance [0]: not valid JSON (NaN is not JSON)"),
    "a raw line feed": (b'[{"a": "b\nc"}' + b" " * 99 + b"]", "Invalid control character"),
    "a huge number": (b'[{"a": ' + b"9" * 5000 + b"}]", "instance [0]: not valid JSON (Exceeds"),
    "deep": (b'[{"a": ' + b"[" * 100_000, "instance [0]: JSON nested too deeply"),
    "UTF-16": (json.dumps(fixture()).encode("utf-16"), "instance [0]: not UTF-8"),
    "Latin-1": ('[{"a": "Käse"}]'.encode("latin-1"), "instance [0]: not UTF-8"),
}


@pytest.mark.parametrize("kind", FILES)
def test_a_file_that_is_no_json_list_is_one_line(tmp_path: Path, kind: str) -> None:
    content, message = FILES[kind]
    assert message in refused(tmp_path, content)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    broken = tmp_path / "in.json.gz"
    broken.write_bytes(gzip.compress(TEXT)[:-20])
    for file in (tmp_path / "missing.json", tmp_path, broken):
        one_line_error(convert(file, out), f"error: {file}: cannot be read (")
    assert list(tmp_path.iterdir()) == [broken]


def test_out_is_checked_before_anything_is_read(tmp_path: Path) -> None:
    file = write(tmp_path / "in.json", fixture())
    before = file.read_bytes()
    there = tmp_path / "there.jsonl"
    there.write_text("mine\n")
    for out, message, more in (
        (there, "already exists", ()),
        (file, "is the file that is read", ("--overwrite",)),
        (tmp_path, "is not a file", ("--overwrite",)),
        (tmp_path / "no" / "out.jsonl", "there is no folder", ()),
    ):
        one_line_error(convert(file, out, *more), message, after_notes=True)
    assert (file.read_bytes(), there.read_text()) == (before, "mine\n")


def test_a_fault_leaves_the_file_of_before(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("mine\n")
    file = tmp_path / "in.json"
    file.write_bytes(TEXT[:-1])
    assert convert(file, out, "--overwrite").exit_code == 2
    assert out.read_text() == "mine\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.json", "out.jsonl"]


def test_sigterm_leaves_nothing(tmp_path: Path) -> None:
    pipe, out = tmp_path / "in.json", tmp_path / "out"
    out.mkdir()
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "recallbed.corpus.convert", "longmemeval", pipe]
    command += ["--level", "turn"]
    with subprocess.Popen(
        [*command, "--out", out / "out.jsonl"], cwd=ROOT, stderr=subprocess.PIPE, text=True
    ) as process:
        with pipe.open("wb"):  # waits until the command opens it, and then the command waits
            assert len(list(out.iterdir())) == 1, "the draft is there"
            process.send_signal(signal.SIGTERM)
            assert process.wait(300) == 143
        assert process.stderr is not None
        assert process.stderr.read() == "stopped: nothing was written\n"
    assert list(out.iterdir()) == []


# The list as a stream


AWKWARD = [
    {"a": ['x\U0001f600y\n"q\\', -12.5e10, True, False, None, {"k": {}, "l": []}], "b": -1},
    {},
    {"\u2028": '\\u00e9 [ { " ] }', "c": "z" * 40, "d": [[[]]]},
]


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("indent", [None, 1])
def test_the_file_may_be_cut_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ascii_only: bool, indent: int | None
) -> None:
    text = json.dumps(AWKWARD, ensure_ascii=ascii_only, indent=indent)
    file = tmp_path / "in.json"
    file.write_text(text, encoding="utf-8")
    for chunk in range(1, len(text) + 2):
        monkeypatch.setattr(user_file, "CHUNK", chunk)
        assert list(read_json_list(file)) == list(enumerate(AWKWARD))
    monkeypatch.undo()
    for end in range(len(text)):
        file.write_text(text[:end], encoding="utf-8")
        with pytest.raises(DataError, match=r"breaks off|is empty"):
            list(read_json_list(file))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.text(), JSON, max_size=3), max_size=4), st.integers(1, 9))
@settings(max_examples=100, deadline=None)
def test_a_streamed_list_is_the_list(
    tmp_path_factory: pytest.TempPathFactory, values: list[dict[str, Any]], chunk: int
) -> None:
    file = write(tmp_path_factory.mktemp("lists") / "in.json", values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(user_file, "CHUNK", chunk)
        found = [value for _, value in read_json_list(file)]
    assert found == json.loads(file.read_text())


@pytest.mark.parametrize(
    "text", ['[{"a": "' + "endless " * 40_000, '[{"a": 1} {' + '"b": 1,' * 40_000, "[{}, {,"]
)
def test_wrong_json_is_noticed_without_reading_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(user_file, "CHUNK", 1000)
    monkeypatch.setenv("RECALLBED_MAX_LINE", "8000")
    file = tmp_path / "in.json"
    file.write_text(text + " " * 400_000)
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"instance \[[01]\]: "):
            list(read_json_list(file))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 150_000


def test_memory_is_bounded_by_one_instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_file, "CHUNK", 1 << 14)
    file = tmp_path / "in.json"
    long = [user(f"{'word ' * 400}{number}") for number in range(50)]
    with file.open("w") as stream:
        for number in range(100):
            stream.write("[" if number == 0 else ",")
            json.dump(instance(f"q{number}", "What?", {"answer_1": long}, ["answer_1"]), stream)
        stream.write("]")
    one = file.stat().st_size // 100
    tracemalloc.start()
    try:
        seen = sum(1 for _ in read_longmemeval(file, Level.TURN, Counter()))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert seen == 100
    assert peak < 10 * one


def test_the_order_of_answer_sessions_changes_nothing(tmp_path: Path) -> None:
    found = set()
    for order in permutations(["answer_1", "answer_2"]):
        changed = fixture()
        changed[0]["answer_session_ids"] = list(order)
        converted(tmp_path, changed)
        found.add((tmp_path / "out.jsonl").read_bytes())
    assert len(found) == 1


# To the end


def test_converted_and_swept(tmp_path: Path) -> None:
    """The questions' words stand in their golds and nowhere else, so bm25 finds them first."""
    questions = [
        instance("one", "quince jelly", {"f": LOOM, "answer_1": GARDEN, "f2": FERRY}, ["answer_1"]),
        instance(
            "two",
            "jars jelly",
            {"f": LOOM, "answer_1": GARDEN, "answer_2": MARKET},
            ["answer_1", "answer_2"],
        ),
        instance("three_abs", "plums", {"f": LOOM}, []),
    ]
    file, out = write(tmp_path / "in.json", questions), tmp_path / "out.jsonl"

    convert(file, out, code=0)
    run(validator, out, code=0)
    words = ("--data", out, "--retriever", "bm25", "--k", "1,3", "--out", tmp_path / "run")
    summary = run_json(sweep, *words)
    assert summary["abstentions"] == 1
    (cell,) = summary["cells"]
    assert (cell["attempted"], cell["scored"]) == (2, 2)
    assert {k: cell["recall_any"][k]["mean"] for k in "13"} == {"1": 1.0, "3": 1.0}
    assert {k: cell["recall_all"][k]["mean"] for k in "13"} == {"1": 0.5, "3": 1.0}
