"""Options of every command that draws a picture."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import typer

from recallbed.errors import UserError
from recallbed.harness.options import Parsed

_Size = tuple[float, float]
_LIMITS = (1.0, 40.0)
"""Inches of a side."""


def parse_inches(option: str, text: str) -> _Size:
    """`"3.3x2.4"` as width and height in inches; raises UserError naming the option."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?|\.\d+)[xX×](\d+(?:\.\d+)?|\.\d+)", text.strip())
    low, high = _LIMITS
    if not found or not all(low <= float(side) <= high for side in found.groups()):
        raise UserError(
            f"{option} {text}: write width and height in inches, each from {low:g} to {high:g},"
            f" such as {option} 3.3x2.4"
        )
    return float(found[1]), float(found[2])


Names = Annotated[
    tuple[str, ...],
    typer.Option(metavar="LABEL=TEXT", help="Name of a label. May be repeated."),
]


@dataclass(frozen=True, slots=True)
class FigureOptions:
    """How a picture looks. `size` is (width, height) in inches, None for that of the style.

    The style `paper` is for a column of a printed page: 3.3 inches wide, text of 8 points, lines
    that remain distinct in grey, letters in an SVG as text, and no title unless one is given.
    """

    PANEL: ClassVar[str] = "Figure"
    title: Annotated[
        str | None,
        typer.Option(help='Title of the picture, "" for none. Default: what was measured.'),
    ] = None
    size: Annotated[
        _Size | None,
        typer.Option(metavar="WIDTHxHEIGHT", help="Size in inches, such as 3.3x2.4."),
        Parsed(parse_inches, lambda size: "x".join(f"{side:g}" for side in size)),
    ] = None
    no_bands: Annotated[bool, typer.Option(help="Draw no intervals.")] = False
    logy: Annotated[bool, typer.Option(help="Logarithmic vertical axis.")] = False
    names: Names = ()
    style: Annotated[
        Literal["screen", "paper"],
        typer.Option(help="paper: one column wide, 8 points, readable in grey, no title."),
    ] = "screen"

    @property
    def paper(self) -> bool:
        """Whether the picture is for a printed page."""
        return self.style == "paper"

    def inches(
        self, screen: tuple[float, float], paper: tuple[float, float]
    ) -> tuple[float, float]:
        """Return --size, else the size of the style."""
        return self.size or (paper if self.paper else screen)

    def heading(self, lines: Sequence[str]) -> list[str]:
        """Return the lines of the title: `lines` unless --title or the style say otherwise."""
        if self.title is not None:
            return [self.title] if self.title.strip() else []
        return [] if self.paper else list(lines)

    def renamed(self, names: Sequence[str], labels: Sequence[str]) -> list[str]:
        """Return `names`, the n-th of which begins with the n-th of `labels`, as --names has them.

        `LABEL=TEXT` replaces the label in each of its names, and `NAME=TEXT` one name. Raise
        UserError for a name that there is not, and if two become equal.
        """
        return rename(self.names, names, labels)


SCREEN = FigureOptions()


def rename(words: Sequence[str], names: Sequence[str], labels: Sequence[str]) -> list[str]:
    """Return `names` as the `words` of --names have them (see `FigureOptions.renamed`)."""
    found = list(names)
    for word in words:
        renamed = {
            i: text + name.removeprefix(key)
            for key, text in _splits(word)
            for i, name in enumerate(names)
            if key in (name, labels[i]) or name.startswith(f"{key} (")
        }
        if not renamed:
            known = ", ".join(dict.fromkeys([*labels, *names]))
            raise UserError(f"--names {word}: write LABEL=TEXT with a label of: {known}")
        for i, name in renamed.items():
            found[i] = name
    for i, name in enumerate(found):
        if name in found[:i] and names[i] not in names[:i]:
            other = names[found.index(name)]
            raise UserError(f"--names: {other} and {names[i]} would both be called {name}")
    return found


def _splits(word: str) -> Iterator[tuple[str, str]]:
    """Yield what is before and after each `=`, since the name of a folder may contain one."""
    for sign in re.finditer("=", word):
        key, text = word[: sign.start()], word[sign.end() :]
        if key and text.strip():
            yield key, text
