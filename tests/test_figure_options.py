"""Options of pictures: title, size, intervals, logarithmic axis, names, style."""

import csv
import itertools
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from matplotlib import ft2font
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.text import Text
from matplotlib.textpath import TextPath

from analysis.curves import Curve, app, draw
from analysis.figure_options import FigureOptions, parse_inches, rename
from analysis.frontier import FrontierPoint
from analysis.frontier import app as frontier_app
from analysis.frontier_picture import draw_frontier
from analysis.metrics import Recall
from analysis.published import published_task3
from recallbed.errors import UserError
from tests import kit
from tests.kit import WriteRelease, one_line_error, swept

SIZES = (100, 300, 1000)
TITLE = "Task 3, embedded sample, not AlpsBench: 164 queries, nested pools"
PAPER = FigureOptions(style="paper")
HOSTILE = ["<script>&amp;", "$x_1$ 100% ^\\frac{", "[red]a\x1b[31m\nb|c", "a_b#~"]


def curve(label: str, mean: Sequence[float] = (0.6, 0.5, 0.4), source: str = "") -> Curve:
    sizes = SIZES[: len(mean)]
    low, high = (tuple(min(max(m + by, 0), 1) for m in mean) for by in (-0.1, 0.1))
    chance = tuple(1 / (size + 1) for size in sizes)
    return Curve(label, label, source, sizes, tuple(mean), low, high, chance)


def point(label: str, recall: float, tokens: float) -> FrontierPoint:
    ends = max(recall - 0.1, 0), recall + 0.1
    return FrontierPoint("r", label, recall, *ends, {"tokens": tokens}, 1.0, 0, 9, 9)


def pictured(
    curves: Sequence[Curve], options: FigureOptions, drawn: list[Figure], out: Path
) -> Figure:
    draw(curves, Recall(1), [TITLE], out, options=options)
    return drawn[-1]


def words_of(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text)]


@pytest.mark.parametrize("size", [(5.0, 3.0), (3.3, 2.4), (12.0, 4.0)])
def test_a_picture_has_the_size_asked_for(
    size: tuple[float, float], drawn: list[Figure], tmp_path: Path
) -> None:
    curves = [curve(f"r{i}") for i in range(5)]
    for style, dpi in (("screen", 160), ("paper", 300)):
        options = FigureOptions(size=size, style=style)  # type: ignore[arg-type]
        pictured(curves, options, drawn, tmp_path / "c.png")
        shape = imread(tmp_path / "c.png").shape
        assert shape[:2] == pytest.approx((size[1] * dpi, size[0] * dpi), abs=1)


def test_a_size_too_small_for_the_text_is_refused(tmp_path: Path) -> None:
    options = FigureOptions(size=(2.0, 1.0))
    with pytest.raises(UserError, match=r"^--size 2x1: the text does not fit"):
        draw([curve("bm25")], Recall(1), [TITLE], tmp_path / "c.png", options=options)
    with pytest.raises(UserError, match=r"^--size 2x1: the text does not fit"):
        draw_frontier([point("a", 0.5, 10)], "tokens", 1, [], tmp_path / "f.png", options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text", ["3", "3x", "0x0", "3x-2", "1e9x3", "nanx3", "3x3x3", "3 3", "٣x٣x"]
)
def test_a_size_is_two_numbers_of_inches(text: str) -> None:
    with pytest.raises(UserError, match="width and height in inches"):
        parse_inches("--size", text)
    assert parse_inches("--size", "3.3x2.4") == parse_inches("--size", "3.3X2.40") == (3.3, 2.4)


def test_a_title_replaces_what_was_measured(drawn: list[Figure], tmp_path: Path) -> None:
    for options, expected in (
        (FigureOptions(), TITLE),
        (FigureOptions(title="Mine: $x_1$ 100%"), "Mine: $x_1$ 100%"),
        (FigureOptions(title=""), ""),
        (PAPER, ""),
        (FigureOptions(title="a\x1b[31m\nb", style="paper"), "a\\x1b[31m\\nb"),
    ):
        figure = pictured([curve("bm25")], options, drawn, tmp_path / "c.png")
        assert figure.axes[0].get_title(loc="left").replace("\n", " ") == expected
        draw_frontier([point("a", 0.5, 9)], "tokens", 1, [TITLE], tmp_path / "f.png", options)
        assert drawn[-1].axes[0].get_title(loc="left").replace("\n", " ") == expected


def test_without_bands_no_interval_is_drawn_nor_named(drawn: list[Figure], tmp_path: Path) -> None:
    for means in ((0.6, 0.5), (0.6,)):
        for no_bands in (False, True):
            options = FigureOptions(no_bands=no_bands)
            figure = pictured([curve("bm25", means)], options, drawn, tmp_path / "c.png")
            assert len(figure.axes[0].collections) == (not no_bands)
            assert ("interval" in figure.axes[0].get_ylabel()) is not no_bands
    points = [point("a", 0.5, 10), point("b", 0.6, 20)]
    draw_frontier(points, "tokens", 1, [], tmp_path / "f.png", FigureOptions(no_bands=True))
    assert not drawn[-1].axes[0].collections
    assert "interval" not in drawn[-1].axes[0].get_ylabel()


def test_zeros_on_a_logarithmic_axis_are_clipped_in_sight(
    drawn: list[Figure], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    curves = [curve("some", (0.5, 0.05, 0.0)), curve("none", (0.0, 0.0, 0.0))]
    figure = pictured(curves, FigureOptions(logy=True), drawn, tmp_path / "c.png")
    [axes] = figure.axes
    floor = axes.get_ylim()[0]
    assert axes.get_yscale() == "log"
    assert 0 < floor < 1 / 1001  # chance is on the axis
    triangles = [line for line in axes.lines if line.get_marker() == 11]
    assert [list(line.get_xdata()) for line in triangles] == [[1000], list(SIZES)]  # type: ignore[arg-type]
    for line in axes.lines:
        assert min(np.asarray(line.get_ydata(), float)) >= floor
    ticks = [tick.get_text() for tick in axes.get_yticklabels()]
    assert {"0.1", "0.01"} <= set(ticks)
    notes = capsys.readouterr().err
    assert "4 values of 0 drawn as a triangle at the lower edge" in notes
    assert "5 lower bounds are below the lower edge" in notes
    assert "log scale" in axes.get_ylabel()


def test_nothing_is_said_of_a_logarithmic_axis_that_has_room(
    drawn: list[Figure], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pictured([curve("bm25")], FigureOptions(logy=True), drawn, tmp_path / "c.png")
    assert not capsys.readouterr().err


def test_zeros_of_a_frontier_are_clipped_too(
    drawn: list[Figure], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    points = [point("free", 0.3, 0), point("zero", 0.0, 10), point("some", 0.05, 20)]
    draw_frontier(points, "tokens", 1, [], tmp_path / "f.png", FigureOptions(logy=True))
    axes = drawn[-1].axes[0]
    assert axes.get_yscale() == "log"
    assert any(line.get_marker() == 11 for line in axes.lines)
    assert {"free", "zero", "some"} <= {text.get_text() for text in axes.texts}
    notes = capsys.readouterr().err
    assert "1 value of 0 drawn as a triangle" in notes
    assert "2 lower bounds are below the lower edge" in notes


NAMES = ["bm25, nested pools (a)", "bm25, nested pools (b=c)", "llm (79 of 164)", "x"]
LABELS = ["bm25", "bm25", "llm", "x"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], NAMES),
        (["bm25=BM25"], ["BM25, nested pools (a)", "BM25, nested pools (b=c)", *NAMES[2:]]),
        (["llm=GPT $x$"], [*NAMES[:2], "GPT $x$ (79 of 164)", "x"]),
        (["bm25, nested pools (b=c)=B=C"], [NAMES[0], "B=C", *NAMES[2:]]),
        (
            ["bm25=B", "bm25, nested pools (a)=A"],
            ["A", "B, nested pools (b=c)", *NAMES[2:]],
        ),
        (["x=a=b"], [*NAMES[:3], "a=b"]),
    ],
)
def test_a_label_or_a_whole_name_is_renamed(words: list[str], expected: list[str]) -> None:
    assert rename(words, NAMES, LABELS) == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["bm26=B"], "--names bm26=B: write LABEL=TEXT with a label of: bm25, llm, x, "),
        (["bm25"], "write LABEL=TEXT"),
        (["bm25="], "write LABEL=TEXT"),
        (["=bm25"], "write LABEL=TEXT"),
        (["x=llm (79 of 164)"], "would both be called llm"),
    ],
)
def test_a_wrong_name_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        rename(words, NAMES, LABELS)


def test_names_are_drawn_as_text(drawn: list[Figure], tmp_path: Path) -> None:
    curves = [curve(f"r{i}") for i in range(len(HOSTILE))]
    names = tuple(f"r{i}={text}" for i, text in enumerate(HOSTILE))
    shown = ["<script>&amp;", "$x_1$ 100% ^\\frac{", "[red]a\\x1b[31m\\nb|c", "a_b#~"]
    for style in ("screen", "paper"):
        options = FigureOptions(names=names, style=style)  # type: ignore[arg-type]
        for ending in ("png", "pdf", "svg"):
            figure = pictured(curves, options, drawn, tmp_path / f"c.{ending}")
            assert set(shown) <= set(words_of(figure))
    points = [point(f"r{i}", 0.5, 10 + i) for i in range(len(HOSTILE))]
    draw_frontier(points, "tokens", 1, [], tmp_path / "f.svg", options)
    assert set(shown) <= {text.get_text() for text in drawn[-1].axes[0].texts}


def luminance(colour: object) -> float:
    red, green, blue = to_rgb(colour)  # type: ignore[arg-type]
    return 0.299 * red + 0.587 * green + 0.114 * blue


@pytest.mark.parametrize("sources", [1, 3])
def test_on_paper_lines_are_distinct_in_grey(
    sources: int, drawn: list[Figure], tmp_path: Path
) -> None:
    curves = [
        Curve(f"r{i} ({s})", f"r{i}", str(s), SIZES, *([(0.5, 0.4, 0.3)] * 3), (0.1,) * 3)
        for i in range(12 // sources)
        for s in range(sources)
    ]
    figure = pictured(curves, PAPER, drawn, tmp_path / "c.pdf")
    lines = [line for line in figure.axes[0].lines if line.get_label() != "chance"]
    assert len(lines) == len(curves)
    looks = []
    for line in lines:
        dashes = str(line._unscaled_dash_pattern)  # type: ignore[attr-defined]
        fill = line.get_markerfacecolor() == "white"
        looks.append((line.get_marker(), fill, dashes, luminance(line.get_color())))
    for one, other in itertools.combinations(looks, 2):
        assert one[:3] != other[:3]
    if sources == 1:
        for one, other in itertools.pairwise(looks):
            assert one[2] != other[2]
            assert abs(one[3] - other[3]) > 0.15


def test_paper_is_one_column_of_text_of_8_points(drawn: list[Figure], tmp_path: Path) -> None:
    figure = pictured([curve("bm25"), curve("minilm")], PAPER, drawn, tmp_path / "c.pdf")
    assert figure.get_figwidth() == 3.3
    points = [point("a", 0.5, 10), point("b", 0.6, 20), point("free", 0.4, 0)]
    draw_frontier(points, "tokens", 1, [], tmp_path / "f.pdf", PAPER)
    assert drawn[-1].get_figwidth() == 3.3
    for each in drawn:
        shown = [text for text in each.findobj(Text) if text.get_text()]
        assert {text.get_fontsize() for text in shown} == {8.0}  # type: ignore[attr-defined]


def test_on_paper_nothing_overlaps_or_is_outside(drawn: list[Figure], tmp_path: Path) -> None:
    many = [curve(f"{i}-" + "a-long-label-" * 5) for i in range(7)]
    for curves in ([curve("bm25")], [curve(f"r{i}") for i in range(9)], many):
        draw(curves, Recall(1), [TITLE], tmp_path / "c.pdf", published_task3(), PAPER)
        figure = drawn[-1]
        figure.draw_without_rendering()
        [legend], [axes] = figure.legends, figure.axes
        box, inside = legend.get_window_extent(), axes.get_window_extent()
        label = axes.xaxis.label.get_window_extent()
        assert box.y1 <= label.y0 + 1
        assert box.y0 >= -1
        assert box.x0 >= -1
        assert box.x1 <= figure.bbox.x1 + 1
        assert inside.height > 72
        assert len(legend.get_texts()) == len(curves) + len(published_task3()) + 2
    shown = [text.get_text() for text in drawn[1].legends[0].get_texts()]
    assert sorted(shown)[-9:] == [f"r{i}" for i in range(9)]


def test_text_on_paper_can_be_selected(tmp_path: Path) -> None:
    names = ("bm25=$x_1$ <b>",)
    for ending in ("svg", "pdf"):
        options = FigureOptions(style="paper", title="Mine & yours", names=names)
        draw([curve("bm25")], Recall(1), [], tmp_path / f"c.{ending}", options=options)
    svg = (tmp_path / "c.svg").read_text("utf-8")
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    assert {"$x_1$ &lt;b&gt;", "Mine &amp; yours", "recall@1, 95 % interval"} <= set(texts)
    pdf = (tmp_path / "c.pdf").read_bytes()
    assert b"/FontFile2" in pdf  # embedded TrueType
    assert b"/ToUnicode" in pdf
    assert b"/Type3" not in pdf.replace(b" ", b"")


def outline(text: str) -> np.ndarray:
    """The points of a text's outline, from its leftmost letter on, from 0."""
    points = np.asarray(TextPath((0, 0), text, size=20).vertices)
    return points - [points[:, 0].min(), 0]


ARABIC, HEBREW = "بيت", "אל"
SHAPES = hasattr(ft2font, "__libraqm_version__")


@pytest.mark.skipif(not SHAPES, reason="this matplotlib does not shape text")
def test_right_to_left_text_is_ordered_and_joined(
    drawn: list[Figure], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = FigureOptions(names=(f"a={ARABIC}", f"b={HEBREW}"), title=f"{HEBREW} 100% (bm25)")
    figure = pictured([curve("a"), curve("b")], options, drawn, tmp_path / "c.svg")
    assert {ARABIC, HEBREW, f"{HEBREW} 100% (bm25)"} <= set(words_of(figure))
    assert not capsys.readouterr().err  # DejaVu Sans has the letters
    last = outline(HEBREW[-1])
    assert np.allclose(outline(HEBREW)[: len(last)], last)  # the last letter is leftmost
    last = outline(ARABIC[-1])
    joined = outline(ARABIC)[: len(last)]
    assert joined.shape != last.shape or not np.allclose(joined, last)


def test_right_to_left_text_is_escaped_if_it_cannot_be_ordered(
    drawn: list[Figure],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(ft2font, "__libraqm_version__", raising=False)
    options = FigureOptions(names=(f"a={HEBREW} bm25",))
    figure = pictured([curve("a")], options, drawn, tmp_path / "c.svg")
    assert "\\u05d0\\u05dc bm25" in words_of(figure)
    [note] = capsys.readouterr().err.splitlines()
    assert (
        "cannot write from right to left: 2 letters, such as \\u05d0, are drawn as escapes" in note
    )


def test_the_commands_take_the_options(
    write_release: WriteRelease,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    drawn: list[Figure],
) -> None:
    write_release([(f"topic {i}", [f"topic {i} of {j}" for j in range(5)], 0) for i in range(6)])
    monkeypatch.chdir(tmp_path)
    swept(["overlap"], Path("release"), out=Path("run"), distractors=(2, 4))
    words = ["--title", "T", "--size", "5x3", "--no-bands", "--logy", "--names", "overlap=Terms"]
    kit.run(app, "run", "--out", "c.png", *words, "--style", "paper", code=0)
    assert {"T", "Terms"} <= set(words_of(drawn[-1]))
    assert drawn[-1].get_size_inches().tolist() == [5, 3]
    with Path("c.csv").open() as stream:
        assert {row["retriever"] for row in csv.DictReader(stream)} == {"overlap"}
    kit.run(frontier_app, "run", "--x", "ms", "--out", "f.svg", *words, "--style", "paper", code=0)
    assert {"T", "Terms"} <= set(words_of(drawn[-1]))
    assert "interval" not in drawn[-1].axes[0].get_ylabel()
    one_line_error(kit.run(app, "run", "--size", "big"), "--size big: write width and height")
    one_line_error(kit.run(app, "run", "--names", "bm25=B"), "--names bm25=B: write LABEL=TEXT")
    one_line_error(kit.run(app, "run", "--style", "web"), "--style web: choose one of screen")
