"""Agreement of two retrievers on the same pools: what a combination of them could gain.

A retriever finds a gold of a query with its expected success@k, s (1 or 0 without ties). Ties of
the two are broken independently of each other, so both find one with probability s_a s_b, only the
first with s_a (1 - s_b), and at least one with 1 - (1 - s_a)(1 - s_b): the recall of an oracle that
always follows the right one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.metrics import Success
from analysis.rows import SweepRow
from analysis.runs import Run
from analysis.sides import Side, query_value, scored_in_both, side_names
from analysis.statistics import Interval, mean_interval, rounded
from recallbed.errors import UserError
from recallbed.harness.text_table import TextTable, text_block

OUTCOMES = ("both", "only a", "only b", "neither")


@dataclass(frozen=True, slots=True)
class FusionRecall:
    """The recall of a hybrid of one of the runs, over the queries that it scored.

    `gain` is its difference to the better of the two retrievers on the same queries.
    """

    label: str
    legs: tuple[str, ...]
    n: int
    recall: Interval
    gain: float

    def to_json(self) -> dict[str, Any]:
        """Return the fields."""
        return {
            "label": self.label,
            "legs": list(self.legs),
            "n": self.n,
            "recall": self.recall.to_json(),
            "gain": rounded(self.gain),
        }


@dataclass(frozen=True, slots=True)
class RetrieverAgreement:
    """Two retrievers at one size: expected numbers of queries by who finds a gold.

    `oracle` is the recall of the better choice for each query; `room` is its difference to the
    better of the two, the most that a combination can gain by choosing between them. `unpaired`
    counts queries that failed on either side.
    """

    a: str
    b: str
    distractors: int
    k: int
    n: int
    unpaired: int
    counts: Mapping[str, float]
    recall_a: Interval
    recall_b: Interval
    oracle: Interval
    room: Interval
    hybrids: tuple[FusionRecall, ...]

    def to_json(self) -> dict[str, Any]:
        """Return counts, shares and recalls."""
        return {
            "a": self.a,
            "b": self.b,
            "distractors": self.distractors,
            "k": self.k,
            "n": self.n,
            "unpaired": self.unpaired,
            "counts": rounded({k.replace(" ", "_"): v for k, v in self.counts.items()}),
            "shares": rounded({k.replace(" ", "_"): v / self.n for k, v in self.counts.items()}),
            "recall_a": self.recall_a.to_json(),
            "recall_b": self.recall_b.to_json(),
            "oracle": self.oracle.to_json(),
            "room": self.room.to_json(),
            "hybrids": [one.to_json() for one in self.hybrids],
        }

    def tables(self) -> list[TextTable]:
        """Return the counts, and the recalls with their intervals, as tables."""
        at = f"{self.k} at {self.distractors} distractors"
        counts = TextTable(f"Queries with a gold among the first {at}", ["found by", "n", "share"])
        names = {"only a": f"{self.a} only", "only b": f"{self.b} only"}
        for outcome, count in self.counts.items():
            share = f"{100 * count / self.n:.1f} %"
            counts.add(names.get(outcome, outcome), f"{count:.4g}", share)
        recalls = TextTable(f"Recall@{at}", ["retriever", "n", "recall", "95 % interval"])
        lines = [
            (self.a, self.n, self.recall_a, ""),
            (self.b, self.n, self.recall_b, ""),
            ("oracle of both", self.n, self.oracle, ""),
            ("room over the better", self.n, self.room, "+"),
        ]
        lines += [(f"{one.label} (hybrid)", one.n, one.recall, "") for one in self.hybrids]
        for name, n, value, sign in lines:
            interval = f"[{value.low:.4f}, {value.high:.4f}]"
            recalls.add(name, n, f"{value.mean:{sign}.4f}", interval)
        return [counts, recalls]

    def lines(self, width: int | None) -> list[str]:
        """Return the tables, and the gain of each hybrid next to the room that there is."""
        lines = [line for table in self.tables() for line in (*table.lines(width), "")][:-1]
        for one in self.hybrids:
            text = f"{one.gain:+.4f} over the better of the two; the room is {self.room.mean:+.4f}"
            lines += ["", *text_block(f"{one.label} ({', '.join(one.legs)}): ", text, width)]
        return lines


def agreement_of(
    a: Side,
    b: Side,
    distractors: int,
    k: int = 1,
    keep: Callable[[str], bool] | None = None,
) -> RetrieverAgreement:
    """Return the agreement of two retrievers over the queries to `keep`, averaged over pool seeds.

    Intervals draw whole sessions, from the seed of the run of `a`. Raise UserError if the two were
    not scored on the same pools, or no query is left.
    """
    one, two = a.rows(distractors), b.rows(distractors)
    for side, rows in ((a, one), (b, two)):
        if not rows:
            raise UserError(
                f"{side.run.path}: no rows of {side.label} at {distractors} distractors"
            )
    if keep is not None:
        one, two = ({q: rows[q] for q in rows if keep(q)} for rows in (one, two))
    scored = scored_in_both(one, two, distractors)
    if not scored:
        raise UserError(f"no query is left at {distractors} distractors")
    metric = Success(k)
    pairs = {query: _paired(metric, one[query], two[query]) for query in scored}
    sessions, seed = a.run.manifest["sessions"], a.run.manifest["fingerprint"]["seed"]

    def interval(values: Mapping[str, float]) -> Interval:
        clusters = [sessions.get(query, query) for query in values]
        found = mean_interval([*values.values()], clusters, seed)
        assert found is not None
        return found

    found_a = {query: _mean([x for x, _ in both]) for query, both in pairs.items()}
    found_b = {query: _mean([y for _, y in both]) for query, both in pairs.items()}
    either = {query: _mean([x + y - x * y for x, y in both]) for query, both in pairs.items()}
    better = found_a if sum(found_a.values()) >= sum(found_b.values()) else found_b
    room = {query: max(value - better[query], 0.0) for query, value in either.items()}
    counts = [
        sum(_mean([part(x, y) for x, y in both]) for both in pairs.values()) for part in _PARTS
    ]
    names = side_names([a, b])
    hybrids = []
    for run, label, legs in _hybrids([a, b]):
        rows = Side(run, label).rows(distractors)
        own = {
            query: query_value(metric, rows[query])
            for query in scored
            if query in rows
            and all(row.error is None for row in rows[query])
            and [row.pool for row in rows[query]] == [row.pool for row in one[query]]
        }
        if own:
            gain = _mean([value - better[query] for query, value in own.items()])
            hybrids.append(FusionRecall(label, legs, len(own), interval(own), gain))
    return RetrieverAgreement(
        names[0],
        names[1],
        distractors,
        k,
        len(scored),
        len(one) - len(scored),
        dict(zip(OUTCOMES, counts, strict=True)),
        interval(found_a),
        interval(found_b),
        interval(either),
        interval(room),
        tuple(hybrids),
    )


_PARTS: tuple[Callable[[float, float], float], ...] = (
    lambda x, y: x * y,
    lambda x, y: x * (1 - y),
    lambda x, y: (1 - x) * y,
    lambda x, y: (1 - x) * (1 - y),
)


def _paired(
    metric: Success, one: Sequence[SweepRow], two: Sequence[SweepRow]
) -> list[tuple[float, float]]:
    """The success of both on each pool of a query."""
    return [(metric.value(a.ties), metric.value(b.ties)) for a, b in zip(one, two, strict=True)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _hybrids(sides: Sequence[Side]) -> list[tuple[Run, str, tuple[str, ...]]]:
    """The hybrids of the runs, each with the labels of its legs."""
    found = []
    runs = {side.run.path.resolve(): side.run for side in sides}
    named = {(side.run.path.resolve(), side.label) for side in sides}
    for path, run in runs.items():
        for entry in run.manifest["fingerprint"]["retrievers"]:
            settings = entry.get("settings")
            legs = settings.get("legs") if isinstance(settings, dict) else None
            if isinstance(legs, list) and (path, entry["label"]) not in named:
                names = tuple(str(leg.get("label")) for leg in legs if isinstance(leg, dict))
                found.append((run, entry["label"], names))
    return found
