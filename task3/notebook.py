"""A finished sweep as an object, whose tables and figures a notebook shows."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, cast

from recallbed.errors import UserError
from recallbed.harness.text_table import TextTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from analysis.metrics import Metric
    from analysis.misses import Miss
    from analysis.runs import Run
    from analysis.significance import Pairing
    from analysis.summary import SweepSummary
    from recallbed.corpus.material import Material


def whole_numbers(name: str, value: int | Iterable[int], minimum: int) -> tuple[int, ...]:
    """Return the argument `name` ascending, without repeats; raise UserError for other values."""
    numbers = sorted({value} if isinstance(value, int) else {*value})
    if not numbers or any(not isinstance(n, int) or n < minimum for n in numbers):
        raise UserError(f"{name}={value!r}: give whole numbers of at least {minimum}")
    return tuple(numbers)


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


def shown_figure() -> Figure:
    """Return a figure that a notebook shows without pyplot and its global state."""
    from matplotlib.figure import Figure

    class NotebookFigure(Figure):
        def _repr_png_(self) -> bytes:
            content = BytesIO()
            self.savefig(content, format="png")
            return content.getvalue()

    return NotebookFigure(figsize=(8.4, 4.8), layout="constrained")


def misses_table(found: Sequence[Miss], title: str) -> TextTable:
    """Return one line per miss: the query, the gold with its rank, and what was ranked first."""
    reasons = any(miss.gold_why is not None or miss.first_why is not None for miss in found)
    columns = ["query", "kind", "text", "rank of gold", "gold", "ranked first"]
    table = TextTable(
        title,
        [*columns, *(("why gold", "why first") if reasons else ())],
        texts=("kind", "text", "gold", "ranked first", "why gold", "why first"),
    )
    for miss in found:
        why = (miss.gold_why or "", miss.first_why or "") if reasons else ()
        table.add(
            *(miss.query.benchmark_id, miss.kind, miss.query.query, miss.gold.rank_text),
            *(miss.gold.memory.text, miss.first.memory.text, *why),
        )
    return table


@dataclass(frozen=True, repr=False)
class Evaluation:
    """A finished sweep: its rows, tables and figures.

    `data` is what it was made on, None for the embedded sample; texts are read from there again.
    """

    run: Run
    ks: tuple[int, ...]
    data: Path | None = None
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
        axes = shown_figure().subplots() if ax is None else ax
        draw_curves(axes, curves_of([self.run], metric, self.ks), metric)
        axes.legend(frameon=False)
        axes.set_title(title(self.summary))
        return cast("Figure", axes.get_figure())

    def compare(self, a: str, b: str, *, k: int | Sequence[int] | None = None) -> NotebookTable:
        """Compare two labels, paired by query, at every size: difference, interval, p-value.

        Raises UserError for an unknown label.
        """
        from analysis.sides import Side
        from analysis.significance import compared_metrics, pairings

        sides = Side(self.run, self._label(a)), Side(self.run, self._label(b))
        ks = self.ks if k is None else whole_numbers("k", k, 1)
        return _compared(pairings(sides, compared_metrics(ks)))

    def significance(
        self,
        metric: str | None = None,
        *,
        distractors: int | None = None,
        baseline: str | None = None,
    ) -> NotebookTable:
        """Compare all pairs of retrievers, or all with a baseline, as `recallbed compare` does.

        `metric` is a name such as `nDCG@10`, by default recall at the smallest k; `distractors` is
        the largest size by default. Holm's correction is over these comparisons. Raises UserError
        for an unknown name, and with fewer than two retrievers.
        """
        from analysis.sides import Side
        from analysis.significance import pairings

        if len(self.run.labels) < 2:
            raise UserError("a comparison needs two retrievers or more")
        place = None if baseline is None else self.run.labels.index(self._label(baseline))
        sides = [Side(self.run, label) for label in self.run.labels]
        sizes = [self._size(distractors)]
        return _compared(pairings(sides, [self._metric(metric)], sizes=sizes, baseline=place))

    def breakdown(
        self, by: str, metric: str | None = None, *, distractors: int | None = None
    ) -> NotebookTable:
        """Break a metric down by groups of queries, as `recallbed breakdown` does.

        `by` is `language`, `script_match`, `label`, `length`, `overlap`, `near_duplicates`,
        `position`, `direct`, or a further field of your own data. The defaults of the others are
        those of `significance`. Raises UserError for an unknown name.
        """
        from analysis.breakdown import breakdown_of_runs, breakdown_table, remarks_on

        sizes = [self._size(distractors)]
        found = breakdown_of_runs([self.run], self.data, by, self._metric(metric), sizes)
        records = [cell.to_json() for cell in found.cells]
        return NotebookTable(breakdown_table(found), remarks_on(found), records)

    def errors(
        self,
        retriever: str | None = None,
        *,
        distractors: int | None = None,
        k: int | None = None,
        reasons: bool = False,
    ) -> NotebookTable:
        """Count the misses of all retrievers by kind, or list those of one, as `recallbed errors`.

        A miss has no gold among the first `k`, by default the smallest. With `reasons` the
        retriever is built again and explains its scores. Raises UserError for an unknown label.
        """
        from analysis.errors import explained
        from analysis.miss_texts import summary_table
        from analysis.misses import KINDS, misses

        size, depth = self._size(distractors), self.ks[0] if k is None else k
        labels = self.run.labels if retriever is None else (self._label(retriever),)
        every = [misses(self.run, self._material, label, size, depth) for label in labels]
        if retriever is None:
            summaries = [one.summary for one in every]
            kinds = {kind for one in summaries for kind, count in one.misses.items() if count}
            meanings = [f"{kind}: {meaning}" for kind, meaning in KINDS.items() if kind in kinds]
            return NotebookTable(
                summary_table(summaries), meanings, [one.to_json() for one in summaries]
            )
        found = every[0].found
        if reasons:
            found = tuple(explained(self.run, self._material, found, allow_code=True))
        title = f"{retriever}: misses at {size} distractors, no gold among the first {depth}"
        return NotebookTable(misses_table(found, title), (), [one.to_json() for one in found])

    def report(
        self,
        path: Path | str = "report.html",
        *,
        title: str | None = None,
        texts: bool = True,
        audit: bool = False,
        overwrite: bool = False,
    ) -> Path:
        """Write everything that the run shows as one HTML page, as `recallbed report` does.

        Returns `path`. Without `texts` the page holds no text of the data; with `audit` it has the
        audit of the data. Raises UserError if the file exists and is not to be overwritten, and
        without plotly.
        """
        from analysis.report import write_report
        from recallbed.harness.files import refuse_output

        refuse_output(Path(path), overwrite)
        write_report(
            [self.run],
            Path(path),
            data=self.data,
            ks=self.ks,
            title=title,
            texts=texts,
            audit=audit,
        )
        return Path(path)

    @cached_property
    def _material(self) -> Material:
        from analysis.ranked_pools import material_of

        return material_of(self.run, self.data)

    def _label(self, label: str) -> str:
        if label not in self.run.labels:
            raise UserError(
                f"no retriever has the label `{label}` (labels: {', '.join(self.run.labels)})"
            )
        return label

    def _size(self, distractors: int | None) -> int:
        sizes = sorted({row.distractors for row in self.run.rows})
        if distractors is not None and distractors not in sizes:
            known = ", ".join(map(str, sizes))
            raise UserError(f"distractors={distractors}: the run has no such rows. It has {known}")
        return sizes[-1] if distractors is None else distractors

    def _metric(self, name: str | None) -> Metric:
        from analysis.metrics import Recall, parse_metric

        try:
            return Recall(self.ks[0]) if name is None else parse_metric(name)
        except ValueError as error:
            raise UserError(f"metric {error}") from None


def _compared(found: Sequence[Pairing]) -> NotebookTable:
    from analysis.comparison_table import comparison_remarks, comparison_table

    families = {"comparisons": [one.holm for one in found]}
    remarks = comparison_remarks([one.paired for one in found], families)
    return NotebookTable(comparison_table(found), remarks, [one.to_json() for one in found])


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
