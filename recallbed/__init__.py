"""The ground of the testbed: data, runs and chat models. It knows no retriever and no task."""

from importlib import metadata

try:
    __version__ = metadata.version("recallbed")
except metadata.PackageNotFoundError:  # a checkout that is not installed
    __version__ = "0+source"
