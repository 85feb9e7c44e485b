"""The command `recallbed`: sub-commands that load when they are called, and their help."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import version
from typing import Any

import pytest
from typer.main import get_command

from memory_systems.registry import MEMORY_SYSTEMS
from recallbed.cli import COMMANDS, Entry, app
from recallbed.harness.app import first_line, registered
from recallbed.harness.registry import Registry
from retrievers.registry import RETRIEVERS
from tests.kit import one_line_error, python, run

HEAVY = {"torch", "faiss", "openai", "pymilvus", "scipy", "matplotlib", "pydantic", "nltk"}


def modules(entries: Mapping[str, Entry], *above: str) -> Iterator[tuple[str, ...]]:
    """Every sub-command that has a module, as the words that call it."""
    for name, entry in entries.items():
        if isinstance(entry.module, str):
            yield (*above, name)
        else:
            yield from modules(entry.module, *above, name)


def entry_of(words: tuple[str, ...]) -> Entry:
    entry = COMMANDS[words[0]]
    for word in words[1:]:
        assert isinstance(entry.module, Mapping)
        entry = entry.module[word]
    return entry


CALLS = list(modules(COMMANDS))


def commands() -> Iterator[tuple[str, Any]]:
    """Every command that takes options, with the words that call it."""
    for words in CALLS:
        found = get_command(import_module(str(entry_of(words).module)).app)
        inner = getattr(found, "commands", None)
        for name, command in inner.items() if inner else [("", found)]:
            yield " ".join(filter(None, (*words, name))), command


def test_the_help_lists_every_command_and_imports_none() -> None:
    words = [name for name, entry in COMMANDS.items()]
    lines = run(app, "--help", code=0).stdout.splitlines()
    assert [line.split()[0] for line in lines if re.match(r"  [a-z]", line)] == words
    code = "from recallbed.cli import app; app(['--help'], standalone_mode=False); import sys"
    loaded = python("-c", f"{code}; print(*sys.modules)").stdout.splitlines()[-1].split()
    assert not {name.partition(".")[0] for name in loaded} & {
        *("analysis", "indexes", "judges", "memory_scoring", "memory_systems", "retrievers"),
        *("task1", "task2", "task3", "task4"),
        *HEAVY,
    }


@pytest.mark.parametrize("words", CALLS, ids=" ".join)
def test_a_commands_line_in_the_list_is_that_of_its_own_help(words: tuple[str, ...]) -> None:
    entry = entry_of(words)
    found = get_command(import_module(str(entry.module)).app)
    assert first_line(found.help or "") == entry.help


@pytest.mark.parametrize(("words", "command"), list(commands()), ids=lambda it: str(it)[:30])
def test_a_help_fits_80_columns(words: str, command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = run(app, *words.split(), "--help", code=0).stdout
    assert not [line for line in text.splitlines() if len(line) > 80]
    names = {name for parameter in command.params for name in parameter.opts[:1]}
    assert all(name in text for name in names if name.startswith("--"))
    assert "…" not in text
    assert re.match(rf"Usage: \S+ {words} ", text)
    assert len(re.findall(rf"^  recallbed {words}\b", text, re.MULTILINE)) == 2, (
        "two examples end the help"
    )


@pytest.mark.parametrize(("words", "command"), list(commands()), ids=lambda it: str(it)[:30])
def test_the_examples_of_a_help_are_valid(words: str, command: Any) -> None:
    import shlex

    for line in command.epilog.splitlines():
        given = shlex.split(line)[1 + len(words.split()) :]
        command.make_context(words, given)  # raises a usage error


def test_the_version() -> None:
    assert run(app, "--version", code=0).stdout == f"recallbed {version('recallbed')}\n"


@pytest.mark.parametrize("words", [("swep",), ("task1", "sweep"), ("sweep", "--bogus")])
def test_a_wrong_word_is_one_line(words: tuple[str, ...]) -> None:
    one_line_error(run(app, *words), words[-1], "--help")


def test_a_module_and_the_command_are_the_same_but_for_the_usage() -> None:
    helps = [
        python(*words, "--help", COLUMNS="80").stdout.splitlines()
        for words in (("-m", "task3.sweep"), ("-m", "recallbed.cli", "sweep"))
    ]
    assert helps[0][0] == "Usage: python -m task3.sweep [OPTIONS]"
    assert helps[1][0] == "Usage: python -m recallbed.cli sweep [OPTIONS]"
    assert helps[0][1:] == helps[1][1:]


def test_no_help_imports_anything_heavy() -> None:
    """One process prints all of them, and says after each what it has loaded."""
    code = f"""
import sys
from importlib import import_module
for module in {sorted({str(entry_of(words).module) for words in CALLS})}:
    import_module(module).app(["--help"], standalone_mode=False)
    heavy = {HEAVY} & {{name.partition(".")[0] for name in sys.modules}}
    assert not heavy, (module, heavy)
"""
    python("-c", code)


# What the help lists is read from the source, and is what can be named.


@pytest.mark.parametrize("registry", [RETRIEVERS, MEMORY_SYSTEMS])
def test_the_names_in_the_help_are_those_there_are(registry: Registry[Any]) -> None:
    ours = [n for n in registry.names() if registry.find(n).__module__.startswith(registry.package)]
    assert registered(registry.package) == tuple(ours)  # tests register classes of their own


ONE_NAME_SEVERAL_MEANINGS = {
    *("--out", "--label", "--retriever", "--limit", "--format", "--by", "--title", "--overwrite"),
    *("--encoder", "--rank", "--temperature"),
}
"""A result is a run folder, a file or a folder; the label of an import is new, not chosen. Commands
on finished runs choose retrievers and limit what is shown; formats are those of a command. Queries
are grouped, and stores searched, by something; a picture or a page has a title; the audit's only
file is that of --clean. The audit's encoder finds paraphrases, those of an adapter are what it is
trained over; a request has a temperature, and so has a loss; maps and differences have a rank.
"""


def test_an_option_means_the_same_in_every_command() -> None:
    said: dict[str, dict[tuple[str, str | None], list[str]]] = {}
    for words, command in commands():
        for parameter in command.params:
            if parameter.param_type_name == "option":
                name = parameter.opts[0]
                meaning = (parameter.help, parameter.metavar)
                said.setdefault(name, {}).setdefault(meaning, []).append(words)
    several = {name: found for name, found in said.items() if len(found) > 1}
    assert several.keys() <= ONE_NAME_SEVERAL_MEANINGS, several


def test_a_bad_choice_is_one_line_in_a_process() -> None:
    done = python("-m", "task3.sweep", "--pools", "big", code=2)
    one_line_error(done, "--pools big: choose one of nested, released, as-released")
