"""A sweep from Python: `from task3 import evaluate`."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, cast

from recallbed.chat_models.session import ChatOptions
from recallbed.corpus.options import DataOptions, PoolOptions, Strategy
from recallbed.errors import UserError
from recallbed.harness.configurations import Configuration, is_label, parse_configurations
from recallbed.harness.options import parse_size
from recallbed.harness.run_options import RunOptions
from retrievers.base import Retriever
from retrievers.options import RetrieverOptions
from retrievers.registry import GivenInstance
from task3.options import SweepConfig

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from analysis.runs import Run
    from analysis.summary import SweepSummary
    from recallbed.harness.text_table import TextTable

Named = Retriever | str
Retrievers = Named | Sequence[Named] | Mapping[str, Named]


def evaluate(
    retrievers: Retrievers,
    *,
    data: Path | str | None = None,
    split: str = "dev",
    distractors: int | Sequence[int] | None = None,
    pools: Strategy | None = None,
    pool_seeds: int | Sequence[int] = 0,
    k: int | Sequence[int] = (1, 5, 10),
    seed: int = 0,
    limit: int | None = None,
    settings: Mapping[str, object] | None = None,
    out: Path | str | None = None,
    overwrite: bool = False,
    retry_failed: bool = False,
    keep_going: bool = False,
    keep_scores: bool = False,
    workers: int = 1,
    store: Path | str | None = None,
    max_memory: int | str | None = None,
    chat: ChatOptions | None = None,
) -> Evaluation:
    """Measure recall of retrievers as distractors are added, as `python -m task3.sweep` does.

    `retrievers` holds instances, such as `BM25(k1=0.9)`, and names, such as `"minilm"` or
    `"label=name"`; a mapping gives labels. A label defaults to the registered name, with `-2` and
    so on for a repeat. `settings` are those of names, `{"label.key": value}`. For a file of your
    own, `distractors` implies `pools="nested"`. The other arguments are the command's options.

    Rows are equal to the command's. With `out` they are kept in that run folder, and a run that is
    already there is resumed (or replaced, with `overwrite`); without it they last as long as the
    result. Raises UserError, or DataError for faulty data, with what the command prints.
    """
    from analysis.curves import draw_run
    from analysis.runs import read_run
    from recallbed.corpus.custom import is_custom
    from task3.sweep_run import run_sweep

    sizes = None if distractors is None else _numbers("distractors", distractors, 1)
    if sizes and pools is None and data is not None and is_custom(Path(data)):
        pools = "nested"
    kept = None if out is not None else TemporaryDirectory(prefix="recallbed-")
    config = SweepConfig(
        _Given(
            store=None if store is None else str(store),
            max_memory=parse_size("max_memory", str(max_memory)) if max_memory else None,
            given=_configurations(retrievers, settings or {}),
        ),
        DataOptions(None if data is None else Path(data), split, limit),
        PoolOptions(pools, _numbers("pool_seeds", pool_seeds, 0), sizes),
        ks := _numbers("k", k, 1),
        seed,
        workers,
        keep_scores,
        RunOptions(
            Path(kept.name if kept else out or ""),
            resume=not overwrite,
            overwrite=overwrite,
            retry_failed=retry_failed,
            keep_going=keep_going,
        ),
        chat or ChatOptions(),
    )
    outcome = run_sweep(config)
    if kept is None:
        draw_run(outcome.path, ks)
    run = read_run(outcome.path)
    return Evaluation(run, ks, kept)


@dataclass(frozen=True)
class _Given(RetrieverOptions):
    given: tuple[Configuration, ...] = ()

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        return self.given


def _numbers(name: str, value: int | Iterable[int], minimum: int) -> tuple[int, ...]:
    numbers = sorted({value} if isinstance(value, int) else {*value})
    if not numbers or any(not isinstance(n, int) or n < minimum for n in numbers):
        raise UserError(f"{name}={value!r}: give whole numbers of at least {minimum}")
    return tuple(numbers)


def _configurations(
    retrievers: Retrievers, settings: Mapping[str, object]
) -> tuple[Configuration, ...]:
    if isinstance(retrievers, Retriever | str):
        retrievers = [retrievers]
    labelled = isinstance(retrievers, Mapping)
    pairs = (
        retrievers.items() if isinstance(retrievers, Mapping) else ((None, r) for r in retrievers)
    )
    found: dict[str, Retriever | str] = {}
    for label, one in pairs:
        if not isinstance(one, Retriever | str):
            raise UserError(f"{one!r}: give an instance of a retriever, or a name")
        if isinstance(one, str):
            [named] = parse_configurations([f"{label}={one}" if label else one], [])
            found[_free(named.label, found, labelled or "=" in one)] = named.name
        else:
            default = GivenInstance.of("", one).name.rpartition(":")[2]
            found[_free(label or default, found, labelled)] = one
    words = [f"{key}={_text(value)}" for key, value in settings.items()]
    names = {label: one for label, one in found.items() if isinstance(one, str)}
    for word in words:
        if word.partition(".")[0] in found.keys() - names.keys():
            raise UserError(f"settings {word}: give the settings of an instance to its constructor")
    by_name = {}
    if names or words or not found:
        typed = parse_configurations([f"{label}={name}" for label, name in names.items()], words)
        by_name = {one.label: one for one in typed}
    return tuple(
        by_name[label] if isinstance(one, str) else GivenInstance.of(label, one)
        for label, one in found.items()
    )


def _free(label: str, taken: Mapping[str, object], exact: bool) -> str:
    """Return `label`, with a number if it is taken and was not chosen by the user."""
    if not is_label(label):
        raise UserError(f"label {label!r}: use letters, digits, - and _")
    if label in taken and exact:
        raise UserError(f"the label `{label}` is used twice")
    labels = (label if n == 1 else f"{label}-{n}" for n in range(1, len(taken) + 2))
    return next(one for one in labels if one not in taken)


def _text(value: object) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


class NotebookTable:
    """A table of results: text when printed, HTML in a notebook. `records` has the figures."""

    def __init__(
        self, table: TextTable, remarks: Sequence[str], records: Sequence[Mapping[str, Any]]
    ) -> None:
        self._table, self.remarks, self.records = table, tuple(remarks), tuple(records)

    def __repr__(self) -> str:
        return "\n".join([*self._table.lines(), *self.remarks])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self._table.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
            for row in self._table.rows
        )
        remarks = "<br>".join(map(html.escape, self.remarks))
        return (
            f"<table><caption>{html.escape(self._table.title)}</caption>"
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{remarks}</p>"
        )


@dataclass(frozen=True, repr=False)
class Evaluation:
    """A finished sweep: its rows, tables and figures."""

    run: Run
    ks: tuple[int, ...]
    _kept: TemporaryDirectory[str] | None = field(default=None, repr=False)

    @property
    def path(self) -> Path:
        """The run folder."""
        return self.run.path

    @property
    def rows(self) -> Sequence[Mapping[str, Any]]:
        """One row per label, size and query, as in rows.jsonl."""
        return [row.to_json() for row in self.run.rows]

    @property
    def summary(self) -> SweepSummary:
        """The figures; `to_json()` gives the content of summary.json."""
        return self.run.summary(self.ks)

    def table(self) -> NotebookTable:
        """Return the table that the command prints, with its remarks."""
        from analysis.runs import seconds_by_label
        from analysis.tables import build_table, remarks

        table = build_table(self.summary, seconds_by_label(self.path))
        return NotebookTable(
            table, remarks(self.summary), [cell.to_json() for cell in self.summary.cells]
        )

    def __repr__(self) -> str:
        return repr(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()

    def to_frame(self, of: Literal["table", "rows"] = "table") -> DataFrame:
        """Return a pandas frame: one line per retriever and size, or the rows.

        Raises UserError if pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise UserError(
                "to_frame() needs pandas. Install it with: pip install 'recallbed[notebook]'"
            ) from None
        if of == "rows":
            return pandas.DataFrame(list(self.rows))
        return pandas.DataFrame([_flat(cell) for cell in self.summary.to_json()["cells"]])

    def curve(self, ax: Axes | None = None, *, k: int | None = None) -> Figure:
        """Draw recall@k (by default the smallest) against distractors; return the figure."""
        from analysis.curves import curves_of, draw_curves
        from analysis.metrics import Recall
        from analysis.tables import title

        metric = Recall(self.ks[0] if k is None else k)
        axes = _shown_figure().subplots() if ax is None else ax
        draw_curves(axes, curves_of([self.run], metric, self.ks), metric)
        axes.legend(frameon=False)
        axes.set_title(title(self.summary))
        return cast("Figure", axes.get_figure())

    def compare(self, a: str, b: str, *, k: int | Sequence[int] | None = None) -> NotebookTable:
        """Compare two labels, paired by query, at every size: difference, interval, p-value.

        Raises UserError for an unknown label.
        """
        from analysis.comparison_table import comparison_table
        from analysis.sides import Side
        from analysis.significance import compared_metrics, pairings

        for label in (a, b):
            if label not in self.run.labels:
                raise UserError(
                    f"no retriever has the label `{label}` (labels: {', '.join(self.run.labels)})"
                )
        sides = Side(self.run, a), Side(self.run, b)
        ks = self.ks if k is None else _numbers("k", k, 1)
        found = pairings(sides, compared_metrics(ks))
        return NotebookTable(comparison_table(found), (), [one.to_json() for one in found])


def _shown_figure() -> Figure:
    """Return a figure that a notebook shows without pyplot and its global state."""
    from matplotlib.figure import Figure

    class NotebookFigure(Figure):
        def _repr_png_(self) -> bytes:
            content = BytesIO()
            self.savefig(content, format="png")
            return content.getvalue()

    return NotebookFigure(figsize=(8.4, 4.8), layout="constrained")


def _flat(cell: Mapping[str, Any]) -> dict[str, Any]:
    """Return a cell of the summary as columns: `recall@1`, `recall@1 low`, ..."""
    found: dict[str, Any] = {}
    for key, value in cell.items():
        figures = value if isinstance(value, Mapping) else {}
        if "mean" in figures:
            figures = {"": figures}
        elif not all(isinstance(one, Mapping) and "mean" in one for one in figures.values()):
            continue
        for k, figure in figures.items():
            name = f"{key}@{k}" if k else key
            found[name] = figure["mean"]
            found |= {f"{name} {bound}": figure[bound] for bound in ("low", "high", "chance")}
        if not isinstance(value, Mapping):
            found[key] = value
    return found
