"""Text from outside is shown as it is: no markup, no control of the terminal, no traceback."""

import ast
import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer import Typer
from typer.testing import Result

import analysis.compare
import analysis.curves
import analysis.export
import analysis.frontier
import indexes.build
import indexes.search
import judges.agreement
import judges.recorded
import memory_systems.history
import recallbed.corpus.validate
import task1.score
import task2.score
import task3.score
import task3.sweep
import task3.tune
from memory_systems.base import Action, Operation
from memory_systems.store import MemoryStore
from recallbed.corpus.records import MemoryItem
from recallbed.harness import terminal
from recallbed.harness.progress import progress
from recallbed.harness.terminal import note, one_line, say, say_json, visible
from recallbed.packages import own_packages
from tests import kit
from tests.kit import ROOT, WriteRelease, write_lines
from tests.test_task2_score import GOLD, as_json
from tests.test_task2_score import release as task2_release

# Console markup that closes nothing, an emoji code, ANSI escapes in both forms, bidirectional
# controls, line separators.
HOSTILE = "[/direct][bold :smile: \x1b[31m\x9b31m \u202eabc\u2066\u200f\u061c \u2028\u2029\x07 {}"
UNSAFE = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def test_what_steers_a_terminal_is_shown_as_an_escape() -> None:
    assert visible("a\x1b[31mb\x9bc\td\r\n") == r"a\x1b[31mb\x9bc\td\r\n"
    assert visible("\u202e\u2067\u200f\u061c\u2028\u2029\x85\x7f") == (
        r"\u202e\u2067\u200f\u061c\u2028\u2029\x85\x7f"
    )
    assert visible("\udcff") == r"\udcff"
    for kept in ("naïve", "绿茶", "[bold]", "क्षि", "👩\u200d🔬", "می\u200cخواهم", "\u00a0"):
        assert visible(kept) == kept
    assert one_line("  a\n\n b\t\u2028c ") == r"a b \u2028c"


def test_lines_are_printed_in_any_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    say("绿茶 \udcff")
    say_json(json.dumps({"绿": "\x9b\u202e\udcff茶"}, ensure_ascii=False))
    sys.stdout.flush()
    first, rest = raw.getvalue().decode("ascii").split("\n", 1)
    assert first == r"\u7eff\u8336 \udcff"
    assert json.loads(rest) == {"绿": "\x9b\u202e\udcff茶"}


def test_json_keeps_its_value_and_steers_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"a": HOSTILE, "绿": ["茶", "\udcff\\"]}
    say_json(json.dumps(value, ensure_ascii=False, indent=1))
    shown = capsys.readouterr().out
    assert json.loads(shown) == value
    assert not UNSAFE.search(shown)
    assert "绿" in shown


def test_notes_follow_what_was_printed_before(capfd: pytest.CaptureFixture[str]) -> None:
    note("a\x1b[2J")
    assert capfd.readouterr().err == "a\\x1b[2J\n"


def test_the_progress_bar_takes_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", stream)
    with progress("[/direct]\u202e\x07", 2) as advance:
        advance(2)
    assert "[/direct]\\u202e\\x07" in stream.getvalue()
    assert not {"\u202e", "\x07"} & set(stream.getvalue())


def test_everything_is_printed_by_one_module() -> None:
    """What prints on its own could print text from outside as it comes."""
    printing = {"print", "echo", "secho", "Console"}
    for package in own_packages():
        for path in (ROOT / package).rglob("*.py"):
            if path == Path(terminal.__file__):
                continue
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Call):
                    named = getattr(node.func, "id", getattr(node.func, "attr", ""))
                    bar = path.name == "progress.py" and named == "Console"  # escapes what it shows
                    assert named not in printing or bar, f"{path}:{node.lineno}"


def run(app: Typer, *words: str | Path, code: int = 0) -> Result:
    result = kit.run(app, *words)
    assert result.exit_code == code, (result.output, result.exception)
    assert isinstance(result.exception, SystemExit | None)
    assert not UNSAFE.search(result.output), ascii(result.output)
    return result


def shown(result: Result, *texts: str) -> None:
    for text in texts:
        assert visible(text) in result.output, ascii(result.output)


FAILING = """
from retrievers import Retriever, RetrieverError

class Failing(Retriever):
    def score(self, query, pool):
        if query == "topic 1":
            raise RetrieverError(CAUSE)
        return list(range(len(pool)))
"""


@pytest.fixture
def place(write_release: WriteRelease, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_release([(f"topic {i}", [f"note {j} of {i}" for j in range(5)], i) for i in range(4)])
    (tmp_path / "failing_one.py").write_text(f"CAUSE = {HOSTILE!r}\n{FAILING}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def sweep_words(*more: str | Path) -> list[str | Path]:
    return ["--retriever", "failing_one:Failing", "--distractors", "3", "--k", "1", *more]


def own_file(place: Path) -> Path:
    path = place / f"{HOSTILE.replace('/', '')}.jsonl"
    rows = [{"query": f"topic {i}", "memories": ["a", "b", "c", "d"], "gold": i} for i in range(4)]
    write_lines(path, rows)
    return path


def test_a_sweep_shows_causes_and_file_names(place: Path) -> None:
    words = sweep_words("--data", own_file(place), "--pools", "nested", "--out", "run")
    for more in ([], ["--resume"], ["--resume", "--json"]):
        result = run(task3.sweep.app, *words, *more)
        shown(result, HOSTILE)
    assert json.loads(result.stdout)["cells"][0]["failures"] == {HOSTILE: 1}


def test_commands_over_runs_show_their_folders_as_they_are(place: Path) -> None:
    folder = HOSTILE.replace("/", "")
    run(task3.sweep.app, *sweep_words("--data", "release", "--out", folder))
    run(task3.sweep.app, *sweep_words("--data", "release", "--out", "other"))
    result = run(analysis.curves.app, folder, "other", "--out", f"{folder}.png")
    shown(result, f"{folder}.png")
    table = run(analysis.compare.app, f"{folder}:Failing", "other", "--k", "1").stdout
    head, rule, row = table.splitlines()[-3:]
    assert head.split()[:3] == ["distractors", "k", "n"]
    assert rule.strip("-") == ""
    assert row.split()[:3] == ["3", "1", "3"]
    run(analysis.compare.app, "other", f"other:{HOSTILE}", code=2)
    result = run(analysis.frontier.app, folder, "other", "--x", "ms", "--note", HOSTILE)
    shown(result, "failed")
    run(analysis.export.app, folder, "--data", "release", "--out", HOSTILE)


def test_tuning_shows_labels_and_files(place: Path) -> None:
    words = ["--retriever", "bm25", "--data", "release", "--pools", "released", "--folds", "2"]
    out = HOSTILE.replace("/", "")
    words += ["--distractors", "4", "--grid", "bm25.k1=0.5/1", "--out", out]
    shown(run(task3.tune.app, *words), out)


def task1_release(root: Path, gold: Any) -> Path:
    head = {"benchmark_id": "q0", "session_id": "s0"}
    turns = [{"role": "user", "text": "I like tea"}]
    body = {"input": {"sessions": [{"session_id": "s", "turns": turns}]}}
    write_lines(root / "dev" / "task1" / "model_input.jsonl", [{**head, **body}])
    row = {**head, "gold": {"memory_items": [gold]}}
    write_lines(root / "dev" / "task1" / "reference_output.jsonl", [row])
    return root


def test_a_predicted_type_is_no_markup(place: Path) -> None:
    gold = as_json(GOLD[0])
    root = task1_release(place / "data1", gold)
    wrong = {**gold, "type": HOSTILE, "label": HOSTILE}
    write_lines(place / "p.jsonl", [{"benchmark_id": "q0", "memory_items": [wrong]}])
    result = run(task1.score.app, "p.jsonl", "--data", root)
    shown(result, one_line(HOSTILE))
    task2_release(place / "data2")
    result = run(task2.score.app, "p.jsonl", "--data", place / "data2")
    shown(result, one_line(HOSTILE))
    result = run(task2.score.app, "p.jsonl", "--data", place / "data2", "--json")
    assert HOSTILE in json.loads(result.stdout)["by_type"]


def test_predictions_show_faults_as_they_are(place: Path) -> None:
    rows = [{"benchmark_id": f"q{i}", "selected_memory_id": HOSTILE} for i in range(4)]
    inputs = place / "release" / "dev" / "task3" / "d4" / "model_input.jsonl"
    ids = [json.loads(line)["benchmark_id"] for line in inputs.read_text().splitlines()]
    for row, name in zip(rows, ids, strict=True):
        row["benchmark_id"] = name
    path = place / f"{HOSTILE.replace('/', '')}.jsonl"
    write_lines(path, [*rows, {"benchmark_id": HOSTILE}])
    shown(run(task3.score.app, path, "--data", "release"), path.name)


def test_a_search_shows_texts_in_one_line(place: Path) -> None:
    write_lines(place / "mine.jsonl", [{"text": f"tea {HOSTILE}\nand\tmilk"}])
    run(indexes.build.app, "mine.jsonl", "--out", "store", "--kind", "bm25s")
    result = run(indexes.search.app, "store", "tea")
    shown(result, f"tea {HOSTILE} and milk")
    assert result.stdout.count("\n") == 1
    write_lines(place / "q.jsonl", [{"query": f"tea {HOSTILE}"}, {"query": "milk"}])
    shown(run(indexes.search.app, "store", "--queries", "q.jsonl"), f"# tea {HOSTILE}")
    found = run(indexes.search.app, "store", "tea", "--json").stdout
    assert json.loads(found)["hits"][0]["text"].startswith(f"tea {HOSTILE}")


def test_a_history_shows_users_and_memories(place: Path) -> None:
    store = MemoryStore(place / "store.sqlite")
    store.apply(HOSTILE, [Operation(Action.ADD, None, MemoryItem(HOSTILE, label=HOSTILE))])
    store.close()
    shown(run(memory_systems.history.app, "store.sqlite"), one_line(HOSTILE))
    shown(run(memory_systems.history.app, "store.sqlite", "--user", HOSTILE), one_line(HOSTILE))
    run(memory_systems.history.app, "store.sqlite", "--user", HOSTILE + "x", code=2)


def test_checks_and_judges_show_faults(place: Path) -> None:
    write_lines(place / "mine.jsonl", [{"query": "a", "memories": ["b"], "gold": HOSTILE}])
    run(recallbed.corpus.validate.app, "mine.jsonl", code=2)
    (place / "release" / "dev" / HOSTILE.replace("/", "")).mkdir()
    shown(run(recallbed.corpus.validate.app, "release"), HOSTILE.replace("/", ""))
    write_lines(place / "a.jsonl", [{"item": i, "verdict": i % 2 == 0} for i in range(6)])
    odd = [{"item": 6, "verdict": HOSTILE}, {"item": 7, "verdict": None, "cause": HOSTILE}]
    write_lines(place / "b.jsonl", [{"item": i, "verdict": i < 3} for i in range(6)] + odd)
    run(judges.agreement.app, "a.jsonl", "b.jsonl")
    fields = {"task": HOSTILE, "model": "m", "session_id": "s", "canonical_id": "c"}
    write_lines(place / "recorded.jsonl", [fields])
    run(judges.recorded.app, "recorded.jsonl", code=2)


WORDS: dict[str, Callable[[], list[str]]] = {
    "an option": lambda: [f"--{HOSTILE}"],
    "a number": lambda: ["--retriever", "bm25", "--limit", HOSTILE],
    "a retriever": lambda: ["--retriever", HOSTILE],
    "a setting": lambda: ["--retriever", "bm25", "--set", f"bm25.{HOSTILE}=1"],
    "a folder": lambda: ["--retriever", "bm25", "--data", HOSTILE],
}


@pytest.mark.parametrize("what", WORDS)
def test_a_mistake_in_hostile_words_is_told_without_a_traceback(place: Path, what: str) -> None:
    result = kit.run(task3.sweep.app, *WORDS[what]())
    assert isinstance(result.exception, SystemExit), repr(result.exception)
    assert result.exit_code == 2
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", result.output)
