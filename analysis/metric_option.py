"""The options that name metrics and their summary over pool sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from analysis.metrics import Metric, parse_metric
from recallbed.errors import UserError

MetricNames = Annotated[
    tuple[str, ...],
    typer.Option(
        "--metric",
        metavar="NAME",
        help="Metric, such as R@1, nDCG@10 or E[RR]. Some commands take several, each named so.",
    ),
]

Area = Annotated[
    bool,
    typer.Option("--area", help="Add the area under each metric's curve against log pool size."),
]


def named_metrics(names: Sequence[str]) -> list[Metric]:
    """Return the metrics that were named, without repeats; raise UserError for another name."""
    try:
        return list(dict.fromkeys(parse_metric(name) for name in names))
    except ValueError as error:
        raise UserError(f"--metric {error}") from None


def one_metric(names: Sequence[str], default: Metric) -> Metric:
    """Return the only metric named; raise UserError for several."""
    found = named_metrics(names)
    if len(found) > 1:
        raise UserError(f"--metric {' --metric '.join(names)}: this command takes one metric")
    return found[0] if found else default
