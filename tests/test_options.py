"""Option dataclasses that a command gets from its flattened signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pytest
import typer

from recallbed.errors import UserError
from recallbed.harness.app import App
from recallbed.harness.options import Ks, Parsed, Without, flatten, only_one, parse_size
from recallbed.harness.run_options import RunOptions
from tests.kit import one_line_error, run


@dataclass(frozen=True, slots=True)
class Inner:
    PANEL: ClassVar[str] = "Inner things"
    colour: Annotated[Literal["red", "green"], typer.Option(help="A colour.")] = "red"
    many: Annotated[
        tuple[str, ...], typer.Option("--many", "--several", help="Words. May be repeated.")
    ] = ()
    unseen: int = 7


@dataclass(frozen=True, slots=True)
class Outer:
    inner: Inner = Inner("green", ("a", "b"))
    ks: Ks = (1, 5)
    memory: Annotated[int | None, typer.Option(help="Bytes."), Parsed(parse_size)] = None
    flag: Annotated[bool, typer.Option(help="A flag.")] = False
    folders: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.flag and self.memory:
            raise UserError("--flag excludes --memory")


def app_of(function: Callable[..., Any], **more: Any) -> tuple[App, list[Any]]:
    """An app whose only command is `function`, and what it was called with."""
    app, calls = App(), []

    def command(*values: Any, **named: Any) -> None:
        calls.append(function(*values, **named))

    command.__signature__ = inspect.signature(function, eval_str=True)  # type: ignore[attr-defined]
    command.__doc__ = function.__doc__
    app.command(**more)(command)
    return app, calls


def given(
    file: Annotated[Path, typer.Argument(help="A file.")],
    outer: Outer,
    count: Annotated[int, typer.Option(min=1, help="How many.")] = 3,
) -> tuple[Path, Outer, int]:
    """Do it."""
    return file, outer, count


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], Outer()),
        (["--colour", "red"], Outer(Inner("red", ("a", "b")))),
        (["--many", "x", "--several", "y"], Outer(Inner("green", ("x", "y")))),
        (["--k", "10,1,10"], Outer(ks=(1, 10))),
        (["--memory", "2KiB"], Outer(memory=2048)),
        (["--flag"], Outer(flag=True)),
    ],
)
def test_a_command_gets_its_dataclass(words: list[str], expected: Outer) -> None:
    app, calls = app_of(given)
    run(app, "f", *words, "--count", 4, code=0)
    assert calls == [(Path("f"), expected, 4)]


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--colour", "blue"], ["--colour blue: choose one of red, green"]),
        (["--k", "0"], ["--k 0: `0` is not a whole number of at least 1"]),
        (["--memory", "lots"], ["--memory lots: write a size"]),
        (["--count", "none"], ["--count: "]),
        (["--count", "0"], ["--count: ", "1"]),
        (["--flag", "--memory", "1"], ["--flag excludes --memory"]),
        (["--no-flag"], ["--no-flag", "--help"]),
        (["--unseen", "1"], ["--unseen"]),
    ],
)
def test_a_mistake_is_one_line(words: list[str], parts: list[str]) -> None:
    app, calls = app_of(given)
    one_line_error(run(app, "f", *words), *parts)
    assert not calls


def test_a_missing_argument_is_one_line() -> None:
    one_line_error(run(app_of(given)[0]), "missing argument 'FILE'", "--help")


def test_the_help_is_in_sections_without_aliases() -> None:
    """Examples come last; an alias works and is not shown."""
    app, _ = app_of(given, examples=("recallbed x f", "recallbed x f --flag"))
    text = run(app, "--help", code=0).stdout
    sections = [line for line in text.splitlines() if line.endswith(":") and line[0] != " "]
    assert sections == ["Arguments:", "Inner things:", "Options:", "Examples:"]
    assert "--colour red|green  A colour. [default: green]" in text
    assert "--many TEXT" in text
    assert "[default: a, b]" in text
    assert "[default: 1,5]" in text
    assert "--several" not in text
    assert "--unseen" not in text
    assert text.endswith("Examples:\n  recallbed x f\n  recallbed x f --flag\n")


def test_a_command_without_some_options() -> None:
    def some(inner: Annotated[Inner, Without("colour")]) -> Inner:
        """Do it."""
        return inner

    app, calls = app_of(some)
    run(app, "--many", "x", code=0)
    assert calls == [Inner("red", ("x",))]
    one_line_error(run(app, "--colour", "red"), "--colour")


def test_two_options_of_one_name_are_refused() -> None:
    def twice(a: Inner, b: Inner) -> None:
        """Do it."""

    with pytest.raises(TypeError, match="two options are called colour"):
        flatten(twice)


def test_a_parameter_that_is_no_option_is_refused() -> None:
    def bare(a: int) -> None:
        """Do it."""

    with pytest.raises(TypeError, match="a: neither a dataclass nor annotated"):
        flatten(bare)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (RunOptions(), "refuse"),
        (RunOptions(resume=True), "resume"),
        (RunOptions(retry_failed=True), "resume"),
        (RunOptions(overwrite=True), "overwrite"),
    ],
)
def test_what_happens_to_an_existing_run(options: RunOptions, expected: str) -> None:
    assert options.on_existing == expected


@pytest.mark.parametrize("other", ["resume", "retry_failed"])
def test_flags_of_a_run_that_contradict(other: str) -> None:
    with pytest.raises(UserError, match="--overwrite excludes"):
        RunOptions(overwrite=True, **{other: True})  # type: ignore[arg-type]


def test_a_command_that_takes_one_value_refuses_two() -> None:
    assert only_one("--k", (5,)) == 5
    with pytest.raises(UserError, match="--k 1,5: this command takes one value"):
        only_one("--k", (1, 5))


def test_an_interruption_is_said_by_the_values(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(outer: Outer) -> None:
        """Do it."""
        raise KeyboardInterrupt

    app, _ = app_of(stopped, on_stop=lambda values: f"at {values['memory']}")
    done = run(app, "--memory", "5", code=130)
    assert done.stderr == "stopped: at 5\n"
