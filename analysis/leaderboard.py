"""A leaderboard of finished sweeps on the same pools: `python -m analysis.leaderboard RUN...`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from analysis.metric_option import MetricNames, one_metric
from analysis.metrics import Metric, Recall
from analysis.report_data import folder_names
from analysis.runs import Run, origin_of, read_run
from analysis.statistics import Interval
from analysis.tables import title
from recallbed.corpus.options import Data, PoolOptions
from recallbed.errors import UserError
from recallbed.harness.app import App
from recallbed.harness.fingerprint import difference
from recallbed.harness.options import Without
from recallbed.harness.run_folder import MANIFEST
from recallbed.harness.run_options import Overwrite
from recallbed.harness.terminal import note, say
from recallbed.harness.text_table import print_tables

app = App()
REPORT = "report.html"
"""The report of a run inside its folder."""
PageFormat = Literal["html", "markdown"]
SUFFIXES: Mapping[str, PageFormat] = {".html": "html", ".htm": "html", ".md": "markdown"}


@dataclass(frozen=True, slots=True)
class Standing:
    """One retriever of one run on a leaderboard; `folder` is the name of the run.

    `by_size` has the metric at each number of distractors, `area` the area under its curve against
    log pool size, None if there are fewer than two sizes. `scored` of `rows` were scored at the
    size of the leaderboard. `place` counts from 1, and is None for what cannot be ranked with the
    others: see `marks`.
    """

    run: Run
    folder: str
    label: str
    by_size: Mapping[int, Interval]
    area: Interval | None
    rows: int
    scored: int
    failed: int
    fitted: bool
    place: int | None = None

    @property
    def retriever(self) -> Mapping[str, Any]:
        """The entry of the retriever in the manifest: `name` and `settings`."""
        entries = self.run.manifest["fingerprint"]["retrievers"]
        return next(entry for entry in entries if entry["label"] == self.label)

    @property
    def code(self) -> str:
        """The version and the source hash of the program that made the run."""
        code = self.run.manifest["fingerprint"].get("code")
        known = code if isinstance(code, dict) else {}
        return " ".join(str(known[key]) for key in ("version", "sha256") if key in known)

    @property
    def report(self) -> Path | None:
        """The report of the run, if there is one."""
        path = self.run.path / REPORT
        return path if path.is_file() else None

    @property
    def marks(self) -> tuple[str, ...]:
        """Why its figures cannot be ranked with those of the others."""
        found = ["settings fitted on these rows"] if self.fitted else []
        if self.failed:
            found.append(f"{self.failed} of {self.rows} rows failed")
        if missing := self.rows - self.scored - self.failed:
            found.append(f"{missing} of {self.rows} rows not run yet")
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Leaderboard:
    """The standings of runs on the same data and pools, best first.

    They are sorted by `metric` at `distractors`, or by the area under its curve if that is None.
    `left_out` has folders that are no runs of a sweep.
    """

    standings: Sequence[Standing]
    metric: Metric
    distractors: int | None
    sizes: Sequence[int]
    title: str
    data: str
    chance: float | None
    left_out: Sequence[str] = ()

    @property
    def sorted_by(self) -> str:
        """The figure that the standings are sorted by."""
        if self.distractors is None:
            return f"area under {self.metric.title}"
        return f"{self.metric.title} at {self.distractors} distractors"

    def value(self, one: Standing) -> Interval | None:
        """Return the figure that the standings are sorted by."""
        return one.area if self.distractors is None else one.by_size.get(self.distractors)

    def remarks(self) -> list[str]:
        """Return what a reader must know besides the figures."""
        lines = []
        if any(one.place is None for one in self.standings):
            lines.append(
                "no place: settings fitted on these rows, or not scored on every row, so that the"
                " figure cannot be ranked with the others"
            )
        if self.distractors is None:
            lines.append(
                f"area under {self.metric.title} against the logarithm of the pool size, between"
                " 0 and 1"
            )
        return lines + list(self.left_out)


def find_runs(paths: Sequence[Path]) -> tuple[list[Run], list[str]]:
    """Return the runs that paths name, each once, and what was left out.

    A path is a run, or a folder that holds runs at any depth; of these, runs of other commands and
    runs without rows are left out with the reason. Raise UserError for a path without runs.
    """
    found: dict[Path, Run] = {}
    left_out = []
    for path in paths:
        if not path.is_dir():
            raise UserError(f"{path}: no such folder")
        if (path / MANIFEST).exists():
            found.setdefault(path.resolve(), read_run(path))
            continue
        before = len(found)
        for folder in sorted(file.parent for file in path.rglob(MANIFEST)):
            if folder.resolve() in found:
                continue
            try:
                found[folder.resolve()] = read_run(folder)
            except UserError as error:
                left_out.append(f"left out: {error}")
        if len(found) == before and not any(one.is_relative_to(path.resolve()) for one in found):
            raise UserError(f"{path}: neither a run of recallbed sweep nor a folder of such runs")
    return list(found.values()), left_out


def check_equal_pools(runs: Sequence[Run]) -> None:
    """Raise UserError, naming every run and the reason, if runs differ in data or pools.

    They are compared with the first one, by the manifest and by the hash of each pool.
    """
    first, *others = runs
    pools = _pool_hashes(first)
    reasons = []
    for run in others:
        if reason := _other_data(first, run) or _other_pool(pools, run):
            reasons.append(f"{run.path}: {reason}")
    if reasons:
        raise UserError(
            f"not on the data and pools of {first.path}: {'; '.join(reasons)}."
            " Make one leaderboard for each"
        )


def _other_data(first: Run, run: Run) -> str | None:
    found = difference(origin_of(first), origin_of(run))
    return found and found.replace("that run", "first").replace("this run", "here")


def _pool_hashes(run: Run) -> dict[tuple[int, str], list[str]]:
    """The hashes of the pools of each size and query, in the order of the pool seeds."""
    found: dict[tuple[int, str], list[str]] = {}
    for row in run.rows:
        if row.retriever == run.rows[0].retriever:
            found.setdefault((row.distractors, row.query), []).append(row.pool)
    return found


def _other_pool(pools: dict[tuple[int, str], list[str]], run: Run) -> str | None:
    for key, mine in _pool_hashes(run).items():
        known = pools.setdefault(key, mine)
        if any(one != other for one, other in zip(known, mine, strict=False)):
            size, query = key
            return f"the pool of `{query}` at {size} distractors is another one"
    return None


def build_leaderboard(
    runs: Sequence[Run],
    metric: Metric,
    distractors: int | None = None,
    *,
    area: bool = False,
    left_out: Sequence[str] = (),
) -> Leaderboard:
    """Return the standings of all labels of `runs`, sorted by `metric` or by the area under it.

    `distractors` is the largest size that all runs have by default. Raise UserError if runs are
    not on the same pools, have no size in common, or (for the area) not all the same sizes.
    """
    check_equal_pools(runs)
    sizes_of = [{row.distractors for row in run.rows} for run in runs]
    sizes, common = sorted(set.union(*sizes_of)), set.intersection(*sizes_of)
    if area and len(sizes) < 2:
        raise UserError("an area needs runs of two sizes or more")
    if area and len(common) < len(sizes):
        odd = next(run for run, mine in zip(runs, sizes_of, strict=True) if len(mine) < len(sizes))
        raise UserError(
            f"{odd.path}: lacks sizes of the other runs: areas over other sizes cannot be compared"
        )
    if distractors is None and not common:
        raise UserError("the runs have no size in common. Name one with --distractors")
    size = max(common) if distractors is None else distractors
    if size not in sizes:
        raise UserError(
            f"--distractors {size}: no run has it (there are: {', '.join(map(str, sizes))})"
        )
    found = [
        _standing(run, folder, label, metric, size, area)
        for run, folder in zip(runs, folder_names(runs), strict=True)
        for label in run.labels
    ]
    board = Leaderboard(
        found,
        metric,
        None if area else size,
        sizes,
        title(runs[0].summary(_ks(metric), metric)),
        str(runs[0].manifest["fingerprint"]["data"].get("sha256", "")),
        None if area else _chance(runs, metric, size),
        left_out,
    )
    return replace(board, standings=tuple(_placed(board)))


def _placed(board: Leaderboard) -> Iterator[Standing]:
    """Yield the standings, best first; equal values share a place."""

    def value(one: Standing) -> float:
        found = board.value(one)
        return -1.0 if found is None else found.mean

    ranked = [value(one) for one in board.standings if not one.marks and board.value(one)]
    for one in sorted(board.standings, key=lambda one: (-value(one), one.label, str(one.run.path))):
        sound = not one.marks and board.value(one) is not None
        yield replace(one, place=1 + sum(v > value(one) for v in ranked)) if sound else one


def _ks(metric: Metric) -> tuple[int, ...]:
    return (getattr(metric, "k", 1),)


def _standing(run: Run, folder: str, label: str, metric: Metric, size: int, area: bool) -> Standing:
    cells = [cell for cell in run.summary(_ks(metric), metric).cells if cell.retriever == label]
    scored = {
        cell.distractors: Interval(one.mean, one.low, one.high, one.interval)
        for cell in cells
        if (one := cell.estimates.get(metric))
    }
    # An area covers all sizes: what is missing at any of them is missing in it.
    counted = [cell for cell in cells if area or cell.distractors == size]
    rows = run.rows_of_a_cell * (len({row.distractors for row in run.rows}) if area else 1)
    return Standing(
        run,
        folder,
        label,
        scored,
        _area(run, label, metric),
        rows,
        sum(cell.scored for cell in counted),
        sum(cell.failed for cell in counted),
        label in run.manifest.get("fitted_on_these_rows", []),
    )


def _chance(runs: Sequence[Run], metric: Metric, size: int) -> float | None:
    for run in runs:
        for cell in run.summary(_ks(metric), metric).cells:
            if cell.distractors == size and metric in cell.estimates:
                return cell.estimates[metric].chance
    return None


def _area(run: Run, label: str, metric: Metric) -> Interval | None:
    from analysis.sides import Side
    from analysis.significance import side_areas

    try:
        return side_areas([Side(run, label)], [metric])[0].mean
    except UserError:  # one size only, or no query that is scored at all sizes
        return None


def _build_reports(standings: Iterable[Standing], data: Path | None) -> None:
    from analysis.report import write_report

    for run in {one.run.path: one.run for one in standings if one.report is None}.values():
        write_report([run], run.path / REPORT, data=data)
        say(run.path / REPORT)


@app.command(
    examples=(
        "recallbed leaderboard runs --out leaderboard.html",
        "recallbed leaderboard runs/a runs/b --metric R@10 --out board.md",
    )
)
def leaderboard_command(
    runs: Annotated[
        tuple[Path, ...],
        typer.Argument(metavar="RUN", help="Run folders of a sweep, or folders of runs."),
    ],
    pools: Annotated[PoolOptions, Without("pools", "pool_seeds")],
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="Page to write, .html or .md, or a folder for leaderboard.html."
        ),
    ] = Path("leaderboard.html"),
    metric: MetricNames = (),
    sort_by: Annotated[
        Literal["value", "area"],
        typer.Option(help="Sort by the metric at one size, or by the area under its curve."),
    ] = "value",
    build_reports: Annotated[
        bool, typer.Option(help="Write report.html into each run folder that has none.")
    ] = False,
    data: Data = None,
    overwrite: Overwrite = False,
) -> None:
    """Collect finished sweeps into one sorted page and a CSV.

    All runs must be on the same data and pools; otherwise the reason is printed. Their sizes may
    differ; without --distractors they are sorted at the largest that all have. Settings that were
    fitted on these rows, and runs with failed or missing rows, are marked and get no place. A
    report.html in a run folder is linked. --data is read by --build-reports only.
    """
    from analysis.leaderboard_page import page, standings_csv, standings_table
    from recallbed.harness.files import write_atomically

    distractors = pools.size
    if sort_by == "area" and distractors is not None:
        raise UserError("--sort-by area: an area is over all sizes. Leave out --distractors")
    if out.is_dir() or not out.suffix:
        out = out / "leaderboard.html"
    style = SUFFIXES.get(out.suffix.lower())
    if style is None:
        raise UserError(f"--out {out}: name a file that ends in .html or .md, or a folder")
    table_file = out.with_suffix(".csv")
    for file in (out, table_file):
        if file.exists() and not (overwrite and file.is_file()):
            raise UserError(f"{file}: already exists. Pass --overwrite or another --out")
    read, left_out = find_runs(runs)
    board = build_leaderboard(
        read,
        one_metric(metric, Recall(1)),
        distractors,
        area=sort_by == "area",
        left_out=left_out,
    )
    if build_reports:
        _build_reports(board.standings, data)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, page(board, out.parent, style))
    write_atomically(table_file, standings_csv(board, out.parent))
    print_tables([standings_table(board)])
    note(*board.remarks(), f"{out} and {table_file.name} hold this leaderboard")


if __name__ == "__main__":
    app()
