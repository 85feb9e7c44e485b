"""Finding a retriever class by name and building it from settings typed as text."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, TypeVar

from recallbed.errors import UserError
from recallbed.harness.configurations import Configuration
from recallbed.harness.typed_settings import plain_defaults, require_all, typed
from recallbed.harness.users_class import load_class
from recallbed.harness.users_code import made_of
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
        if not _import_file_of(name) and name not in names():
            raise UserError(
                f"no retriever `{name}` (there are: {', '.join(names())});"
                " your own is named package.module:Class"
            )
        return _REGISTRY[name]
    return load_class(name, Retriever, "retrievers.Retriever")


def _import_file_of(name: str) -> bool:
    """Whether the name is registered once the file called like it is imported.

    The other files cost a third of a second, and only the list of names needs them.
    """
    module = f"retrievers.{name.replace('-', '_')}"
    if name not in _REGISTRY and name.replace("-", "").isalnum() and find_spec(module):
        importlib.import_module(module)
    return name in _REGISTRY


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

    def leg_of(configuration: Configuration) -> Callable[[str], Retriever]:
        def named(name: str) -> Retriever:
            if ":" in name and name not in by_label:
                _refuse_code(configuration, name)
            return leg(name)

        return named

    def leg(name: str) -> Retriever:
        if name in path:
            circle = " -> ".join([*path[path.index(name) :], name])
            raise UserError(f"`{name}` is a leg of itself ({circle}). Name other legs")
        if name not in built:
            path.append(name)
            configuration = by_label.get(name) or Configuration(name, name, {})
            built[name] = _build(configuration, replace(run, leg=leg_of(configuration)))
            path.pop()
        return built[name]

    return leg


def _refuse_code(configuration: Configuration, name: str) -> None:
    """Raise UserError if a settings file chose this class, whose code would be run."""
    for key in sorted(configuration.from_files):
        value = configuration.settings[key]
        if name in value:
            option = f"{configuration.label}.{key}"
            raise UserError(
                f"--set @FILE: sets {option}={value}, which runs the code of `{name}`."
                f" Pass --allow-code if you trust the file, or type --set {option}=... yourself"
            )


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
    option = f"--set {configuration.label}."
    settings = typed(cls, configuration.name, option, configuration.settings)
    if cls.from_run.__func__ is Retriever.from_run.__func__:  # type: ignore[attr-defined]
        # Another one may take what is missing from the run.
        require_all(cls, configuration.name, option, configuration.settings)
    try:
        instance = cls.from_run(settings, run)
    except UserError as error:
        raise UserError(f"{configuration.label}: {error}") from error
    except (ValueError, OSError) as error:
        raise UserError(f"{configuration.label}: {error}") from error
    instance._configured = {**plain_defaults(cls), **settings}
    instance.fitted_on = tuple(sorted({*instance.fitted_on, *configuration.fitted_on}))
    return instance


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
    return {"settings": dict(retriever.settings()), **made_of(retriever)}
