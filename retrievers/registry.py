"""Registered retrievers, and building them from settings typed as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from recallbed.errors import UserError
from recallbed.harness.configurations import Configuration
from recallbed.harness.registry import Registry
from recallbed.harness.typed_settings import coerced, parameters, plain_defaults, require_all, typed
from recallbed.harness.users_code import made_of
from retrievers.base import Retriever, RunContext

RETRIEVERS: Registry[Retriever] = Registry("retrievers", "retriever", Retriever)  # type: ignore[type-abstract]
register = RETRIEVERS.register


@dataclass(frozen=True, slots=True)
class GivenInstance(Configuration):
    """An instance instead of a name with settings.

    A run builds another one with its constructor's arguments, to which it can give its store, seed
    and legs. One that was assembled otherwise is used as it is.
    """

    instance: Retriever | None = None

    @classmethod
    def of(cls, label: str, instance: Retriever) -> GivenInstance:
        """Return the configuration of an instance, named as it is registered."""
        return cls(label, RETRIEVERS.name_of(type(instance)), {}, instance=instance)


def leg_finder(
    configurations: Sequence[Configuration], run: RunContext
) -> Callable[[str], Retriever]:
    """Return a function from a label, or a registered name, to its one instance.

    It raises UserError for an unknown setting or a wrong value, and if a retriever is its own leg,
    directly or through others. A name that is no label gets default settings.
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
            built[name] = build_with(configuration, replace(run, leg=leg_of(configuration)))
            path.pop()
        return built[name]

    return leg


def _refuse_code(configuration: Configuration, name: str) -> None:
    """Raise UserError if a settings file names this class, whose code would be run."""
    for key in sorted(configuration.from_files):
        value = configuration.settings[key]
        if name in value:
            option = f"{configuration.label}.{key}"
            raise UserError(
                f"--set @FILE: sets {option}={value}, which runs the code of `{name}`."
                f" Pass --allow-code if you trust the file, or type --set {option}=... yourself"
            )


def build_retrievers(
    configurations: Sequence[Configuration], run: RunContext
) -> dict[str, Retriever]:
    """Return the retrievers of a run by label. A leg named by label is the same instance.

    Raises UserError as `leg_finder` does.
    """
    leg = leg_finder(configurations, run)
    return {one.label: leg(one.label) for one in configurations}


def build_retriever(configuration: Configuration, run: RunContext) -> Retriever:
    """Return an instance with the settings of `configuration`, checked against the constructor.

    Raises UserError as `leg_finder` does.
    """
    return build_retrievers([configuration], run)[configuration.label]


def build_with(configuration: Configuration, run: RunContext) -> Retriever:
    """Return an instance that takes its legs from `run.leg`, for a retriever that is made of it.

    Raises UserError as `leg_finder` does.
    """
    given = configuration.instance if isinstance(configuration, GivenInstance) else None
    cls = RETRIEVERS.find(configuration.name) if given is None else type(given)
    takes_nothing = cls.from_run.__func__ is Retriever.from_run.__func__  # type: ignore[attr-defined]
    arguments = None if given is None else given._arguments
    if arguments is None and cls.__init__ is object.__init__:
        arguments = {}
    ready = takes_nothing or arguments is None
    if given is None:
        option = f"--set {configuration.label}."
        settings = typed(cls, configuration.name, option, configuration.settings)
        if takes_nothing:  # another one may take what is missing from the run
            require_all(cls, configuration.name, option, configuration.settings)
    elif arguments is None:
        settings = {k: getattr(given, k) for k in parameters(cls) if hasattr(given, k)}
    else:
        settings = coerced(cls, configuration.label, arguments)
    try:
        instance = given if given and ready else cls.from_run(settings, run)
    except (UserError, ValueError, OSError) as error:
        raise UserError(f"{configuration.label}: {error}") from error
    instance._configured = {**plain_defaults(cls), **settings}
    instance.fitted_on = tuple(sorted({*instance.fitted_on, *configuration.fitted_on}))
    return instance


def describe_retriever(configuration: Configuration, retriever: Retriever) -> Mapping[str, Any]:
    """Return what the fingerprint records of a configured retriever."""
    described = {"name": configuration.name, **_described(retriever)}
    fitted_on = list(retriever.fitted_on)
    return {**described, "fitted_on": fitted_on} if fitted_on else described


def describe_leg(label: str, retriever: Retriever) -> Mapping[str, Any]:
    """Return what the settings of a retriever record of its leg."""
    cls = type(retriever)
    return {"label": label, "class": f"{cls.__module__}:{cls.__qualname__}"} | _described(retriever)


def _described(retriever: Retriever) -> dict[str, Any]:
    return {"settings": dict(retriever.settings()), **made_of(retriever)}
