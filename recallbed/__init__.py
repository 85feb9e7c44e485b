"""The ground of the testbed: data, runs and chat models. It knows no retriever and no task."""

from recallbed.packages import guard_commands

guard_commands()  # before any other import, which the working folder might answer

from typing import Any  # noqa: E402

__version__: str


def __getattr__(name: str) -> Any:
    """`__version__`: looked up if asked for, as its library takes as long as a help text."""
    if name != "__version__":
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from importlib import metadata

    try:
        return metadata.version("recallbed")
    except metadata.PackageNotFoundError:  # a checkout that is not installed
        return "0+source"
