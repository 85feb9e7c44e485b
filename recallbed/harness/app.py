"""The typer app of a command: plain help, errors as one line, a stop that can be resumed."""

from __future__ import annotations

import inspect
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from recallbed.errors import UserError
from recallbed.harness.failures import cause_of, users_place
from recallbed.harness.options import flatten
from recallbed.harness.terminal import DEBUG, debugging, note, one_line, say

UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # typer has its own click, or click's
NOTHING = "nothing was written"
_REGISTERED = re.compile(r'^@register\w*\("([^"]+)"\)', re.MULTILINE)


class App(typer.Typer):
    """A typer app whose commands take option dataclasses (see `harness.options`) and --debug."""

    def __init__(self, *, cls: type[Group] | None = None, **more: Any) -> None:
        super().__init__(add_completion=False, rich_markup_mode=None, cls=cls or Group, **more)

    def command(
        self,
        name: str | None = None,
        *,
        on_stop: str | Callable[[dict[str, Any]], str] = NOTHING,
        examples: Sequence[str] = (),
        **more: Any,
    ) -> Callable[[Any], Any]:
        """As typer's decorator; errors and interruptions end as `one_line_errors` says.

        `on_stop` may depend on the options' values by name. `examples` are shown in the help.
        """
        more.setdefault("cls", Command)
        register = super().command(name, epilog="\n".join(examples), **more)

        def enter(function: Any) -> Any:
            register(_guarded(flatten(function), on_stop))
            return function

        return enter


def _guarded(
    function: Callable[..., Any], on_stop: str | Callable[[dict[str, Any]], str]
) -> Callable[..., Any]:
    signature = inspect.signature(function)
    debug = inspect.Parameter(
        "debug",
        inspect.Parameter.KEYWORD_ONLY,
        default=False,
        annotation=Annotated[
            bool, typer.Option("--debug", help="Show the traceback of an error on stderr.")
        ],
    )

    def outer(debug: bool = False, **given: Any) -> Any:
        before = os.environ.pop(DEBUG, None)
        if debug:
            os.environ[DEBUG] = "1"
        stopped = on_stop if isinstance(on_stop, str) else on_stop(given)
        try:
            with one_line_errors(OSError, ModuleNotFoundError, on_stop=stopped):
                return function(**given)
        finally:
            os.environ.pop(DEBUG, None)
            if before is not None:
                os.environ[DEBUG] = before

    outer.__doc__, outer.__name__ = function.__doc__, function.__name__
    parameters = [*signature.parameters.values(), debug]
    outer.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return outer


class _OneLine:
    """A command whose wrong usage is one line, and whose help is plain text in sections."""

    def main(self, *words: Any, standalone_mode: bool = True, **more: Any) -> Any:
        """Run it; a wrong option or value is one line on stderr and exit code 2."""
        try:
            code = super().main(*words, standalone_mode=False, **more)  # type: ignore[misc]
        except UsageError as error:
            if not standalone_mode:
                raise
            if type(error).__name__ == "NoArgsIsHelpError":
                say(*error.ctx.get_help().splitlines())  # type: ignore[attr-defined]
            else:
                note(f"error: {_usage_fault(error)}")
            raise SystemExit(2) from None
        if standalone_mode:
            raise SystemExit(code if isinstance(code, int) else 0)
        return code

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The arguments by name, without typer's braces."""
        return [re.sub("[{}]", "", piece) for piece in super().collect_usage_pieces(ctx)]  # type: ignore[misc]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Usage, description, options by panel, examples."""
        self.format_usage(ctx, formatter)  # type: ignore[attr-defined]
        if self.help:  # type: ignore[attr-defined]
            formatter.write_paragraph()
            formatter.write_text(_whole(inspect.cleandoc(self.help)))  # type: ignore[attr-defined]
        panels: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):  # type: ignore[attr-defined]
            argument = parameter.param_type_name == "argument"
            panel = getattr(parameter, "rich_help_panel", None) or "Options"
            panels.setdefault("Arguments" if argument else panel, []).append(_record(parameter))
        general = panels.pop("Options", [])
        if isinstance(self, TyperGroup):
            panels["Commands"] = self.listed(ctx)  # type: ignore[attr-defined]
        for name, records in {**panels, "Options": general}.items():
            with formatter.section(name):
                formatter.write_dl(records, col_max=34)
        if self.epilog:  # type: ignore[attr-defined]
            with formatter.section("Examples"):
                for line in self.epilog.splitlines():  # type: ignore[attr-defined]
                    formatter.write(f"  {line}\n")
        formatter.buffer = [text.replace(_NO_BREAK, "-") for text in formatter.buffer]


class Command(_OneLine, TyperCommand):
    """A command with `_OneLine`'s help and errors."""


class Group(_OneLine, TyperGroup):
    """A group of commands with `_OneLine`'s help and errors."""

    def listed(self, ctx: Any) -> list[tuple[str, str]]:
        """The names of the commands, each with the first line of its help."""
        found = []
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            assert command is not None
            found.append((name, first_line(command.help or "")))
        return found


_NO_BREAK = "\u2011"


def _whole(text: str) -> str:
    """Hyphens inside words such that a line is not broken after them."""
    return re.sub(r"(?<=\S)-(?=\S)|--?(?=\S)", lambda found: _NO_BREAK * len(found[0]), text)


def first_line(text: str) -> str:
    """The first paragraph of a docstring as one line, up to the end of its first sentence."""
    return re.split(r"(?<=\.)\s", " ".join(text.strip().partition("\n\n")[0].split()))[0]


def _usage_fault(error: Any) -> str:
    """`--pools big: choose one of nested, released`, or typer's words and where the help is."""
    message = one_line(error.format_message().replace("Value error, ", "").rstrip("."))
    if found := re.fullmatch(r"Invalid value for '([^']+)': '(.*)' is not one of (.*)", message):
        return f"{found[1]} {found[2]}: choose one of {found[3].replace(chr(39), '')}"
    if found := re.fullmatch(r"Invalid value for '([^']+)': (.*)", message):
        return f"{found[1]}: {found[2][:1].lower()}{found[2][1:]}"
    help_of = f". See {error.ctx.command_path} --help" if error.ctx is not None else ""
    return f"{message[:1].lower()}{message[1:]}{help_of}"


def _record(parameter: Any) -> tuple[str, str]:
    """An option's first name with its kind of value, and its help; other names are aliases."""
    text = re.sub(r"\{(\w+)\}", lambda found: ", ".join(registered(found[1])), parameter.help or "")
    text = _whole(text)
    if parameter.param_type_name == "argument":
        return parameter.metavar, text
    if getattr(parameter, "is_flag", False) or parameter.name == "help":
        return parameter.opts[0], text
    default = parameter.default
    if default not in (None, (), []) and "Default" not in text:
        text += f" [default: {', '.join(default) if isinstance(default, list) else default}]"
    return f"{parameter.opts[0]} {parameter.metavar}", text


@cache
def registered(package: str) -> tuple[str, ...]:
    """The names that files of `package` register, read from the source: nothing is imported."""
    spec = find_spec(package)
    assert spec is not None
    files = [
        file
        for place in spec.submodule_search_locations or ()
        for file in Path(place).rglob("*.py")
    ]
    found = {name for file in files for name in _REGISTERED.findall(file.read_text("utf-8"))}
    return tuple(sorted(found))


class Terminated(KeyboardInterrupt):
    """SIGTERM, answered like Ctrl-C."""


def _terminate(signum: int, frame: FrameType | None) -> None:
    raise Terminated


@contextmanager
def one_line_errors(*kinds: type[Exception], on_stop: str = NOTHING) -> Iterator[None]:
    """Turn UserError and `kinds` into one line on stderr and exit code 2.

    So is an exception that passed through a user's own code, with the file and line. --debug shows
    tracebacks. Ctrl-C ends with exit code 130 and SIGTERM with 143, in one line too, which says
    `on_stop`. A closed pipe on stdout ends silently with 141, as it does other programs. Too
    little memory is one line and exit code 2.
    """
    expected: tuple[type[Exception], ...] = (UserError, *kinds)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever reads our output, such as `head`, has seen enough: nothing is left to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141) from None
    except expected as error:
        if debugging():
            note(*traceback.format_exc().splitlines())
        note("error: " + one_line(error))
        raise SystemExit(2) from None
    except MemoryError as error:
        detail = f" ({one_line(error)})" if str(error) else ""
        note(f"error: not enough memory{detail}: {on_stop}. Free some memory, then run it again")
        raise SystemExit(2) from None
    except Exception as error:
        # A class of the user's that fails outside a query: in its constructor, settings, notes.
        if debugging() or users_place(error) is None:
            raise
        note(f"error: {cause_of(error)}. --debug shows the traceback")
        raise SystemExit(2) from None
    except KeyboardInterrupt as stop:
        note(f"stopped: {on_stop}")
        raise SystemExit(143 if isinstance(stop, Terminated) else 130) from None
