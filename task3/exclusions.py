"""A list of queries to leave out, such as those whose gold an audit found wrong."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from recallbed.errors import UserError


def read_exclusions(path: Path, known: Collection[str]) -> frozenset[str]:
    """The benchmark_ids of a text file, one a line, blank lines and lines that start with # aside.

    Raises UserError for a file that isn't UTF-8 text, and for ids that are not among `known`.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 at byte {error.start}. Save it as UTF-8") from None
    places: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        name = line.strip()
        if name and not name.startswith("#"):
            places.setdefault(name, number)
    unknown = [name for name in places if name not in known]
    if unknown:
        shown = ", ".join(f"`{name[:60]}` (line {places[name]})" for name in unknown[:3])
        raise UserError(
            f"{path}: {len(unknown)} of {len(places)} ids are no query of this split: {shown}"
        )
    return frozenset(places)
