"""A class that a user names as `package.module:Class`, and the code that it is made of."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import sys
from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.fingerprint import file_hash, short_hash


def load_class(name: str, base: type, called: str) -> type[Any]:
    """The class named `package.module:Class`, a concrete subclass of `base`, called `called`.

    The working folder is searched last. Raises UserError with what is wrong.
    """
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
    if not (isinstance(found, type) and issubclass(found, base)):
        raise UserError(f"{name}: `{class_name}` is not a subclass of {called}")
    if inspect.isabstract(found):
        missing = ", ".join(sorted(getattr(found, "__abstractmethods__")))  # noqa: B009
        raise UserError(f"{name}: `{class_name}` does not define {missing}")
    return found


def users_code(cls: type, room: str) -> str | None:
    """A hash over the files in which a class and all it inherits from are written.

    None where there is no code but that of `room`. Functions that these files import are not
    covered.
    """
    files = set()
    for base in cls.__mro__:
        home = base.__module__.partition(".")[0]
        if home != room and home not in sys.stdlib_module_names:
            with contextlib.suppress(TypeError, OSError):
                files.add(Path(inspect.getfile(base)))
    return short_hash(sorted(file_hash(path) for path in files)) if files else None
