"""One query of a sweep as a person reads it: its golds, their ranks, and what came first."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.kept_scores import Float32s, kept_scores
from analysis.metrics import Success, above_tied, display_order
from analysis.ranked_pools import RankedPool, ranked_pools
from analysis.runs import Run
from recallbed.corpus.material import Material
from recallbed.corpus.records import Memory, Task3Row

Rank = tuple[int, int | None]
"""The first and the last rank that a score leaves open; None for a last one that is unknown."""


@dataclass(frozen=True, slots=True)
class RankedMemory:
    """A memory of a pool. `score` and `rank` are None if the run does not keep them."""

    position: int
    memory: Memory
    gold: bool
    rank: Rank | None
    score: float | None

    @property
    def rank_text(self) -> str:
        """The rank, such as `3`; `3-7` if equal scores share these ranks."""
        if self.rank is None:
            return "-"
        first, last = self.rank
        if last is None:
            return f"{first} or later"
        return str(first) if first == last else f"{first}-{last}"

    def to_json(self) -> dict[str, Any]:
        """Return the fields, those of the memory beside the others."""
        return {
            "position": self.position,
            "text": self.memory.text,
            "label": self.memory.label,
            "gold": self.gold,
            "rank": None if self.rank is None else list(self.rank),
            "score": self.score,
        }


@dataclass(frozen=True, slots=True)
class LabelRanking:
    """What one retriever made of a query: the golds, and the memories ranked first.

    `success` is the expected success@k under random tie order: 1 is a hit, less a miss. A failed
    query has an `error` and nothing else.
    """

    retriever: str
    success: float | None
    golds: tuple[RankedMemory, ...]
    first: tuple[RankedMemory, ...]
    error: str | None = None

    @property
    def outcome(self) -> str:
        """`hit`, `miss`, `tie` with its chance of a hit, or `failed`."""
        if self.success is None:
            return "failed"
        if 0 < self.success < 1:
            return f"tie ({self.success:.2f})"
        return "hit" if self.success else "miss"

    def to_json(self) -> dict[str, Any]:
        """Return the fields."""
        return {
            "retriever": self.retriever,
            "error": self.error,
            "success": self.success,
            "golds": [one.to_json() for one in self.golds],
            "first": [one.to_json() for one in self.first],
        }


@dataclass(frozen=True, slots=True)
class QueryView:
    """One query and pool, and the rankings of some retrievers."""

    row: Task3Row
    distractors: int
    seed: int
    k: int
    pool_size: int
    golds: tuple[Memory, ...]
    rankings: tuple[LabelRanking, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the fields, with the further fields of a row of the user's own."""
        return {
            "query": self.row.benchmark_id,
            "text": self.row.query,
            "fields": dict(self.row.fields),
            "distractors": self.distractors,
            "pool_seed": self.seed,
            "pool_size": self.pool_size,
            "k": self.k,
            "golds": [{"text": one.text, "label": one.label} for one in self.golds],
            "rankings": [one.to_json() for one in self.rankings],
        }


@dataclass(frozen=True, slots=True)
class LabelledRows:
    """The rows of one query and pool by label, and the number of each in the run."""

    by_label: Mapping[str, RankedPool]
    numbers: Mapping[str, int]

    @property
    def any(self) -> RankedPool:
        """One of the rows; query and pool are the same in all."""
        return next(iter(self.by_label.values()))

    def success(self, label: str, k: int) -> float | None:
        """Return the expected success@k of a label; None if it has no scored row."""
        found = self.by_label.get(label)
        return None if found is None or found.row.error else Success(k).value(found.row.ties)


def labelled(memory: Memory) -> str:
    """Return the text of a memory, followed by its label in brackets."""
    return f"{memory.text} [{memory.label}]" if memory.label else memory.text


def query_rows(
    run: Run,
    material: Material,
    labels: Collection[str],
    distractors: int,
    seeds: Collection[int],
) -> list[LabelledRows]:
    """Return the rows of some labels at one size, by pool seed and in the order of the data.

    Raise UserError for a row that is not of these pools.
    """
    numbers = {id(row): number for number, row in enumerate(run.rows)}
    place = {row.benchmark_id: i for i, row in enumerate(material.pools.rows)}
    found: dict[tuple[int, int], LabelledRows] = {}
    for one in ranked_pools(run, material, labels, [distractors]):
        if one.seed in seeds:
            key = one.seed, place[one.query.benchmark_id]
            rows = found.setdefault(key, LabelledRows({}, {}))
            assert isinstance(rows.by_label, dict)
            assert isinstance(rows.numbers, dict)
            rows.by_label[one.row.retriever] = one
            rows.numbers[one.row.retriever] = numbers[id(one.row)]
    return [found[key] for key in sorted(found)]


def query_views(
    run: Run, chosen: Sequence[LabelledRows], labels: Sequence[str], k: int, depth: int
) -> list[QueryView]:
    """Return the views of some queries, with the first `depth` memories of each label.

    Of a run without kept scores these are at most the ten of its rows. Raise UserError for kept
    scores that are not those of the rows.
    """
    wanted = {
        rows.numbers[label]: len(one.pool)
        for rows in chosen
        for label, one in rows.by_label.items()
        if label in labels
    }
    scores = kept_scores(run, wanted)
    found = []
    for rows in chosen:
        ranked = rows.any
        found.append(
            QueryView(
                ranked.query,
                ranked.row.distractors,
                ranked.seed,
                k,
                len(ranked.pool),
                tuple(ranked.golds),
                tuple(
                    label_ranking(rows.by_label[label], k, depth, scores.get(rows.numbers[label]))
                    for label in labels
                    if label in rows.by_label
                ),
            )
        )
    return found


def label_ranking(
    ranked: RankedPool, k: int, depth: int = 10, scores: Float32s | None = None
) -> LabelRanking:
    """Return the ranking of a row; `scores`, (len(pool),), are all of its pool, if they are kept.

    Memories of equal score are in the order of their positions.
    """
    row = ranked.row
    if row.error is not None:
        return LabelRanking(row.retriever, None, (), (), row.error)
    golds = dict(zip(row.golds, row.ties, strict=True))
    if scores is None:
        top = dict(row.top)
        ranks = _ranks_in(row.top, len(ranked.pool))
    else:
        top = {i: float(scores[i]) for i in (*display_order(scores, depth), *golds)}
        ranks = {i: _rank(above_tied(scores, i)) for i in top}
    ranks |= {position: _rank(tie) for position, tie in golds.items()}

    def memory(position: int) -> RankedMemory:
        return RankedMemory(
            position,
            ranked.memory(position),
            position in golds,
            ranks.get(position),
            top.get(position),
        )

    first = list(top)[:depth] if scores is None else display_order(scores, depth)
    return LabelRanking(
        row.retriever,
        Success(k).value(row.ties),
        tuple(map(memory, golds)),
        tuple(map(memory, first)),
    )


def _rank(tie: tuple[int, int]) -> Rank:
    above, tied = tie
    return above + 1, above + tied


def _ranks_in(top: Iterable[tuple[int, float]], pool: int) -> dict[int, Rank]:
    """The ranks of the first memories by their scores; equal scores may go on after the last."""
    pairs = list(top)
    found: dict[int, Rank] = {}
    for position, score in pairs:
        above = sum(other > score for _, other in pairs)
        upto = sum(other >= score for _, other in pairs)
        found[position] = above + 1, None if upto == len(pairs) < pool else upto
    return found
