"""Shared parts of all pictures: fonts, line styles, literal text, atomic files."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import bidirectional

from rich.cells import cell_len

from analysis.figure_options import SCREEN, FigureOptions
from recallbed.errors import UserError
from recallbed.harness.files import write_atomically
from recallbed.harness.terminal import note, visible
from recallbed.harness.text_table import wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

# Okabe & Ito's palette without its yellow.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
# For print: neighbours differ in luminance as well (0, 0.45, 0.25, 0.65).
PAPER_COLOURS = ("#000000", "#D55E00", "#08519C", "#56B4E9")
MARKERS = "osD^vPX*<>ph"
LINES: tuple[Any, ...] = (
    "-",
    (0, (6, 1.5)),
    (0, (5, 1, 1, 1)),
    (0, (2, 1)),
    (0, (5, 1, 1, 1, 1, 1)),
    (0, (10, 2)),
    (0, (3, 1, 3, 1, 1, 1)),
    (0, (1, 2, 4, 2)),
)
_FILLS = ("full", "left", "bottom", "right", "top")
FONT = "DejaVu Sans"  # comes with matplotlib
_KINDS = (".png", ".pdf", ".svg")
_PAPER: dict[str, Any] = {
    **dict.fromkeys(("font.size", "axes.titlesize", "axes.labelsize", "legend.fontsize"), 8),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), 8),
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "savefig.dpi": 300,
    "svg.fonttype": "none",  # text, which can be selected
}


def check_out(out: Path, overwrite: bool) -> None:
    """Refuse a picture of an unknown kind, and a table next to it that is not ours.

    Raises UserError unless `out` is a .png, .pdf or .svg; and if a .csv of the same stem exists
    that was not written by a command of `analysis`, unless `overwrite`.
    """
    if out.suffix.lower() not in _KINDS:
        raise UserError(f"--out {out}: name a .png, .pdf or .svg file")
    table = out.with_suffix(".csv")
    if overwrite or not table.exists():
        return
    with table.open("rb") as stream:
        ours = stream.read(14) == b"run,retriever,"
    if not ours:
        raise UserError(
            f"{table}: already exists and holds something else. The figures of {out} would replace"
            " it: pass --overwrite or another --out"
        )


@contextmanager
def picture(
    out: Path, texts: Iterable[str], options: FigureOptions = SCREEN
) -> Iterator[Callable[[str], str]]:
    """Settings for drawing `out`; yields the function that makes a text of `texts` drawable.

    Text is drawn as it is: no mathtext, and control characters as escapes. Characters that no
    installed font has are escapes too, and so are letters written from right to left if this
    matplotlib cannot order and join them, with one note on stderr. Whatever matplotlib raises
    becomes a UserError that names `out`.
    """
    import matplotlib

    text = "".join(map(visible, texts))
    families, missing = fonts_for(text)
    if missing:
        note(
            f"{out}: no installed font has {len(missing)} of its characters, such as"
            f" {ascii(missing[0])[1:-1]}: they are drawn as escapes"
        )
    absent = set(missing) | _unshaped(out, text)

    def drawable(text: str) -> str:
        return "".join(ascii(c)[1:-1] if c in absent else c for c in visible(text))

    style: Any = {
        "font.family": families,
        "text.parse_math": False,
        # TrueType: text in a PDF can be searched and edited. Of a font with PostScript outlines
        # matplotlib makes a damaged one, of which some viewers show nothing.
        "pdf.fonttype": 3 if any(map(_is_postscript, map(_path_of, families[1:]))) else 42,
        "svg.hashsalt": "recallbed",
        "axes.titlesize": 10,
        "legend.fontsize": 8,
        "savefig.dpi": 160,
    }
    if options.paper:
        style |= _PAPER
    try:
        with matplotlib.rc_context(style), warnings.catch_warnings():
            # `check_fit` finds it.
            warnings.filterwarnings("ignore", "constrained_layout not applied", UserWarning)
            yield drawable
    except (UserError, OSError):
        raise
    except Exception as error:
        raise UserError(f"{out}: cannot be drawn ({type(error).__name__}: {error})") from error


def save(figure: Figure, out: Path) -> None:
    """Write a picture whole or not at all, without date and version: equal figures, equal bytes."""
    kind = out.suffix[1:].lower()
    metadata = {"png": {"Software": None}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
    stream = io.BytesIO()
    figure.savefig(stream, format=kind, metadata=metadata[kind])
    write_atomically(out, stream.getvalue())


def fonts_for(text: str) -> tuple[list[str], list[str]]:
    """The font families that together have the characters of `text`, and those that none has."""
    missing = {c for c in text if not c.isspace()} - _characters(_default())
    families = [FONT]
    known = _installed() if missing else {}
    while missing and known:
        best = min(known, key=partial(_worth, known, missing))
        found = missing & _characters(known.pop(best))
        if not found:
            break
        families.append(best)
        missing -= found
    return families, sorted(missing)


def _unshaped(out: Path, text: str) -> set[str]:
    """The letters from right to left, with a note, if this matplotlib draws them left to right."""
    from matplotlib import ft2font

    if hasattr(ft2font, "__libraqm_version__"):
        return set()
    found = {c for c in text if bidirectional(c) in ("R", "AL")}
    if found:
        note(
            f"{out}: matplotlib before 3.11 cannot write from right to left: {len(found)} letters"
            f", such as {ascii(min(found))[1:-1]}, are drawn as escapes"
        )
    return found


def _worth(paths: Mapping[str, str], missing: set[str], name: str) -> tuple[int, bool, str]:
    """What a font is preferred by: characters of `missing`, TrueType outlines, name."""
    path = paths[name]
    return -len(missing & _characters(path)), _is_postscript(path), name


def _is_postscript(path: str) -> bool:
    """Whether the outlines of a font are PostScript's (OpenType CFF), not TrueType's."""
    try:
        with open(path, "rb") as stream:
            tag = stream.read(16)
            if tag[:4] == b"ttcf":  # a collection: the offset of its first font
                stream.seek(int.from_bytes(tag[12:], "big"))
                tag = stream.read(4)
    except OSError:
        return False
    return tag[:4] == b"OTTO"


def _path_of(family: str) -> str:
    from matplotlib.font_manager import findfont

    return str(findfont(family))


def _default() -> str:
    return _path_of(FONT)


def _installed() -> dict[str, str]:
    """Upright fonts of normal weight, by family, without those that have no outlines to draw."""
    from matplotlib.font_manager import findSystemFonts, fontManager

    # matplotlib keeps a list from an earlier run: fonts that were installed since are not in it.
    listed = {font.fname for font in fontManager.ttflist}
    for path in sorted(set(findSystemFonts()) - listed):
        with suppress(OSError, RuntimeError):  # a font of a kind that cannot be read
            fontManager.addfont(path)
    return {
        font.name: font.fname
        for font in fontManager.ttflist
        if font.style == "normal"
        and font.weight in (400, "normal", "regular")
        and "Last Resort" not in font.name  # a box for every character
        and "Emoji" not in font.name  # bitmaps
    }


@cache
def _characters(path: str) -> frozenset[str]:
    from matplotlib.font_manager import get_font

    try:
        return frozenset(map(chr, get_font(path).get_charmap()))
    except (OSError, RuntimeError):  # a font that is damaged or of a kind that cannot be read
        return frozenset()


def look(retriever: int, source: int, paper: bool = False) -> dict[str, Any]:
    """How the line of the n-th retriever in the n-th run or pool strategy is drawn.

    Colour and marker tell retrievers apart, dashes runs; both remain distinct in grey. On `paper`
    colours of neighbours differ in luminance, too.
    """
    hollow = retriever // len(MARKERS) % 2 == 1
    colours = PAPER_COLOURS if paper else COLOURS
    colour = colours[retriever % len(colours)]
    return {
        "color": colour,
        "marker": MARKERS[retriever % len(MARKERS)],
        "markerfacecolor": "white" if hollow else colour,
        "markeredgecolor": colour,
        "fillstyle": _FILLS[source // len(LINES) % len(_FILLS)],
        "linestyle": LINES[source % len(LINES)],
    }


def write_title(figure: Figure, axes: Axes, lines: Sequence[str], grow: bool = True) -> None:
    """A title above the axes, to the left, wrapped to what is free up to the figure's edge.

    Lines from the second on make the figure taller if it may `grow`. Call it after `part_labels`,
    which draws: the axes then have their place.
    """
    if not lines:
        return
    title = axes.set_title("", loc="left")
    free = figure.bbox.x1 - title.get_window_extent().x0 - 8

    def width(cells: int) -> float:
        """Of the title wrapped at `cells`."""
        title.set_text("\n".join(part for line in lines for part in wrapped(line, cells)))
        return float(title.get_window_extent().width)

    cells = min(60, max(map(cell_len, lines)))  # wide letters fit too
    cells = min(110, int(cells * free / max(width(cells), 1)))
    while cells > 10 and (taken := width(cells)) > free:
        cells = min(cells - 1, int(cells * free / taken))
    if grow:
        figure.set_figheight(figure.get_figheight() + 0.17 * title.get_text().count("\n"))


def legend_below(
    figure: Figure, handles: Sequence[Any], texts: Sequence[str], grow: bool = True
) -> None:
    """Draw a legend below the axes, in as many columns as fit, with the entries row by row.

    It makes the figure taller by its own height if it may `grow`.
    """
    for columns in range(min(4, len(texts)), 0, -1):
        # matplotlib fills columns from top to bottom, each of the first ones with one more entry.
        order = [i for column in range(columns) for i in range(column, len(texts), columns)]
        legend = figure.legend(
            [handles[i] for i in order],
            [texts[i] for i in order],
            loc="outside lower center",
            ncols=columns,
            frameon=False,
            handlelength=3.2,
            columnspacing=1.2,
            borderaxespad=0.2,
        )
        extent = legend.get_window_extent()
        if columns == 1 or extent.width <= figure.bbox.width - 4:
            break
        legend.remove()
    if grow:
        figure.set_figheight(figure.get_figheight() + extent.height / figure.dpi)


def check_fit(figure: Figure, options: FigureOptions) -> None:
    """Raise UserError if the text does not fit into --size, or leaves no room for the axes."""
    if options.size is None:
        return
    figure.draw_without_rendering()
    boxes = [legend.get_window_extent() for legend in figure.legends]
    for axes in figure.axes:
        tight = axes.get_tightbbox()
        boxes += [] if tight is None else [tight]
        # Which of these are in the box above depends on the version of matplotlib.
        texts = axes.xaxis.label, axes.yaxis.label, *axes.texts
        boxes += [text.get_window_extent() for text in texts if text.get_text()]
        inside = axes.get_window_extent()
        small = min(inside.width / figure.bbox.width, inside.height / figure.bbox.height) < 0.2
        if small and axes.get_label() != "<colorbar>":
            boxes.append(figure.bbox.expanded(2, 2))
    bounds = figure.bbox.padded(2)
    if not all(bounds.contains(*box.min) and bounds.contains(*box.max) for box in boxes):
        width, height = options.size
        raise UserError(f"--size {width:g}x{height:g}: the text does not fit. Choose a larger size")


def part_labels(figure: Figure, axes: Axes) -> None:
    """Turn the labels of the x axis, and in the end leave some out, until none meets another."""
    for turn in (0, 90):
        axes.tick_params(axis="x", which="both", labelrotation=turn)
        figure.draw_without_rendering()
        labels = [
            label
            for label in (*axes.get_xticklabels(), *axes.get_xticklabels(minor=True))
            if label.get_text() and _inside(label, axes)
        ]
        labels.sort(key=lambda label: label.get_position()[0])
        if not _meeting(labels):
            return
    kept: list[Text] = []
    for label in [labels[-1], labels[0], *labels[-2:0:-1]]:
        if _meeting([*kept, label]):
            label.set_visible(False)
        else:
            kept.append(label)


def _inside(label: Text, axes: Axes) -> bool:
    low, high = axes.get_xlim()
    return bool(low <= label.get_position()[0] <= high)


def _meeting(labels: Sequence[Text]) -> bool:
    boxes = sorted((label.get_window_extent() for label in labels), key=lambda box: box.x0)
    return any(one.x1 + 2 > other.x0 for one, other in pairwise(boxes))
