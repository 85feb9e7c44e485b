"""recallbed/harness/users_code.py: what a user's class depends on is part of the fingerprint."""

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from recallbed.harness.users_code import late_modules
from tests.kit import Forked, Process, WriteRelease, one_line_error, read_json

ROWS = [
    (f"what of {word}", [f"likes {word}", f"has {word} at home", f"sleeps until ten {i}"], 0)
    for i, word in enumerate(("tea", "cats", "boats"))
]
MINE = """
from retrievers import Retriever
from helper import worth

class Mine(Retriever):
    def score(self, query, pool):
        return [worth(memory.text) for memory in pool]
"""
HELPER = "def worth(text):\n    return -len(text)\n"


@pytest.fixture
def place(tmp_path: Path, write_release: WriteRelease) -> Path:
    write_release(ROWS)
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "helper.py").write_text(HELPER)
    return tmp_path


def sweep(place: Path, *words: str) -> Process:
    words = ("--retriever", "mine:Mine", "--data", "release", "--distractors", "2", *words)
    return Forked("task3.sweep", *words, "--k", "1", "--json", cwd=place).done(None)


def recall(done: Process) -> float:
    assert done.returncode == 0, done.stderr
    return float(json.loads(done.stdout)["cells"][0]["recall"]["1"]["mean"])


def described(place: Path) -> Any:
    """What the fingerprint of the only run says of the retriever."""
    [file] = place.glob("runs/*/manifest.json")
    [found] = read_json(file)["fingerprint"]["retrievers"]
    return found


LONGEST = HELPER.replace("-len", "len")
PARTS = {"parts/__init__.py": "", "parts/inner.py": HELPER}
# Where the code that a class runs may lie: its files, and what the last of them is edited to.
WAYS = {
    "a module that it imports": ({"helper.py": HELPER}, LONGEST),
    "a module that its module imports": (
        {
            "helper.py": "from deep import SIGN\ndef worth(text): return SIGN * len(text)\n",
            "deep.py": "SIGN = -1\n",
        },
        "SIGN = 1\n",
    ),
    "a module in a package": ({"helper.py": "from parts.inner import worth\n", **PARTS}, LONGEST),
    "a relative import": (
        {
            "helper.py": "from parts import worth\n",
            **{**PARTS, "parts/__init__.py": "from .inner import worth\n"},
        },
        LONGEST,
    ),
    "an import inside a function": (
        {
            "helper.py": "def worth(t):\n    from deep import SIGN\n    return SIGN * len(t)\n",
            "deep.py": "SIGN = -1\n",
        },
        "SIGN = 1\n",
    ),
    "an import by name": (
        {
            "helper.py": "import importlib\nworth = importlib.import_module('de' 'ep').worth\n",
            "deep.py": HELPER,
        },
        LONGEST,
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_an_edit_of_what_a_class_imports_is_seen(place: Path, way: str) -> None:
    """Without --out the folder is named by the fingerprint: the old one would be taken up."""
    files, edited = WAYS[way]
    for name, text in files.items():
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text(text)
    assert recall(sweep(place)) == 1.0
    (place / name).write_text(edited)
    second = sweep(place)
    assert recall(second) == 0.0
    assert "reused" not in second.stderr
    assert len(list(place.glob("runs/*"))) == 2


def test_another_edit_resumes_nothing_and_names_the_module(place: Path) -> None:
    recall(sweep(place, "--out", "run"))
    (place / "helper.py").write_text(HELPER + "# edited\n")
    done = sweep(place, "--out", "run", "--resume")
    one_line_error(done, "retrievers[0].code.helper (that run: ")


def test_what_it_does_not_import_changes_nothing_and_rows_are_reused(place: Path) -> None:
    recall(sweep(place))
    (place / "other.py").write_text("raise SystemExit\n")
    again = sweep(place)
    assert recall(again) == 1.0
    assert "reused 3 rows, scored 0" in again.stderr


def test_installed_packages_are_described_by_version(place: Path) -> None:
    import numpy

    (place / "helper.py").write_text("import json\nimport numpy\n" + HELPER)
    recall(sweep(place))
    found = described(place)
    assert sorted(found["code"]) == ["helper", "mine"]
    assert found["packages"] == {"numpy": numpy.__version__}


WEIGHED = """
from pathlib import Path
from retrievers import Retriever

class Mine(Retriever):
    {named}
    def __init__(self):
        self.sign = int(Path("weights/sign.txt").read_text())
    def score(self, query, pool):
        return [self.sign * len(memory.text) for memory in pool]
"""


@pytest.mark.parametrize(
    "named",
    [
        'depends_on = ["weights/sign.txt"]',
        'depends_on = "weights"',
        "def depends_on(self): return [Path('weights')]",
    ],
)
def test_a_file_that_a_class_names_is_part_of_the_fingerprint(place: Path, named: str) -> None:
    (place / "weights").mkdir()
    (place / "weights" / "sign.txt").write_text("-1")
    (place / "mine.py").write_text(WEIGHED.format(named=named))
    assert recall(sweep(place)) == 1.0
    assert list(described(place)["files"]) == [str(Path("weights/sign.txt"))]
    (place / "weights" / "sign.txt").write_text("1")
    assert recall(sweep(place)) == 0.0


def test_a_missing_file_is_one_line(place: Path) -> None:
    (place / "mine.py").write_text(MINE + "    depends_on = ['absent.bin']\n")
    one_line_error(sweep(place), "error: Mine.depends_on: absent.bin cannot be read (No such file")
    assert not (place / "runs").exists()


LATE = MINE.replace("from helper import worth", "import importlib").replace(
    "        return", "        worth = importlib.import_module('hel' + 'per').worth\n        return"
)


def test_a_module_loaded_while_scoring_is_recorded_and_refused_when_it_changed(place: Path) -> None:
    (place / "mine.py").write_text(LATE)
    recall(sweep(place, "--out", "run"))
    assert list(read_json(place / "run" / "manifest.json")["late_code"]) == ["helper"]
    again = sweep(place, "--out", "run", "--resume")
    assert "reused 3 rows, scored 0" in again.stderr
    (place / "helper.py").write_text(LONGEST)
    done = sweep(place, "--out", "run", "--resume")
    one_line_error(done, "`helper`", "has changed", after_notes=True)


def test_a_module_that_changes_during_the_run_is_reported(place: Path) -> None:
    edit = "open('helper.py', 'a').write('# edited')\n"
    (place / "mine.py").write_text(MINE.replace("        return", f"        {edit}        return"))
    done = sweep(place)
    assert recall(done) == 1.0
    assert "helper changed during the run" in done.stderr


def test_a_module_that_names_no_real_file_is_nobodys_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As `torch.ops` does, which any sweep that encodes something loads."""
    module = types.ModuleType("made_up")
    module.__file__ = "_ops.py"
    monkeypatch.setitem(sys.modules, "made_up", module)
    monkeypatch.chdir(tmp_path)
    assert "made_up" not in late_modules((), {})
