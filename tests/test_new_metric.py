"""A metric is one class: once registered it is in every output, with nothing else changed."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typing_extensions import override

from analysis.compare import app as compare_app
from analysis.curves import curves_of
from analysis.frontier import points_of
from analysis.metrics import METRICS, MetricAtK, Precision, Recall, Ties, parse_metric
from analysis.runs import read_run
from analysis.sides import Side
from analysis.significance import pairings
from task3.sweep import app as sweep_app
from tests.kit import WriteRelease, read_json, run, run_json, swept

LABELS = ("words=overlap", "same=constant")


class Miss(MetricAtK):
    """The share of golds that are not among the first k."""

    symbol, key = "miss", "miss"
    tabulated = compared = True

    @override
    def value(self, ties: Ties) -> float:
        return 1 - Recall(self.k).value(ties)


@pytest.fixture
def miss() -> Iterator[None]:
    METRICS.insert(1, Miss)
    yield
    METRICS.remove(Miss)


@pytest.fixture
def release(write_release: WriteRelease) -> Path:
    texts = [[f"topic {i if j == i % 4 else j + 9} note" for j in range(4)] for i in range(8)]
    return write_release([(f"topic {i}", texts[i], i % 4) for i in range(8)])


@pytest.mark.usefixtures("miss")
def test_a_registered_metric_is_in_every_output(release: Path, tmp_path: Path) -> None:
    words = ["--data", release, "--distractors", 3, "--k", "1,2", "--retriever", "words=overlap"]
    words += ["--retriever", "same=constant", "--out", tmp_path / "run"]
    table = run(sweep_app, *words, code=0).stdout
    cell = read_json(tmp_path / "run" / "summary.json")["cells"][1]
    for k in ("1", "2"):
        assert cell["miss"][k]["mean"] == pytest.approx(1 - cell["recall"][k]["mean"], abs=1e-6)
        assert cell["miss"][k]["mean"] == cell["miss"][k]["chance"]
    assert {"miss@1", "miss@2"} <= set(table.split())
    with (tmp_path / "run" / "curve.csv").open() as stream:
        figures = {(row["retriever"], row["metric"]): row for row in csv.DictReader(stream)}
    assert float(figures["same", "miss@2"]["mean"]) == cell["miss"]["2"]["mean"]
    sides = f"{tmp_path}/run:words", f"{tmp_path}/run:same"
    recall, miss = run_json(compare_app, *sides, "--k", "1")
    assert (recall["k"], miss["k"], "metric" in recall, miss["metric"]) == (1, 1, False, "miss@1")
    assert miss["difference"] == pytest.approx(-recall["difference"])
    assert {"R@1", "miss@1"} <= set(run(compare_app, *sides, "--k", "1", code=0).stdout.split())


def test_a_metric_is_named_on_input(miss: None) -> None:
    assert parse_metric("miss@3") == Miss(3) != Recall(3)
    for kind in METRICS:
        [metric] = kind.at([7])
        assert parse_metric(metric.name) == metric
    for wrong in ("R", "R@0", "R@-1", "R@01", "recall@1", "E[RR]@1", "Miss@1", ""):
        with pytest.raises(ValueError, match="not a metric, such as R@10, miss@10, "):
            parse_metric(wrong)


def test_precision_is_read_from_rows_without_being_in_summaries(
    release: Path, tmp_path: Path
) -> None:
    path = swept(LABELS, release, distractors=(3,), ks=(1,), out=tmp_path / "run").path
    assert "precision" not in json.dumps(read_json(path / "summary.json"))
    found = read_run(path)
    constant = curves_of([found], Precision(2))[1]
    assert constant.mean == constant.chance == (0.25,)
    [result] = pairings([Side(found, "words"), Side(found, "same")], [Precision(2)])
    assert (result.metric.name, result.paired.b) == ("P@2", 0.25)
    _, points = points_of([found], None, Precision(2))
    assert [point.recall for point in points] == [result.paired.a, 0.25]


@pytest.mark.parametrize("k", [1, 2, 3, 7])
def test_precision_counts_golds_among_the_first_k(k: int) -> None:
    ties = [(0, 1), (1, 3), (4, 2)]
    metric = Precision(k)
    worst, best = metric.bounds(ties)
    assert 0 <= worst <= metric.value(ties) <= best <= metric.ceiling(3, 1) <= 1
    assert metric.value(ties) * k == pytest.approx(3 * Recall(k).value(ties))
    assert metric.chance(1, 10) == pytest.approx(min(k / 10, 1) / k)
