"""The misses of a retriever at one pool size: what was ranked first instead of the gold, and why.

A hit has a gold among the first k, however equal scores are ordered; every other scored query is a
miss and has exactly one kind, the first of `KINDS` that holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from analysis.kept_scores import Float32s, kept_scores
from analysis.near_duplicates import nearly_equal
from analysis.query_views import RankedMemory, label_ranking
from analysis.ranked_pools import RankedPool, ranked_pools
from analysis.runs import Run
from analysis.statistics import rounded
from indexes.tokens import MultilingualTokens
from recallbed.corpus.material import Material
from recallbed.corpus.records import Memory, Task3Row

KINDS: Mapping[str, str] = {
    "not-a-candidate": "the first stage did not place the gold among the reranker's candidates",
    "near-duplicate": "the memory ranked first nearly repeats the gold",
    "no-shared-term": "query and gold have no term in common",
    "tied": "the order of equal scores decides whether the gold is among the first k",
    "same-label": "another memory with the label of the gold was ranked first",
    "other-label": "another memory was ranked first",
}
"""The kinds of misses, in the order in which they are tried."""


class Explained(Protocol):
    """Why a memory has its score, as a retriever explains it."""

    def to_json(self) -> dict[str, Any]:
        """Return its parts."""

    def __str__(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Miss:
    """A query whose gold was not ranked among the first k.

    `gold` is the gold that was ranked best, `first` the best memory that is no gold. `success` is
    the expected success@k, above 0 only if equal scores decide. `candidate` says whether a gold
    reached the reranker; None for other retrievers. `first_why` and `gold_why` are None if the
    retriever explains nothing.
    """

    ranked: RankedPool
    k: int
    kind: str
    success: float
    gold: RankedMemory
    golds: tuple[RankedMemory, ...]
    first: RankedMemory
    candidate: bool | None = None
    first_why: Explained | None = None
    gold_why: Explained | None = None

    @property
    def query(self) -> Task3Row:
        """The row of the query."""
        return self.ranked.query

    @property
    def pool_size(self) -> int:
        """The number of memories in the pool."""
        return len(self.ranked.pool)

    def to_json(self) -> dict[str, Any]:
        """Return the fields, with the further fields of a row of the user's own."""
        found: dict[str, Any] = {
            "query": self.query.benchmark_id,
            "text": self.query.query,
            "fields": dict(self.query.fields),
            "retriever": self.ranked.row.retriever,
            "distractors": self.ranked.row.distractors,
            "pool_seed": self.ranked.seed,
            "pool_size": self.pool_size,
            "k": self.k,
            "kind": self.kind,
            "success": self.success,
            "candidate": self.candidate,
            "golds": [one.to_json() for one in self.golds],
            "gold": self.gold.to_json() | {"why": self.gold_why and self.gold_why.to_json()},
            "first": self.first.to_json() | {"why": self.first_why and self.first_why.to_json()},
        }
        return found


@dataclass(frozen=True, slots=True)
class MissSummary:
    """How many queries were hits, and how many missed by kind.

    `expected` is the sum of 1 - success@k by kind: a miss by a tie counts with its chance. Over the
    scored queries it makes 1 - success@k, for queries with one gold 1 - recall@k.
    """

    retriever: str
    distractors: int
    k: int
    scored: int
    failed: Mapping[str, int]
    misses: Mapping[str, int]
    expected: Mapping[str, float]

    @property
    def hits(self) -> int:
        """Queries with a gold among the first k for certain."""
        return self.scored - sum(self.misses.values())

    def to_json(self) -> dict[str, Any]:
        """Return all counts; failed queries by their cause."""
        return {
            "retriever": self.retriever,
            "distractors": self.distractors,
            "k": self.k,
            "scored": self.scored,
            "hits": self.hits,
            "failed": dict(self.failed),
            "misses": dict(self.misses),
            "expected": rounded(dict(self.expected)),
        }


@dataclass(frozen=True, slots=True)
class Misses:
    """The misses of a retriever at one size, in the order of the data, and their summary."""

    found: tuple[Miss, ...]
    summary: MissSummary


def misses(
    run: Run,
    material: Material,
    label: str,
    distractors: int,
    k: int = 1,
    *,
    seeds: Collection[int] | None = None,
    keep: Callable[[RankedPool], bool] | None = None,
) -> Misses:
    """Return the misses of a retriever at a size, of the rows to `keep`, without explanations.

    `seeds` are those of pools, by default the first. Raise UserError for a row that is not of these
    pools.
    """
    wanted = material.seeds[:1] if seeds is None else seeds
    numbers = {id(row): number for number, row in enumerate(run.rows)}
    rows = [
        one
        for one in ranked_pools(run, material, [label], [distractors])
        if one.seed in wanted and (keep is None or keep(one))
    ]
    scores = kept_scores(run, {numbers[id(one.row)]: len(one.pool) for one in rows})
    judge = _Kinds()
    found = []
    for one in rows:
        if one.row.error is None:
            miss = judge.miss(one, k, scores.get(numbers[id(one.row)]))
            if miss is not None:
                found.append(miss)
    counts, expected = Counter(miss.kind for miss in found), dict.fromkeys(KINDS, 0.0)
    for miss in found:
        expected[miss.kind] += 1 - miss.success
    failed = Counter(one.row.error for one in rows if one.row.error is not None)
    summary = MissSummary(
        label,
        distractors,
        k,
        len(rows) - failed.total(),
        dict(sorted(failed.items())),
        {kind: counts[kind] for kind in KINDS},
        expected,
    )
    return Misses(tuple(found), summary)


class _Kinds:
    """Finds the kind of a miss; texts are tokenised once."""

    def __init__(self) -> None:
        self._tokens = MultilingualTokens()
        self._terms: dict[str, tuple[frozenset[str], frozenset[str]]] = {}

    def miss(self, one: RankedPool, k: int, scores: Float32s | None) -> Miss | None:
        """The miss of a scored row, None for a hit."""
        ranking = label_ranking(one, k, len(one.row.top), scores)
        assert ranking.success is not None
        if ranking.success == 1:
            return None
        best = min(range(len(one.row.ties)), key=lambda i: one.row.ties[i])
        others = [memory for memory in ranking.first if not memory.gold]
        first = others[0] if others else ranking.first[0]
        candidate = _candidate(one)
        return Miss(
            ranked=one,
            k=k,
            kind=self._kind(one, first.memory, ranking.success, candidate),
            success=ranking.success,
            gold=ranking.golds[best],
            golds=ranking.golds,
            first=first,
            candidate=candidate,
        )

    def _kind(self, one: RankedPool, first: Memory, success: float, candidate: bool | None) -> str:
        golds = one.golds
        if candidate is False:
            return "not-a-candidate"
        if any(nearly_equal(first.text, gold.text) for gold in golds):
            return "near-duplicate"
        if not any(self._share(one.query.query, gold.text) for gold in golds):
            return "no-shared-term"
        if success:
            return "tied"
        if first.label is not None and first.label in {gold.label for gold in golds}:
            return "same-label"
        return "other-label"

    def _share(self, query: str, text: str) -> bool:
        """Whether a query and a memory share a term, as `bm25` has it by default."""
        content, every = self._of(query)
        which = 0 if content or not every else 1
        return not self._of(query)[which].isdisjoint(self._of(text)[which])

    def _of(self, text: str) -> tuple[frozenset[str], frozenset[str]]:
        if text not in self._terms:
            tokens = self._tokens(text)
            self._terms[text] = frozenset(tokens.content), frozenset(tokens.every)
        return self._terms[text]


def _candidate(one: RankedPool) -> bool | None:
    """Whether a gold was among the candidates of a reranker; None if there was none.

    If the first stage's ties leave it open, the final rank tells: candidates are above the rest.
    """
    known = one.row.reranked
    if known is None or known.depth is None or known.first is None:
        return None
    depth = known.depth
    return any(
        above + tied <= depth or (above < depth and final < depth)
        for (above, tied), (final, _) in zip(known.first, one.row.ties, strict=True)
    )
