"""A table of results as text, Markdown, LaTeX, CSV and JSON. Labels are text in all of them."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from analysis.result_table import ResultCell, ResultRow, ResultTable
from analysis.significance import ALPHA
from analysis.statistics import rounded
from recallbed.harness.fingerprint import canonical
from recallbed.harness.terminal import visible
from recallbed.harness.text_table import TextTable

BEST = "*"
_HIGH = dict(
    zip("abcdefghijklmnopqrstuvwxyz0123456789", "ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖ𐞥ʳˢᵗᵘᵛʷˣʸᶻ⁰¹²³⁴⁵⁶⁷⁸⁹", strict=True)
)
CSV_HEAD = (
    *("name", "label", "run", "letter", "published", "metric", "distractors", "area"),
    *("mean", "low", "high", "interval", "best", "better_than", "scored", "attempted", "rows"),
)


def text_table(table: ResultTable, intervals: bool, encoding: str = "utf-8") -> TextTable:
    """Return the table as text: letters are raised if `encoding` has them, `*` marks the best."""
    lead = [""] * table.lettered
    heads = [*lead, "retriever", *(column.name for column in table.columns)]
    # Figures have equal widths, so they are aligned on the left and letters hang on the right.
    found = TextTable(table.title, heads, keys=len(lead) + 1, texts=heads)
    for number, row in enumerate(table.rows):
        if row.published and number == len(table.ours):
            found.rule()
        name = visible(row.name) + "".join(f" [{mark}]" for mark in row.marks)
        name += " (published)" * row.published
        cells = [_text_cell(cell, intervals, encoding) for cell in row.cells]
        found.add(*[row.letter] * table.lettered, name, *cells)
    return found


def _text_cell(cell: ResultCell | None, intervals: bool, encoding: str) -> str:
    if cell is None:
        return ""
    letters = "".join(_HIGH[letter] for letter in cell.better_than)
    try:
        letters.encode(encoding)
    except UnicodeEncodeError:
        letters = f"^{cell.better_than}"
    text = cell.shown + BEST * cell.best + letters
    return f"{text} {cell.interval}".rstrip() if intervals else text


def text_lines(table: ResultTable, intervals: bool) -> list[str]:
    """Return the lines below a table of text: footnotes, then remarks."""
    lines = [f"[{mark}] {line}" for mark, line in enumerate(table.footnotes, 1)]
    if _has_best(table):
        lines.append(f"{BEST} best of its column")
    return [*lines, *table.remarks(intervals)]


def results_markdown(table: ResultTable, intervals: bool) -> str:
    """Return the table as Markdown of a code host: best in bold, letters in `<sup>`."""
    lead = [""] * table.lettered
    heads = [*lead, "retriever", *(column.name for column in table.columns)]
    lines = [f"**{escape_markdown(table.title)}**", "", _pipes(map(escape_markdown, heads))]
    lines.append(_pipes([*[":-"] * len(lead), ":-", *["-:"] * len(table.columns)]))
    for row in table.rows:
        name = escape_markdown(visible(row.name)) + "".join(f"<sup>{m}</sup>" for m in row.marks)
        name = f"*{name}* (published)" if row.published else name
        cells = [_markdown_cell(cell, intervals) for cell in row.cells]
        lines.append(_pipes([*[row.letter] * table.lettered, name, *cells]))
    below = [f"<sup>{n}</sup> {escape_markdown(s)}" for n, s in enumerate(table.footnotes, 1)]
    below += ["Bold: best of its column"] * _has_best(table)
    below += map(escape_markdown, table.remarks(intervals))
    for line in below:
        lines += ["", f"{line}."]
    return "\n".join(lines) + "\n"


def _markdown_cell(cell: ResultCell | None, intervals: bool) -> str:
    if cell is None:
        return ""
    text = f"**{cell.shown}**" if cell.best else cell.shown
    text += f"<sup>{cell.better_than}</sup>" if cell.better_than else ""
    return f"{text} {escape_markdown(cell.interval)}".rstrip() if intervals else text


def _pipes(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "$": "<span>$</span>"}


def escape_markdown(text: str) -> str:
    """Return text that Markdown shows as it is, in a cell of a table too.

    `$` is in a `<span>`, as GitHub asks for where it is no formula.
    """
    text = re.sub(r"[\\`*_{}\[\]#|~!]", lambda found: f"\\{found[0]}", text)
    return re.sub(r"[&<>$]", lambda found: _ENTITIES[found[0]], text)


_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\string" + '"',  # a shorthand in some languages
    "`": r"\textasciigrave{}",
    "[": "{[}",  # no argument of a line break
    "]": "{]}",
    "-": "-{}",  # two would be a dash
    "'": "'{}",  # and two of these a quotation mark
    **{c: f"\\{c}" for c in "_%$&#{}"},
}
_RTL_MACRO = r"""\providecommand{\rtltext}[1]{{\ifdefined\rtlfont\rtlfont\fi
  \ifdefined\XeTeXversion\TeXXeTstate=1\beginR#1\endR
  \else\ifdefined\luatexversion\textdir TRT#1\else#1\fi\fi}}"""


_RTL = r"[\p{bc=R}\p{bc=AL}](?:[\p{bc=R}\p{bc=AL}\p{bc=NSM} ]*[\p{bc=R}\p{bc=AL}\p{bc=NSM}])?"


def escape_latex(text: str) -> str:
    r"""Return text that LaTeX sets as it is; words from right to left are in `\rtltext`."""
    import regex

    found = "".join(_LATEX.get(c, c) for c in text)
    found = re.sub(r"([-'])\{\}(?!\1)", r"\1", found)
    return str(regex.sub(_RTL, lambda part: rf"\rtltext{{{part[0]}}}", found))


def results_latex(table: ResultTable, intervals: bool) -> str:
    """Return the table as a `table` environment, which needs the package booktabs."""
    groups = [(name, len(list(of))) for name, of in groupby(c.metric.name for c in table.columns)]
    lead = [""] * table.lettered
    heads, rules, column = [*lead, ""], [], len(lead) + 2
    for name, count in groups:
        heads.append(rf"\multicolumn{{{count}}}{{c}}{{{escape_latex(name)}}}")
        rules.append(rf"\cmidrule(lr){{{column}-{column + count - 1}}}")
        column += count
    below = [*lead, "Retriever", *(escape_latex(column.below) for column in table.columns)]
    rows = []
    for number, row in enumerate(table.rows):
        rows += [r"\midrule"] * (row.published and number == len(table.ours))
        rows.append(" & ".join([*[row.letter] * table.lettered, *_latex_row(row, intervals)]))
        rows[-1] += r" \\"
    body = [
        r"\toprule",
        " & ".join(heads) + r" \\",
        "".join(rules),
        " & ".join(below) + r" \\",
        r"\midrule",
        *rows,
        r"\bottomrule",
    ]
    notes = [rf"\textsuperscript{{{n}}} {escape_latex(s)}." for n, s in _numbered(table)]
    best = ["Bold: best of its column."] * _has_best(table)
    caption = [f"{escape_latex(line)}." for line in table.remarks(intervals)]
    lines = [
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{' '.join([escape_latex(table.title) + '.', *best, *caption])}}}",
        r"  \smallskip",
        rf"  \begin{{tabular}}{{{'l' * len(below)}}}",
        *(f"    {line}" for line in body),
        r"  \end{tabular}",
        *([r"  \par\smallskip"] if notes else []),
        *(rf"  {{\footnotesize {line}\par}}" for line in notes),
        r"\end{table}",
    ]
    text = "\n".join(lines) + "\n"
    head = [r"% Made by recallbed table. In the preamble: \usepackage{booktabs}"]
    if remark := latex_remark(text):
        head.append(f"% {remark}")
    if r"\rtltext" in text:
        head.append(_RTL_MACRO)
    return "\n".join(head) + "\n" + text


def latex_remark(text: str) -> str | None:
    """Return what letters of `text` ask of the document; None if every LaTeX has them."""
    other = sorted({c for c in text if c > "\u017f"})
    if not other:
        return None
    return (
        f"Compile with XeLaTeX or LuaLaTeX and a font (package fontspec) that has"
        f" {len(other)} letters such as U+{ord(other[0]):04X}"
    )


def _numbered(table: ResultTable) -> list[tuple[int, str]]:
    return list(enumerate(table.footnotes, 1))


def _latex_row(row: ResultRow, intervals: bool) -> list[str]:
    name = escape_latex(visible(row.name))
    name += "".join(rf"\textsuperscript{{{mark}}}" for mark in row.marks)
    name += " (published)" * row.published
    return [name, *(_latex_cell(cell, intervals) for cell in row.cells)]


def _latex_cell(cell: ResultCell | None, intervals: bool) -> str:
    if cell is None:
        return ""
    text = rf"\textbf{{{cell.shown}}}" if cell.best else cell.shown
    text += rf"\textsuperscript{{{cell.better_than}}}" if cell.better_than else ""
    if intervals and cell.interval:
        text += rf" {{\footnotesize {cell.interval}}}"
    return text


def _has_best(table: ResultTable) -> bool:
    return any(cell is not None and cell.best for row in table.rows for cell in row.cells)


def table_records(table: ResultTable) -> list[dict[str, Any]]:
    """Return one record per row and column that has a figure, with the keys CSV_HEAD."""
    return [
        {
            "name": row.name,
            "label": row.label,
            "run": row.run,
            "letter": row.letter or None,
            "published": row.published,
            "metric": column.metric.name,
            "distractors": column.distractors,
            "area": column.distractors is None,
            **rounded({key: getattr(cell, key) for key in ("mean", "low", "high")}),
            "interval": cell.method,
            "best": cell.best,
            "better_than": cell.better_than,
            **{key: getattr(cell, key) for key in ("scored", "attempted", "rows")},
        }
        for row in table.rows
        for column, cell in zip(table.columns, row.cells, strict=True)
        if cell is not None
    ]


def results_csv(table: ResultTable) -> str:
    """Return one line per row and column that has a figure; nothing known is an empty field."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, CSV_HEAD, lineterminator="\n")
    writer.writeheader()
    for record in table_records(table):
        writer.writerow({key: _plain(value) for key, value in record.items()})
    return stream.getvalue()


def _plain(value: object) -> object:
    if isinstance(value, bool):
        return int(value)
    return "" if value is None else visible(value) if isinstance(value, str) else value


def results_json(table: ResultTable) -> str:
    """Return the figures with what they rest on."""
    tests: Mapping[str, Any] | None = None
    if table.tests is not None:
        test = "paired randomisation test over sessions"
        tests = {"test": test, "correction": "Holm", "tests": list(table.tests), "alpha": ALPHA}
    return canonical(
        {
            "title": table.title,
            "significance": tests,
            "unranked": table.unranked,
            "figures": table_records(table),
            "footnotes": [
                {"name": row.name, "text": table.footnotes[mark - 1]}
                for row in table.rows
                for mark in row.marks
            ],
        }
    )
