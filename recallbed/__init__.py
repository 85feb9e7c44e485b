"""The ground of the testbed: data, runs and chat models. It knows no retriever and no task."""

from recallbed.packages import guard_commands

guard_commands()  # before any other import, which the working folder might answer

from importlib import metadata  # noqa: E402

try:
    __version__ = metadata.version("recallbed")
except metadata.PackageNotFoundError:  # a checkout that is not installed
    __version__ = "0+source"
