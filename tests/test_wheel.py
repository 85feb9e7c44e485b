"""What a user installs: the wheel, alone, in a fresh environment, away from the checkout."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.kit import ROOT


def run(*command: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHONPATH", "COV_"))}
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment that holds the wheel and its base dependencies."""
    place = tmp_path_factory.mktemp("wheel")
    source = place / "source"
    run("git", "clone", "--quiet", ROOT, source, cwd=place)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    run(*pip, "wheel", "--no-deps", "-w", place, source, cwd=place)
    venv.create(place / "env", with_pip=True)
    [wheel] = place.glob("recallbed-*.whl")
    python = place / "env" / "bin" / "python"
    constraints = ROOT / "constraints.txt"
    run(python, *pip[1:], "install", "-c", constraints, wheel, cwd=place)
    return place / "env" / "bin"


def test_holds_no_tests_and_no_torch(installed: Path) -> None:
    listed = run(installed / "python", "-m", "pip", "list", "--format=json", cwd=installed).stdout
    names = {entry["name"].lower() for entry in json.loads(listed)}
    assert "recallbed" in names
    assert not names & {"torch", "sentence-transformers", "faiss-cpu", "pytest"}
    code = "import importlib.util as u; print([u.find_spec(n) for n in ('tests', 'benchmarks')])"
    assert run(installed / "python", "-c", code, cwd=installed).stdout == "[None, None]\n"


@pytest.mark.parametrize("form", ["module", "script"])
def test_sweep_from_an_empty_folder(installed: Path, tmp_path: Path, form: str) -> None:
    words = [installed / "python", "-m", "task3.sweep"]
    words = words if form == "module" else [installed / "recallbed-sweep"]
    sweep(words, tmp_path)


@pytest.mark.parametrize("form", ["module", "script"])
def test_sweep_beside_folders_of_the_same_names(installed: Path, tmp_path: Path, form: str) -> None:
    for name in ("analysis", "corpus", "harness", "retrievers"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('the wrong folder')\n")
    words = [installed / "python", "-m", "task3.sweep"]
    words = words if form == "module" else [installed / "recallbed-sweep"]
    sweep(words, tmp_path)


def test_a_users_class_in_the_working_folder(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from retrievers import Retriever\n"
        "class Length(Retriever):\n"
        "    def score(self, query, pool):\n"
        "        return [len(memory.text) for memory in pool]\n"
    )
    sweep([installed / "recallbed-sweep"], tmp_path, "mine:Length", "Length")


def test_every_module_and_prompt_is_in_it(installed: Path) -> None:
    listed = run("git", "ls-files", "*.py", "*/prompts/*.md", cwd=ROOT).stdout.splitlines()
    files = [name for name in listed if not name.startswith(("benchmarks/", "tests/"))]
    assert len(files) > 150
    code = "import recallbed, pathlib; print(pathlib.Path(recallbed.__file__).parents[1])"
    place = Path(run(installed / "python", "-c", code, cwd=installed).stdout.strip())
    assert [name for name in files if not (place / name).is_file()] == []


def test_a_memory_system_runs_without_a_model(installed: Path, tmp_path: Path) -> None:
    words = ["--system", "turns", "--retriever", "bm25", "--out", "run", "--json"]
    done = run(installed / "recallbed-task1-run", *words, cwd=tmp_path)
    assert json.loads(done.stdout)
    scored = run(
        *(installed / "recallbed-task1-score", "run/predictions.jsonl", "--scorer", "exact"),
        "--json",
        cwd=tmp_path,
    )
    assert json.loads(scored.stdout)


def sweep(words: list[Path | str], cwd: Path, name: str = "bm25", label: str = "bm25") -> None:
    out = cwd / "run"
    words = [*words, "--retriever", name, "--limit", "12", "--distractors", "20,100"]
    done = run(*words, "--json", "--out", out, cwd=cwd)
    cells = json.loads(done.stdout)["cells"]
    assert [(c["retriever"], c["distractors"], c["scored"]) for c in cells] == [
        (label, 20, 12),
        (label, 100, 12),
    ]
    assert (out / "curve.png").stat().st_size > 10_000
    assert (out / "curve.csv").exists()
