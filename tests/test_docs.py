"""README.md and docs/: the commands that a reader is told to type exist and work as shown."""

import re
from pathlib import Path

import pytest

from retrievers import overlap
from tests.docs_commands import blocks, check, command_lines, name_of, pages, run_page
from tests.kit import ROOT

PAGES = pages()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_shown_is_accepted(page: Path) -> None:
    wrong = []
    for line, command, whole in command_lines(page):
        try:
            check(command, whole)
        except (ValueError, ImportError, OSError) as error:
            wrong.append(f"{name_of(page)}:{line}: {command}: {error}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("recallbed swep --retriever bm25", "No such command"),
        ("make nothing", "no target nothing"),
        ("python -m task3.sweep --retriver bm25", "No such option"),
        ("python -m task3.sweep --pools", "--pools"),
        ("python benchmarks/bm25.py --speed", "no option --speed"),
        ("rm -r docs", "unknown program rm"),
    ],
)
def test_a_wrong_command_is_found(line: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(line)


def test_commands_stand_in_sh_blocks() -> None:
    for page in PAGES:
        found = re.findall(r"^ {4}(?:python|recallbed) .*", page.read_text("utf-8"), re.MULTILINE)
        assert not found, f"{name_of(page)}: {found[0]}"


RUNNABLE = [page for page in PAGES if any(b.language == "sh" and not b.mark for b in blocks(page))]


@pytest.mark.docs
@pytest.mark.parametrize("page", RUNNABLE, ids=name_of)
def test_the_commands_of_a_page_run_in_their_order(page: Path, tmp_path: Path) -> None:
    assert run_page(page, tmp_path, slow=False) > 0


def test_the_shortest_retriever_shown_is_the_file() -> None:
    shown = next(
        b.text for b in blocks(ROOT / "docs/adding_a_retriever.md") if b.language == "python"
    )
    source = Path(str(overlap.__file__)).read_text(encoding="utf-8")
    without_docstrings = re.sub(r'\n? *"""[^"]*"""\n', "\n", source)
    assert re.sub(r"\n+", "\n", without_docstrings).strip() == re.sub(r"\n+", "\n", shown).strip()


def test_the_worker_shown_is_the_one_that_is_tested() -> None:
    shown = next(block.text for block in blocks(ROOT / "docs/external_systems.md") if block.title)
    assert shown == (ROOT / "tests/fake_worker.py").read_text("utf-8")


def test_links_and_pictures_of_the_readme_exist() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / "README.md").read_text("utf-8")):
        assert (ROOT / target).exists(), target
