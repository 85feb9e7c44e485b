"""Style and scripts of the report, as they are put into the page: read by `asset`."""

from __future__ import annotations

from importlib.resources import files

SCRIPTS = (
    "dom",
    "blocks",
    "state",
    "figures",
    "charts",
    "tables",
    "results",
    "index",
    "queries",
    "ranking",
    "significance",
    "breakdown",
    "frontier",
    "audit",
    "runs",
    "main",
)
"""The scripts in the order in which they are joined."""


def asset(name: str) -> str:
    """Return a file of this package as text."""
    return files("analysis.report_page").joinpath(name).read_text("utf-8")


def style() -> str:
    """Return the style sheet."""
    return asset("report.css")


def script() -> str:
    """Return all scripts as one, in a scope of its own and in strict mode."""
    parts = "\n".join(asset(f"{name}.js") for name in SCRIPTS)
    return f'(() => {{\n"use strict";\n{parts}\n}})();\n'
