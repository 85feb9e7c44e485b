"""What a user sees of an exception in a class of their own, and what a failed try leaves."""

from pathlib import Path

import pytest

from recallbed.errors import UserError
from recallbed.harness.experiment import make_rows
from recallbed.harness.failures import FirstFailures
from recallbed.harness.item_run import Done, is_item_row
from recallbed.harness.run_folder import open_run
from recallbed.harness.run_options import RunOptions
from tests.kit import Forked, Items, Process, WriteRelease, one_line_error, rows_of

ROWS = [
    (f"what of number {i}", [f"likes {i}", f"has {i} at home", f"sleeps until {i}"], 0)
    for i in range(12)
]
FAULTY = """
from retrievers import Retriever

class Mine(Retriever):
    def score(self, query, pool):
        return [self.worth(query) for memory in pool]

    def worth(self, query):
        return {}[query]
"""


@pytest.fixture
def place(tmp_path: Path, write_release: WriteRelease) -> Path:
    write_release(ROWS)
    return tmp_path


def shell(place: Path, *words: str, task: str = "task3.sweep") -> Process:
    return Forked(task, *words, "--data", "release", cwd=place).done(None)


def sweep(place: Path, code: str, *words: str) -> Process:
    (place / "mine.py").write_text(code)
    return shell(place, "--retriever", "mine:Mine", "--distractors", "2", "--k", "1", *words)


def error_of(done: Process) -> str:
    return one_line_error(done, after_notes=True)


def test_ten_equal_failures_at_the_start_end_the_run_and_leave_no_folder(place: Path) -> None:
    """Equal by type and place: the words of a KeyError differ with every query."""
    done = sweep(place, FAULTY)
    line = error_of(done)
    assert line.startswith(
        "error: Mine: stopped, since the first 10 all failed in the same way (KeyError: "
    )
    assert "(mine.py:9)" in line
    assert "--keep-going" in line
    assert "Traceback" not in done.stderr
    assert not (place / "runs").exists()


def test_keep_going_counts_the_failures_of_all_queries(place: Path) -> None:
    done = sweep(place, FAULTY, "--keep-going")
    assert "not one of 12 rows could be scored" in error_of(done)
    [run] = place.glob("runs/*")
    errors = [row["error"] for row in rows_of(run)]
    assert len(errors) == 12
    assert all(error.startswith("KeyError: 'what of number") for error in errors)
    assert all(error.endswith(" (mine.py:9)") for error in errors)


def test_nine_equal_failures_and_a_success_are_a_run(place: Path) -> None:
    some = FAULTY.replace("{}[query]", "{'what of number 9': 1}[query] if '1' not in query else 2")
    done = sweep(place, some)
    assert done.returncode == 0, done.stderr
    assert "(mine.py:9)" in done.stdout + done.stderr


DIVIDES = FAULTY.replace("{}[query]", "1 / 0")


def test_debug_shows_the_traceback_once_per_cause(place: Path) -> None:
    done = sweep(place, DIVIDES, "--debug")
    assert "ZeroDivisionError: division by zero (mine.py:9)" in error_of(done)
    assert done.stderr.count("Traceback (most recent call last)") == 2  # its own, and the stop's
    assert 'mine.py", line 9, in worth' in done.stderr


@pytest.mark.parametrize("workers", ["1", "2"])
def test_debug_reaches_worker_processes(place: Path, workers: str) -> None:
    done = sweep(place, DIVIDES, "--debug", "--keep-going", "--workers", workers)
    assert 'mine.py", line 9, in worth' in done.stderr


OUTSIDE = {
    "constructor": "def __init__(self): {}['weights']",
    "settings": "def settings(self): return {}['weights']",
    "notes": "def notes(self): return {}['weights']",
    "preparing": "def prepare(self, queries, memories): {}['weights']",
    "import": "x = {}['weights']",
}


@pytest.mark.parametrize("where", OUTSIDE)
def test_an_exception_outside_of_scoring_is_one_line_with_its_place(
    place: Path, where: str
) -> None:
    code = FAULTY.replace("    def score", f"    {OUTSIDE[where]}\n    def score")
    done = sweep(place, code)
    line = error_of(done)
    assert "KeyError: 'weights' (mine.py:5)" in line
    assert "Traceback" not in done.stderr
    assert not (place / "runs").exists()
    again = sweep(place, code, "--debug")
    assert again.returncode != 0
    assert "Traceback" in again.stderr


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mine:Mien", "`mine` has no class `Mien` (it has: Mine)"),
        ("mine:other", "`other` is not a subclass of retrievers.Retriever"),
    ],
)
def test_a_class_that_does_not_exist_is_not_called_a_wrong_one(
    place: Path, name: str, said: str
) -> None:
    (place / "mine.py").write_text(FAULTY + "\nother = 3\n")
    assert said in error_of(shell(place, "--retriever", name, "--distractors", "2"))


@pytest.mark.parametrize("task", ["task1.run", "task2.run", "task3.tune", "task3.predict"])
def test_other_commands_have_debug(place: Path, task: str) -> None:
    done = shell(place, "--retriever", "absent:Mine", "--debug", task=task)
    assert done.returncode == 2
    assert done.stderr.count("error: ") == 1


def test_items_that_all_fail_alike_stop_a_run_and_leave_no_folder(tmp_path: Path) -> None:
    asked: list[str] = []

    def work(name: str) -> Done:
        asked.append(name)
        return Done(error="no key")

    items = {str(i): (lambda i=i: work(str(i))) for i in range(50)}

    def run(keep_going: bool) -> int:
        with open_run(tmp_path / "runs" / "a", {}, "resume", sound=is_item_row) as folder:
            make_rows(Items(items, in_flight=2), folder, RunOptions(keep_going=keep_going))
            return len(folder.rows)

    stopped = r"items: stopped, since the first 10 all failed in the same way"
    with pytest.raises(UserError, match=stopped):
        run(keep_going=False)
    assert len(asked) < 20
    assert not (tmp_path / "runs").exists()
    assert run(keep_going=True) == 50


def test_what_is_equal() -> None:
    def stops(*errors: str | None) -> bool:
        try:
            FirstFailures("x").see(errors)
        except UserError:
            return True
        return False

    assert stops(*[f"KeyError: '{i}' (mine.py:3)" for i in range(10)])
    assert stops(*["status 500"] * 10)
    assert not stops(*["status 500"] * 9)
    assert not stops(*[f"status {i}" for i in range(10)])
    assert not stops(*[f"KeyError: 'a' (mine.py:{i})" for i in range(10)])
    assert not stops(None, *["status 500"] * 10)


def test_a_folder_that_was_there_before_stays(place: Path) -> None:
    (place / "out").mkdir()
    error_of(sweep(place, FAULTY, "--out", "out"))
    assert (place / "out").is_dir()
