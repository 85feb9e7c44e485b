"""Settings typed as text, checked against the constructor of the class that they are for."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Collection, Mapping
from typing import Any

from recallbed.errors import UserError


def parameters(cls: type, given: Collection[str] = ()) -> dict[str, inspect.Parameter]:
    """What can be set of `cls`: its constructor's parameters, but for those that are `given`."""
    return {
        name: parameter
        for name, parameter in inspect.signature(cls).parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        and name not in given
    }


def plain_defaults(cls: type, given: Collection[str] = ()) -> dict[str, Any]:
    """The defaults that can be written down as they are."""
    plain = (str, int, float, bool, type(None))
    found = {name: parameter.default for name, parameter in parameters(cls, given).items()}
    return {name: value for name, value in found.items() if isinstance(value, plain)}


def require_all(
    cls: type, name: str, option: str, settings: Mapping[str, str], given: Collection[str] = ()
) -> None:
    """Raise UserError where `name` needs a setting that isn't there; `option` as in `typed`."""
    for key, parameter in parameters(cls, given).items():
        if parameter.default is parameter.empty and key not in settings:
            raise UserError(f"`{name}` needs a setting; give {option}{key}=...")


def typed(
    cls: type, name: str, option: str, settings: Mapping[str, str], given: Collection[str] = ()
) -> dict[str, Any]:
    """The settings as the constructor of `cls`, called `name`, wants them.

    `option` is what a user types before `key=value`, such as `--set bm25.`; a None is written
    `none`. Raises UserError naming the setting that is unknown or has a wrong value.
    """
    if not settings:
        return {}
    from pydantic import PydanticUserError, TypeAdapter, ValidationError

    known = _types(cls, name, given)
    found: dict[str, Any] = {}
    for key, text in settings.items():
        where = f"{option}{key}={text}"
        if key not in known:
            raise UserError(
                f"{where}: `{name}` has no setting `{key}` (it has: {', '.join(known) or 'none'})"
            )
        if text == "none" and type(None) in typing.get_args(known[key]):
            found[key] = None
            continue
        try:
            found[key] = TypeAdapter(known[key]).validate_strings(text)
        except ValidationError as error:
            raise UserError(f"{where}: {error.errors()[0]['msg']}") from None
        except PydanticUserError as error:
            raise UserError(f"{where}: a {known[key]} can't be given as text") from error
    return found


def coerced(cls: type, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return a constructor's arguments as `typed` would give them: 1 for a float is 1.0.

    An argument of a type that cannot be checked stays as it is. Raises UserError for a wrong value.
    """
    from pydantic import PydanticUserError, TypeAdapter, ValidationError

    types = _types(cls, name, ())
    found = dict(arguments)
    for key in arguments.keys() & types.keys():
        try:
            found[key] = TypeAdapter(types[key]).validate_python(arguments[key])
        except ValidationError as error:
            raise UserError(
                f"{name}, {key}={arguments[key]!r}: {error.errors()[0]['msg']}"
            ) from None
        except PydanticUserError:
            continue
    return found


def _types(cls: type, name: str, given: Collection[str]) -> dict[str, Any]:
    try:
        hints = typing.get_type_hints(cls.__init__)  # type: ignore[misc]
    except NameError as error:
        raise UserError(
            f"{name}: an annotation of its constructor can't be read ({error})"
        ) from error
    return {key: hints.get(key, str) for key in parameters(cls, given)}
