"""The rows of an audit that come from rankers, and from what texts and rows have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.audit_data import AuditData, AuditRow
from analysis.encoding_faults import encoding_faults
from analysis.equal_rows import EqualRow, OtherSplit, equal_across, equal_within
from analysis.findings import LEVEL, QUERIES, TEXTS, Example, Finding, Verdict, verdict_of
from analysis.second_golds import Paraphrases, gold_in_query, most_in_query
from analysis.shortcut_scores import ShortcutScore, score_shortcuts
from analysis.shortcuts import Shortcut
from analysis.statistics import mean_interval

IN_QUERY, WORDS, PARAPHRASED = "gold in the query", "words of the gold", "paraphrases of the gold"
EQUAL, SPLITS, ENCODING = "equal queries", "rows in other splits", "encoding"
MANY = 0.05
"""The share of queries that hold their gold from which that is a shortcut."""
_HIDDEN = ("ids", "fields", "other tasks")
_MISSING = {
    "ids": "the memories have no stored ids",
    "label": "no memory has a label",
    "position": "the pools have fewer than ten memories",
}


def shortcut_findings(
    rows: Sequence[AuditRow], shortcuts: Sequence[Shortcut], seed: int = 0
) -> list[Finding]:
    """Score shortcuts on the rows, each a finding; they are corrected for together."""
    scores = score_shortcuts(rows, [shortcut.score for shortcut in shortcuts], seed)
    return [
        _ranker(shortcut, score, rows) for shortcut, score in zip(shortcuts, scores, strict=True)
    ]


def _ranker(shortcut: Shortcut, score: ShortcutScore, rows: Sequence[AuditRow]) -> Finding:
    verdict = verdict_of(score)
    if verdict == "not applicable":
        silent = all(shortcut.score(row) is None for row in rows)
        why = _MISSING.get(shortcut.group) if silent else None
        text = why or "it is the same for all memories of every pool"
        return Finding(shortcut.name, shortcut.group, verdict, text)
    above = score.holm is not None and score.holm < LEVEL
    how = "not above" if not above else "above" if verdict != "clear" else "negligibly above"
    seen = " No retriever of recallbed sees it." if shortcut.group in _HIDDEN else ""
    return Finding(
        shortcut.name,
        shortcut.group,
        verdict,
        f"Ranking by {shortcut.by} is {how} chance.{seen}",
        value=score.recall[1],
        interval=score.interval,
        chance=score.chance[1],
        recall=score.recall,
        holm=score.holm,
        by=shortcut.by,
    )


@dataclass(frozen=True, slots=True)
class TextFindings:
    """The findings on texts and rows, and what a cleaned view leaves out: ids and positions."""

    findings: tuple[Finding, ...]
    in_query: frozenset[str]
    equal: frozenset[str]
    paraphrases: dict[str, frozenset[int]]


def text_findings(
    data: AuditData, paraphrases: Paraphrases, others: Sequence[OtherSplit] | None
) -> TextFindings:
    """Look for golds in queries, second golds, equal rows and encoding faults.

    `others` are the other splits of a release, None if there are none to compare with.
    """
    rows = data.rows
    held = {row.query_id: how for row in rows if (how := gold_in_query(row))}
    near = {row.query_id: found for row in rows if (found := paraphrases.of(row))}
    equal = list(equal_within(rows))
    findings = [
        _in_query(rows, held),
        _words(rows),
        _shared(
            *(PARAPHRASED, "second golds", rows, set(near)),
            "queries with a distractor that paraphrases a gold",
            [
                Example(
                    *(row.query_id, (one.position,), one.by),
                    *(row.memories[one.position].text, one.similarity),
                )
                for row in rows
                for one in near.get(row.query_id, ())
            ],
        ),
        _shared(
            *(EQUAL, "equal rows", rows, {one.query_id for one in equal}),
            "queries that an earlier row of the split has too",
            [Example(one.query_id, how=_same(one)) for one in equal],
        ),
        _splits(rows, data.own, others),
        _encoding(data),
    ]
    return TextFindings(
        tuple(findings),
        frozenset(held),
        frozenset(one.query_id for one in equal),
        {name: frozenset(one.position for one in found) for name, found in near.items()},
    )


def _shared(
    name: str,
    group: str,
    rows: Sequence[AuditRow],
    found: set[str],
    what: str,
    examples: Sequence[Example],
    chance: float | None = None,
    verdict: Verdict | None = None,
) -> Finding:
    """A finding whose value is the share of the queries in `found`."""
    values = [float(row.query_id in found) for row in rows]
    interval = mean_interval(values, [row.session for row in rows])
    return Finding(
        *(name, group, verdict or ("note" if found else "clear")),
        f"{what}: {len(found)} of {len(rows)}",
        QUERIES,
        float(np.mean(values)),
        interval,
        chance,
        examples=tuple(examples),
    )


def _in_query(rows: Sequence[AuditRow], held: dict[str, str]) -> Finding:
    many = len(held) >= MANY * len(rows)
    verdict: Verdict = "clear" if not held else "shortcut" if many else "note"
    exact = sum(how == "exact" for how in held.values())
    what = "queries that hold the text of their gold" + (f" ({exact} exactly)" if held else "")
    examples = [Example(name, how=how) for name, how in held.items()]
    return _shared(IN_QUERY, "second golds", rows, set(held), what, examples, verdict=verdict)


def _words(rows: Sequence[AuditRow]) -> Finding:
    """Whether queries hold most words of their gold, compared with any memory of the pool."""
    found, shares, examples = set(), [], []
    for row in rows:
        places = most_in_query(row)
        shares.append(len(places) / len(row.memories))
        if golds := tuple(i for i in places if i in row.golds):
            found.add(row.query_id)
            examples.append(Example(row.query_id, golds, text=row.memories[golds[0]].text))
    many = len(found) >= MANY * len(rows)
    what = "queries with most content words of their gold"
    chance = float(np.mean(shares))
    verdict: Verdict = "note" if many else "clear"
    return _shared(WORDS, "second golds", rows, found, what, examples, chance, verdict)


def _same(one: EqualRow) -> str:
    return f"{one.what}, as in {one.other}" + (f" of {one.split}" if one.split else "")


def _splits(rows: Sequence[AuditRow], own: bool, others: Sequence[OtherSplit] | None) -> Finding:
    if not others:
        why = (
            "a file of your own has no splits"
            if own
            else "there is no other split with pools of this size to compare with"
        )
        return Finding(SPLITS, "equal rows", "not applicable", why, QUERIES)
    equal = list(equal_across(rows, others))
    names = ", ".join(other.name for other in others)
    return _shared(
        *(SPLITS, "equal rows", rows, {one.query_id for one in equal}),
        f"queries with the query, pool or session of a row of {names}",
        [Example(one.query_id, how=_same(one)) for one in equal],
    )


def _encoding(data: AuditData) -> Finding:
    texts: dict[str, Example] = {}
    for row in data.rows:
        texts.setdefault(row.query, Example(row.query_id))
        for position, memory in enumerate(row.memories):
            texts.setdefault(memory.text, Example(row.query_id, (position,)))
    kinds: Counter[str] = Counter()
    examples = []
    for text, place in texts.items():
        if found := list(encoding_faults(text)):
            kinds.update(found)
            examples.append(Example(place.query_id, place.positions, ", ".join(found), text))
    repaired = {kind: count for kind, count in data.repairs.items() if kind in _CHARACTERS}
    seen = [*(f"{kind} {count}" for kind, count in sorted(kinds.items()))]
    seen += [f"{kind} {count} (repaired by the loader)" for kind, count in repaired.items()]
    return Finding(
        *(ENCODING, "encoding", "note" if seen else "clear"),
        f"distinct texts with a fault: {len(examples)} of {len(texts)}"
        + (f" ({'; '.join(seen)})" if seen else ""),
        TEXTS,
        len(examples) / len(texts),
        examples=tuple(examples),
    )


_CHARACTERS = ("NUL", "lone surrogate")
