"""Classes by name: those of a package of ours, and a user's own `package.module:Class`."""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Generic, TypeVar

from recallbed.errors import UserError
from recallbed.harness.failures import cause_of
from recallbed.harness.users_code import before_users_code

C = TypeVar("C")
D = TypeVar("D", bound=type)


class Registry(Generic[C]):
    """Subclasses of `base`, each registered by a file of `package` under a name.

    `kind` is the word for one of them in errors, such as "retriever".
    """

    def __init__(self, package: str, kind: str, base: type[C]) -> None:
        self.package, self.kind, self.base = package, kind, base
        self._classes: dict[str, type[C]] = {}

    def register(self, name: str) -> Callable[[D], D]:
        """Register the decorated class under `name`. Raises ValueError if another class has it."""

        def enter(cls: D) -> D:
            taken = self._classes.get(name)
            if taken is not None and _origin(taken) != _origin(cls):
                raise ValueError(f"two {self.kind}s are called {name}: {taken} and {cls}")
            self._classes[name] = cls
            return cls

        return enter

    def names(self) -> tuple[str, ...]:
        """Return all registered names, sorted, after importing every file of the package."""
        package = importlib.import_module(self.package)
        for module in pkgutil.walk_packages(package.__path__, f"{self.package}."):
            importlib.import_module(module.name)
        return tuple(sorted(self._classes))

    def name_of(self, cls: type[C]) -> str:
        """Return the name by which `find` finds the class."""
        for name, registered in self._classes.items():
            if registered is cls:
                return name
        return f"{cls.__module__}:{cls.__qualname__}"

    def find(self, name: str) -> type[C]:
        """Return the class registered as `name`, or the user's own `package.module:Class`.

        The working folder is searched last. Raises UserError with what is wrong.
        """
        if ":" in name:
            return _load_class(name, self.base, f"{self.package}.{self.base.__name__}")
        if not self._import_file_of(name) and name not in self.names():
            raise UserError(
                f"no {self.kind} `{name}` (there are: {', '.join(self.names())});"
                " your own is named package.module:Class"
            )
        return self._classes[name]

    def _import_file_of(self, name: str) -> bool:
        """Whether `name` is registered once the file of that name is imported.

        Importing the other files takes a third of a second, and only the list of names needs it.
        """
        module = f"{self.package}.{name.replace('-', '_')}"
        if name not in self._classes and name.replace("-", "").isalnum() and find_spec(module):
            importlib.import_module(module)
        return name in self._classes


def _origin(cls: type) -> tuple[str, str]:
    return cls.__module__, cls.__qualname__


def _load_class(name: str, base: type, called: str) -> type[Any]:
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
