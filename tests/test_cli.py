"""The commands as a user types them: one line for a mistake, figures on stdout, nothing heavy."""

import csv
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import Result

from analysis.curves import app as curves_app
from recallbed.harness.app import one_line_errors
from task3.sweep import app as sweep_app
from tests import kit
from tests.kit import WriteRelease, one_line_error, swept

MINE = """
from retrievers import Retriever

class Fine(Retriever):
    def score(self, query, pool):
        return [0] * len(pool)

class Choosy(Fine):
    def __init__(self, model: str):
        self.model = model

class Picky(Fine):
    def __init__(self, depth: int = 5):
        if depth > 5:
            raise ValueError("depth is at most 5")

class Unfinished(Retriever):
    pass

class NotOne:
    pass
"""


@pytest.fixture
def place(write_release: WriteRelease, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a release of six queries and retrievers of one's own."""
    write_release(
        [(f"topic {i}", [f"topic {i} note {j} of {i}" for j in range(5)], i % 5) for i in range(6)]
    )
    (tmp_path / "my_own.py").write_text(MINE)
    (tmp_path / "broken_one.py").write_text("import no_such_library\n")
    (tmp_path / "file").write_text("mine")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def sweep(*words: str, code: int | None = None) -> Result:
    return kit.run(sweep_app, "--data", "release", "--distractors", "4,8", *words, code=code)


MISTAKES = {
    "no retriever": ([], ["--retriever bm25"]),
    "an unknown retriever": (["--retriever", "bm26"], ["bm26", "bm25, "]),
    "an empty retriever": (["--retriever", ""], ["LABEL=NAME"]),
    "an empty label": (["--retriever", "=bm25"], ["LABEL=NAME"]),
    "an empty name": (["--retriever", "a="], ["LABEL=NAME"]),
    "a label with spaces": (["--retriever", "a b=bm25"], ["a b=bm25"]),
    "a label twice": (["--retriever", "bm25", "--retriever", "bm25"], ["used twice", "LABEL=NAME"]),
    "a module that is not there": (["--retriever", "nowhere_x:Y"], ["nowhere_x", "imported"]),
    "a module that fails": (["--retriever", "broken_one:Y"], ["no_such_library"]),
    "a class that is not there": (["--retriever", "my_own:Gone"], ["Gone", "has no class"]),
    "a class of another kind": (["--retriever", "my_own:NotOne"], ["NotOne", "subclass"]),
    "an unfinished class": (["--retriever", "my_own:Unfinished"], ["does not define score"]),
    "a setting without a dot": (["--retriever", "bm25", "--set", "k1=1"], ["LABEL.key=value"]),
    "a setting without a value": (["--retriever", "bm25", "--set", "bm25.k1"], ["LABEL.key=value"]),
    "a setting of no label": (["--retriever", "a=bm25", "--set", "bm25.k1=1"], ["bm25", "a"]),
    "an unknown setting": (["--retriever", "bm25", "--set", "bm25.kk=1"], ["kk", "k1"]),
    "a setting of the wrong kind": (["--retriever", "bm25", "--set", "bm25.k1=big"], ["k1=big"]),
    "a setting out of range": (["--retriever", "bm25", "--set", "bm25.b=2"], ["bm25", "b"]),
    "a setting the class refuses": (
        ["--retriever", "my_own:Picky", "--set", "Picky.depth=9"],
        ["depth is at most 5"],
    ),
    "a setting twice": (
        ["--retriever", "bm25", "--set", "bm25.k1=1", "--set", "bm25.k1=2"],
        ["set twice"],
    ),
    "a setting that must be given": (["--retriever", "my_own:Choosy"], ["Choosy", "model"]),
    "unknown pools": (["--retriever", "bm25", "--pools", "big"], ["big", "nested, released"]),
    "sizes that are words": (["--retriever", "bm25", "--distractors", "4,few"], ["`few`"]),
    "a size of zero": (["--retriever", "bm25", "--distractors", "0"], ["--distractors"]),
    "no sizes": (["--retriever", "bm25", "--distractors", ""], ["--distractors"]),
    "a size past the bank": (
        ["--retriever", "bm25", "--distractors", "999"],
        ["model_input", "29"],
    ),
    "a size not released": (
        ["--retriever", "bm25", "--pools", "released"],
        ["8 distractors", "there are: 4"],
    ),
    "a k of zero": (["--retriever", "bm25", "--k", "0"], ["--k 0"]),
    "a k that is a word": (["--retriever", "bm25", "--k", "1,ten"], ["`ten`"]),
    "a negative pool seed": (["--retriever", "bm25", "--pool-seeds", "-1"], ["--pool-seeds"]),
    "no such data": (["--retriever", "bm25", "--data", "gone"], ["gone", "no such folder"]),
    "data that is a file": (["--retriever", "bm25", "--data", "file"], ["file"]),
    "no such split": (["--retriever", "bm25", "--split", "test"], ["test", "dev"]),
    "resume and overwrite": (["--retriever", "bm25", "--resume", "--overwrite"], ["--overwrite"]),
    "retry and overwrite": (
        ["--retriever", "bm25", "--retry-failed", "--overwrite"],
        ["--retry-failed"],
    ),
    "an out that is a file": (["--retriever", "bm25", "--out", "file"], ["file", "--out"]),
    "an out below a file": (["--retriever", "bm25", "--out", "file/run"], ["file/run", "--out"]),
    "an out of other files": (["--retriever", "bm25", "--out", "release"], ["release", "--out"]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_exit_2(place: Path, mistake: str) -> None:
    words, said = MISTAKES[mistake]
    one_line_error(sweep(*words), *said)
    assert not list(place.glob("**/rows.jsonl")), "a refusal must leave no rows"
    assert (place / "file").read_text() == "mine"


MISREAD = {
    "an unknown option": ["--retriever", "bm25", "--nope"],
    "a limit of zero": ["--retriever", "bm25", "--limit", "0"],
    "a seed that is a word": ["--retriever", "bm25", "--seed", "x"],
    "a negative seed": ["--retriever", "bm25", "--seed", "-1"],
    "no workers": ["--retriever", "bm25", "--workers", "0"],
}


@pytest.mark.parametrize("mistake", MISREAD)
def test_what_cannot_be_parsed_is_exit_2_without_a_traceback(place: Path, mistake: str) -> None:
    result = sweep(*MISREAD[mistake])
    assert isinstance(result.exception, SystemExit), repr(result.exception)
    assert result.exit_code == 2
    assert "Traceback" not in result.stderr
    assert MISREAD[mistake][2] in result.stderr
    assert not list(place.glob("**/rows.jsonl")), "a refusal must leave no rows"


def test_json_prints_exactly_the_summary_file(place: Path) -> None:
    result = sweep(
        "--retriever", "bm25", "--retriever", "constant", "--out", "run", "--json", code=0
    )
    assert result.stdout == (place / "run" / "summary.json").read_text("utf-8")
    assert len(json.loads(result.stdout)["cells"]) == 4


def test_the_table_is_on_stdout_and_notes_on_stderr(place: Path) -> None:
    result = sweep("--retriever", "bm25", "--out", "run", code=0)
    assert "R@1 [95 %]" in result.stdout
    assert "R@1 [95 %]" not in result.stderr
    assert "run/ holds rows" in result.stderr


def test_a_sweep_leaves_the_promised_files(place: Path) -> None:
    sweep("--retriever", "bm25", "--out", "run")
    found = {p.name for p in (place / "run").iterdir() if p.name[0] != "."}
    assert found == {*kit.PROMISED, "timings.jsonl", "curve.png"}
    assert (place / "run" / "curve.png").read_bytes().startswith(b"\x89PNG")
    metrics = [row["metric"] for row in csv.DictReader((place / "run" / "curve.csv").open())]
    assert metrics == ["R@1", "R@5", "R@10", "nDCG@1", "nDCG@5", "nDCG@10", "E[RR]"] * 2


def test_without_out_the_same_sweep_finds_its_run_again(place: Path) -> None:
    for _ in range(2):
        assert sweep("--retriever", "overlap").exit_code == 0
    [run] = (place / "runs").iterdir()
    assert run.name.startswith("overlap-")
    assert len((run / "rows.jsonl").read_text().splitlines()) == 12
    assert sweep("--retriever", "overlap", "--seed", "1").exit_code == 0
    assert len(list((place / "runs").iterdir())) == 2


def test_other_ks_of_a_finished_run_need_no_new_run(place: Path) -> None:
    sweep("--retriever", "overlap", "--out", "run")
    result = sweep(
        "--retriever", "overlap", "--out", "run", "--resume", "--k", "3,2", "--json", code=0
    )
    assert json.loads(result.stdout)["ks"] == [2, 3]


CURVE_MISTAKES = {
    "a run that is not there": (["gone"], ["gone", "not a run folder"]),
    "a folder that is no run": (["release"], ["release", "not a run folder"]),
    "a file for a run": (["file"], ["file"]),
    "an unknown kind of picture": (["run", "--out", "curve.gif"], ["curve.gif", ".png"]),
    "a picture without an ending": (["run", "--out", "curve"], ["curve", ".png"]),
    "a picture below a file": (["run", "--out", "file/curve.png"], ["file"]),
    "an unknown published name": (["run", "--published", "GPT-9"], ["GPT-9", "baselines"]),
    "published lines at another k": (
        ["run", "--published", "all", "--k", "5"],
        ["--published", "--k 1"],
    ),
    "a run without rows": (["empty"], ["empty", "no rows yet"]),
}


@pytest.mark.parametrize("mistake", CURVE_MISTAKES)
def test_a_mistake_of_curves_is_one_line_and_exit_2(place: Path, mistake: str) -> None:
    swept(["constant"], place / "release", distractors=(4,), out=place / "run")
    (place / "empty").mkdir()
    (place / "empty" / "manifest.json").write_bytes((place / "run/manifest.json").read_bytes())
    (place / "empty" / "rows.jsonl").touch()
    words, said = CURVE_MISTAKES[mistake]
    one_line_error(kit.run(curves_app, *words), *said)
    assert not list(place.glob("*.png"))


HEAVY = {
    *("faiss", "matplotlib", "nltk", "numpy", "openai", "pandas", "pydantic", "pymilvus"),
    *("rank_bm25", "rich.progress", "scipy", "sentence_transformers", "torch", "transformers"),
}
PRINT_MODULES = "import sys; {}; print('\\n'.join(sys.modules))"


def modules_after(code: str) -> set[str]:
    return set(kit.python("-c", PRINT_MODULES.format(code)).stdout.split())


def test_help_imports_nothing_heavy() -> None:
    ask = "from task3.sweep import app; app(['--help'], standalone_mode=False)"
    found = modules_after(ask)
    assert "--retriever" in found  # the help itself
    assert not found & HEAVY


def test_a_bm25_sweep_imports_no_torch(place: Path) -> None:
    words = "['--retriever', 'bm25', '--data', 'release', '--distractors', '4', '--out', 'run']"
    found = modules_after(f"from task3.sweep import app; app({words}, standalone_mode=False)")
    assert "task3.sweep_run" in found
    tops = {name.partition(".")[0] for name in found}
    assert not tops & {"nltk", "torch", "sentence_transformers", "transformers", "faiss", "openai"}
    assert (place / "run" / "rows.jsonl").exists()


TALKS = """
from recallbed.harness.app import one_line_errors
with one_line_errors(OSError):
    for number in range(100_000):
        print(number)
"""


def test_a_reader_who_has_seen_enough_is_no_error() -> None:
    """As with `| head -1`."""
    talking = subprocess.Popen(
        [sys.executable, "-c", TALKS], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert talking.stdout is not None
    assert talking.stderr is not None
    assert talking.stdout.readline() == b"0\n"
    talking.stdout.close()
    assert talking.stderr.read() == b""
    assert talking.wait() == 141
    talking.stderr.close()


def test_too_little_memory_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop, one_line_errors(on_stop="rows are kept"):
        raise MemoryError("Unable to allocate 2.98 GiB")
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "not enough memory (Unable to allocate 2.98 GiB): rows are kept" in said


@pytest.mark.parametrize(
    "module", ["breakdown", "curves", "frontier", "leaderboard", "report", "table", "waterfall"]
)
def test_an_argument_that_takes_several_values_has_one_ellipsis(module: str) -> None:
    app = importlib.import_module(f"analysis.{module}").app
    usage = kit.run(app, "--help", code=0).stdout.partition("\n\n")[0]
    assert usage.endswith(" RUN...")
    assert "......" not in usage
