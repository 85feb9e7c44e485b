"""The picture of one or many runs, and the figures beside it."""

import csv
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from typer.testing import Result

from analysis.curves import app, curve_table, curves_of
from analysis.frontier import app as frontier_app
from analysis.metrics import Recall
from analysis.published import BASELINES, CAPTION, published_task3
from analysis.runs import read_run
from task3.sweep import app as sweep_app
from tests import kit
from tests.kit import WriteRelease, one_line_error, rows_of, swept, write_lines

SIZES = (4, 10, 25)


@pytest.fixture
def place(write_release: WriteRelease, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a release of ten queries."""
    texts = [[f"topic {i} note {j} of {i}" for j in range(5)] for i in range(10)]
    write_release([(f"topic {i}", texts[i], i % 5) for i in range(10)])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def sweep(out: str, *names: str, **options: Any) -> Path:
    return swept(names, Path("release"), out=Path(out), **{"distractors": SIZES, **options}).path


def curves(*words: str) -> Result:
    return kit.run(app, *words, code=0)


def only_axes(drawn: list[Figure]) -> Axes:
    [figure] = drawn
    [axes] = figure.axes
    return axes


def line(axes: Axes, label: str) -> Line2D:
    [found] = [each for each in axes.lines if each.get_label() == label]
    return found


def legend(figure: Figure) -> list[str]:
    found = figure.axes[0].get_legend()
    assert found is not None
    return [text.get_text() for text in found.get_texts()]


def every_text(figure: Figure) -> str:
    return " ".join(text.get_text().replace("\n", " ") for text in figure.findobj(Text))


@pytest.mark.parametrize(
    ("name", "magic"), [("c.png", b"\x89PNG"), ("c.pdf", b"%PDF"), ("c.svg", b"<?xml")]
)
def test_the_ending_chooses_the_kind_of_picture(place: Path, name: str, magic: bytes) -> None:
    sweep("run", "overlap")
    result = curves("run", "--out", f"new/folder/{name}")
    assert (place / "new" / "folder" / name).read_bytes().startswith(magic)
    assert (place / "new" / "folder" / "c.csv").exists()
    assert result.stdout.strip().endswith(name)


def test_equal_runs_give_equal_pictures(place: Path) -> None:
    sweep("run", "overlap", "random")
    curves("run", "--out", "a.png")
    curves("run", "--out", "b.png")
    assert (place / "a.png").read_bytes() == (place / "b.png").read_bytes()


def test_a_curve_holds_the_figures_of_the_summary(place: Path) -> None:
    run = sweep("run", "overlap", "random")
    cells = json.loads((run / "summary.json").read_text())["cells"]
    for curve in curves_of([read_run(run)], Recall(5)):
        mine = [c for c in cells if c["retriever"] == curve.label]
        assert curve.distractors == SIZES
        for key in ("mean", "low", "high"):
            assert list(getattr(curve, key)) == [c["recall"]["5"][key] for c in mine]


def test_lines_bands_and_chance(place: Path, drawn: list[Figure]) -> None:
    run = sweep("run", "random")
    curves("run", "--k", "5")
    [curve] = curves_of([read_run(run)], Recall(5))
    axes = only_axes(drawn)
    assert np.allclose(line(axes, "random").get_xydata(), list(zip(SIZES, curve.mean, strict=True)))
    [band] = axes.collections
    heights = np.asarray(band.get_paths()[0].vertices)[:, 1]
    assert heights.min() == pytest.approx(min(curve.low))
    assert heights.max() == pytest.approx(max(curve.high))
    chance = np.asarray(line(axes, "chance").get_xydata())
    # k of n + 1 at every size; a pool of 5 holds no more than 5.
    assert np.allclose(chance, [[4, 1.0], [10, 5 / 11], [25, 5 / 26]])


def test_constant_lies_on_the_chance_line(place: Path, drawn: list[Figure]) -> None:
    sweep("run", "constant")
    curves("run")
    constant, chance = (line(only_axes(drawn), label) for label in ("constant", "chance"))
    assert np.allclose(constant.get_xydata(), chance.get_xydata(), atol=1e-6)


def test_the_x_axis_is_logarithmic_with_ticks(place: Path, drawn: list[Figure]) -> None:
    sweep("run", "constant")
    curves("run")
    axes = only_axes(drawn)
    assert axes.get_xscale() == "log"
    assert list(axes.get_xticks()) == list(SIZES)
    assert list(axes.get_xticks(minor=True)) == []
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["4", "10", "25"]
    assert "distractors" in axes.get_xlabel()
    assert "recall@1" in axes.get_ylabel()
    assert axes.get_ylim()[0] == 0


def test_thousands_are_written_for_people(place: Path, drawn: list[Figure]) -> None:
    swept(["constant"], distractors=(100, 1000), limit=3, out=Path("sample"))
    curves("sample")
    axes = only_axes(drawn)
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["100", "1,000"]
    assert "sample, not AlpsBench" in axes.get_title(loc="left")


def test_several_runs_share_a_picture(place: Path, drawn: list[Figure]) -> None:
    sweep("one", "overlap")
    sweep("two", "random", distractors=(10, 40))
    curves("one", "two")
    assert legend(drawn[0]) == ["overlap", "random", "chance"]
    axes = only_axes(drawn)
    assert list(axes.get_xticks()) == [4, 10, 25, 40]
    assert list(np.asarray(line(axes, "random").get_xdata())) == [10, 40]


def test_a_label_in_several_runs_is_marked_by_folder(place: Path, drawn: list[Figure]) -> None:
    sweep("one", "overlap", "random")
    sweep("two", "random", seed=1)
    curves("one", "two")
    alone, one, two, chance = legend(drawn[0])
    assert (alone, chance) == ("overlap", "chance")
    assert one.startswith("random")
    assert one.endswith("(one)")
    assert two == one.replace("(one)", "(two)")


def test_a_label_over_different_pools_says_which(place: Path, drawn: list[Figure]) -> None:
    sweep("one", "random", distractors=(4,))
    sweep("two", "random", distractors=(4,), pools="released")
    curves("one", "two")
    nested, released, _ = legend(drawn[0])
    assert "nested" in nested
    assert "released" in released


def looks(drawn: list[Figure], lines: int) -> list[tuple[str, str, str, str]]:
    """Colour, marker, how the marker is filled, and dashes of each curve."""
    names = [f"run{i}" for i in range(lines)]
    for number, name in enumerate(names):
        sweep(name, "random", seed=number, distractors=(4, 10), limit=3)
    curves(*names)
    found = [each for each in only_axes(drawn).lines if each.get_label() != "chance"]
    assert len(found) == lines
    fills = [f"{each.get_markerfacecolor()} {each.get_fillstyle()}" for each in found]
    return [
        (str(each.get_color()), str(each.get_marker()), fill, str(each._unscaled_dash_pattern))  # type: ignore[attr-defined]
        for each, fill in zip(found, fills, strict=True)
    ]


def test_lines_are_distinct_without_their_colour(place: Path, drawn: list[Figure]) -> None:
    assert len({(marker, dashes) for _, marker, _, dashes in looks(drawn, 7)}) == 7


def test_many_lines_are_distinct(place: Path, drawn: list[Figure]) -> None:
    assert len(set(looks(drawn, 10))) == 10


def test_no_published_line_without_asking(place: Path, drawn: list[Figure]) -> None:
    sweep("run", "constant")
    curves("run")
    assert [each.get_label() for each in only_axes(drawn).lines] == ["constant", "chance"]
    assert CAPTION not in every_text(drawn[0])


@pytest.mark.parametrize(
    ("wish", "names"),
    [
        ("baselines", list(BASELINES)),
        ("GPT-5.2,nltk+bm25", ["GPT-5.2", "nltk+bm25"]),
        ("all", list(published_task3())),
    ],
)
def test_published_lines(place: Path, drawn: list[Figure], wish: str, names: list[str]) -> None:
    sweep("run", "constant")
    curves("run", "--published", wish)
    axes = only_axes(drawn)
    published = [each for each in axes.lines if str(each.get_label()).endswith("published")]
    assert len(published) == len(names)
    for each, name in zip(published, names, strict=True):
        assert name in str(each.get_label())
        assert each.get_linestyle() == "--"
        assert np.allclose(each.get_xydata(), list(published_task3()[name].items()))
    assert CAPTION in every_text(drawn[0])
    assert CAPTION == "published pools; LLMs judged by use"


def test_published_lines_are_for_one_chosen_memory_only(place: Path) -> None:
    sweep("run", "constant")
    result = kit.run(app, "run", "--k", "5", "--published", "baselines")
    one_line_error(result, "--k 1", after_notes=True)


def test_the_csv_beside_the_picture_holds_every_figure(place: Path) -> None:
    sweep("one", "overlap", "constant")
    sweep("two", "random", pool_seeds=(0, 1))
    curves("one", "two", "--k", "5", "--out", "both.svg")
    rows = list(csv.DictReader((place / "both.csv").open()))
    assert len(rows) == 3 * len(SIZES) * 3
    expected = {}
    for run in ("one", "two"):
        for cell in json.loads((place / run / "summary.json").read_text())["cells"]:
            expected[run, cell["retriever"], cell["distractors"]] = cell
    for row in rows:
        cell = expected[row["run"], row["retriever"], int(row["distractors"])]
        figures = {
            "R@5": cell["recall"]["5"],
            "nDCG@5": cell["ndcg"]["5"],
            "E[RR]": cell["reciprocal_rank"],
        }[row["metric"]]
        for key in ("mean", "low", "high", "chance"):
            assert float(row[key]) == figures[key]
        assert row["ceiling"] == str(figures.get("ceiling", ""))
        assert row["pools"] == "nested"
        for key in ("attempted", "scored", "failed"):
            assert int(row[key]) == cell[key]
    assert {row["metric"] for row in rows} == {"R@5", "nDCG@5", "E[RR]"}


def test_a_k_that_the_sweep_did_not_ask_for_is_computed_from_the_rows(place: Path) -> None:
    sweep("run", "constant", ks=(1,))
    curves("run", "--k", "2", "--out", "c.svg")
    rows = [r for r in csv.DictReader((place / "c.csv").open()) if r["metric"] == "R@2"]
    assert [float(r["mean"]) for r in rows] == pytest.approx([2 / 5, 2 / 11, 2 / 26], abs=1e-6)


def test_an_unfinished_run_is_drawn_as_far_as_it_is(place: Path, drawn: list[Figure]) -> None:
    run = sweep("run", "overlap", "constant")
    lines = (run / "rows.jsonl").read_bytes().splitlines(keepends=True)
    (run / "rows.jsonl").write_bytes(b"".join(lines[:15]) + b'{"query": "q5", "retr')
    result = curves("run")
    assert result.stderr.splitlines() == [
        "run: `overlap` has no scored rows at 25 distractors",
        "run: `overlap` at 10: 5 of 10 rows are scored (5 not run yet)",
        "run: `constant` has no scored rows and is not drawn",
    ]
    assert legend(drawn[0]) == ["overlap (5 to 10 of 10)", "chance"]
    rows = list(csv.DictReader((place / "curve.csv").open()))
    assert [row["scored"] for row in rows if row["metric"] == "R@1"] == ["10", "5"]


def test_a_size_where_all_failed_has_no_point(place: Path) -> None:
    run = sweep("run", "overlap")
    fail(run, "overlap", *range(10, 20))
    [curve] = curves_of([read_run(run)], Recall(1))
    assert curve.distractors == (4, 25)
    table = csv.DictReader(curve_table([read_run(run)], (1,)).splitlines())
    assert {row["distractors"] for row in table} == {"4", "25"}


def test_drawing_leaves_the_run_as_it_was(place: Path) -> None:
    run = sweep("run", "overlap")
    before = {p.name: p.read_bytes() for p in run.iterdir()}
    curves("run", "--out", "elsewhere.png")
    assert {p.name: p.read_bytes() for p in run.iterdir()} == before


def fail(run: Path, label: str, *places: int) -> None:
    """Make some rows of a label failed ones."""
    lines = rows_of(run)
    mine = [row for row in lines if row["retriever"] == label]
    for place in places:
        mine[place].update(above=None, tied=None, top=[], error="broken")
    for row in lines:
        del row["check"]
    write_lines(run / "rows.jsonl", lines)


def test_a_retriever_that_failed_somewhere_is_marked(place: Path, drawn: list[Figure]) -> None:
    run = sweep("run", "overlap", "constant")
    fail(run, "overlap", 0, 1, 2, 10, 11, 12, 20, 21, 22)
    result = curves("run")
    assert legend(drawn[0]) == ["overlap (7 of 10)", "constant", "chance"]
    assert result.stderr.splitlines() == [
        "run: `overlap` at 4, 10, 25: 7 of 10 rows are scored (3 failed)"
    ]


def test_nothing_scored_is_one_line_and_no_picture(place: Path) -> None:
    run = sweep("run", "overlap", distractors=(4,))
    fail(run, "overlap", *range(10))
    one_line_error(kit.run(app, "run"), "no run has a scored row")
    assert not (place / "curve.png").exists()


@pytest.mark.parametrize(("tool", "more"), [(app, []), (frontier_app, ["--x", "ms"])])
def test_a_table_of_other_data_is_not_replaced(place: Path, tool: Any, more: list[str]) -> None:
    sweep("run", "overlap")
    table, words = place / "precious.csv", ["run", "--out", "precious.png", *more]
    table.write_text("mine\n1\n")
    one_line_error(kit.run(tool, *words), "precious.csv: already exists")
    assert table.read_text() == "mine\n1\n"
    assert not (place / "precious.png").exists()
    kit.run(tool, *words, "--overwrite", code=0)
    assert table.read_text().startswith("run,retriever,")
    kit.run(tool, *words, code=0)  # it is ours now


def own_data(place: Path, name: bytes) -> Path:
    path = Path(os.fsdecode(os.fsencode(place) + b"/" + name))
    row = {"query": "tea", "memories": ["green tea", "a cat", "a bee"], "gold": 0}
    return write_lines(path, [row] * 3)


@pytest.mark.parametrize("name", [b"a$\\frac{$.jsonl", b"a\xff\xfe.jsonl", "喜欢.jsonl".encode()])
def test_any_file_name_is_drawn(place: Path, name: bytes, drawn: list[Figure]) -> None:
    data, out = str(own_data(place, name)), os.fsdecode(name[:-6])
    words = ["--retriever", "bm25", "--data", data, "--k", "1", "--out", out]
    for more in ([], ["--resume"], ["--resume", "--json"]):
        result = kit.run(sweep_app, *words, *more, code=0)
        assert "no picture" not in result.stderr
    assert json.loads(result.stdout)["data"]["split"] == os.path.basename(data)
    assert Path(out, "curve.png").read_bytes().startswith(b"\x89PNG")
    for ending in ("png", "pdf", "svg"):
        assert "Traceback" not in curves(out, "--out", f"{out}.{ending}").output
    title = drawn[-1].axes[0].get_title(loc="left")
    if b"frac" in name:
        assert "file a$\\frac{$.jsonl" in title
    if b"\xff" in name:
        assert "file a\\udcff\\udcfe.jsonl" in title


def test_a_failed_picture_costs_no_result(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = str(own_data(place, b"mine.jsonl"))
    words = ["--retriever", "bm25", "--data", data, "--k", "1", "--out", "run"]
    assert kit.run(sweep_app, *words).exit_code == 0

    def broken(self: Figure, *args: Any, **options: Any) -> None:
        raise ValueError("no\nway")

    monkeypatch.setattr(Figure, "savefig", broken)
    result = kit.run(sweep_app, *words, "--resume", code=0)
    assert "R@1 [95 %]" in result.stdout
    [line] = [line for line in result.stderr.splitlines() if "no picture" in line]
    assert "curve.png: cannot be drawn (ValueError: no way)" in line
    assert not (place / "run" / "curve.png").exists()  # an older one would show other rows
    assert (place / "run" / "curve.csv").exists()
    one_line_error(kit.run(app, "run", "--out", "c.png"), "c.png: cannot be drawn")
    assert not list(place.glob("*c.*"))
