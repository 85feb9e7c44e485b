"""retrievers/registry.py and harness/configurations.py: from typed words to an instance."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recallbed.corpus.records import Memory
from recallbed.errors import UserError
from recallbed.harness.configurations import Configuration, parse_configurations
from retrievers import RETRIEVERS, Retriever, RunContext, build_retriever, overlap, register
from retrievers.bm25 import BM25
from retrievers.registry import describe_retriever
from tests.kit import ROOT, WriteRelease, python, rows_of

OURS = ["adapted", "bm25", "constant", "cross-encoder", "dense", "faiss", "folds", "full-context"]
OURS += ["hybrid", "learned", "listwise", "maxsim", "minilm", "overlap", "pairwise", "pointwise"]
OURS += ["query-likelihood", "random", "rank-bm25", "setwise", "use"]
SHOUT = '''
from retrievers import Retriever

class Shout(Retriever):
    """How many characters."""

    def __init__(self, loud: bool = False, factor: float = 1.0, word="x"):
        self.factor = factor * (2 if loud else 1)
        self.word = word

    def score(self, query, pool):
        return [self.factor * len(memory.text) for memory in pool]

class Quiet(Retriever):
    pass

class Needy(Retriever):
    def __init__(self, path: str):
        self.path = path

    def score(self, query, pool):
        return [0.0] * len(pool)

NOT_A_CLASS = 3
'''
WriteModule = Callable[[str, str], None]


@pytest.fixture
def write_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WriteModule]:
    """Writes a module into the working folder, and forgets it when the test ends."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])

    def write(name: str, text: str) -> None:
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    before = set(sys.modules)
    yield write
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None) or home).startswith(str(home)):
            del sys.modules[name]


def make(name: str, *settings: str, run: RunContext | None = None) -> Retriever:
    [configuration] = parse_configurations([f"x={name}"], settings)
    return build_retriever(configuration, run or RunContext())


def complaint(name: str, *settings: str) -> str:
    """The one line that a user would read."""
    with pytest.raises(UserError) as caught:
        make(name, *settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- names


def test_discovery_needs_no_earlier_import() -> None:
    code = "from retrievers import RETRIEVERS; print(*RETRIEVERS.names())"
    assert python("-c", code, cwd=ROOT).stdout.split() == OURS


@pytest.mark.parametrize("name", OURS)
def test_a_name_finds_its_class(name: str) -> None:
    assert issubclass(RETRIEVERS.find(name), Retriever)


@pytest.mark.parametrize("name", ["bm2", "BM25", "bm25 ", "bm25.py", "retrievers"])
def test_a_name_is_matched_whole(name: str) -> None:
    line = complaint(name)
    assert f"`{name}`" in line
    assert all(ours in line for ours in OURS)
    assert "package.module:Class" in line


def test_a_name_taken_by_another_class_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RETRIEVERS, "_classes", dict(RETRIEVERS._classes))
    with pytest.raises(ValueError, match="two retrievers are called bm25"):

        @register("bm25")
        class Mine(Retriever):
            def score(self, query: object, pool: object) -> list[float]:
                return []


def test_a_class_of_the_same_name_from_elsewhere_is_another_class(
    write_module: WriteModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a user's `BM25` would silently replace ours under the name `bm25`."""
    monkeypatch.setattr(RETRIEVERS, "_classes", dict(RETRIEVERS._classes))
    RETRIEVERS.names()
    write_module(
        "namesake.py",
        'from retrievers import Retriever, register\n\n@register("bm25")\nclass BM25(Retriever):\n'
        "    def score(self, query, pool):\n        return [0.0] * len(pool)\n",
    )
    assert "two retrievers are called bm25" in complaint("namesake:BM25")
    assert RETRIEVERS.find("bm25") is BM25


def test_importing_a_module_again_is_no_clash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RETRIEVERS, "_classes", dict(RETRIEVERS._classes))
    monkeypatch.setattr(overlap, "Overlap", overlap.Overlap)  # puts the first one back
    importlib.reload(overlap)
    assert RETRIEVERS.find("overlap") is overlap.Overlap


# --- the user's own classes


def test_a_class_in_the_working_folder_is_found(write_module: WriteModule) -> None:
    write_module("shout.py", SHOUT)
    mine = make("shout:Shout", "x.loud=true", "x.factor=1.5", "x.word=7")
    assert mine.score("q", [Memory("ab"), Memory("abc")]) == [6.0, 9.0]
    assert mine.settings() == {"loud": True, "factor": 1.5, "word": "7"}


def test_a_class_in_a_package_of_the_working_folder_is_found(write_module: WriteModule) -> None:
    write_module("mine/deep/shout.py", SHOUT)
    assert make("mine.deep.shout:Shout").settings() == {"loud": False, "factor": 1.0, "word": "x"}


def test_the_working_folder_is_searched_last(write_module: WriteModule) -> None:
    # With a name of its own, one of the standard library, and that of a package of ours.
    for name in ("shout", "colorsys"):
        write_module(f"{name}.py", SHOUT)
    write_module("analysis/__init__.py", "raise RuntimeError('shadowed')")
    write_module("analysis/mine.py", SHOUT)
    assert RETRIEVERS.find("shout:Shout").__name__ == "Shout"
    assert "`colorsys` has no class `Shout`" in complaint("colorsys:Shout")
    assert "analysis.mine" in complaint("analysis.mine:Shout")
    assert sys.path[-1] == str(Path.cwd())


def test_looking_twice_adds_the_working_folder_once(write_module: WriteModule) -> None:
    write_module("shout.py", SHOUT)
    RETRIEVERS.find("shout:Shout")
    RETRIEVERS.find("shout:Shout")
    assert sys.path.count(str(Path.cwd())) == 1


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no_such_module:Shout", ["no_such_module", "ModuleNotFoundError"]),
        ("no_such.module:Shout", ["no_such.module", "ModuleNotFoundError"]),
        ("broken_import:Shout", ["broken_import", "a_library_nobody_has"]),
        ("broken_syntax:Shout", ["broken_syntax", "SyntaxError"]),
        ("broken_run:Shout", ["broken_run", "ZeroDivisionError"]),
        ("multi:Shout", ["first line second line"]),
        ("shout:Absent", ["`shout` has no class `Absent` (it has: "]),
        ("shout:NOT_A_CLASS", ["`NOT_A_CLASS`", "not a subclass"]),
        ("shout:", ["names no class", "package.module:Class"]),
        (":Shout", ["cannot be imported"]),
        (".shout:Shout", ["cannot be imported"]),
        ("shout:Quiet", ["`Quiet` does not define score"]),
        ("shout:Retriever", ["does not define score"]),
    ],
)
def test_what_is_wrong_with_a_users_class_is_one_line(
    write_module: WriteModule, name: str, words: list[str]
) -> None:
    write_module("shout.py", SHOUT)
    write_module("broken_import.py", "import a_library_nobody_has\n" + SHOUT)
    write_module("broken_syntax.py", "def (:\n")
    write_module("broken_run.py", "1 / 0\n" + SHOUT)
    write_module("multi.py", "raise ImportError('first line\\nsecond line')\n")
    line = complaint(name)
    assert line.startswith(f"{name}: ")
    assert all(word in line for word in words)


def test_a_setting_that_the_class_needs_is_asked_for(write_module: WriteModule) -> None:
    write_module("shout.py", SHOUT)
    assert "path" in complaint("shout:Needy")
    assert make("shout:Needy", "x.path=here").settings() == {"path": "here"}


def test_a_class_that_cannot_be_made_is_a_users_mistake(write_module: WriteModule) -> None:
    write_module(
        "stubborn.py",
        SHOUT + "\nclass Stubborn(Shout):\n    def __init__(self, n: int = 1):\n"
        "        raise ValueError(f'{n} is no good')\n",
    )
    assert complaint("stubborn:Stubborn", "x.n=4") == "x: 4 is no good"


def test_the_code_of_a_users_class_is_part_of_its_description(write_module: WriteModule) -> None:
    def described(text: str) -> object:
        sys.modules.pop("shout", None)
        sys.path_importer_cache.clear()
        write_module("shout.py", text)
        configuration = Configuration("x", "shout:Shout", {})
        found = describe_retriever(configuration, build_retriever(configuration, RunContext()))
        assert (found["name"], found["settings"]["factor"]) == ("shout:Shout", 1.0)
        return found["code"]

    first = described(SHOUT)
    assert described(SHOUT) == first
    assert described(SHOUT + "\n# of other length\n") != first


def test_our_own_code_is_described_by_the_run() -> None:
    configuration = Configuration("x", "overlap", {})
    assert describe_retriever(configuration, make("overlap")) == {"name": "overlap", "settings": {}}


# --- settings


@pytest.mark.parametrize(
    ("name", "setting", "words"),
    [
        ("bm25", "x.kl=1", ["--set x.kl=1", "`bm25` has no setting `kl`", "k1, b, delta"]),
        ("bm25", "x.self=1", ["no setting `self`"]),
        ("bm25", "x.=1", ["LABEL.key=value"]),
        ("constant", "x.k1=1", ["`constant` has no setting `k1`", "none"]),
        ("bm25", "x.k1=one", ["--set x.k1=one", "number"]),
        ("bm25", "x.k1=", ["--set x.k1=", "number"]),
        ("bm25", "x.k1=inf", ["k1"]),
        ("bm25", "x.epsilon=nan", ["epsilon"]),
        ("bm25", "x.stem=perhaps", ["--set x.stem=perhaps", "boolean"]),
        ("bm25", "x.variant=best", ["x.variant=best", "'lucene'", "'okapi'", "'plus'", "'l'"]),
        ("bm25", "x.tokens=bpe", ["--set x.tokens=bpe", "'multilingual'", "'paper'"]),
        ("bm25", "x.scope=all", ["'pool'", "'bank'"]),
        ("bm25", "x.b=2", ["x: ", "b from 0 to 1"]),
        ("random", "x.seed=1.5", ["--set x.seed=1.5", "integer"]),
        ("rank-bm25", "x.variant=lucene", ["'okapi'"]),
        ("shout:Shout", "x.loud=7", ["--set x.loud=7", "boolean"]),
        ("shout:Shout", "x.volume=7", ["`shout:Shout` has no setting `volume`", "loud, factor"]),
    ],
)
def test_a_wrong_setting_is_named_in_one_line(
    write_module: WriteModule, name: str, setting: str, words: list[str]
) -> None:
    write_module("shout.py", SHOUT)
    line = complaint(name, setting)
    assert all(word in line for word in words), line


def test_settings_are_typed_by_the_constructor() -> None:
    found = make("bm25", "x.k1=2", "x.stem=false", "x.variant=l", "x.delta=none").settings()
    assert (found["k1"], found["stem"], found["variant"], found["delta"]) == (2.0, False, "l", 0.5)
    assert isinstance(found["k1"], float)


def test_defaults_are_recorded_with_what_was_set() -> None:
    assert set(make("bm25", "x.k1=2").settings()) >= {"variant", "k1", "b", "tokens", "scope"}
    assert make("bm25").settings() == make("bm25", "x.k1=1.5").settings()


def test_two_instances_do_not_share_settings() -> None:
    one, other = make("bm25", "x.k1=2"), make("bm25", "x.k1=3")
    assert (one.settings()["k1"], other.settings()["k1"]) == (2, 3)


# --- labels


def test_a_label_is_the_name_unless_one_is_given() -> None:
    found = parse_configurations(
        ["bm25", "rank-bm25", "mine.deep.shout:Shout", "best_1=bm25"], ["best_1.k1=2", "bm25.b=0.5"]
    )
    assert [c.label for c in found] == ["bm25", "rank-bm25", "Shout", "best_1"]
    assert [c.name for c in found] == ["bm25", "rank-bm25", "mine.deep.shout:Shout", "bm25"]
    assert [dict(c.settings) for c in found] == [{"b": "0.5"}, {}, {}, {"k1": "2"}]


def test_a_value_may_hold_equals_signs_and_dots() -> None:
    [found] = parse_configurations(["dense"], ["dense.query_prefix=a=b.c: "])
    assert found.settings == {"query_prefix": "a=b.c: "}


@pytest.mark.parametrize(
    ("retrievers", "settings", "words"),
    [
        ([], [], ["no retriever", "--retriever bm25"]),
        (["bm25", "bm25"], [], ["`bm25` is used twice", "LABEL=NAME"]),
        (["a=bm25", "a=random"], [], ["`a` is used twice"]),
        (["a b=bm25"], [], ["a label is"]),
        (["=bm25"], [], ["a label is"]),
        (["a="], [], ["a label is"]),
        ([""], [], ["a label is"]),
        (["../x=bm25"], [], ["a label is"]),
        (["a=bm25"], ["bm25.k1=1"], ["no retriever has the label `bm25`", "labels: a"]),
        (["a=bm25"], ["k1=1"], ["--set k1=1", "LABEL.key=value"]),
        (["a=bm25"], ["a.k1"], ["--set a.k1", "LABEL.key=value"]),
        (["a=bm25"], ["a.k1=1", "a.k1=2"], ["`a.k1` is set twice"]),
    ],
)
def test_a_wrong_word_is_named_in_one_line(
    retrievers: list[str], settings: list[str], words: list[str]
) -> None:
    with pytest.raises(UserError) as caught:
        parse_configurations(retrievers, settings)
    assert "\n" not in str(caught.value)
    assert all(word in str(caught.value) for word in words), caught.value


# --- as a command finds it


def test_a_sweep_with_workers_finds_the_users_class_and_is_shadowed_by_nothing(
    tmp_path: Path, write_release: WriteRelease
) -> None:
    """As the console script starts: without the working folder at the head of the path."""
    release = write_release([(f"q{i}", [f"a{i}", f"longest of all {i}"], 1) for i in range(40)])
    home = tmp_path / "home"
    for name in ("analysis/__init__.py", "task3/__init__.py", "statistics.py", "typer.py"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("raise RuntimeError('shadowed')\n", encoding="utf-8")
    (home / "shout.py").write_text(SHOUT, encoding="utf-8")
    words = ["--retriever", "mine=shout:Shout", "--data", release, "--distractors", 1]
    script = ("-P", "-c", "from task3.sweep import app; app()")
    words += ["--workers", 2, "--out", "run"]
    done = python(*script, *words, cwd=home, PYTHONPATH=str(ROOT))
    assert "shadowed" not in done.stderr
    rows = rows_of(home / "run")
    assert [(row["retriever"], row["error"]) for row in rows] == [("mine", None)] * 40
