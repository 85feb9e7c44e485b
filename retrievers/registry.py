"""Finding a retriever class by name and building it from settings typed as text."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import pkgutil
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from harness.configurations import Configuration
from harness.errors import UserError
from harness.fingerprint import file_hash, short_hash
from retrievers.base import Retriever, RunContext

R = TypeVar("R", bound=type[Retriever])
_REGISTRY: dict[str, type[Retriever]] = {}


def register(name: str) -> Callable[[R], R]:
    """Make the class known as `name`; a name taken by another class is a ValueError."""

    def enter(cls: R) -> R:
        taken = _REGISTRY.get(name)
        if taken is not None and _origin(taken) != _origin(cls):
            raise ValueError(f"two retrievers are called {name}: {taken} and {cls}")
        _REGISTRY[name] = cls
        return cls

    return enter


def _origin(cls: type[Retriever]) -> tuple[str, str]:
    return cls.__module__, cls.__qualname__


def names() -> tuple[str, ...]:
    """The names of all registered retrievers, every file of this package having been imported."""
    package = importlib.import_module("retrievers")
    for module in pkgutil.walk_packages(package.__path__, "retrievers."):
        importlib.import_module(module.name)
    return tuple(sorted(_REGISTRY))


def find(name: str) -> type[Retriever]:
    """The class registered as `name`, or the user's own `package.module:Class`.

    The working folder is searched last. Raises UserError with what is wrong.
    """
    if ":" not in name:
        if name not in names():
            raise UserError(
                f"no retriever `{name}` (there are: {', '.join(names())});"
                " your own is named package.module:Class"
            )
        return _REGISTRY[name]
    module_name, _, class_name = name.partition(":")
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise UserError(
            f"{name}: `{module_name}` cannot be imported ({type(error).__name__}: {error})"
        ) from error
    found = getattr(module, class_name, None)
    if not (isinstance(found, type) and issubclass(found, Retriever)):
        raise UserError(f"{name}: `{class_name}` is not a subclass of retrievers.Retriever")
    if inspect.isabstract(found):
        missing = ", ".join(sorted(found.__abstractmethods__))
        raise UserError(f"{name}: `{class_name}` does not define {missing}")
    return found


def leg_finder(
    configurations: Sequence[Configuration], run: RunContext
) -> Callable[[str], Retriever]:
    """Gives the one instance of a label, or else of a registered name with default settings.

    It raises UserError naming the setting that is unknown or has a wrong value, and for legs that
    lead back to where they started.
    """
    by_label = {one.label: one for one in configurations}
    built: dict[str, Retriever] = {}
    path: list[str] = []

    def leg(name: str) -> Retriever:
        if name in path:
            circle = " -> ".join([*path[path.index(name) :], name])
            raise UserError(f"`{name}` is a leg of itself ({circle}). Name other legs")
        if name not in built:
            path.append(name)
            configuration = by_label.get(name) or Configuration(name, name, {})
            built[name] = _build(configuration, replace(run, leg=leg))
            path.pop()
        return built[name]

    return leg


def build_all(configurations: Sequence[Configuration], run: RunContext) -> dict[str, Retriever]:
    """The retrievers of a run by label. One that names another as its leg shares its instance.

    Raises UserError as `leg_finder` does.
    """
    leg = leg_finder(configurations, run)
    return {one.label: leg(one.label) for one in configurations}


def build(configuration: Configuration, run: RunContext) -> Retriever:
    """An instance with the settings of `configuration`, each checked against the constructor.

    Raises UserError as `leg_finder` does.
    """
    return build_all([configuration], run)[configuration.label]


def _build(configuration: Configuration, run: RunContext) -> Retriever:
    cls = find(configuration.name)
    settings = _coerce(cls, configuration)
    _require_all(cls, configuration)
    try:
        instance = cls.from_run(settings, run)
    except UserError as error:
        raise UserError(f"{configuration.label}: {error}") from error
    except (ValueError, OSError) as error:
        raise UserError(f"{configuration.label}: {error}") from error
    instance._configured = {**_defaults(cls), **settings}
    instance.fitted_on = tuple(sorted({*instance.fitted_on, *configuration.fitted_on}))
    return instance


def _parameters(cls: type[Retriever]) -> dict[str, inspect.Parameter]:
    return {
        name: parameter
        for name, parameter in inspect.signature(cls).parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }


def _require_all(cls: type[Retriever], configuration: Configuration) -> None:
    if cls.from_run.__func__ is not Retriever.from_run.__func__:  # type: ignore[attr-defined]
        return  # it may take what is missing from the run
    for name, parameter in _parameters(cls).items():
        if parameter.default is parameter.empty and name not in configuration.settings:
            raise UserError(
                f"{configuration.label}: `{configuration.name}` needs a setting;"
                f" give --set {configuration.label}.{name}=..."
            )


def _defaults(cls: type[Retriever]) -> dict[str, Any]:
    plain = (str, int, float, bool, type(None))
    found = {name: parameter.default for name, parameter in _parameters(cls).items()}
    return {name: value for name, value in found.items() if isinstance(value, plain)}


def _coerce(cls: type[Retriever], configuration: Configuration) -> dict[str, Any]:
    if not configuration.settings:
        return {}
    from pydantic import PydanticUserError, TypeAdapter, ValidationError

    try:
        hints = typing.get_type_hints(cls.__init__)
    except NameError as error:
        raise UserError(
            f"{configuration.name}: an annotation of its constructor can't be read ({error})"
        ) from error
    known = {name: hints.get(name, str) for name in _parameters(cls)}
    settings: dict[str, Any] = {}
    for key, text in configuration.settings.items():
        where = f"--set {configuration.label}.{key}={text}"
        if key not in known:
            raise UserError(
                f"{where}: `{configuration.name}` has no setting `{key}`"
                f" (it has: {', '.join(known) or 'none'})"
            )
        if text == "none" and type(None) in typing.get_args(known[key]):
            settings[key] = None
            continue
        try:
            settings[key] = TypeAdapter(known[key]).validate_strings(text)
        except ValidationError as error:
            raise UserError(f"{where}: {error.errors()[0]['msg']}") from None
        except PydanticUserError as error:
            raise UserError(f"{where}: a {known[key]} can't be given as text") from error
    return settings


def users_code(cls: type[Retriever]) -> str | None:
    """A hash over the files in which a class and all it inherits from are written.

    None where there is no code but ours. Functions that these files import are not covered.
    """
    files = set()
    for base in cls.__mro__:
        room = base.__module__.partition(".")[0]
        if room != "retrievers" and room not in sys.stdlib_module_names:
            with contextlib.suppress(TypeError, OSError):
                files.add(Path(inspect.getfile(base)))
    return short_hash(sorted(file_hash(path) for path in files)) if files else None


def describe(configuration: Configuration, retriever: Retriever) -> Mapping[str, Any]:
    """What the fingerprint holds of a configured retriever."""
    described = {"name": configuration.name, **_described(retriever)}
    fitted_on = list(retriever.fitted_on)
    return {**described, "fitted_on": fitted_on} if fitted_on else described


def describe_leg(label: str, retriever: Retriever) -> Mapping[str, Any]:
    """What the settings of a retriever hold of its leg."""
    cls = type(retriever)
    return {"label": label, "class": f"{cls.__module__}:{cls.__qualname__}"} | _described(retriever)


def _described(retriever: Retriever) -> dict[str, Any]:
    described: dict[str, Any] = {"settings": dict(retriever.settings())}
    code = users_code(type(retriever))
    return {**described, "code": code} if code else described
