"""Option dataclasses, and the decorator that flattens them into the signature of a command.

A frozen dataclass declares options once, with their help:

    @dataclass(frozen=True, slots=True)
    class DataOptions:
        PANEL: ClassVar[str] = "Data"
        data: Annotated[Path | None, typer.Option(help="Release folder.")] = None

A command names the dataclass (`def sweep(data: DataOptions) -> None`) and gets an instance.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.models import OptionInfo, ParameterInfo

from recallbed.errors import UserError

AllowCode = Annotated[
    bool,
    typer.Option(
        help="Let a file (--set @FILE, or that of a run) name package.module:Class, whose code is"
        " run.",
        rich_help_panel="Retrievers",
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print JSON on stdout.", rich_help_panel="Options")
]
Seed = Annotated[
    int,
    typer.Option(
        min=0,
        help="Seed of everything random: intervals, ties, prompt order, retrievers.",
        rich_help_panel="Options",
    ),
]

_Values = Mapping[str, Any]
_Options = tuple[list[inspect.Parameter], Callable[[_Values], Any]]
"""Typer's parameters, and a function from their values to the option or dataclass."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """Marks an option that is typed as text; `read(option, text)` may raise UserError."""

    read: Callable[[str, str], Any]
    show: Callable[[Any], str] = str


@dataclass(frozen=True, slots=True)
class Without:
    """Marks a dataclass in a signature; the command lacks the options of these fields."""

    fields: tuple[str, ...]

    def __init__(self, *fields: str) -> None:
        object.__setattr__(self, "fields", fields)


def flatten(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` with the options of its dataclass parameters in their place.

    A dataclass may hold another; a default instance gives the defaults of its options; a field
    without a `typer.Option` or `typer.Argument` is no option. Raises TypeError for two options of
    one name, and at the call UserError from a `Parsed` or a `__post_init__`.
    """
    readers: dict[str, Callable[[_Values], Any]] = {}
    shown: dict[str, inspect.Parameter] = {}
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        default = MISSING if parameter.default is parameter.empty else parameter.default
        parameters, readers[name] = _options(name, parameter.annotation, default, None)
        for one in parameters:
            if one.name in shown:
                raise TypeError(f"{function.__name__}: two options are called {one.name}")
            shown[one.name] = one

    def outer(**values: Any) -> Any:
        return function(**{name: read(values) for name, read in readers.items()})

    outer.__doc__, outer.__name__ = function.__doc__, function.__name__
    outer.__signature__ = inspect.Signature([*shown.values()])  # type: ignore[attr-defined]
    return outer


def _options(name: str, annotation: Any, default: Any, panel: str | None) -> _Options:
    kind, *marks = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    if is_dataclass(kind):
        without = {field for mark in marks if isinstance(mark, Without) for field in mark.fields}
        return _dataclass_options(kind, default, without)
    option: Any = next((copy(mark) for mark in marks if isinstance(mark, ParameterInfo)), None)
    if option is None:
        raise TypeError(f"{name}: neither a dataclass nor annotated with an option")
    option.rich_help_panel = option.rich_help_panel or panel
    if option.default is not ...:  # the first name, where typer has the default
        option.param_decls, option.default = (option.default, *(option.param_decls or ())), ...
    if isinstance(option, OptionInfo) and not option.param_decls:
        option.param_decls = (f"--{name.replace('_', '-')}",)  # so that a flag has no --no-flag
    option.metavar = option.metavar or _metavar(kind, name, option)
    parsed = next((mark for mark in marks if isinstance(mark, Parsed)), None)
    if parsed is not None:
        word = next((w for w in option.param_decls or () if w.startswith("--")), name)
        kind = str if default is MISSING else str | None
        default = default if default in (MISSING, None) else parsed.show(default)

        def read(values: _Values) -> Any:
            text = values[name]
            return None if text is None else parsed.read(word, text)

    elif get_origin(kind) is tuple and get_args(kind)[1:] == (...,):
        kind = list[get_args(kind)[0]]  # type: ignore[misc]
        default = default if default is MISSING else list(default)

        def read(values: _Values) -> Any:
            return tuple(values[name] or ())

    else:

        def read(values: _Values) -> Any:
            return values[name]

    parameter = inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if default is MISSING else default,
        annotation=Annotated[kind, option],
    )
    return [parameter], read


def _metavar(kind: Any, name: str, option: ParameterInfo) -> str | None:
    """What names a value in the help: choices, or a word for the type."""
    if kind is bool:
        return None
    if not isinstance(option, OptionInfo):
        return name.upper()
    inner = [kind, *get_args(kind), *(word for one in get_args(kind) for word in get_args(one))]
    if choices := [word for word in inner if isinstance(word, str)]:
        return "|".join(choices)
    words = {int: "N", float: "NUMBER", Path: "PATH"}
    return next((words[one] for one in inner if one in words), "TEXT")


def _dataclass_options(cls: Any, instance: Any, without: set[str]) -> _Options:
    hints = get_type_hints(cls, include_extras=True)
    shown: list[inspect.Parameter] = []
    readers: dict[str, Callable[[_Values], Any]] = {}
    fixed: dict[str, Any] = {}
    for field in fields(cls):
        default = getattr(instance, field.name, field.default)
        if default is MISSING and field.default_factory is not MISSING:
            default = field.default_factory()
        if field.name in without or not _is_option(hints[field.name]):
            fixed[field.name] = default
            continue
        parameters, readers[field.name] = _options(
            field.name, hints[field.name], default, getattr(cls, "PANEL", None)
        )
        shown += parameters

    def build(values: _Values) -> Any:
        return cls(**fixed, **{name: read(values) for name, read in readers.items()})

    return shown, build


def _is_option(annotation: Any) -> bool:
    kind, *marks = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    return is_dataclass(kind) or any(isinstance(mark, ParameterInfo) for mark in marks)


def numbers(minimum: int = 1) -> Parsed:
    """Whole numbers of at least `minimum`, typed as `1,5,10`."""
    return Parsed(
        lambda option, text: parse_numbers(option, text, minimum),
        lambda found: ",".join(map(str, found)),
    )


def parse_numbers(option: str, text: str, minimum: int = 1) -> tuple[int, ...]:
    """`"100,300"` as whole numbers of at least `minimum`, ascending, without repeats.

    Raises UserError naming the option.
    """
    found = set()
    for word in text.split(","):
        try:
            number = int(word)
        except ValueError:
            number = minimum - 1
        if number < minimum:
            raise UserError(
                f"{option} {text}: `{word.strip()}` is not a whole number of at least {minimum}."
                f" Write them with commas, such as {option} 1,5,10"
            )
        found.add(number)
    return tuple(sorted(found))


def parse_size(option: str, text: str) -> int:
    """`"512MB"`, `"2GiB"` or `"1000000"` as a number of bytes, at least 1.

    Raises UserError naming the option.
    """
    from pydantic import ByteSize, TypeAdapter, ValidationError

    try:
        size = int(TypeAdapter(ByteSize).validate_python(text))
    except ValidationError:
        size = 0
    if size < 1:
        raise UserError(f"{option} {text}: write a size such as 512MB, 2GiB or a number of bytes")
    return size


def only_one(option: str, values: Sequence[int]) -> int:
    """The only one of `values`; raises UserError naming the option if there are several."""
    if len(values) != 1:
        raise UserError(f"{option} {','.join(map(str, values))}: this command takes one value")
    return values[0]


Ks = Annotated[
    tuple[int, ...],
    typer.Option("--k", metavar="N,...", help="Depths of recall@k; some commands take one only."),
    numbers(),
]
