"""Finished sweeps on one page: their order, marks and links, and runs that are refused."""

import csv
import json
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from analysis.leaderboard import Leaderboard, app, build_leaderboard, find_runs
from analysis.leaderboard_page import page, standings_csv
from analysis.metrics import Recall, parse_metric
from analysis.runs import read_run
from recallbed.errors import UserError
from tests.kit import one_line_error, read_json, rows_of, run, swept, write_lines, write_release

HOSTILE = "a <script>alert(1)</script> [red] $x_1$ |b| `c`"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs on one release, a run with other pools, and one on other data."""
    root = tmp_path_factory.mktemp("runs")
    texts = [[f"topic {i} note {j} of {i}" for j in range(5)] for i in range(8)]
    for name, count in (("release", 8), ("other", 6)):
        write_release(root / name, [(f"topic {i} {i % 3}", texts[i], i % 5) for i in range(count)])
    for name, labels, given in (
        ("good", ("overlap", "bm25"), {}),
        ("more/flat", ("constant", "twin=constant"), {}),
        ("small", ("random",), {"distractors": (4,)}),
        ("pools", ("overlap",), {"pool_seeds": (1,)}),
    ):
        given = {"distractors": (4, 20), **given}
        swept(labels, root / "release", out=root / name, **given)
    swept(("overlap",), root / "other", out=root / "data", distractors=(4, 20))
    return root


def board(*paths: Path, name: str = "R@1", **given: Any) -> Leaderboard:
    found, left_out = find_runs(paths)
    return build_leaderboard(found, parse_metric(name), left_out=left_out, **given)


def changed(
    source: Path,
    out: Path,
    rows: Callable[[list[Any]], list[Any]] = lambda rows: rows,
    **manifest: Any,
) -> Path:
    """A copy of a run with other rows or other fields of its manifest."""
    write_lines(
        out / "rows.jsonl",
        rows([{k: v for k, v in row.items() if k != "check"} for row in rows_of(source)]),
    )
    kept = read_json(source / "manifest.json")
    (out / "manifest.json").write_text(json.dumps(kept | manifest))
    return out


def test_the_best_is_first_and_equal_values_share_a_place(made: Path) -> None:
    found = board(made / "good", made / "more")
    size = found.distractors
    assert size == 20
    means = [one.by_size[size].mean for one in found.standings]
    assert means == sorted(means, reverse=True)
    places = {one.label: one.place for one in found.standings}
    assert places["constant"] == places["twin"] == 3
    assert [one.label for one in found.standings][2:] == ["constant", "twin"]


def test_figures_are_those_of_the_summary(made: Path) -> None:
    found = board(made / "good", name="nDCG@10", distractors=4)
    cells = read_json(made / "good" / "summary.json")["cells"]
    for one in found.standings:
        [cell] = [c for c in cells if (c["retriever"], c["distractors"]) == (one.label, 4)]
        kept = cell["ndcg"]["10"]
        value = found.value(one)
        assert value is not None
        assert (value.mean, value.low, value.high) == tuple(
            kept[k] for k in ("mean", "low", "high")
        )


def test_the_size_is_the_largest_that_all_have(made: Path) -> None:
    found = board(made / "good", made / "small")
    assert found.distractors == 4
    asked = board(made / "good", made / "small", distractors=20)
    assert [one.place for one in asked.standings] == [1, 2, None]
    with pytest.raises(UserError, match="no run has it"):
        board(made / "good", distractors=5)


def test_the_area_orders_runs_of_the_same_sizes_only(made: Path) -> None:
    found = board(made / "good", made / "more", area=True)
    areas = [one.area.mean for one in found.standings if one.area]
    assert areas == sorted(areas, reverse=True)
    assert found.sorted_by == "area under recall@1"
    with pytest.raises(UserError, match="small: lacks sizes"):
        board(made / "good", made / "small", area=True)


@pytest.mark.parametrize(("name", "reason"), [("data", "data.queries"), ("pools", "pools.seeds")])
def test_runs_on_other_data_or_pools_are_refused_by_name(
    made: Path, name: str, reason: str, tmp_path: Path
) -> None:
    result = run(app, made / "good", made / name, made / "more", "--out", tmp_path / "x.html")
    line = one_line_error(result, f"{made / name}: {reason}", f"pools of {made / 'good'}")
    assert "more" not in line.replace(str(made / "good"), "")
    assert not list(tmp_path.iterdir())


def test_a_pool_of_other_texts_is_refused(made: Path, tmp_path: Path) -> None:
    def other(rows: list[Any]) -> list[Any]:
        return [row | {"pool": "0" * 16} if row["query"] == "q3" else row for row in rows]

    odd = changed(made / "good", tmp_path / "odd", other)
    with pytest.raises(UserError, match=r"odd: the pool of `q3` at 4 distractors is another one"):
        board(made / "good", odd)


def test_fitted_settings_failures_and_missing_rows_have_no_place(
    made: Path, tmp_path: Path
) -> None:
    def failed(rows: list[Any]) -> list[Any]:
        nothing = {"above": None, "tied": None, "top": [], "error": "it failed"}
        return [row | nothing if row["query"] == "q3" else row for row in rows]

    fitted = changed(made / "good", tmp_path / "fitted", fitted_on_these_rows=["bm25"])
    broken = changed(made / "good", tmp_path / "broken", failed)
    part = changed(made / "good", tmp_path / "part", lambda rows: rows[:-3])
    found = board(made / "good", fitted, broken, part)
    marks = {(one.run.path.name, one.label): one.marks for one in found.standings}
    assert marks["fitted", "bm25"] == ("settings fitted on these rows",)
    assert marks["broken", "overlap"] == ("1 of 8 rows failed",)
    assert marks["part", "bm25"] == ("3 of 8 rows not run yet",)
    assert marks["good", "bm25"] == marks["part", "overlap"] == ()
    assert all((one.place is None) == bool(one.marks) for one in found.standings)
    assert any(line.startswith("no place: ") for line in found.remarks())
    for style in ("html", "markdown"):
        for mark in ("settings fitted on these rows", "1 of 8 rows failed", "not run yet"):
            assert mark in page(found, tmp_path, style)  # type: ignore[arg-type]


def test_a_folder_of_runs_leaves_out_what_is_none(made: Path, tmp_path: Path) -> None:
    (tmp_path / "all" / "task1").mkdir(parents=True)
    (tmp_path / "all" / "task1" / "manifest.json").write_text(
        json.dumps({"fingerprint": {"task": "task1"}, "notes": {}})
    )
    changed(made / "good", tmp_path / "all" / "deep" / "good")
    found = board(tmp_path / "all", tmp_path / "all" / "deep" / "good")
    assert len(found.standings) == 2
    [line] = found.left_out
    assert line.startswith(f"left out: {tmp_path / 'all' / 'task1'}")
    (tmp_path / "none").mkdir()
    with pytest.raises(UserError, match="none: neither a run"):
        find_runs([tmp_path / "none"])


class Texts(HTMLParser):
    """The texts and tags of a page, and what it would fetch."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: list[str] = []
        self.rows: list[int] = []
        self.links: list[str] = []
        self.feed(content)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.rows += [0] * (tag == "tr")
        if tag in ("td", "th"):
            self.rows[-1] += 1
        self.links += [value or "" for key, value in attrs if key in ("href", "src")]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_a_hostile_name_is_text_everywhere(made: Path, tmp_path: Path) -> None:
    odd = changed(made / "good", tmp_path / (HOSTILE.replace("/", "∕") + "\x1b[31m"))
    (odd / "report.html").write_text("a report")
    found = board(odd)
    shown = HOSTILE.replace("/", "∕") + "\\x1b[31m"
    read = Texts(page(found, tmp_path, "html"))
    assert shown in read.texts
    assert read.tags.count("script") == 1
    assert len(set(read.rows)) == 1
    assert [link.endswith("%1B%5B31m/report.html") for link in read.links] == [True, True]
    markdown = page(found, tmp_path, "markdown")
    assert "\\<script\\>" in markdown
    assert "\\[red\\] \\$x\\_1\\$ \\|b\\| \\`c\\`" in markdown
    assert "\x1b" not in markdown + standings_csv(found, tmp_path)


def test_page_csv_and_links_of_the_command(made: Path, tmp_path: Path) -> None:
    mine = changed(made / "good", tmp_path / "runs" / "mine")
    (mine / "report.html").write_text("a report")
    out = tmp_path / "site" / "board.html"
    result = run(app, tmp_path / "runs", made / "more", "--out", out, code=0)
    assert "recall@1 at 20 [95 %]" in result.stdout
    content = out.read_text()
    assert Texts(content).links == ["../runs/mine/report.html"] * 2
    lines = list(csv.DictReader((tmp_path / "site" / "board.csv").open()))
    assert [line["retriever"] for line in lines] == [
        one.label for one in board(mine, made / "more").standings
    ]
    assert {line["report"] for line in lines} == {"../runs/mine/report.html", ""}
    one_line_error(run(app, mine, "--out", out), "already exists")
    run(app, mine, "--out", out, "--overwrite", code=0)
    run(app, mine, "--out", tmp_path / "site" / "leaderboard.md", code=0)
    assert (tmp_path / "site" / "leaderboard.md").read_text().startswith("# Leaderboard by")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--metric", "R@0"], "--metric R@0: not a metric"),
        (["--sort-by", "area", "--distractors", "4"], "an area is over all sizes"),
        (["--out", "board.txt"], "ends in .html or .md"),
    ],
)
def test_mistakes_are_named(made: Path, words: list[str], said: str) -> None:
    one_line_error(run(app, made / "good", *words), said)


def test_a_leaderboard_of_one_metric_has_chance(made: Path) -> None:
    found = build_leaderboard([read_run(made / "good")], Recall(1))
    assert found.chance == pytest.approx(1 / 21, abs=1e-6)


def test_reports_are_written_where_there_are_none(made: Path, tmp_path: Path) -> None:
    mine = changed(made / "good", tmp_path / "mine")
    kept = changed(made / "more" / "flat", tmp_path / "kept")
    (kept / "report.html").write_text("a report")
    out = tmp_path / "board.html"
    words = (mine, kept, "--build-reports", "--data", made / "release", "--out", out)
    result = run(app, *words, code=0)
    assert "<html" in (mine / "report.html").read_text()
    assert (kept / "report.html").read_text() == "a report"
    assert str(mine / "report.html") in result.stdout
    assert sorted(set(Texts(out.read_text()).links)) == ["kept/report.html", "mine/report.html"]
