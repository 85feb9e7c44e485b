"""The layout of pictures by geometry: nothing overlaps, and all lines are distinct."""

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.t2CharStringPen import T2CharStringPen
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from analysis import pictures
from analysis.curves import Curve, draw
from analysis.frontier import FrontierPoint
from analysis.frontier_picture import draw_frontier
from analysis.metrics import Recall
from analysis.pictures import fonts_for, look
from analysis.published import published_task3

SIZES = (100, 300, 500, 700, 1000)
TITLE = "Task 3, embedded sample, not AlpsBench: 164 queries, nested pools"


def curve(
    label: str, sizes: Sequence[int] = SIZES, retriever: str = "", source: str = "", at: float = 0.6
) -> Curve:
    mean = tuple(at - 0.05 * i / len(sizes) for i in range(len(sizes)))
    low, high = (tuple(m + by for m in mean) for by in (-0.04, 0.04))
    chance = tuple(1 / (size + 1) for size in sizes)
    return Curve(label, retriever or label, source, tuple(sizes), mean, low, high, chance)


MANY = (*range(1, 21), 50, 95, 100, 105, 10_000, 10_500, 11_000)
CASES: dict[str, tuple[list[Curve], list[str]]] = {
    "one size": ([curve("bm25", (100,)), curve("minilm", (100,))], [TITLE]),
    "one size, nine retrievers": ([curve(f"r{i}", (100,)) for i in range(9)], [TITLE]),
    "one size that has no distractors": ([curve("bm25", (0,))], [TITLE]),
    "two retrievers": ([curve("bm25"), curve("minilm", at=0.4)], [TITLE]),
    "thirty retrievers": ([curve(f"r{i}") for i in range(30)], [TITLE]),
    "three runs of three": (
        [curve(f"r{i} ({s})", SIZES, f"r{i}", s) for i in range(3) for s in "abc"],
        [TITLE, "Task 3, split dev: 410 queries, as-released pools"],
    ),
    "long labels": ([curve(f"{i}-" + "a-long-label-" * 9) for i in range(4)], [TITLE]),
    "long title": ([curve("bm25")], [TITLE * 4, "W" * 200]),
    "characters without a font": ([curve("绿茶"), curve("_x\u202e$")], ["喜欢喝绿茶" * 20]),
    "many sizes": ([curve("bm25", MANY)], [TITLE]),
    "sizes from none": ([curve("bm25", (0, 1, 10))], [TITLE]),
}


def bounds(axes: Axes) -> dict[str, Bbox]:
    found = axes.get_legend()
    assert found is not None
    return {
        "legend": found.get_window_extent(),
        "title": axes._left_title.get_window_extent(),  # type: ignore[attr-defined]
        "axes": axes.get_window_extent(),
        "x label": axes.xaxis.label.get_window_extent(),
        "y label": axes.yaxis.label.get_window_extent(),
    }


def assert_apart(texts: Sequence[Text]) -> None:
    for one, other in itertools.combinations(texts, 2):
        assert not one.get_window_extent().overlaps(other.get_window_extent())


@pytest.mark.parametrize("case", CASES)
def test_nothing_overlaps_or_is_outside(case: str, drawn: list[Figure], tmp_path: Path) -> None:
    curves, titles = CASES[case]
    draw(curves, Recall(1), titles, tmp_path / "c.png")
    [figure] = drawn
    [axes] = figure.axes
    figure.draw_without_rendering()
    boxes = bounds(axes)
    for (name, one), (other_name, other) in itertools.combinations(boxes.items(), 2):
        assert not one.overlaps(other), (name, other_name)
    for name, box in boxes.items():
        assert figure.bbox.x0 - 1 <= box.x0 <= box.x1 <= figure.bbox.x1 + 1, name
        assert figure.bbox.y0 - 1 <= box.y0 <= box.y1 <= figure.bbox.y1 + 1, name
    assert boxes["axes"].width > 0.3 * figure.bbox.width
    assert boxes["axes"].height > 0.3 * figure.bbox.height
    ticks = [t for t in axes.get_xticklabels() if t.get_visible() and t.get_text()]
    assert len(ticks) == len(axes.get_xticks()) or case == "many sizes"
    assert len(ticks) >= 1
    assert_apart(ticks)
    assert len(axes.get_legend().get_texts()) == len(curves) + 1  # and chance


def test_published_lines_fit_too(drawn: list[Figure], tmp_path: Path) -> None:
    draw([curve("bm25")], Recall(1), [TITLE], tmp_path / "c.png", published_task3())
    [axes] = drawn[0].axes
    drawn[0].draw_without_rendering()
    boxes = bounds(axes)
    assert not boxes["legend"].overlaps(boxes["title"])
    assert boxes["legend"].y0 >= 0


def test_one_size_has_error_bars_and_chance(drawn: list[Figure], tmp_path: Path) -> None:
    curves = [curve("bm25", (100,), at=0.6), curve("minilm", (100,), at=0.3)]
    draw(curves, Recall(1), [TITLE], tmp_path / "c.png")
    [axes] = drawn[0].axes
    bars = [path.vertices for c in axes.collections for path in c.get_paths()]
    for bar, ends in zip(bars, ([0.56, 0.64], [0.26, 0.34]), strict=True):
        assert [float(y) for _, y in bar] == pytest.approx(ends)
    assert bars[0][0][0] != bars[1][0][0]  # side by side
    [chance] = [line for line in axes.lines if line.get_label() == "chance"]
    assert list(chance.get_ydata()) == pytest.approx([1 / 101, 1 / 101])
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["100"]


def grey(colour: str) -> float:
    red, green, blue = to_rgb(colour)
    return 0.299 * red + 0.587 * green + 0.114 * blue


def test_lines_are_distinct_in_colour_and_in_grey() -> None:
    looks = [look(retriever, source) for retriever in range(24) for source in range(16)]
    for one, other in itertools.combinations(looks, 2):
        keys = ("marker", "fillstyle", "linestyle")
        hollow = [each["markerfacecolor"] == "white" for each in (one, other)]
        assert [one[key] for key in keys] != [other[key] for key in keys] or hollow[0] != hollow[1]


def test_colours_are_retrievers_and_dashes_are_runs(drawn: list[Figure], tmp_path: Path) -> None:
    curves, titles = CASES["three runs of three"]
    draw(curves, Recall(1), titles, tmp_path / "c.png")
    lines = [line for line in drawn[0].axes[0].lines if line.get_label() != "chance"]
    colours = [line.get_color() for line in lines]
    dashes = [str(line._unscaled_dash_pattern) for line in lines]  # type: ignore[attr-defined]
    assert [colours.index(c) for c in colours] == [0, 0, 0, 3, 3, 3, 6, 6, 6]
    assert [dashes.index(d) for d in dashes] == [0, 1, 2] * 3
    bands = drawn[0].axes[0].collections
    assert all(band.get_linewidth()[0] > 0 for band in bands)  # type: ignore[index]
    assert len({str(band.get_linestyle()) for band in bands}) == 3


def test_text_is_drawn_as_it_is(drawn: list[Figure], tmp_path: Path) -> None:
    for ending in ("png", "pdf", "svg"):
        out = tmp_path / f"c.{ending}"
        draw([curve("$\\frac{$"), curve("a\x1b[31m\u202e")], Recall(1), ["$x^2$ \\frac{"], out)
        legend = drawn[-1].axes[0].get_legend()
        assert legend is not None
        texts = [text.get_text() for text in legend.get_texts()]
        assert texts == ["$\\frac{$", "a\\x1b[31m\\u202e", "chance"]
        assert drawn[-1].axes[0].get_title(loc="left") == "$x^2$ \\frac{"
        assert out.stat().st_size > 1000


def test_a_pdf_holds_truetype_fonts(tmp_path: Path) -> None:
    draw([curve("bm25")], Recall(1), [TITLE], tmp_path / "c.pdf")
    raw = (tmp_path / "c.pdf").read_bytes()
    assert b"/Type3" not in raw.replace(b" ", b"")
    assert re.search(rb"/Subtype\s*/(TrueType|CIDFontType2)", raw)


PRIVATE = "\ue000"


def font_with(path: Path, name: str, postscript: bool) -> Path:
    """A font of one square, for PRIVATE, with PostScript's or TrueType's outlines."""
    pen: Any = T2CharStringPen(500, None) if postscript else TTGlyphPen(None)
    for move, *points in (("moveTo", (0, 0)), ("lineTo", (0, 500)), ("lineTo", (500, 500))):
        getattr(pen, move)(*points)
    pen.closePath()
    glyph = pen.getCharString() if postscript else pen.glyph()
    builder = FontBuilder(1000, isTTF=not postscript)
    glyphs = {".notdef": glyph, "square": glyph}
    builder.setupGlyphOrder(list(glyphs))
    builder.setupCharacterMap({ord(PRIVATE): "square"})
    if postscript:
        builder.setupCFF(name, {}, glyphs, {})
    else:
        builder.setupGlyf(glyphs)
    builder.setupHorizontalMetrics(dict.fromkeys(glyphs, (500, 0)))
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": name, "styleName": "Regular"})
    builder.setupOS2(usWeightClass=400)
    builder.setupPost()
    builder.save(path)
    return path


def test_fonts_with_postscript_outlines_are_the_last_choice_and_no_type_42(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fonts = font_manager.fontManager
    monkeypatch.setattr(fonts, "ttflist", list(fonts.ttflist))
    installed = {
        name: str(font_with(tmp_path / f"{name}.otf", name, postscript))
        for name, postscript in (("AOutlines", True), ("ZOutlines", False))
    }
    for path in installed.values():
        fonts.addfont(path)
    monkeypatch.setattr(pictures, "_installed", lambda: dict(installed))
    for expected, kind in (("ZOutlines", b"/CIDFontType2"), ("AOutlines", b"/Type3")):
        assert fonts_for(PRIVATE) == ([pictures.FONT, expected], [])
        draw([curve(PRIVATE)], Recall(1), [], tmp_path / "c.pdf")
        raw = (tmp_path / "c.pdf").read_bytes().replace(b" ", b"")
        assert kind in raw
        assert (b"/FontFile2" in raw) is (expected == "ZOutlines")
        installed.pop(expected)


def test_characters_without_a_font_are_escaped(
    drawn: list[Figure],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    recwarn: pytest.WarningsRecorder,
) -> None:
    monkeypatch.setattr(pictures, "_installed", dict)
    draw([curve("喝 tea")], Recall(1), ["喜欢喝绿茶"], tmp_path / "c.png")
    title = drawn[0].axes[0].get_title(loc="left")
    assert title == "\\u559c\\u6b22\\u559d\\u7eff\\u8336"
    [note] = capsys.readouterr().err.splitlines()
    assert "no installed font has 5 of its characters, such as \\u559c" in note
    assert not list(recwarn)


def test_a_font_that_has_the_characters_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    have = {"A": "喜欢", "B": "喜欢喝", "C": "茶"}
    monkeypatch.setattr(pictures, "_installed", lambda: {name: name for name in have})
    known = pictures._characters
    monkeypatch.setattr(
        pictures, "_characters", lambda path: frozenset(have[path]) if path in have else known(path)
    )
    assert fonts_for("tea") == ([pictures.FONT], [])
    assert fonts_for("喜欢 tea") == ([pictures.FONT, "A"], [])
    assert fonts_for("喜欢喝茶馆") == ([pictures.FONT, "B", "C"], ["馆"])


def test_a_newly_installed_font_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """matplotlib itself reads a list that it made once."""
    fonts = font_manager.fontManager
    monkeypatch.setattr(fonts, "ttflist", list(fonts.ttflist))
    new, broken = tmp_path / "new.ttf", tmp_path / "broken.ttf"
    new.write_bytes(Path(pictures._default()).with_name("DejaVuSerif.ttf").read_bytes())
    broken.write_bytes(b"no font")
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [str(new), str(broken)])
    assert str(new) in pictures._installed().values()
    assert str(broken) not in pictures._installed().values()


def test_the_frontier_keeps_its_distances(drawn: list[Figure], tmp_path: Path) -> None:
    amounts = [100, 110, 5000, 90_000, 1_000_000, 1_100_000, 0, 0, 120, 130]
    points = [
        FrontierPoint("r", f"$llm{i}", 0.3 + i / 20, 0.25, 0.9, {"tokens": a}, 1, 0, 10, 10 - i % 2)
        for i, a in enumerate(amounts)
    ]
    draw_frontier(points, "tokens", 1, [TITLE * 3, "1,000 distractors"], tmp_path / "f.png")
    [axes] = drawn[0].axes
    drawn[0].draw_without_rendering()
    title = axes._left_title.get_window_extent()  # type: ignore[attr-defined]
    assert title.x1 <= drawn[0].bbox.x1
    assert title.y1 <= drawn[0].bbox.y1
    texts = {text.get_text() for text in axes.texts}
    assert {"$llm0", "$llm1 (9 of 10)", "$llm6"} <= texts
    assert not any(text.get_window_extent().overlaps(title) for text in axes.texts)
    low, high = axes.get_xlim()
    ticks = [
        tick
        for tick in (*axes.get_xticklabels(), *axes.get_xticklabels(minor=True))
        if tick.get_visible() and tick.get_text() and low <= tick.get_position()[0] <= high
    ]
    assert len(ticks) > 2
    assert_apart(ticks)
