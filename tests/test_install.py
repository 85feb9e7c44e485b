"""Environments of external systems: made from a wheel or a source of the test's own, offline."""

import os
import signal
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from memory_systems.external import catalogue
from memory_systems.external.catalogue import EXTERNAL, ExternalSpec, Source
from memory_systems.external.environments import environment_of, install, installed
from memory_systems.install import app
from recallbed.errors import UserError
from tests.kit import ROOT, one_line_error, python, run, run_json

RECORD = "tiny-1.5.dist-info/RECORD"
FILES = {
    "tiny/__init__.py": "WORD = 'hello'\n",
    "tiny-1.5.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.5\n",
    "tiny-1.5.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}


def write_wheel(folder: Path, word: str = "hello") -> None:
    folder.mkdir(exist_ok=True)
    files = {name: text.replace("hello", word) for name, text in FILES.items()}
    files[RECORD] = "".join(f"{name},,\n" for name in [*files, RECORD])
    with zipfile.ZipFile(folder / "tiny-1.5-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ExternalSpec:
    """A system of one package, which pip finds in a folder and nowhere else."""
    write_wheel(tmp_path / "wheels")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("RECALLBED_SYSTEMS", str(tmp_path / "systems"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "elsewhere"))
    pins = tmp_path / "tiny.txt"
    pins.write_text("# one package\ntiny==1.5\n")
    return ExternalSpec("tiny", "a test", "MIT", "tiny.py", "tiny", str(pins))


@pytest.mark.systems
@pytest.mark.slow
def test_an_environment_is_made_and_replaced(
    tiny: ExternalSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert installed(tiny) is None
    told: list[str] = []
    made = install(tiny, report=told.append)
    assert made == installed(tiny) == environment_of(tiny)
    assert (made.version, dict(made.packages)) == ("1.5", {"tiny": "1.5"})
    assert made.python.parent.parent == tmp_path / "systems" / "tiny"
    assert made.megabytes > 0
    assert told[1] == "tiny: installing 1 packages"
    say = "import tiny; print(tiny.WORD)"
    assert subprocess.check_output([made.python, "-c", say], text=True) == "hello\n"

    monkeypatch.setattr(catalogue, "EXTERNAL", {"tiny": tiny})
    told_again = run_json(app, "tiny", "--if-missing")
    assert (told_again["seconds"], told_again["checksum"]) == (made.seconds, made.checksum)
    again = install(tiny)
    assert again.checksum == made.checksum
    write_wheel(tmp_path / "wheels", "goodbye")  # the same version, other content
    assert install(tiny).checksum != made.checksum

    Path(tiny.pins).write_text("tiny==1.6\n")
    assert installed(tiny) is None  # of older pins
    with pytest.raises(UserError) as error:
        install(tiny)
    assert str(error.value) == (
        "tiny cannot be installed (ERROR: No matching distribution found for tiny==1.6)"
    )
    assert installed(tiny) is None

    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(UserError) as error:
        install(tiny)
    assert str(error.value) == ("tiny cannot be installed (the package registry cannot be reached)")


@pytest.mark.systems
@pytest.mark.slow
def test_an_interrupted_installation_counts_for_nothing(tiny: ExternalSpec, tmp_path: Path) -> None:
    code = f"""
import os, signal
from memory_systems.external import catalogue
from memory_systems.external.catalogue import ExternalSpec
from memory_systems.external.environments import install
def stop(line):
    if "installing" in line:
        os.kill(os.getpid(), signal.SIGKILL)
install(ExternalSpec("tiny", "a test", "MIT", "tiny.py", "tiny", {tiny.pins!r}), report=stop)
"""
    python("-c", code, cwd=ROOT, code=-signal.SIGKILL)
    assert (tmp_path / "systems" / "tiny" / "bin" / "python").exists()
    assert installed(tiny) is None
    with pytest.raises(UserError, match=r"Run: python -m memory_systems\.install tiny$"):
        environment_of(tiny)


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    return subprocess.check_output(["git", "-C", folder, *who, *words], text=True).strip()


def clone_of(folder: Path) -> str:
    """Make a repository with two commits; return the first."""
    folder.mkdir()
    git(folder, "init", "--quiet")
    (folder / "system.py").write_text("first\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    first = git(folder, "rev-parse", "HEAD")
    (folder / "system.py").write_text("second\n")
    git(folder, "commit", "--quiet", "-a", "-m", "second")
    return first


@pytest.mark.systems
@pytest.mark.slow
def test_a_source_is_copied_at_its_commit(tiny: ExternalSpec, tmp_path: Path) -> None:
    """Whatever the clone has checked out, and although it changes later."""
    commit = clone_of(tmp_path / "clone")
    spec = replace(tiny, source=Source("owner/name", commit))
    made = install(spec, source=tmp_path / "clone")
    assert made.version == commit[:8]
    assert (made.source / "system.py").read_text() == "first\n"
    assert installed(replace(spec, source=Source("owner/name", "0" * 40))) is None
    assert installed(spec) == made


def test_a_source_that_does_not_fit(tiny: ExternalSpec, tmp_path: Path) -> None:
    commit = clone_of(tmp_path / "clone")
    spec = replace(tiny, source=Source("owner/name", commit))
    wanted = f"a clone of owner/name with commit {commit}"
    for given, message in [
        (None, f"tiny is run from its source. Pass --source FOLDER, {wanted}"),
        (tmp_path / "nowhere", f"--source {tmp_path / 'nowhere'}: no clone (fatal: "),
        (tmp_path, f"--source {tmp_path}: no clone (fatal: not a git repository"),
    ]:
        with pytest.raises(UserError) as error:
            install(spec, source=given)
        assert str(error.value).startswith(message)
    other = replace(spec, source=Source("owner/name", "f" * 40))
    with pytest.raises(UserError) as error:
        install(other, source=tmp_path / "clone")
    assert str(error.value).startswith(f"--source {tmp_path / 'clone'}: is not a clone of owner/")
    with pytest.raises(UserError, match="tiny is installed from packages only"):
        install(tiny, source=tmp_path)
    with pytest.raises(UserError, match=r"install tiny --source FOLDER$"):
        environment_of(spec)
    assert not (tmp_path / "systems").exists()


def test_a_python_that_does_not_fit(tiny: ExternalSpec, tmp_path: Path) -> None:
    newer = replace(tiny, python=(3, 99))
    with pytest.raises(UserError, match=r"^tiny needs Python 3\.99 or newer, and none is on"):
        install(newer)
    with pytest.raises(UserError, match=r"^--python .*: tiny needs Python 3\.99 or newer$"):
        install(newer, python=Path(sys.executable))
    with pytest.raises(UserError, match=r"^--python /nowhere: cannot be run \(No such file"):
        install(tiny, python=Path("/nowhere"))
    with pytest.raises(UserError, match=r"^--python .*: is not a Python interpreter$"):
        install(tiny, python=Path("/bin/echo"))


def test_wrong_use_is_one_line(tiny: ExternalSpec) -> None:
    one_line_error(run(app, "nothing"), "nothing: no external system has this name", "mem0")
    one_line_error(
        run(app, "--source", "a"), "--source, --python and --if-missing need the name of a system"
    )
    one_line_error(run(app, "mem0", "--source", "a"), "mem0 is installed from packages only")


def test_systems_are_listed(tiny: ExternalSpec) -> None:
    lines = run(app, code=0).stdout
    for spec in EXTERNAL.values():
        assert spec.name in lines
        assert spec.version in lines
    assert run_json(app) == dict.fromkeys(EXTERNAL)


@pytest.mark.parametrize("spec", EXTERNAL.values(), ids=list(EXTERNAL))
def test_every_entry_is_complete(spec: ExternalSpec) -> None:
    assert spec.worker_file.is_file()
    assert spec.version
    names = [pin.partition("==")[0] for pin in spec.requirements]
    assert all("==" in pin and " " not in pin for pin in spec.requirements)
    assert len({name.lower() for name in names}) == len(names)
