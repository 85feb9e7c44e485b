"""What a user installs: the wheel, alone, in a fresh environment, away from the checkout."""

import json
import os
import re
import subprocess
import sys
import venv
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from recallbed.packages import own_packages
from tests.kit import ROOT

pytestmark = pytest.mark.large


def run(*command: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHONPATH", "COV_"))}
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def base_distributions() -> list[Distribution]:
    """The distributions that the wheel asks for without an extra, and all that those ask for."""
    found: dict[str, Distribution] = {}
    wanted = [("recallbed", "")]
    while wanted:
        name, extras = wanted.pop()
        part = distribution(name)
        for line in part.requires or []:
            need = Requirement(line)
            given = [{"extra": extra} for extra in extras.split(",")]
            if need.marker and not any(map(need.marker.evaluate, given)):
                continue
            if canonicalize_name(need.name) not in found:
                found[canonicalize_name(need.name)] = distribution(need.name)
                wanted.append((need.name, ",".join(need.extras)))
    return list(found.values())


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment that holds the wheel and its base dependencies.

    The dependencies are linked from the environment that runs the tests: nothing is downloaded.
    """
    place = tmp_path_factory.mktemp("wheel")
    source = place / "source"
    run("git", "clone", "--quiet", ROOT, source, cwd=place)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", place, source, cwd=place)
    venv.create(place / "env", with_pip=False)
    [wheel] = place.glob("recallbed-*.whl")
    python = place / "env" / "bin" / "python"
    run(*pip, "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=place)
    [packages] = (place / "env").glob("lib/python*/site-packages")
    for part in base_distributions():
        for name in {file.parts[0] for file in part.files or [] if file.parts[0] != ".."}:
            if name != "__pycache__" and not (packages / name).exists():
                (packages / name).symlink_to(part.locate_file(name))
    return place / "env" / "bin"


def test_holds_no_tests_and_no_torch(installed: Path) -> None:
    code = (
        "import importlib.metadata as m; print(*{d.name.lower() for d in m.distributions()})\n"
        "import importlib.util as u; print([u.find_spec(n) for n in ('tests', 'benchmarks')])"
    )
    names, specs = run(installed / "python", "-c", code, cwd=installed).stdout.splitlines()
    assert {"recallbed", "numpy"} < set(names.split())
    assert not set(names.split()) & {"torch", "sentence-transformers", "faiss-cpu", "pytest"}
    assert specs == "[None, None]"


@pytest.mark.parametrize("form", ["module", "script"])
def test_sweep_from_an_empty_folder(installed: Path, tmp_path: Path, form: str) -> None:
    words = [installed / "python", "-m", "task3.sweep"]
    words = words if form == "module" else [installed / "recallbed", "sweep"]
    sweep(words, tmp_path)


def own_modules() -> list[str]:
    """The modules that `python -m` runs."""
    files = [file for name in own_packages() for file in (ROOT / name).rglob("*.py")]
    start = re.compile(r'^if __name__ == "__main__":\n    (main|app)\(\)', re.MULTILINE)
    commands = [file.relative_to(ROOT) for file in files if start.search(file.read_text("utf-8"))]
    return sorted(".".join(file.with_suffix("").parts) for file in commands)


def shadowed(folder: Path, *, but: str = "") -> Path:
    """Fill `folder` with a user's packages of our names, which cannot be imported, and a class."""
    for name in {*own_packages(), "corpus", "harness", "chat_models", "memory", "judge"}:
        if name not in ("recallbed", but):
            (folder / name).mkdir()
            (folder / name / "__init__.py").write_text("raise RuntimeError('not ours')\n")
    (folder / "mine.py").write_text(
        "from retrievers import Retriever\n"
        "class Length(Retriever):\n"
        "    def score(self, query, pool):\n"
        "        return [len(memory.text) for memory in pool]\n"
    )
    return folder


@pytest.mark.parametrize("module", own_modules())
def test_a_command_next_to_folders_of_our_names(
    installed: Path, tmp_path: Path, module: str
) -> None:
    shadowed(tmp_path, but=module.partition(".")[0])
    assert "Usage:" in run(installed / "python", "-m", module, "--help", cwd=tmp_path).stdout


RUNS = {
    "task1.run": ("--system", "extractive"),
    "task2.run": ("--system", "replace"),
    "task3.sweep": ("--distractors", "20", "--workers", "2"),
    "task4.run": ("--system", "extractive"),
}


@pytest.mark.parametrize("module", RUNS)
def test_a_run_next_to_folders_of_our_names_finds_the_users_class(
    installed: Path, tmp_path: Path, module: str
) -> None:
    shadowed(tmp_path, but=module.partition(".")[0])
    words = [*RUNS[module], "--retriever", "mine:Length", "--limit", "20", "--out", "out"]
    run(installed / "python", "-m", module, *words, cwd=tmp_path)
    assert (tmp_path / "out" / "summary.json").exists()


def test_a_sweep_of_an_editable_install_next_to_folders_of_our_names(tmp_path: Path) -> None:
    """Python asks the finder of an editable install last, after the working folder."""
    shadowed(tmp_path, but="task3")
    here = run(sys.executable, "-c", "import recallbed as r; print(r.__file__)", cwd=tmp_path)
    assert here.stdout == f"{ROOT / 'recallbed' / '__init__.py'}\n"
    words = [*RUNS["task3.sweep"], "--retriever", "mine:Length", "--limit", "20", "--out", "out"]
    run(sys.executable, "-m", "task3.sweep", *words, cwd=tmp_path)


def test_a_package_that_is_shadowed_itself(installed: Path, tmp_path: Path) -> None:
    """Python takes the user's `analysis` before any code of ours runs: -P or a script helps."""
    shadowed(tmp_path)
    run(installed / "python", "-P", "-m", "analysis.curves", "--help", cwd=tmp_path)
    sweep([installed / "recallbed", "sweep"], tmp_path, "mine:Length", "Length")


def test_the_code_hash_of_a_wheel_is_that_of_its_checkout(installed: Path, tmp_path: Path) -> None:
    """Both find our packages by themselves: a checkout in pyproject.toml, a wheel in RECORD."""
    code = (
        "from recallbed.harness.fingerprint import code_identity\n"
        "from recallbed.packages import own_packages\n"
        "print(sorted(own_packages()), code_identity()['sha256'])"
    )
    wheel = run(installed / "python", "-c", code, cwd=tmp_path).stdout
    source = run(sys.executable, "-c", code, cwd=installed.parents[1] / "source").stdout
    assert wheel == source
    assert "'analysis'" in wheel


def test_every_module_and_prompt_is_in_it(installed: Path) -> None:
    listed = run(
        "git", "ls-files", "*.py", "*/prompts/*.md", "*/py.typed", cwd=ROOT
    ).stdout.splitlines()
    files = [name for name in listed if not name.startswith(("benchmarks/", "tests/"))]
    assert len(files) > 150
    code = "import recallbed, pathlib; print(pathlib.Path(recallbed.__file__).parents[1])"
    place = Path(run(installed / "python", "-c", code, cwd=installed).stdout.strip())
    assert [name for name in files if not (place / name).is_file()] == []


def test_a_memory_system_runs_without_a_model(installed: Path, tmp_path: Path) -> None:
    words = ["--system", "turns", "--retriever", "bm25", "--out", "run", "--json"]
    done = run(installed / "recallbed", "task1", "run", *words, cwd=tmp_path)
    assert json.loads(done.stdout)
    scored = run(
        *(installed / "recallbed", "task1", "score", "run/predictions.jsonl", "--scorer", "exact"),
        "--json",
        cwd=tmp_path,
    )
    assert json.loads(scored.stdout)


def test_an_external_system_runs(installed: Path, tmp_path: Path) -> None:
    system = "memory_systems.external:CustomSystem"
    worker = f"worker={ROOT / 'tests' / 'fake_worker.py'}"
    words = ["--system", system, "--system-set", worker, "--retriever", "own", "--limit", "3"]
    done = run(installed / "recallbed", "task1", "run", *words, "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["rows"]["done"] == 3


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
