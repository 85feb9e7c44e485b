"""What the docs tell a reader to type works as they say."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit import ROOT


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def call(words: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done


def test_the_worked_example_runs_as_written(tmp_path: Path) -> None:
    _, example, tests = blocks("docs/adding_a_retriever.md", "python")
    [command] = blocks("docs/adding_a_retriever.md", "sh")
    (tmp_path / "prefixes.py").write_text(example, encoding="utf-8")
    (tmp_path / "test_prefixes.py").write_text(tests, encoding="utf-8")
    words = command.split()
    assert words[:3] == ["python", "-m", "task3.sweep"]
    done = call([sys.executable, *words[1:]], tmp_path)
    assert "Prefixes" in done.stderr
    assert (tmp_path / "runs" / "prefixes" / "curve.png").exists()
    found = call([sys.executable, "-m", "pytest", "-q", "test_prefixes.py"], tmp_path).stdout
    assert "10 passed" in found


def test_the_ten_lines_are_the_file() -> None:
    shown = blocks("docs/adding_a_retriever.md", "python")[0]
    source = (ROOT / "retrievers" / "overlap.py").read_text(encoding="utf-8")
    without_docstrings = re.sub(r'\n? *"""[^"]*"""\n', "\n", source)
    assert re.sub(r"\n+", "\n", without_docstrings).strip() == re.sub(r"\n+", "\n", shown).strip()


def test_links_and_pictures_of_the_pages_exist() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.skipif(shutil.which("make") is None, reason="no make on this machine")
def test_the_readmes_commands_are_targets_of_the_makefile() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = set(re.findall(r"(?:^ {4}|`)make (\w+)", text, re.MULTILINE))
    assert {"sweep", "test"} <= targets
    for target in targets:
        call(["make", "--dry-run", target], ROOT)
