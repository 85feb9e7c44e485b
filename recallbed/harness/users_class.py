"""A class that a user names as `package.module:Class`."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from typing import Any

from recallbed.errors import UserError
from recallbed.harness.cause import cause_of
from recallbed.harness.users_code import before_users_code


def load_class(name: str, base: type, called: str) -> type[Any]:
    """The class named `package.module:Class`, a concrete subclass of `base`, called `called`.

    The working folder is searched last. Raises UserError with what is wrong.
    """
    module_name, _, class_name = name.partition(":")
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    before_users_code()
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise UserError(
            f"{name}: `{module_name}` cannot be imported ({cause_of(error)})"
        ) from error
    found = getattr(module, class_name, None)
    if not class_name:
        raise UserError(f"{name}: names no class. Write package.module:Class")
    if found is None:
        there = [
            key
            for key, value in vars(module).items()
            if isinstance(value, type) and value.__module__ == module.__name__
        ]
        raise UserError(
            f"{name}: `{module_name}` has no class `{class_name}`"
            f" (it has: {', '.join(there) or 'none'})"
        )
    if not (isinstance(found, type) and issubclass(found, base)):
        raise UserError(f"{name}: `{class_name}` is not a subclass of {called}")
    if inspect.isabstract(found):
        missing = ", ".join(sorted(getattr(found, "__abstractmethods__")))  # noqa: B009
        raise UserError(f"{name}: `{class_name}` does not define {missing}")
    return found
