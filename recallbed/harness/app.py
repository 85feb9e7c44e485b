"""The typer app of a command, and the options that several commands share."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Annotated, Any

import typer

DEBUG = "RECALLBED_DEBUG"
"""Set in the environment while --debug holds, so that worker processes know of it."""

AllowCode = Annotated[
    bool,
    typer.Option(
        "--allow-code",
        help="Let a settings file (--set @FILE) name package.module:Class, whose code is then run.",
    ),
]
KeepGoing = Annotated[
    bool,
    typer.Option(
        "--keep-going", help="Go on if the first ten queries or items fail in the same way."
    ),
]


def debugging() -> bool:
    """Whether tracebacks are shown."""
    return bool(os.environ.get(DEBUG))


class App(typer.Typer):
    """A typer app whose commands all have --debug."""

    def __init__(self, **more: Any) -> None:
        super().__init__(add_completion=False, **more)

    def command(self, *words: Any, **more: Any) -> Callable[[Any], Any]:
        """As typer's decorator."""
        register = super().command(*words, **more)

        def enter(function: Any) -> Any:
            register(_with_debug(function))
            return function

        return enter


def _with_debug(function: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(function, eval_str=True)
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
        try:
            return function(**given)
        finally:
            os.environ.pop(DEBUG, None)
            if before is not None:
                os.environ[DEBUG] = before

    outer.__doc__, outer.__name__ = function.__doc__, function.__name__
    parameters = [*signature.parameters.values(), debug]
    outer.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return outer
