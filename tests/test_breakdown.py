"""`recallbed breakdown`: figures of groups against a calculation by hand, outputs, pictures."""

import csv
import io
from pathlib import Path

import pytest

from analysis.breakdown import FEW, TOTAL, app, breakdown, breakdown_of_runs, breakdown_table
from analysis.metrics import parse_metric
from analysis.ranked_pools import material_of
from analysis.runs import Run, read_run
from analysis.statistics import mean_interval
from recallbed.harness.run_folder import encode_kept, read_rows
from task3.sweep import app as sweep
from tests.kit import one_line_error, run, run_json, write_lines

HOSTILE = "<script>$x_1$ [red] \x1b[31m 日本語 שלום"
CATEGORIES = ["plain"] * 14 + [HOSTILE] * 11 + ["rare"] * 3 + [None] * 2
SESSIONS = 7


def memory(i: int) -> str:
    return f"item{i} of kind{i % 5} in place{i % 3}"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 queries of 7 sessions, with two words each of a memory among 4 of one kind or place."""
    rows = []
    for i, category in enumerate(CATEGORIES):
        words = f"item{i}" if i % 4 else f"kind{i % 5} place{i % 3}"
        row = {
            "query": f"which {words}",
            "memories": [memory(j) for j in (i, i + 5, i + 3, i + 15)],
            "gold": 0,
            "id": f"q{i}",
            "session": f"s{i % SESSIONS}",
            "number": i % 3,
        }
        rows.append(row | ({} if category is None else {"category": category}))
    return write_lines(tmp_path_factory.mktemp("data") / "my.jsonl", rows)


@pytest.fixture(scope="module")
def swept(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "mine"
    labels = ("--retriever", "bm25", "--retriever", "overlap", "--data", data)
    run(sweep, *labels, "--pools", "nested", "--distractors", "3,10", "--out", out, code=0)
    return out


@pytest.fixture(scope="module")
def found(swept: Path) -> Run:
    return read_run(swept)


def values_of(
    found: Run, label: str, size: int, metric: str, queries: set[str]
) -> tuple[list[float], list[str]]:
    """The values of a metric over some queries, and their sessions."""
    one = parse_metric(metric)
    rows = [
        row
        for row in found.rows
        if (row.retriever, row.distractors) == (label, size) and row.query in queries
    ]
    return [one.value(row.ties) for row in rows], [f"s{int(r.query[1:]) % SESSIONS}" for r in rows]


@pytest.mark.parametrize("metric", ["R@1", "nDCG@3", "E[RR]"])
def test_a_cell_is_the_mean_of_its_group_over_sessions(found: Run, data: Path, metric: str) -> None:
    material = material_of(found, data)
    cells = breakdown(found, material, "category", parse_metric(metric))
    groups = ["plain", HOSTILE, "rare", "no value", TOTAL]
    assert [cell.group for cell in cells if cell.retriever == "bm25"] == groups * 2
    assert [cell.distractors for cell in cells] == [3] * 10 + [10] * 10
    queries = {
        "no value" if name is None else name: {
            f"q{i}" for i, other in enumerate(CATEGORIES) if other == name
        }
        for name in dict.fromkeys(CATEGORIES)
    }
    queries[TOTAL] = {f"q{i}" for i in range(len(CATEGORIES))}
    for cell in cells:
        where = cell.retriever, cell.distractors, metric, queries[cell.group]
        values, sessions = values_of(found, *where)
        assert cell.n == len(values) == len(queries[cell.group])
        assert cell.estimate == mean_interval(values, sessions, seed=0)
        assert cell.few == (cell.n < FEW)
        assert cell.total == (cell.group == TOTAL)
    assert {cell.group for cell in cells if cell.few} == {"rare", "no value"}


def test_all_queries_are_those_of_the_summary(found: Run, data: Path) -> None:
    cells = breakdown(found, material_of(found, data), "length", parse_metric("R@1"))
    totals = {(c.retriever, c.distractors): c.estimate for c in cells if c.total}
    for cell in found.summary((1,)).cells:
        estimate = cell.estimates[parse_metric("R@1")]
        total = totals[cell.retriever, cell.distractors]
        assert total is not None
        figures = (total.mean, total.low, total.high)
        assert figures == pytest.approx((estimate.mean, estimate.low, estimate.high), abs=1e-6)


def test_a_group_in_which_all_are_found_has_wilsons_interval(found: Run, data: Path) -> None:
    cells = breakdown(found, material_of(found, data), "category", parse_metric("R@14"))
    for cell in cells:
        assert cell.estimate is not None
        assert (cell.estimate.mean, cell.estimate.method) == (1.0, "wilson")
        assert 0 < cell.estimate.low < 1 == cell.estimate.high


def test_the_formats_hold_the_same_figures(swept: Path, data: Path) -> None:
    words = (swept, "--data", data, "--by", "category", "--distractors", 3, "--metric", "R@1")
    given = run_json(app, *words)
    assert (given["by"], given["metric"], given["few_below"]) == ("category", "R@1", FEW)
    assert given["groups"] == ["plain", HOSTILE, "rare", "no value"]
    assert run_json(app, *words, "--format", "json") == given
    lines = list(csv.DictReader(io.StringIO(run(app, *words, "--format", "csv", code=0).stdout)))
    assert len(lines) == len(given["cells"]) == 10
    for line, cell in zip(lines, given["cells"], strict=True):
        assert (line["run"], line["retriever"]) == ("mine", cell["retriever"])
        assert int(line["n"]) == cell["n"]
        assert (line["few"] == "True") == cell["few"]
        assert float(line["mean"]) == cell["mean"]
    text = run(app, *words, code=0)
    assert "\x1b" not in text.stdout
    assert "\\x1b[31m" in text.stdout
    figure = "{mean:.3f} [{low:.3f}, {high:.3f}]"
    for cell in given["cells"]:
        assert figure.format(**cell) in text.stdout
    assert "3 (few)" in text.stdout
    assert "2 of 4 groups" in text.stderr
    marked = run(app, *words, "--format", "markdown", code=0).stdout
    assert marked.count("|\n") == 2 + 5


def test_of_some_retrievers_sizes_and_queries(swept: Path, data: Path) -> None:
    words = (swept, "--data", data, "--by", "number", "--retriever", "overlap")
    given = run_json(app, *words, "--distractors", "10", "--where", "category=plain")
    assert given["where"] == "category=plain"
    assert {(c["retriever"], c["distractors"]) for c in given["cells"]} == {("overlap", 10)}
    assert [(c["group"], c["n"]) for c in given["cells"]] == [
        *(("0", 5), ("1", 5), ("2", 4), (TOTAL, 14)),
    ]


def test_of_a_filter_that_leaves_nothing(swept: Path, data: Path) -> None:
    words = (swept, "--data", data, "--by", "number", "--where", "category=no value")
    done = run(app, *words, "--where", "number=0")
    one_line_error(done, "no row is left to break down")


def test_two_runs_are_named_apart(swept: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "other"
    words = ("--pools", "nested", "--distractors", "3", "--out", out)
    run(sweep, "--retriever", "bm25", "--set", "bm25.k1=0.2", "--data", data, *words, code=0)
    runs = [read_run(swept), read_run(out)]
    both = breakdown_of_runs(runs, data, "category", parse_metric("R@1"), sizes=[3])
    names = ["bm25, nested pools (mine)", "overlap", "bm25, nested pools (other)"]
    assert both.retrievers == names
    assert both.runs == dict(zip(names, ("mine", "mine", "other"), strict=True))
    table = breakdown_table(both)
    assert len(table.rows) == 5
    assert [column.removesuffix(" [95 %]") for column in table.columns[3:]] == names


def test_a_query_with_pools_of_several_seeds_counts_once(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "seeds"
    words = ("--pools", "nested", "--distractors", 10, "--pool-seeds", "0,1,2", "--out", out)
    run(sweep, "--retriever", "bm25", "--data", data, *words, code=0)
    seeds = read_run(out)
    cells = breakdown(seeds, material_of(seeds, data), "category", parse_metric("E[RR]"))
    plain = {f"q{i}" for i, name in enumerate(CATEGORIES) if name == "plain"}
    values, sessions = values_of(seeds, "bm25", 10, "E[RR]", plain)
    assert len(values) == 3 * len(plain)
    assert (cells[0].group, cells[0].n) == ("plain", len(plain))
    assert cells[0].estimate == mean_interval(values, sessions, seed=0)
    # A pool has its own position of the gold, so a query may be in several groups.
    by_pool = breakdown(seeds, material_of(seeds, data), "position", parse_metric("E[RR]"))
    groups, total = [c.n for c in by_pool if not c.total], [c.n for c in by_pool if c.total]
    assert total == [len(CATEGORIES)]
    assert sum(groups) > len(CATEGORIES) >= max(groups)


def test_failed_rows_count_in_no_mean(swept: Path, data: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for name in ("manifest.json", "timings.jsonl"):
        (broken / name).write_bytes((swept / name).read_bytes())
    rows, _ = read_rows(swept / "rows.jsonl", lambda row: True)
    for row in rows:
        if row["retriever"] == "bm25" and row["query"] in {"q25", "q26", "q27", "q28"}:
            row.update(above=None, tied=None, top=[], error="timeout")
    (broken / "rows.jsonl").write_bytes(b"".join(map(encode_kept, rows)))
    words = (broken, "--data", data, "--by", "category", "--distractors", 3)
    cells = {(c["retriever"], c["group"]): c for c in run_json(app, *words)["cells"]}
    rare = cells["bm25", "rare"]
    assert (rare["n"], rare["failed"], rare["mean"]) == (0, 3, None)
    assert (cells["bm25", "no value"]["n"], cells["overlap", "rare"]["n"]) == (1, 3)
    text = run(app, *words, code=0)
    assert "(of 1, few)" in text.stdout
    assert "bm25: 4 rows failed" in text.stderr


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--by", "colour"], ["no grouping `colour`: choose one of language", "number, category"]),
        (["--by", "direct"], ["direct: the data does not tell"]),
        (["--by", "label", "--retriever", "no"], ["no such retriever", "bm25, overlap"]),
        (["--by", "label", "--distractors", "7"], ["--distractors 7", "there are: 3, 10"]),
        (["--by", "label", "--metric", "R"], ["--metric R: not a metric"]),
        (["--by", "label", "--out", "map.txt"], ["--out map.txt", ".png"]),
        (["--by", "label", "--where", "x"], ["--where x: write NAME=VALUE"]),
        (["--by", "label", "--format", "html"], ["--format html", "markdown"]),
        (["--by", "label", "--names", "bm25=x"], ["--names", "pass --out"]),
    ],
)
def test_a_mistake_is_one_line(swept: Path, data: Path, words: list[str], parts: list[str]) -> None:
    one_line_error(run(app, swept, "--data", data, *words), *parts)


def test_other_data_are_refused(swept: Path, data: Path, tmp_path: Path) -> None:
    done = run(app, swept, "--by", "label")
    one_line_error(done, "made on other data than the sample", "--data")
    other = tmp_path / data.name
    other.write_bytes(data.read_bytes().replace(b"rare", b"more"))
    done = run(app, swept, "--by", "label", "--data", other)
    one_line_error(done, "made on other data")


def texts_in(svg: Path) -> str:
    return svg.read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", ["png", "pdf", "svg"])
def test_a_heat_map_is_written_with_its_figures(
    swept: Path, data: Path, tmp_path: Path, kind: str
) -> None:
    out = tmp_path / "new" / f"map.{kind}"
    words = (swept, "--data", data, "--by", "number", "--out", out)
    run(app, *words, code=0)
    again = out.read_bytes()
    assert len(again) > 5_000
    lines = list(csv.reader(io.StringIO(out.with_suffix(".csv").read_text(encoding="utf-8"))))
    assert lines[0][:2] == ["run", "retriever"]
    assert len(lines) == 1 + 2 * 2 * 4
    run(app, *words, code=0)
    assert out.read_bytes() == again


def test_a_heat_map_shows_every_cell_and_its_count(swept: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "map.svg"
    words = ("--by", "category", "--distractors", 3, "--style", "paper", "--out", out)
    named = ("--names", "bm25=Lexical")
    given = run_json(app, swept, "--data", data, *words, *named)
    drawn = texts_in(out)
    for text in ("plain", "rare", "no value", "&lt;script&gt;$x_1$ [red]", "\\x1b[31m", "Lexical"):
        assert text in drawn, text
    for cell in given["cells"]:
        assert f">{cell['mean']:.2f}<" in drawn
        assert f">n {cell['n']}<" in drawn
    assert drawn.count(">n ") == len(given["cells"])
    assert "bm25" not in drawn


def test_a_heat_map_of_many_groups_shows_the_first(
    swept: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("analysis.heat_map.GROUPS", 2)
    out = tmp_path / "map.svg"
    words = ("--by", "category", "--style", "paper", "--out", out)
    done = run(app, swept, "--data", data, *words, code=0)
    assert "the first 2 of 4 groups" in done.stderr
    assert "rare" not in texts_in(out)
    monkeypatch.setattr("analysis.heat_map.PANELS", 1)
    done = run(app, swept, "--data", data, *words)
    assert done.exit_code == 2
    assert "2 retrievers at 2 sizes do not fit" in done.stderr
