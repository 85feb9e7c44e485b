"""A leaderboard as a page of HTML or Markdown, as CSV, and as a table in the terminal."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from analysis.leaderboard import Leaderboard, PageFormat, Standing
from analysis.report_html import html_text, source_hash
from analysis.report_page import asset
from analysis.statistics import Interval
from recallbed.harness.terminal import one_line
from recallbed.harness.text_table import TextTable


def standings_table(board: Leaderboard) -> TextTable:
    """Return the leaderboard as a table for the terminal."""
    table = TextTable(
        f"{board.title}; by {board.sorted_by}",
        ["retriever", "run", "place", f"{_head(board)} [95 %]", "scored", "failed", "remarks"],
        keys=2,
        texts=("run", "remarks"),
    )
    for one in board.standings:
        table.add(
            *(one.label, one.run.path, one.place or "-", _text(board.value(one))),
            *(f"{one.scored} of {one.rows}", one.failed, "; ".join(one.marks)),
        )
    return table


def standings_csv(board: Leaderboard, folder: Path) -> str:
    """Return one line per standing; paths of reports are relative to `folder`."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    sizes = [f"{board.metric.name} at {size}" for size in board.sizes]
    area = f"area under {board.metric.title}"
    writer.writerow(
        [
            *("place", "retriever", "name", "run", "sorted by", "value", "low", "high", "chance"),
            *(f"{name}{end}" for name in [*sizes, area] for end in ("", " low", " high")),
            *("rows", "scored", "failed", "fitted on these rows", "settings", "code", "data"),
            "report",
        ]
    )
    for one in board.standings:
        figures = [one.by_size.get(size) for size in board.sizes]
        writer.writerow(
            [
                *(one.place or "", one.label, one_line(one.retriever.get("name", "")), one.folder),
                *(board.sorted_by, *_ends(board.value(one))),
                "" if board.chance is None else board.chance,
                *(end for figure in [*figures, one.area] for end in _ends(figure)),
                *(one.rows, one.scored, one.failed, "yes" if one.fitted else "no"),
                one_line(json.dumps(one.retriever.get("settings", {}), sort_keys=True)),
                *(one_line(one.code), one_line(board.data), _link(one, folder) or ""),
            ]
        )
    return stream.getvalue()


def page(board: Leaderboard, folder: Path, style: PageFormat) -> str:
    """Return the page, whose links are relative to `folder`."""
    return _markdown(board, folder) if style == "markdown" else _html(board, folder)


def _head(board: Leaderboard) -> str:
    return board.sorted_by.replace(" distractors", "")


def _text(value: Interval | None) -> str:
    return "-" if value is None else f"{value.mean:.3f} [{value.low:.3f}, {value.high:.3f}]"


def _ends(value: Interval | None) -> tuple[object, object, object]:
    return ("", "", "") if value is None else (value.mean, value.low, value.high)


def _link(one: Standing, folder: Path) -> str | None:
    if one.report is None:
        return None
    return quote(Path(os.path.relpath(one.report.resolve(), folder.resolve())).as_posix())


def _other_heads(board: Leaderboard) -> list[str]:
    """The columns besides the one that is sorted by."""
    area = [f"area under {board.metric.title}"] * (board.distractors is not None)
    return [*area, *(f"at {size}" for size in board.sizes if size != board.distractors)]


def _others(board: Leaderboard, one: Standing) -> list[Interval | None]:
    area = [one.area] * (board.distractors is not None)
    return [*area, *(one.by_size.get(size) for size in board.sizes if size != board.distractors)]


def _settings(one: Standing) -> list[tuple[str, str]]:
    found = one.retriever.get("settings")
    pairs = found.items() if isinstance(found, dict) else ()
    return [
        (str(key), value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for key, value in pairs
    ]


# Markdown


def _markdown(board: Leaderboard, folder: Path) -> str:
    heads = ["place", "retriever", f"{_head(board)} [95 %]", "remarks", "run", "scored"]
    heads += _other_heads(board)
    rows = [heads, ["---:", "---", "---:", "---", "---", *["---:"] * (len(heads) - 5)]]
    for one in board.standings:
        link = _link(one, folder)
        name = _plain(one.folder)
        rows.append(
            [
                *(str(one.place or "-"), _plain(one.label), _text(board.value(one))),
                *(_plain("; ".join(one.marks)), f"[{name}](<{link}>)" if link else name),
                f"{one.scored} of {one.rows}",
                *("-" if each is None else f"{each.mean:.3f}" for each in _others(board, one)),
            ]
        )
    lines = [f"# Leaderboard by {board.sorted_by}", "", f"{_plain(board.title)}.", ""]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    notes = [*board.remarks(), *_facts(board)]
    return "\n".join([*lines, "", *(f"- {_plain(line)}" for line in notes), ""])


def _plain(text: str) -> str:
    """Text in which nothing is markup."""
    return re.sub(r"([\\`*_{}\[\]<>#|~$&!])", r"\\\1", one_line(text))


def _facts(board: Leaderboard) -> list[str]:
    found = [f"at N: {board.metric.title} at N distractors"]
    if board.chance is not None:
        found.append(f"chance (all memories of a pool with one score): {board.chance:.4f}")
    found.append("intervals: 95 %, by a bootstrap over sessions")
    return [*found, f"hash of the data: {board.data}"] if board.data else found


# HTML


def _html(board: Leaderboard, folder: Path) -> str:
    style, script = asset("leaderboard.css"), asset("leaderboard.js")
    heads = [("place", "place"), ("retriever", "text"), (f"{_head(board)} [95 %]", "figure")]
    heads += [("remarks", "text"), ("run and report", "text"), ("scored", "figure")]
    heads += [(name, "figure") for name in _other_heads(board)]
    policy = f"default-src 'none'; style-src {source_hash(style.encode())};"
    policy += f" script-src {source_hash(script.encode())}; base-uri 'none'; form-action 'none'"
    top = max((one.high for each in board.standings if (one := board.value(each))), default=1.0)
    rows = "\n".join(_html_row(board, one, folder, top) for one in board.standings)
    notes = "".join(f"<li>{html_text(line)}</li>" for line in [*board.remarks(), *_facts(board)])
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Leaderboard: {html_text(board.title)}</title>
<style>{style}</style>
</head>
<body>
<main>
<h1>Leaderboard by {html_text(board.sorted_by)}</h1>
<p>{html_text(board.title)}.</p>
<div class="scroll" role="region" aria-label="Leaderboard" tabindex="0">
<table>
<thead><tr>{_html_heads(heads)}</tr></thead>
<tbody>
{rows}
</tbody>
</table>
</div>
<p class="visually-hidden" role="status"></p>
<ul class="notes">{notes}</ul>
</main>
<script>{script}</script>
</body>
</html>
"""


def _html_heads(heads: Iterable[tuple[str, str]]) -> str:
    return "".join(
        f'<th scope="col" data-kind="{kind}"'
        f"{' aria-sort=ascending' if name == 'place' else ''}>"
        f'<button type="button">{html_text(name)}</button></th>'
        for name, kind in heads
    )


def _html_row(board: Leaderboard, one: Standing, folder: Path, top: float) -> str:
    value = board.value(one)
    name = html_text(one.retriever.get("name", ""))
    settings = "".join(
        f"<dt>{html_text(key)}</dt><dd>{html_text(text)}</dd>" for key, text in _settings(one)
    )
    details = (
        f"<details><summary>{name}: {len(_settings(one))} settings</summary>"
        f"<dl>{settings}</dl></details>"
        if settings
        else f"<small>{name}</small>"
    )
    label, run, link = html_text(one.label), html_text(one.folder), _link(one, folder)
    report = f' <a href="{html_text(link)}">Report of <bdi>{run}</bdi></a>' if link else ""
    marks = "".join(f'<span class="mark">{html_text(mark)}</span> ' for mark in one.marks)
    cells = [
        _cell(one.place or "–", one.place if one.place else ""),
        f'<th scope="row" data-value="{label}"><b>{label}</b>{details}</th>',
        _cell(f"{_text(value)}{_bar(value, top)}", "" if value is None else value.mean),
        f'<td class="text">{marks}</td>',
        f'<td class="text"><bdi>{run}</bdi>{report}<small>{html_text(one.code)}</small></td>',
        _cell(f"{one.scored} of {one.rows}", one.scored / max(one.rows, 1)),
        *(
            _cell(_text(each), each.mean) if each else _cell("–", "")
            for each in _others(board, one)
        ),
    ]
    return f"<tr>{''.join(cells)}</tr>"


def _cell(text: object, value: object) -> str:
    return f'<td data-value="{value}">{text}</td>'


def _bar(value: Interval | None, top: float) -> str:
    """The value and its interval, drawn to the scale of the highest one."""
    if value is None or top <= 0:
        return ""
    low, mean, high = (100 * max(end, 0.0) / top for end in (value.low, value.mean, value.high))
    interval = f'x="{low:.2f}" y="1" width="{max(high - low, 0.5):.2f}" height="4"'
    return (
        '<svg viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="interval" {interval}/>'
        f'<rect class="mean" x="{mean - 0.6:.2f}" y="0" width="1.2" height="6"/></svg>'
    )
