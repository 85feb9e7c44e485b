"""Tables as plain text that fit the width of the terminal without losing a column or a digit."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len

from recallbed.harness.terminal import SafeLine, isolated, one_line, say, visible

_GAP = "  "
_LEAST = 20
"""Cells that a text is given even if the terminal is narrower."""


@dataclass(slots=True)
class TextTable:
    """A title, named columns, and rows of cells, one text for each column.

    The first `keys` columns name a row. The first column and those named in `texts` are aligned to
    the left, the others, which hold figures, to the right.
    """

    title: str
    columns: Sequence[str]
    keys: int = 1
    texts: Sequence[str] = ()
    rows: list[tuple[str, ...]] = field(default_factory=list)
    rules: list[int] = field(default_factory=list)
    """The numbers of rows above which there is a line."""

    def __post_init__(self) -> None:
        self.title = one_line(self.title)
        self.columns = tuple(map(one_line, self.columns))

    def add(self, *cells: object) -> None:
        """Append a row. Raises ValueError if it has not one cell for each column."""
        if len(cells) != len(self.columns):
            raise ValueError(f"{len(cells)} cells for {len(self.columns)} columns")
        self.rows.append(tuple(one_line(cell) for cell in cells))

    def rule(self) -> None:
        """Separate the rows so far from those that follow by a line."""
        self.rules.append(len(self.rows))

    def lines(self, width: int | None = None) -> list[str]:
        """Return the table as lines of at most `width` terminal cells; None is unlimited.

        If all columns side by side are too wide, they are split into blocks that repeat the key
        columns. If even that does not fit, each row is printed as `name  value` lines, and long
        text is wrapped. Figures are never cut: one wider than `width` makes its line longer. Cells
        from right to left are isolated for a terminal, so that the columns keep their order.
        """
        widths = [
            max(cell_len(cell) for cell in column)
            for column in zip(self.columns, *self.rows, strict=True)
        ]
        blocks = self._blocks(widths, width)
        parts = (
            [self._records(width)]
            if blocks is None
            else [self._grid(b, widths, width is not None) for b in blocks]
        )
        return [*wrapped(self.title, width), *(line for part in parts for line in ("", *part))]

    def markdown(self) -> list[str]:
        """Return the title in bold and the table as lines of Markdown."""
        columns = range(len(self.columns))
        left = [i == 0 or self.columns[i] in self.texts for i in columns]
        rule = ["---" if is_left else "---:" for is_left in left]
        return [
            f"**{self.title}**",
            "",
            *(_markdown_row(row) for row in (self.columns, rule, *self.rows)),
        ]

    def _blocks(self, widths: Sequence[int], width: int | None) -> list[list[int]] | None:
        """The columns of each block; None if the keys leave no room for some column."""
        columns = range(len(self.columns))
        keys, others = columns[: self.keys], columns[self.keys :]
        blocks = [[*keys]]
        for column in others:
            if width is not None and _total(widths, [*blocks[-1], column]) > width:
                blocks.append([*keys])
                if _total(widths, [*keys, column]) > width:
                    return None
            blocks[-1].append(column)
        return [block for block in blocks if len(block) > len(keys) or not others]

    def _grid(self, block: Sequence[int], widths: Sequence[int], isolate: bool) -> list[str]:
        head = self._line([self.columns[i] for i in block], block, widths, isolate)
        rule = "-" * _total(widths, block)
        body = []
        for number, row in enumerate(self.rows):
            body += [rule] * (number in self.rules)
            body.append(self._line([row[i] for i in block], block, widths, isolate))
        return [head, rule, *body]

    def _line(
        self, cells: Sequence[str], block: Sequence[int], widths: Sequence[int], isolate: bool
    ) -> str:
        padded = []
        for i, cell in zip(block, cells, strict=True):
            blank = " " * (widths[i] - cell_len(cell))
            left = i == 0 or self.columns[i] in self.texts
            shown = isolated(cell) if isolate else cell
            padded.append(shown + blank if left else blank + shown)
        return _GAP.join(padded).rstrip()

    def _records(self, width: int | None) -> list[str]:
        names = max(map(cell_len, self.columns))
        found: list[str] = []
        for number, row in enumerate(self.rows):
            found += [""] * (number > 0)
            for name, cell in zip(self.columns, row, strict=True):
                head = name + " " * (names - cell_len(name)) + _GAP
                if width is None:
                    found.append((head + cell).rstrip())
                elif cell_len(head + cell) <= width:
                    found.append((head + isolated(cell)).rstrip())
                else:
                    found.append(name)
                    parts = wrapped(cell, width - len(_GAP))
                    found += [_GAP + isolated(part) for part in parts]
        return found


def print_tables(tables: Iterable[TextTable]) -> None:
    """Print tables on stdout, as wide as the terminal; in a file or pipe they are not limited."""
    width = terminal_width()
    for number, table in enumerate(tables):
        say(*[""] * (number > 0), *map(SafeLine, table.lines(width)))


def terminal_width() -> int | None:
    """The width of stdout's terminal; None for a file or a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def text_block(head: str, text: object, width: int | None) -> list[SafeLine]:
    """Return a text on lines of at most `width` cells, below each other and after `head`.

    Right-to-left lines are isolated from the head for a terminal; None, for a file or a pipe, is
    one line without isolates.
    """
    head = visible(head)
    room = None if width is None else max(width - cell_len(head), _LEAST)
    parts = wrapped(one_line(text), room)
    blank = " " * cell_len(head)
    return [
        SafeLine((blank if number else head) + (part if width is None else isolated(part)))
        for number, part in enumerate(parts)
    ]


def wrapped(text: str, width: int | None) -> list[str]:
    """Break a line at spaces, and words wider than `width` anywhere, except in figures."""
    if width is None or cell_len(text) <= width:
        return [text]
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and cell_len(f"{lines[-1]} {word}") <= width:
            lines[-1] += f" {word}"
            continue
        if lines[-1]:
            lines.append("")
        if any(c.isalpha() for c in word):
            for c in word:
                if lines[-1] and cell_len(lines[-1] + c) > width:
                    lines.append("")
                lines[-1] += c
        else:
            lines[-1] = word
    return lines


def _markdown_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _total(widths: Sequence[int], block: Sequence[int]) -> int:
    return sum(widths[i] for i in block) + len(_GAP) * (len(block) - 1)
