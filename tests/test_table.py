"""Tables of results: figures, the best, letters, published rows, and labels as text."""

import csv
import itertools
import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from analysis.metrics import NDCG, Metric, Recall, ReciprocalRank
from analysis.published import BASELINES, CAPTION, published_task3
from analysis.result_table import ResultRow, ResultTable, result_table
from analysis.runs import Run, read_run
from analysis.sides import Side
from analysis.significance import pairings, recall_area
from analysis.table import app
from analysis.table_formats import (
    escape_latex,
    escape_markdown,
    results_latex,
    results_markdown,
    text_table,
)
from recallbed.errors import UserError
from tests import kit
from tests.kit import one_line_error
from tests.literal_runs import write_sweep_run

QUERIES = 40
RANKS: dict[str, dict[int, list[int | None]]] = {
    "best": {100: [1] * 36 + [5] * 4, 1000: [1] * 30 + [9] * 10},
    "middle": {100: [2] * 20 + [1] * 20, 1000: [1] * 18 + [9] * 22},
    "worst": {100: [50] * 38 + [1] * 2, 1000: [500] * 40},
}
HOSTILE = "<script>&amp;|$x_1$ [red](a) \\frac{ 50%#~^*`_a_\"' --"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sweep_run(tmp_path_factory.mktemp("runs") / "mine", RANKS)


@pytest.fixture(scope="module")
def plain(run: Path) -> ResultTable:
    return result_table([read_run(run)], [Recall(1)], area=True)


def row_of(table: ResultTable, name: str) -> ResultRow:
    [found] = [row for row in table.rows if row.name == name]
    return found


def records(run: Path, *words: object) -> list[dict[str, str]]:
    result = kit.run(app, run, "--format", "csv", *words, code=0)
    return list(csv.DictReader(result.stdout.splitlines()))


def as_json(run: Path, *words: object) -> dict[str, Any]:
    return kit.checked(dict, json.loads(kit.run(app, run, "--format", "json", *words).stdout))


def test_figures_are_those_of_the_summary(run: Path) -> None:
    found = records(run, "--metric", "R@1", "--metric", "nDCG@5")
    metrics: list[Metric] = [Recall(1), NDCG(5)]
    keys = itertools.product(RANKS, [m.name for m in metrics], ("100", "1000"))
    assert [(r["label"], r["metric"], r["distractors"]) for r in found] == list(keys)
    cells = read_run(run).summary((1, 5)).cells
    for record in found:
        [cell] = [
            cell
            for cell in cells
            if (cell.retriever, str(cell.distractors)) == (record["label"], record["distractors"])
        ]
        [estimate] = [one for m, one in cell.estimates.items() if m.name == record["metric"]]
        assert float(record["mean"]) == estimate.mean
        assert (float(record["low"]), float(record["high"])) == (estimate.low, estimate.high)
        assert (record["scored"], record["attempted"], record["rows"]) == ("40", "40", "40")
        assert (record["run"], record["published"]) == ("mine", "0")


def test_json_has_the_same_figures(run: Path) -> None:
    found = as_json(run, "--area")
    for record, line in zip(found["figures"], records(run, "--area"), strict=True):
        assert record.keys() == line.keys()
        for key, value in record.items():
            expected = "" if value is None else int(value) if isinstance(value, bool) else value
            assert line[key] == str(expected), key
    assert found["significance"]["tests"] == [6, 3]


def test_the_best_of_a_column_is_marked(plain: ResultTable) -> None:
    for row in plain.rows:
        assert [cell is not None and cell.best for cell in row.cells] == [row.name == "best"] * 3


def test_all_that_are_shown_as_the_best_are_marked(tmp_path: Path) -> None:
    deep = {"a": [90], "almost": [91], "again": [90], "worse": [9]}
    ranks = {
        label: {999: [1] * (4 if label == "worse" else 9) + rank} for label, rank in deep.items()
    }
    ranks["worse"][999] += [9] * 5
    folder = write_sweep_run(tmp_path / "r", ranks)
    [metric] = ReciprocalRank.at([])
    found = result_table([read_run(folder)], [metric])
    cells = {row.name: row.cells[0] for row in found.rows}
    assert len({cell.mean for cell in cells.values() if cell}) == 3
    assert [name for name, cell in cells.items() if cell and cell.best] == ["a", "almost", "again"]


def test_one_row_is_not_the_best_of_its_column(run: Path) -> None:
    result = kit.run(app, run, "--retriever", "best", code=0)
    assert "best of its column" not in result.stdout
    assert "Letters" not in result.stdout
    assert "0.900*" not in result.stdout


def test_letters_name_the_rows_that_a_row_is_significantly_better_than(
    run: Path, plain: ResultTable
) -> None:
    sides = [Side(read_run(run), label) for label in RANKS]
    expected = {(label, size): set[str]() for label in RANKS for size in (100, 1000)}
    for pair in pairings(sides, [Recall(1)], baseline=None):
        if pair.holm is not None and pair.holm <= 0.05 and pair.paired.difference:
            better, worse = (pair.a, pair.b) if pair.paired.difference > 0 else (pair.b, pair.a)
            expected[better, pair.distractors].add("abc"[list(RANKS).index(worse)])
    assert [row.letter for row in plain.rows] == ["a", "b", "c"]
    for row in plain.rows:
        for cell, column in zip(row.cells, plain.columns, strict=True):
            assert cell is not None
            if column.distractors is not None:
                assert set(cell.better_than) == expected[row.label, column.distractors]
    assert expected["best", 100] == {"b", "c"}
    assert plain.tests == (6, 3)


def test_text_raises_letters_where_they_can_be_written(run: Path) -> None:
    lines = kit.run(app, run, code=0).stdout.splitlines()
    assert lines[0] == "Task 3, split dev: 40 queries, nested pools"
    assert lines[2].split() == ["retriever", "R@1", "at", "100", "R@1", "at", "1,000"]
    assert lines[4].split() == ["a", "best", "0.900*ᵇᶜ", "0.750*ᵇᶜ"]
    assert lines[6].split() == ["c", "worst", "0.050", "0.000"]
    assert "* best of its column" in lines
    table = result_table([read_run(run)], [Recall(1)])
    [shown] = [line for line in text_table(table, False, "ascii").lines() if " best " in line]
    assert shown.split() == ["a", "best", "0.900*^bc", "0.750*^bc"]


def test_intervals_are_shown_on_request(run: Path) -> None:
    cell = read_run(run).summary((1,)).cells[0].estimates[Recall(1)]
    interval = f"[{cell.low:.3f}, {cell.high:.3f}]"
    for chosen in ("text", "markdown", "latex"):
        without = kit.run(app, run, "--format", chosen, code=0).stdout
        shown = kit.run(app, run, "--format", chosen, "--intervals", code=0).stdout
        assert interval not in without.replace("\\", "")
        assert interval in shown.replace("\\", "")
        assert "95 % intervals over sessions" in shown.replace("\\", "")


def test_the_area_is_that_of_the_curve(run: Path, plain: ResultTable) -> None:
    for row in plain.rows:
        expected = recall_area(read_run(run), row.label, 1)
        cell = row.cells[-1]
        assert cell is not None
        assert cell.mean == pytest.approx(expected.mean)
        assert (cell.low, cell.high) == (pytest.approx(expected.low), pytest.approx(expected.high))
    one_line_error(kit.run(app, run, "--area", "--distractors", "100"), "--area needs two sizes")


@pytest.mark.parametrize(
    ("wish", "names"),
    [("baselines", BASELINES), ("GPT-5.2", ("GPT-5.2",)), ("all", tuple(published_task3()))],
)
def test_published_rows_are_marked_and_never_ranked(
    run: Path, wish: str, names: Sequence[str]
) -> None:
    read = [read_run(run)]
    known = published_task3()
    given = {name: known[name] for name in names}
    table = result_table(read, [Recall(1), NDCG(5)], published=given)
    assert [row.name for row in table.published] == list(names)
    assert table.rows[: len(RANKS)] == result_table(read, [Recall(1), NDCG(5)]).rows
    for row in table.published:
        figures = [known[row.name][100], known[row.name][1000], None, None]
        assert [cell.mean if cell else None for cell in row.cells] == figures
        assert not any(cell.best or cell.better_than for cell in row.cells if cell)
        assert not row.letter
    for chosen in ("text", "markdown", "latex"):
        words = ["--published", wish, "--format", chosen]
        text = kit.run(app, run, *words, code=0).stdout
        assert text.count("(published)") == len(names)
        assert CAPTION in text
        assert CAPTION not in kit.run(app, run, "--format", chosen, code=0).stdout
    assert sum(record["published"] == "1" for record in records(run, "--published", wish)) > 0


def test_a_rule_separates_published_rows(run: Path) -> None:
    lines = kit.run(app, run, "--published", "baselines", code=0).stdout.splitlines()
    assert [number for number, line in enumerate(lines) if line.startswith("---")] == [3, 7]
    text = kit.run(app, run, "--published", "baselines", "--format", "latex", code=0).stdout
    assert text.count("\\midrule") == 2


def test_published_figures_need_a_column(run: Path) -> None:
    words = ["--published", "baselines"]
    one_line_error(kit.run(app, run, "--metric", "R@5", *words), "They need --metric R@1")
    one_line_error(kit.run(app, run, "--published", "me"), "--published me: choose baselines")


def test_the_same_label_of_two_runs_is_told_apart(run: Path, tmp_path: Path) -> None:
    other = write_sweep_run(tmp_path / "other", RANKS)
    table = result_table([read_run(run), read_run(other), read_run(run)], [Recall(1)])
    names = [row.name for row in table.rows]
    assert len(names) == len(set(names)) == 6
    assert names[0] == "best, nested pools (mine)"
    best = [row.name for row in table.rows if row.cells[0] is not None and row.cells[0].best]
    assert best == ["best, nested pools (mine)", "best, nested pools (other)"]


def refused(runs: Sequence[Run], message: str) -> ResultTable:
    """The table without letters of runs whose comparison is refused."""
    with pytest.raises(UserError, match=message) as caught:
        result_table(runs, [Recall(1)])
    assert str(caught.value).endswith("Pass --no-significance for a table without letters")
    return result_table(runs, [Recall(1)], significance=False)


def test_other_pools_and_queries_are_refused_or_not_ranked(run: Path, tmp_path: Path) -> None:
    mine = read_run(run)
    pools = read_run(write_sweep_run(tmp_path / "pools", {"x": RANKS["best"]}, pools="other"))
    fewer = {size: ranks[:30] for size, ranks in RANKS["best"].items()}
    queries = read_run(write_sweep_run(tmp_path / "queries", {"x": fewer}))
    for other, message in ((pools, "not the same pools"), (queries, "not the same queries")):
        table = refused([mine, other], message)
        cells = [cell for row in table.rows for cell in row.cells if cell is not None]
        assert not any(cell.best for cell in cells)
        assert table.unranked == "the rows are on other queries or pools"
        assert not table.lettered
        assert "is marked as the best" in " ".join(table.remarks(False))


def test_an_unfinished_label_is_footnoted_and_not_the_best(tmp_path: Path) -> None:
    stopped = {"middle": RANKS["middle"], "best": {100: RANKS["best"][100], 1000: [1] * 7}}
    table = refused([read_run(write_sweep_run(tmp_path / "r", stopped))], "not the same queries")
    [note] = table.footnotes
    assert note == "at 1000 distractors: 7 of 40 rows are scored (33 not run yet)"
    row = row_of(table, "best")
    assert row.marks == (1,)
    assert [cell.best for cell in row.cells if cell is not None] == [True, False]
    for chosen, mark in (
        ("text", "best [1]"),
        ("markdown", "best<sup>1</sup>"),
        ("latex", "best\\textsuperscript{1}"),
    ):
        words = [tmp_path / "r", "--no-significance", "--format", chosen]
        text = kit.run(app, *words, code=0).stdout
        assert mark in text
        assert "7 of 40 rows are scored" in text
    found = as_json(tmp_path / "r", "--no-significance")
    assert found["footnotes"] == [{"name": "best", "text": note}]


def test_failures_are_footnoted(tmp_path: Path) -> None:
    ranks = {"a": {9: [1] * 20}, "b": {9: [None, None, *[1] * 18]}, "down": {9: [None] * 20}}
    folder = write_sweep_run(tmp_path / "r", ranks)
    table = result_table([read_run(folder)], [Recall(1)], significance=False)
    assert table.footnotes == (
        "at 9 distractors: 18 of 20 rows are scored (2 failed)",
        "at 9 distractors: 0 of 20 rows are scored (20 failed)",
    )
    assert [row.marks for row in table.rows] == [(), (1,), (2,)]
    assert row_of(table, "down").cells == (None,)
    kit.run(app, folder, "--no-significance", "--format", "latex", code=0)
    one_line_error(kit.run(app, folder), "no query is left to compare", "--no-significance")


def test_fitted_settings_are_footnoted(tmp_path: Path) -> None:
    ranks = {"a": {9: [1] * 9}, "b": {9: [2] * 9}}
    folder = write_sweep_run(tmp_path / "r", ranks, fitted_on_these_rows=["b"])
    table = result_table([read_run(folder)], [Recall(1)])
    assert row_of(table, "b").marks == (1,)
    assert table.footnotes[0].startswith("settings were fitted on these rows")


def test_a_trivial_metric_is_not_ranked(tmp_path: Path) -> None:
    ranks = {"a": {3: [1, 2, 4], 9: [1, 2, 9]}, "b": {3: [3, 2, 4], 9: [3, 8, 9]}}
    read = [read_run(write_sweep_run(tmp_path / "r", ranks))]
    table = result_table(read, [Recall(5)])
    assert [cell is not None and cell.best for cell in table.rows[0].cells] == [False, True]
    assert "R@5 at 3 is trivial: every order of these pools has it" in table.remarks(False)
    assert not any("R@5 at 9" in line for line in table.remarks(False))


# Labels are text in every format.


class Cells(HTMLParser):
    """The text of each cell of an HTML table, and the tags in it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: set[str] = set()
        self.open = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        if tag in ("td", "th"):
            self.texts.append("")
            self.open = True

    def handle_endtag(self, tag: str) -> None:
        self.open = self.open and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts[-1] += data


TAGS = {"p", "strong", "table", "thead", "tbody", "tr", "th", "td", "sup", "em", "span"}
TEXTS = [HOSTILE, "a|b", "*a* _b_", "[a](http://x)", "`c`", "a\\|b", "<b>x</b>", "# x", "&lt;"]


@pytest.mark.parametrize("text", TEXTS)
def test_markdown_renders_labels_as_text(run: Path, text: str) -> None:
    words = ["--names", f"best={text}", "--format", "markdown", "--intervals"]
    found = kit.run(app, run, *words, code=0).stdout
    parser = MarkdownIt("commonmark").enable("table")
    cells = Cells(parser.render(found))
    assert len(cells.texts) == 4 * 4  # no cell more
    assert cells.texts[5] == text
    assert cells.tags <= TAGS
    interval = r"\[0\.\d{3}, [01]\.\d{3}\]"
    assert re.fullmatch(rf"0\.900bc {interval}", cells.texts[6])
    assert "<strong>0.900</strong><sup>bc</sup>" in parser.render(found)


def test_control_characters_are_escapes_in_every_format(run: Path) -> None:
    text = "a\x1b[31m\nb\u202ec"
    for chosen in ("text", "markdown", "latex", "csv", "json"):
        result = kit.run(app, run, "--names", f"best={text}", "--format", chosen, code=0)
        assert not set(result.output) & {"\x1b", "\u202e"}
        assert "x1b" in result.stdout.replace("\\u001b", "x1b").replace("textbackslash{}", "")
    found = as_json(run, "--names", f"best={text}")
    assert found["figures"][0]["name"] == text


@pytest.mark.parametrize("chosen", ["text", "csv", "json"])
def test_labels_are_as_they_were_typed(run: Path, chosen: str) -> None:
    found = kit.run(app, run, "--names", f"best={HOSTILE}", "--format", chosen, code=0).stdout
    if chosen == "text":
        assert f"a  {HOSTILE}  0.900" in found
    elif chosen == "csv":
        assert next(csv.DictReader(found.splitlines()))["name"] == HOSTILE
    else:
        assert json.loads(found)["figures"][0]["name"] == HOSTILE


def tokens(text: str) -> Iterator[str]:
    """The characters and commands of a table in LaTeX."""
    text = text[text.index(r"\begin{table}") :]
    return (found[0] for found in re.finditer(r"\\[A-Za-z]+|\\.|.", text, re.DOTALL))


def assert_sound(text: str) -> None:
    """What LaTeX would stop at: groups, environments, and the number of columns of each row."""
    depth, stack = 0, []
    for token in tokens(text):
        depth += (token == "{") - (token == "}")
        assert depth >= 0
        assert token not in ("$", "#", "^", "~", "%", "<", ">", "|")
    assert depth == 0
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        if kind == "begin":
            stack.append(name)
        else:
            assert stack.pop() == name
    assert not stack
    found = re.search(r"\\begin\{tabular\}\{(l+)\}\n(.*)\\end\{tabular\}", text, re.DOTALL)
    assert found is not None
    for row in re.findall(r"^ +(?!\\)(.*) \\\\$", found[2], re.MULTILINE):
        spans = re.findall(r"\\multicolumn\{(\d+)\}", row)
        cells = len(re.findall(r"(?<!\\)&", row)) + 1
        assert cells + sum(int(span) - 1 for span in spans) == len(found[1])


ENGINES = [name for name in ("pdflatex", "lualatex", "xelatex", "tectonic") if shutil.which(name)]


def compiled(place: Path, text: str) -> None:
    """Compile the table in a document, if there is an engine."""
    (place / "t.tex").write_text(text, "utf-8")
    head = "\\documentclass{article}\n\\usepackage{booktabs}\n\\begin{document}\n"
    (place / "d.tex").write_text(f"{head}\\input{{t}}\n\\end{{document}}\n")
    for engine in ENGINES[:1]:
        options = [] if engine == "tectonic" else ["-interaction=nonstopmode", "-halt-on-error"]
        done = subprocess.run(
            [engine, *options, "d.tex"], cwd=place, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stdout[-2000:]
        assert (place / "d.pdf").exists()


def test_latex_is_sound_and_compiles(run: Path, tmp_path: Path) -> None:
    for more in ([], ["--no-significance"], ["--area", "--metric", "R@1", "--metric", "E[RR]"]):
        words = ["--names", f"best={HOSTILE}", "--names", "worst=[b] café", *more]
        words += ["--published", "baselines", "--intervals", "--format", "latex"]
        text = kit.run(app, run, *words, code=0).stdout
        assert_sound(text)
        for rule in ("toprule", "midrule", "bottomrule"):
            assert f"\\{rule}" in text
        assert "\\textbf{0.900}" in text
        assert ("\\textsuperscript{bc}" in text) is ("--no-significance" not in more)
    compiled(tmp_path, text)


def test_latex_characters() -> None:
    assert escape_latex("50 % of a_b & c # {x} $y$") == r"50 \% of a\_b \& c \# \{x\} \$y\$"
    assert escape_latex("~^\\") == r"\textasciitilde{}\textasciicircum{}\textbackslash{}"
    assert escape_latex("a-b --- it's ''") == "a-b -{}-{}- it's '{}'"
    assert escape_latex("<a>|[b]") == r"\textless{}a\textgreater{}\textbar{}{[}b{]}"
    assert escape_latex("bm25") == "bm25"


def test_latex_of_other_scripts_says_what_it_needs(run: Path) -> None:
    words = ["--names", "best=绿茶", "--names", "worst=שלום עולם (a)", "--format", "latex"]
    result = kit.run(app, run, *words, code=0)
    assert_sound(result.stdout)
    assert "worst" not in result.stdout
    assert "\\rtltext{שלום עולם} (a)" in result.stdout
    assert "\\providecommand{\\rtltext}" in result.stdout
    assert "XeLaTeX or LuaLaTeX" in result.stderr
    plain = kit.run(app, run, "--format", "latex", code=0)
    assert "rtltext" not in plain.stdout
    assert not plain.stderr


def test_markdown_characters() -> None:
    assert escape_markdown("a|b") == "a\\|b"
    assert escape_markdown("<b>$x_1$") == "&lt;b&gt;<span>$</span>x\\_1<span>$</span>"
    assert escape_markdown("bm25-a") == "bm25-a"


def test_long_tables_need_no_letters_of_one_character(tmp_path: Path) -> None:
    ranks = {f"r{i}": {9: [1] * i + [5] * (30 - i)} for i in range(28)}
    table = result_table([read_run(write_sweep_run(tmp_path / "r", ranks))], [Recall(1)])
    assert [row.letter for row in table.rows][-3:] == ["z", "a1", "b1"]
    assert_sound(results_latex(table, False))
    cells = Cells(MarkdownIt("commonmark").enable("table").render(results_markdown(table, False)))
    assert len(cells.texts) == 29 * 3


# The command


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("t.md", "**Task 3"),
        ("t.tex", "% Made by recallbed table"),
        ("t.csv", "name,label,run"),
        ("t.json", "{"),
        ("t.txt", "Task 3"),
        ("t", "Task 3"),
    ],
)
def test_the_ending_chooses_the_format(run: Path, tmp_path: Path, name: str, start: str) -> None:
    out = tmp_path / name
    result = kit.run(app, run, "--out", out, code=0)
    assert not result.stdout
    assert out.read_text("utf-8").startswith(start)
    one_line_error(kit.run(app, run, "--out", out), "already exists")
    kit.run(app, run, "--out", out, "--overwrite", "--format", "csv", code=0)
    assert out.read_text("utf-8").startswith("name,label,run")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--metric", "R@0"], "--metric R@0: not a metric"),
        (["--distractors", "50"], "--distractors 50: not a size of these runs (100, 1000)"),
        (["--retriever", "bm26"], "--retriever bm26: no run has this label"),
        (["--names", "bm26=B"], "--names bm26=B: write LABEL=TEXT with a label of: best"),
        (["--names", "best=worst"], "would both be called worst"),
        (["--format", "html"], "--format html: choose one of text, markdown, latex, csv, json"),
        (["--out", "nowhere/t.md"], "there is no folder nowhere"),
    ],
)
def test_a_mistake_is_one_line(run: Path, words: list[str], message: str) -> None:
    one_line_error(kit.run(app, run, *words), message)
