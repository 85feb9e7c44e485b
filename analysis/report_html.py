"""The report as one HTML file: its frame, the table that needs no script, data and scripts."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from analysis.report_blocks import Blocks, inline_json
from analysis.report_page import asset, script, style
from recallbed.errors import UserError
from recallbed.harness.terminal import visible

PLOTLY = "plotly"
"""The block that holds the source of plotly.js."""


def plotly_source() -> bytes:
    """Return plotly.js as the Python package `plotly` has it, without importing that package.

    Raise UserError if it is not installed.
    """
    spec = find_spec("plotly")
    for place in spec.submodule_search_locations or () if spec else ():
        source = Path(place) / "package_data" / "plotly.min.js"
        if source.is_file():
            return source.read_bytes()
    raise UserError("the report needs plotly. Install it: pip install 'recallbed[report]'")


def html_page(title: str, data: Mapping[str, Any], blocks: Blocks, plotly: bytes) -> str:
    """Return the page; `blocks` get `plotly`.

    A content security policy lets run only our script and plotly's, by their hashes, and forbids
    every request.
    """
    blocks.add_bytes(PLOTLY, plotly)
    code = script()
    sources = " ".join(source_hash(source) for source in (code.encode(), plotly))
    policy = (
        f"default-src 'none'; script-src {sources}; style-src 'unsafe-inline';"
        " img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    parts = {
        "policy": escape(policy),
        "title": html_text(title),
        "style": style(),
        "subtitle": html_text("; ".join(data["subtitle"])),
        "remarks": "".join(f"<li>{html_text(line)}</li>" for line in data["remarks"]),
        "head": "".join(f'<th scope="col">{html_text(head)}</th>' for head in _heads(data)),
        "rows": "\n".join(_rows(data)),
        "data": inline_json(data),
        "blocks": "".join(blocks.elements()),
        "script": code,
    }
    page = asset("page.html")
    for name in parts:
        if page.count(f"@@{name}@@") < 1:
            raise ValueError(f"page.html has no place for {name}")
    head, *rest = page.split("@@")
    # What is put in is never searched for places itself.
    return head + "".join(parts[one] if i % 2 == 0 else one for i, one in enumerate(rest))


def html_text(text: object) -> str:
    """Return a text for HTML, on one line, with control characters as escapes."""
    return escape(visible(text))


def source_hash(source: bytes) -> str:
    """Return what a content security policy calls an inline script or style sheet."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(source).digest()).decode('ascii')}'"


def _heads(data: Mapping[str, Any]) -> list[str]:
    return ["retriever", "distractors", f"R@{data['ks'][0]} [95 %]", "scored", "failed"]


def _rows(data: Mapping[str, Any]) -> Iterator[str]:
    """The rows of the table for the first k; the script replaces them with more columns."""
    metric = f"R@{data['ks'][0]}"
    for curve in data["curves"]:
        for size, cell in curve["cells"].items():
            one = cell["metrics"].get(metric)
            figures = f"{one['mean']:.3f} [{one['low']:.3f}, {one['high']:.3f}]" if one else "-"
            cells = (size, figures, cell["scored"], cell["failed"])
            yield (
                f'<tr><th scope="row"><bdi>{html_text(curve["name"])}</bdi></th>'
                + "".join(f"<td>{html_text(value)}</td>" for value in cells)
                + "</tr>"
            )
