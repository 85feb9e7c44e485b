"""Tables at any width: every column is shown, and no figure is cut."""

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.cells import cell_len

from analysis.frontier import FrontierPoint, as_table
from analysis.metrics import Recall, ReciprocalRank
from analysis.statistics import Interval
from analysis.summary import Cell, Estimate, RerankReport, SweepSummary
from analysis.tables import COSTS, build_table
from memory_scoring.figures import GroupFigures, Pooled, SessionFigures
from memory_scoring.report import MemoryReport
from recallbed.harness import text_table
from recallbed.harness.text_table import TextTable, print_tables, wrapped

WIDTHS = (40, 60, 80, 120, 200)


def everything(table: TextTable, lines: Iterable[str]) -> None:
    """Every head and every cell of `table` is in `lines`, in one piece unless it is wrapped."""
    joined = "".join("".join(lines).split())
    for text in [table.title, *table.columns, *(cell for row in table.rows for cell in row)]:
        assert "".join(text.split()) in joined, text


def sweep_table(reranked: bool, label: str = "bm25") -> TextTable:
    recall = Estimate(0.3284, 0.2591, 0.3987, "bootstrap", 0.0099, 0.31, 0.64, 1.0, False, 0)
    took = {"calls": 12.34, "tokens_in": 123456.0, "tokens_out": 789.0}
    report = RerankReport(took, 0, 1.2345, 20, {1: 0.9}, [])
    cells = [
        Cell(
            name,
            size,
            (size + 1, size + 1, size + 1),
            attempted=164,
            scored=163,
            failures={"timeout": 1},
            reasons={},
            calls=0,
            tokens_in=0,
            tokens_out=0,
            repairs={"cut": 3},
            estimates=dict.fromkeys((Recall(1), Recall(5), Recall(10), ReciprocalRank()), recall),
            tie_rate=0.573,
            reranked=report if reranked and name != "minilm" else None,
        )
        for name in (label, "minilm", "query-likelihood")
        for size in (100, 1000)
    ]
    data = {"split": "dev", "sample": True, "queries": 164}
    facts = {"data": data, "pools": {"seeds": [0], "strategy": "nested"}}
    return build_table(SweepSummary((1, 5, 10), tuple(cells), facts), {label: (1.25, 200.5)})


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("label", ["bm25", "a-label-of-more-than-forty-characters-in-all"])
@pytest.mark.parametrize("reranked", [False, True])
def test_a_sweeps_table_keeps_every_column(width: int, label: str, reranked: bool) -> None:
    table = sweep_table(reranked, label)
    assert (set(COSTS) <= set(table.columns)) == reranked
    lines = table.lines(width)
    everything(table, lines)
    assert max(map(cell_len, lines)) <= width
    text = "\n".join(lines)
    assert text.count("0.328 [0.259, 0.399]") == 6
    assert len(re.findall(r"\bdistractors\b", text)) >= 1


@pytest.mark.parametrize("width", WIDTHS)
def test_each_block_says_whose_figures_it_holds(width: int) -> None:
    lines = sweep_table(reranked=True).lines(width)
    rules = [number for number, line in enumerate(lines) if line and not line.strip("-")]
    assert bool(rules) == (width >= 60)
    for number in rules:
        assert lines[number - 1].split()[:2] == ["retriever", "distractors"]
        assert [line.split()[:2] for line in lines[number + 1 : number + 4]] == [
            ["bm25", "100"],
            ["bm25", "1000"],
            ["minilm", "100"],
        ]


@pytest.mark.parametrize("width", WIDTHS)
def test_the_tables_of_task_1_and_of_the_frontier(width: int) -> None:
    share = Interval(0.5, 0.25, 0.75, "bootstrap")
    means = dict.fromkeys(("precision", "recall", "f1"), share)
    figures = SessionFigures(3, means, Pooled(12, 9, 5), share, 5)
    report: Any = SimpleNamespace(
        figures=figures,
        unanswered_as_wrong={"precision": 0.1234},
        by_type={"direct": GroupFigures(12, 9, share, share, share)},
        by_label={"喜好" * 30: GroupFigures(12, 9, share, share, None)},
        by_language={"en": figures},
    )
    amounts = {"tokens": 1234567.0, "cost": None, "ms": 12.5}
    point = FrontierPoint("run", "llm, nested pools", 0.5, 0.25, 0.75, amounts, 12.5, 0, 164, 160)
    for table in (*MemoryReport.tables(report), as_table([point], "tokens", 1000, 1)):
        lines = table.lines(width)
        everything(table, lines)
        assert max(map(cell_len, lines)) <= width


def test_without_a_width_nothing_is_broken() -> None:
    table = TextTable("t", ("name", "why"), texts=("why",))
    table.add("x" * 200, "a reason " * 40)
    assert [cell_len(line) > 500 for line in table.lines()] == [False, False, False, True, True]


def test_wide_characters_count_twice() -> None:
    table = TextTable("t", ("名前", "n"))
    table.add("絵", 1)
    table.add("ab", 22)
    assert table.lines()[2:] == ["名前   n", "--------", "絵     1", "ab    22"]


@pytest.mark.parametrize("width", [80, 12])
def test_text_from_right_to_left_keeps_the_order_of_columns(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = TextTable("שלום", ["name", "n"])
    table.add("תה ירוק", 17)
    assert not set("".join(table.lines())) & {"\u2068", "\u2069"}
    monkeypatch.setattr(text_table, "terminal_width", lambda: width)
    print_tables([table])
    shown = capsys.readouterr().out
    assert "\u2068תה ירוק\u2069" in shown
    assert "\\u2068" not in shown


def test_a_rule_separates_rows() -> None:
    table = TextTable("t", ["name", "n"])
    table.add("a", 1)
    table.rule()
    table.add("b", 2)
    assert [line[:4] for line in table.lines()] == ["t", "", "name", "----", "a   ", "----", "b   "]


def test_figures_are_never_cut() -> None:
    assert wrapped("0.500 [0.250, 0.750] 123456789012345678901", 10) == [
        *("0.500", "[0.250,", "0.750]"),
        "123456789012345678901",
    ]
    assert wrapped("絵絵絵 abcdef", 4) == ["絵絵", "絵", "abcd", "ef"]


def test_a_row_needs_a_cell_for_each_column() -> None:
    with pytest.raises(ValueError, match="1 cells for 2 columns"):
        TextTable("t", ("a", "b")).add("x")


SHOW = """
import fcntl, struct, sys, termios
fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, int(sys.argv[1]), 0, 0))
from task3.sweep import app
app(["--retriever", "constant", "--distractors", "4", "--limit", "3", "--out", sys.argv[2]])
"""


@pytest.mark.slow
@pytest.mark.parametrize("width", [40, 80])
def test_a_terminal_gets_the_table_in_its_width(width: int, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    out = tmp_path / "run"
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    done = subprocess.Popen(
        [sys.executable, "-c", SHOW, str(width), str(out)],
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env=env,
    )
    os.close(theirs)
    raw = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        raw += part
        if not part:
            break
    os.close(ours)
    assert done.wait() == 0
    lines = raw.decode().replace("\r\n", "\n").splitlines()
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    cell = json.loads((out / "summary.json").read_text("utf-8"))["cells"][0]
    for head in ("distractors", "R@1 [95 %]", "worst-best", "E[RR]", "chance", "attempted"):
        assert head in text
    assert f"{cell['recall']['1']['mean']:.3f} [" in text
