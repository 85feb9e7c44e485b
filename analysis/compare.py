"""Two retrievers on the same pools, or two memory systems or models on the same rows, in pairs.

`python -m analysis.compare RUN:A RUN:B` for sweeps, `RUN RUN` for runs of tasks 1, 2 and 4 and for
answers of task 3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from analysis.metrics import METRICS, Metric, MetricAtK, Recall
from analysis.rows import SweepRow
from analysis.runs import Run, read_run
from analysis.statistics import Paired, p_text, paired
from analysis.task_runs import FinishedRun, VerdictRuns, has_items, load_run_data, open_finished
from recallbed.corpus.layout import SAMPLE_NOTE
from recallbed.corpus.options import Data, OtherSplit
from recallbed.errors import UserError
from recallbed.harness.app import App
from recallbed.harness.fingerprint import canonical
from recallbed.harness.options import AsJson, Ks
from recallbed.harness.terminal import note, say_json
from recallbed.harness.text_table import TextTable, print_tables

if TYPE_CHECKING:
    from analysis.compare_runs import RunComparison

app = App()
MEASURES = ("difference", "95 % interval", "wins", "ties", "losses", "p", "verdict")


class Side(NamedTuple):
    """One retriever of a run."""

    run: Run
    label: str

    def rows(self, distractors: int) -> Mapping[str, list[SweepRow]]:
        """Return the rows of each query at a size, one per pool seed."""
        found: dict[str, list[SweepRow]] = {}
        for row in self.run.rows:
            if row.retriever == self.label and row.distractors == distractors:
                found.setdefault(row.query, []).append(row)
        return found


@dataclass(frozen=True, slots=True)
class Comparison:
    """A metric of two retrievers at one size, paired by query.

    `unpaired` counts the queries that failed on either side, of those that were to be compared.
    """

    distractors: int
    metric: Metric
    paired: Paired
    unpaired: int

    def to_json(self) -> dict[str, Any]:
        """Return it as `--json` prints it; without a `metric`, it is of recall@k."""
        found = {"distractors": self.distractors, **asdict(self.paired), "unpaired": self.unpaired}
        if isinstance(self.metric, MetricAtK):
            found["k"] = self.metric.k
        return found if type(self.metric) is Recall else found | {"metric": self.metric.name}


def parse_side(word: str) -> Side:
    """Return the side named by `RUN:LABEL`, or by `RUN` if the run has one retriever."""
    path, colon, label = word.rpartition(":")
    if not colon:
        path, label = word, ""
    run = read_run(Path(path))
    if not label and len(run.labels) == 1:
        label = run.labels[0]
    if label not in run.labels:
        asked = f"no retriever `{label}` in this run" if label else "the run has several retrievers"
        raise UserError(
            f"{word}: {asked} (labels: {', '.join(run.labels)})."
            f" Name one, as in {path}:{run.labels[0]}"
        )
    return Side(run, label)


def queries_in_script(run: Run, data: Path | None, split: str | None, script: str) -> set[str]:
    """Return the queries with a letter of a script, such as `Han`, in query or gold memory.

    They are read from the data of the run. Raises UserError if that is not the embedded sample and
    `data` is None, or if what is there is not what the run was made on.
    """
    import regex

    try:
        letter = regex.compile(rf"\p{{Script={script}}}")
    except regex.error:
        raise UserError(f"--script {script}: not a Unicode script, such as Han or Latin") from None
    found = load_run_data(run.path, run.manifest["fingerprint"], data, split)
    return {
        row.benchmark_id
        for row in found.smallest.rows
        if letter.search(row.query) or any(letter.search(m.text) for m in row.gold_memories)
    }


def compared_metrics(ks: Sequence[int]) -> list[Metric]:
    """Return the metrics of a comparison that names none."""
    return [metric for kind in METRICS if kind.compared for metric in kind.at(ks)]


def compare(
    a: Side, b: Side, metrics: Sequence[Metric], keep: Callable[[str], bool] | None = None
) -> list[Comparison]:
    """Compare at each size that both runs have, and for each metric, over the queries to `keep`.

    A value is averaged over pool seeds. Raise UserError if the two were not scored on the same
    pools, or no query is left.
    """
    sizes = [{row.distractors for row in side.run.rows} for side in (a, b)]
    found = []
    for size in sorted(sizes[0] & sizes[1]):
        one, two = a.rows(size), b.rows(size)
        odd = one.keys() ^ two.keys()
        if odd:
            raise UserError(
                f"not the same queries at {size} distractors: {len(odd)} are in one run only,"
                f" such as `{min(odd)}`"
            )
        scored = [q for q in sorted(one) if all(row.error is None for row in one[q] + two[q])]
        for query in scored:
            if [row.pool for row in one[query]] != [row.pool for row in two[query]]:
                raise UserError(f"not the same pools: `{query}` at {size} distractors")
        asked = {query for query in one if keep is None or keep(query)}
        kept = [query for query in scored if query in asked]
        if not kept:
            raise UserError(f"no query is left to compare at {size} distractors")
        for metric in metrics:
            first, second = (
                {q: sum(metric.value(r.ties) for r in rows[q]) / len(rows[q]) for q in kept}
                for rows in (one, two)
            )
            sessions, seed = a.run.manifest["sessions"], a.run.manifest["fingerprint"]["seed"]
            result = paired(first, second, sessions, seed)
            found.append(Comparison(size, metric, result, len(asked) - len(kept)))
    if not found:
        raise UserError("the two runs have no pool size in common")
    return found


def comparison_table(a: Side, b: Side, results: Sequence[Comparison]) -> TextTable:
    """Return the comparisons as a table, one line per size and metric."""
    names = (
        [a.label, b.label] if a.label != b.label else [f"{s.run.path}:{s.label}" for s in (a, b)]
    )
    if names[0] == names[1]:
        names = ["a", "b"]
    recall = all(type(result.metric) is Recall for result in results)
    table = TextTable(
        f"{'Recall@k of ' if recall else ''}{names[0]} and {names[1]}, paired by query",
        ["distractors", "k" if recall else "metric", "n", *names, *MEASURES],
        keys=2,
        texts=("verdict",),
    )
    for result in results:
        metric = result.metric
        table.add(
            *(result.distractors, metric.name.removeprefix("R@") if recall else metric.name),
            *_cells(result.paired, names),
        )
    return table


def run_table(
    a: FinishedRun, b: FinishedRun, results: Sequence[RunComparison], unit: str
) -> TextTable:
    """Return the comparisons of two runs of one task, one line per figure and scale."""
    names = [a.system, b.system] if a.system != b.system else [str(a.path), str(b.path)]
    if names[0] == names[1]:
        names = ["a", "b"]
    table = TextTable(
        f"Task {a.task[-1]}: {names[0]} and {names[1]}, paired by {unit}",
        ["figure", "scale", "n", *names, *MEASURES],
        keys=2,
        texts=("scale", "verdict"),
    )
    for result in results:
        if result.paired is not None:
            table.add(result.figure, result.scale, *_cells(result.paired, names))
    return table


def _cells(r: Paired, names: Sequence[str]) -> list[object]:
    verdicts = {"a is better": f"{names[0]} is better", "b is better": f"{names[1]} is better"}
    interval = "-" if r.low is None else f"[{r.low:+.4f}, {r.high:+.4f}]"
    return [
        *(r.n, f"{r.a:.4f}", f"{r.b:.4f}", f"{r.difference:+.4f}", interval),
        *(r.wins, r.ties, r.losses, p_text(r.p)),
        verdicts.get(r.verdict or "", r.verdict or "-"),
    ]


@app.command(
    examples=(
        "recallbed compare runs/a:bm25 runs/a:minilm",
        "recallbed compare runs/mem0 runs/turns --verdicts runs/v1 --verdicts runs/v2",
    )
)
def main_command(
    a: Annotated[str, typer.Argument(metavar="RUN[:LABEL]", help="One side.")],
    b: Annotated[str, typer.Argument(metavar="RUN[:LABEL]", help="The other side.")],
    ks: Ks = (1, 5, 10),
    script: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Only queries with a letter of this script in query or gold, such as Han.",
        ),
    ] = None,
    not_script: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only queries without a letter of this script."),
    ] = None,
    verdicts: VerdictRuns = (),
    data: Data = None,
    split: OtherSplit = None,
    as_json: AsJson = False,
) -> None:
    """Compare two retrievers on the same pools, or two memory systems or models.

    Prints the paired difference of recall with its 95 % bootstrap interval over sessions, wins,
    ties, losses and the p-value of an exact sign test, or of a sign-flip test if ties give
    fractions. Without two sessions, or if all differences are equal, there is no interval.
    --script and --not-script read the data of the run, which --data names unless it is the
    embedded sample; its split is that of the run.

    Of runs of task 1, 2 or 4 on the same rows, the figures of each session or question are
    compared: precision, recall and F1 by the matcher, or which gold memories were stored, found,
    shown and used; of answers of task 3, whether the gold was chosen, shown and used. --verdicts
    adds the figures of a judge who judged both.
    """
    if has_items(a) or has_items(b):
        if script or not_script or split:
            raise UserError("--script, --not-script and --split concern sweeps of task 3")
        _compare_items(Path(a), Path(b), verdicts, data, as_json)
        return
    if verdicts:
        raise UserError("--verdicts concerns runs of tasks 1, 2 and 4, and answers of task 3")
    if script and not_script:
        raise UserError("--script and --not-script exclude each other")
    chosen = script or not_script
    sides = parse_side(a), parse_side(b)
    keep = None
    if chosen:
        in_script = queries_in_script(sides[0].run, data, split, chosen)
        keep = (lambda q: q in in_script) if script else (lambda q: q not in in_script)
    results = compare(*sides, compared_metrics(ks), keep)
    if as_json:
        say_json(canonical([result.to_json() for result in results]))
        return
    print_tables([comparison_table(*sides, results)])
    left_out = {r.distractors: r.unpaired for r in results if r.unpaired}
    for size, count in left_out.items():
        note(f"{count} queries left out at {size} distractors: they failed on one side or both")
    for reason in dict.fromkeys(r.paired.reason for r in results if r.paired.reason):
        note(f"no interval and no verdict: {reason}")


def _compare_items(
    a: Path, b: Path, verdicts: Sequence[Path], data: Path | None, as_json: bool
) -> None:
    from analysis.compare_runs import PLURALS, UNITS, compare_runs
    from analysis.verdict_runs import read_verdict_run

    for path in (a, b):
        if not has_items(str(path)):
            raise UserError(
                f"{path}: not the folder of a run of task 1, 2 or 4 or of answers of task 3, as the"
                " other is. Compare two runs of one task, or two sweeps as RUN:LABEL"
            )
    runs = open_finished(a), open_finished(b)
    unit = UNITS[runs[0].task]
    results = compare_runs(*runs, data, [read_verdict_run(path) for path in verdicts])
    if as_json:
        say_json(canonical([result.to_json() for result in results]))
        return
    print_tables([run_table(*runs, results, unit)])
    if runs[0].sample:
        note(SAMPLE_NOTE)
    for result in results:
        if result.unpaired:
            why = "failed, not answered or not judged on one side or both"
            units = unit if result.unpaired == 1 else PLURALS[unit]
            note(f"{result.figure}, {result.scale}: {result.unpaired} {units} left out: {why}")
    reasons = (r.paired.reason for r in results if r.paired is not None and r.paired.reason)
    for reason in dict.fromkeys(reasons):
        note(f"no interval and no verdict: {reason}")


if __name__ == "__main__":
    app()
