"""The candidates of a tuning run: every combination of the values given for each setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

from recallbed.errors import UserError
from recallbed.harness.configurations import Configuration

Candidate = Mapping[tuple[str, str], str]
"""A value for each (label, key)."""

_SHARES = ("0.01", "0.02", "0.05", "0.1", "0.2", "0.5", "0.8", "0.9", "0.95", "0.98", "0.99")
_DEFAULT: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "bm25": {
        "k1": ("1.5", "0", "0.2", "0.4", "0.8", "1.2", "2"),
        "b": ("0.75", "0", "0.25", "0.5", "1"),
    },
    "hybrid": {"weights": tuple(f"{share},{1 - float(share):g}" for share in _SHARES)},
}


def parse_grid(
    words: Sequence[str], label: str, configurations: Sequence[Configuration]
) -> list[Candidate]:
    """The candidates of `LABEL.key=value/value/...` words, in the order of their values.

    Without words, those usual for the retriever at `label`: k1 and b of bm25, the weights of a
    hybrid of two legs. Raises UserError for a malformed word, an unknown label, a value given
    twice, and where no grid is usual.
    """
    labels = {one.label: one for one in configurations}
    values: dict[tuple[str, str], tuple[str, ...]] = {}
    for word in words:
        target, equals, given = word.partition("=")
        owner, dot, key = target.partition(".")
        choices = tuple(given.split("/"))
        if not (equals and dot and key) or "" in choices:
            raise UserError(f"--grid {word}: write it as LABEL.key=value/value/...")
        if owner not in labels:
            raise UserError(
                f"--grid {word}: no retriever has the label `{owner}` (labels: {', '.join(labels)})"
            )
        if (owner, key) in values or len(set(choices)) < len(choices):
            raise UserError(f"--grid {word}: `{owner}.{key}` has a value twice")
        values[owner, key] = choices
    if not values:
        values = _usual(labels[label])
    keys = list(values)
    return [dict(zip(keys, chosen, strict=True)) for chosen in product(*values.values())]


def _usual(target: Configuration) -> dict[tuple[str, str], tuple[str, ...]]:
    grid = _DEFAULT.get(target.name, {})
    if target.settings.get("legs", "").count(",") not in (0, 1):
        grid = {}
    if not grid:
        raise UserError(
            f"{target.label}: no grid is usual for this retriever."
            f" Give --grid {target.label}.key=value/value/..."
        )
    return {(target.label, key): choices for key, choices in grid.items()}


def configured(
    configurations: Sequence[Configuration], candidate: Candidate
) -> tuple[Configuration, ...]:
    """The configurations with the candidate's values in the place of their own."""
    found = []
    for one in configurations:
        typed = {key: value for (label, key), value in candidate.items() if label == one.label}
        settings, left = {**one.settings, **typed}, one.from_files - typed.keys()
        found.append(replace(one, settings=settings, from_files=left))
    return tuple(found)
