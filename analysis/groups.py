"""Groups of queries by what they, their golds and their pools are, whatever a retriever finds.

`group_of(name, material)` gives a grouping: one of `GROUPINGS`, or a further field of the user's
own data. docs/breakdowns.md has the definitions and bins.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import typer

from analysis.ranked_pools import RankedPool
from analysis.summary import TENTHS_FROM
from recallbed.corpus.material import Material
from recallbed.corpus.pools import Pool, PoolSet
from recallbed.corpus.records import Task3Row
from recallbed.errors import UserError

UNKNOWN = "unknown"
NO_LABEL = "no label"
SEVERAL_LABELS = "several labels"
NO_VALUE = "no value"
FIELD = "field:"
"""Prefix of the name of a further field, needed if a grouping has the same name."""
MOST_VALUES = 50
"""Values of a further field up to which `groupings` offers it."""
LENGTHS = (5, 10, 15, 20, 50, 200, 1_000)
SHARES = {
    "0 %": 0.0,
    "up to 5 %": 0.05,
    "up to 10 %": 0.1,
    "up to 20 %": 0.2,
    "up to 50 %": 0.5,
    "over 50 %": 1.0,
}
COUNTS = (0, 1, 4, 9)
_LAST = (UNKNOWN, SEVERAL_LABELS, NO_LABEL, NO_VALUE)
_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Grouping:
    """A name, what its groups are in words, and the group of a query and its pool.

    `bins` are the groups in their order, if they are known beforehand; without, they are ordered
    by their number of queries, or by value if all are numbers. Groups of a query are found once;
    those that depend on the pool (`by_pool`) once per pool.
    """

    name: str
    text: str
    find: Callable[[Task3Row, Pool], str]
    bins: tuple[str, ...] = ()
    by_pool: bool = False
    _found: dict[object, str] = field(default_factory=dict, compare=False, repr=False)

    def __call__(self, ranked: RankedPool) -> str:
        """Return the group of a row."""
        return self.group(ranked.query, ranked.pool)

    def group(self, query: Task3Row, pool: Pool) -> str:
        """Return the group of a query with its pool, which must live as long as this does."""
        key = id(pool) if self.by_pool else query.benchmark_id
        if key not in self._found:
            self._found[key] = self.find(query, pool)
        return self._found[key]

    def ordered(self, counts: Mapping[str, int]) -> list[str]:
        """Return the groups of `counts`, the number of queries by group, in their order."""
        place = {name: i for i, name in enumerate(self.bins)}
        named = [name for name in counts if name not in _LAST]
        numeric = bool(named) and all(map(_is_number, named))

        def key(name: str) -> tuple[Any, ...]:
            last = name in _LAST and name not in place
            if place or numeric:
                value = float(name) if numeric and not last else 0.0
                return last, place.get(name, len(place)), value, name
            return last, -counts[name], name

        return sorted(counts, key=key)

    def groups(self, material: Material) -> list[str]:
        """Return the groups that the queries of `material` have, in their order."""
        queries: dict[str, set[str]] = {}
        for pools in material.pools.pools.values():
            for query, pool in zip(material.pools.rows, pools, strict=True):
                queries.setdefault(self.group(query, pool), set()).add(query.benchmark_id)
        return self.ordered({name: len(found) for name, found in queries.items()})


def group_of(name: str, material: Material) -> Grouping:
    """Return the grouping of a name: one of `GROUPINGS`, else a further field of the data.

    `field:NAME` is always the field. Raise UserError, with the known names, for any other, and for
    `direct` if the data does not tell.
    """
    if name in GROUPINGS:
        return GROUPINGS[name](material)
    if name.removeprefix(FIELD) in field_names(material):
        return _field(name, name.removeprefix(FIELD))
    known = ", ".join([*GROUPINGS, *_own_names(material)])
    raise UserError(f"no grouping `{name}`: choose one of {known}")


def groupings(material: Material) -> list[str]:
    """Return the names that are of use for the data, such as for a choice.

    A further field that has only one value, or more than `MOST_VALUES`, is left out, and `direct`
    if the data does not tell.
    """
    rows = material.pools.rows
    names = [name for name in GROUPINGS if name != "direct" or material.data.types]
    for name, own in zip(field_names(material), _own_names(material), strict=True):
        values = {_value_name(row.fields.get(name)) for row in rows}
        if 1 < len(values) <= MOST_VALUES:
            names.append(own)
    return names


def field_names(material: Material) -> list[str]:
    """Return the names of the further fields of the data, in order of their first appearance."""
    return list(dict.fromkeys(name for row in material.pools.rows for name in row.fields))


def _own_names(material: Material) -> list[str]:
    return [FIELD + name if name in GROUPINGS else name for name in field_names(material)]


def _language(material: Material) -> Grouping:
    from indexes.language import OTHER, evident_language

    def find(query: Task3Row, pool: Pool) -> str:
        found = evident_language(query.query)
        return UNKNOWN if found in (None, OTHER) else str(found)

    return Grouping("language", "main language of the query", find)


def _script_match(material: Material) -> Grouping:
    from indexes.language import script_of

    def find(query: Task3Row, pool: Pool) -> str:
        asked = script_of(query.query)
        scripts = [script_of(gold.text) for gold in query.gold_memories]
        if asked is None or None in scripts:
            return UNKNOWN
        shared = sum(script == asked for script in scripts)
        return "same" if shared == len(scripts) else "partly" if shared else "different"

    bins = ("same", "partly", "different", UNKNOWN)
    return Grouping("script_match", "whether query and gold are of one script", find, bins)


def _label(material: Material) -> Grouping:
    def find(query: Task3Row, pool: Pool) -> str:
        return _one_label({(gold.label or "").split("/")[0] for gold in query.gold_memories})

    return Grouping("label", "top level of the gold's label", find)


def _label_path(material: Material) -> Grouping:
    def find(query: Task3Row, pool: Pool) -> str:
        return _one_label({gold.label or "" for gold in query.gold_memories})

    return Grouping("label_path", "the gold's label", find)


def _one_label(labels: set[str]) -> str:
    return SEVERAL_LABELS if len(labels) > 1 else min(labels) or NO_LABEL


def _length(material: Material) -> Grouping:
    def find(query: Task3Row, pool: Pool) -> str:
        lengths = [_words(gold.text) for gold in query.gold_memories]
        return _count_bin(sum(lengths) / len(lengths), LENGTHS)

    return Grouping("length", "words of the gold", find, _count_bins(LENGTHS))


def _words(text: str) -> float:
    """Words of a text; two characters of a script without spaces count as one word."""
    from analysis.near_duplicates import runs_of_letters

    runs = runs_of_letters(text)
    return sum(max(len(run) / 2, 1) if unspaced else 1 for run, unspaced in runs)


def _overlap(material: Material) -> Grouping:
    from indexes.tokens import MultilingualTokens

    tokens = MultilingualTokens()
    bins = tuple(SHARES)

    def find(query: Task3Row, pool: Pool) -> str:
        asked = set(tokens(query.query).content or tokens(query.query).every)
        if not asked:
            return UNKNOWN
        found = (asked & set(tokens(gold.text).every) for gold in query.gold_memories)
        share = max(map(len, found)) / len(asked)
        return next(name for name, end in SHARES.items() if share <= end)

    what = "share of the query's content words that occur in the gold"
    return Grouping("overlap", what, find, (*bins, UNKNOWN))


def _near_duplicates(material: Material) -> Grouping:
    from analysis.near_duplicates import NearDuplicates

    near: list[NearDuplicates] = []  # made when it is first needed

    def find(query: Task3Row, pool: Pool) -> str:
        if not near:
            near.append(NearDuplicates([memory.text for memory in material.pools.memories]))
        similar = np.unique(np.concatenate([near[0].of(int(pool.members[g])) for g in pool.golds]))
        others = np.isin(pool.members, similar)
        others[list(pool.golds)] = False
        return _count_bin(int(others.sum()), COUNTS)

    what = "memories of the pool that nearly repeat a gold"
    return Grouping("near_duplicates", what, find, _count_bins(COUNTS), by_pool=True)


def _position(material: Material) -> Grouping:
    parts = 10 if _smallest_pool(material.pools) >= TENTHS_FROM else 3
    name = {3: "third", 10: "tenth"}[parts]

    def find(query: Task3Row, pool: Pool) -> str:
        return f"{name} {pool.gold * parts // len(pool) + 1}"

    bins = tuple(f"{name} {i}" for i in range(1, parts + 1))
    return Grouping("position", "place of the (first) gold in the pool", find, bins, by_pool=True)


def _smallest_pool(pools: PoolSet) -> int:
    return min((len(pool) for found in pools.pools.values() for pool in found), default=0)


def _direct(material: Material) -> Grouping:
    types = material.data.types
    if not types:
        raise UserError(
            "direct: the data does not tell which memories a user stated and which were inferred."
            " A release tells it in the references of task 1"
        )

    def find(query: Task3Row, pool: Pool) -> str:
        own = types.get(query.session_id, {})
        kinds = {own.get(gold.text, UNKNOWN) for gold in query.gold_memories}
        return min(kinds) if len(kinds) == 1 else UNKNOWN

    what = "whether the user stated the gold memory (direct) or it was inferred (indirect)"
    return Grouping("direct", what, find)


def _field(name: str, key: str) -> Grouping:
    def find(query: Task3Row, pool: Pool) -> str:
        return _value_name(query.fields.get(key))

    return Grouping(name, f"field `{key}` of the data", find)


def _value_name(value: Any) -> str:
    """A value of a further field as a group: text as it is, anything else as JSON."""
    if value is None or value == "":
        return NO_VALUE
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _count_bins(ends: Sequence[int]) -> tuple[str, ...]:
    starts = [0, *(end + 1 for end in ends)]
    names = []
    for start, end in zip(starts, ends, strict=False):
        between = f"{start:,} to {end:,}" if start else f"up to {end:,}"
        names.append(f"{end:,}" if start == end else between)
    return (*names, f"over {ends[-1]:,}")


def _count_bin(count: float, ends: Sequence[int]) -> str:
    return _count_bins(ends)[sum(count > end for end in ends)]


GROUPINGS: Mapping[str, Callable[[Material], Grouping]] = {
    "language": _language,
    "script_match": _script_match,
    "label": _label,
    "label_path": _label_path,
    "length": _length,
    "overlap": _overlap,
    "near_duplicates": _near_duplicates,
    "position": _position,
    "direct": _direct,
}
"""The groupings of any data, each made for the data."""

Where = Annotated[
    tuple[str, ...],
    typer.Option(
        "--where",
        metavar="NAME=VALUE",
        help="Only queries of this group, such as language=english; repeatable. Values of one name"
        " are alternatives; conditions on different names must all hold.",
    ),
]


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Conditions on queries: the groups that are let through, by grouping; empty lets all."""

    conditions: tuple[tuple[Grouping, frozenset[str]], ...] = ()

    def __call__(self, ranked: RankedPool) -> bool:
        """Return whether a row is let through."""
        return self.keeps(ranked.query, ranked.pool)

    def keeps(self, query: Task3Row, pool: Pool) -> bool:
        """Return whether a query with its pool is let through."""
        return all(grouping.group(query, pool) in held for grouping, held in self.conditions)

    def queries(self, material: Material) -> set[str]:
        """Return the queries that are let through at every size.

        Raise UserError for a condition on the pool, which is not the same at every size.
        """
        for grouping, _ in self.conditions:
            if grouping.by_pool:
                raise UserError(
                    f"--where {grouping.name}: differs by pool, so it chooses no queries here"
                )
        pools = next(iter(material.pools.pools.values()))
        pairs = zip(material.pools.rows, pools, strict=True)
        return {query.benchmark_id for query, pool in pairs if self.keeps(query, pool)}

    def __str__(self) -> str:
        """Return the conditions in words, such as `label=Preferences`; empty without any."""
        return ", ".join(
            f"{grouping.name}={' or '.join(sorted(held))}" for grouping, held in self.conditions
        )


def parse_where(words: Sequence[str], material: Material) -> RowFilter:
    """Return the filter of `NAME=VALUE` words, as `--where` takes them.

    Raise UserError for a word without `=`, an unknown name, and a value that no query has; it names
    the known ones.
    """
    asked: dict[str, list[str]] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise UserError(f"--where {word}: write NAME=VALUE, such as language=english")
        asked.setdefault(name, []).append(value)
    conditions = []
    for name, values in asked.items():
        grouping = group_of(name, material)
        known = grouping.groups(material)
        for value in values:
            if value not in known:
                raise UserError(f"--where {name}={value}: no query has it. {_choices(known)}")
        conditions.append((grouping, frozenset(values)))
    return RowFilter(tuple(conditions))


def _choices(known: Sequence[str]) -> str:
    shown = ", ".join(known[:_SHOWN])
    more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
    return f"Choose one of {shown}{more}"
