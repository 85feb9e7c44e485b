"""Agreement of two raters: by hand, against scikit-learn and scipy, and through the command."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.statistics import Bootstrap
from judges.agreement import app, compare_raters, describe_agreement
from judges.summary import cohen_kappa, f1, quadratic_kappa, spearman
from judges.verdict_file import Kind, VerdictFile, read_verdicts
from recallbed.errors import DataError, UserError
from tests.kit import one_line_error, python, run, write_lines


def table_of(a: Iterable[int], b: Iterable[int], levels: int) -> np.ndarray:
    table = np.zeros((levels, levels))
    for one, other in zip(a, b, strict=True):
        table[one, other] += 1
    return table


def file_of(labels: Iterable[int | None], clusters: Iterable[str] | None = None) -> VerdictFile:
    found = VerdictFile(Path("x.jsonl"))
    for i, label in enumerate(labels):
        if label is None:
            found.unjudged[str(i)] = "rate limited"
        else:
            found.labels[str(i)] = label
    for i, name in enumerate(clusters or ()):
        found.clusters[str(i)] = name
    return found


def test_kappa_by_hand() -> None:
    """Of 50 items 35 agree; by chance half would: (0.7 - 0.5) / (1 - 0.5)."""
    table = np.array([[20.0, 5], [10, 15]])
    assert cohen_kappa(table) == pytest.approx(0.4)
    assert f1(table, 1) == pytest.approx(2 * 15 / (2 * 15 + 10 + 5))
    assert f1(table, 0) == pytest.approx(2 * 20 / (2 * 20 + 10 + 5))


def test_quadratic_kappa_and_spearman_by_hand() -> None:
    """Grades (1,1) (2,1) (3,3) (3,2): squared distances 0+1+0+1, and by chance, over all pairs,
    (1,1,3,2) against each of 1,2,3,3: (0+0+4+1)+(1+1+1+0)+(4+4+0+1)*2 = 26, a quarter is 6.5.
    Ranks are 1, 2, 3.5, 3.5 and 1.5, 1.5, 4, 3."""
    a, b = [1, 2, 3, 3], [1, 1, 3, 2]
    table = table_of([x - 1 for x in a], [x - 1 for x in b], 3)
    assert quadratic_kappa(table, [1, 2, 3]) == pytest.approx(1 - 2 / 6.5)
    da, db = np.array([-1.5, -0.5, 1, 1]), np.array([-1, -1, 1.5, 0.5])
    assert spearman(table) == pytest.approx((da @ db) / np.sqrt((da @ da) * (db @ db)), abs=1e-12)


def test_the_distance_of_grades_is_that_of_the_grades_not_of_their_ranks() -> None:
    """Nobody said 2, 3 or 4: 1 and 5 are four apart all the same."""
    table = np.array([[3.0, 1, 0], [0, 2, 1], [1, 0, 2]])
    near, far = quadratic_kappa(table, [1, 2, 3]), quadratic_kappa(table, [1, 2, 5])
    assert near != pytest.approx(far)


@pytest.mark.parametrize("seed", range(8))
def test_measures_equal_scikit_learn_and_scipy(seed: int) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 5, 40)
    b = np.clip(a + rng.integers(-1, 3, 40), 0, 4)
    table = table_of(a, b, 5)
    labels = range(5)
    assert cohen_kappa(table) == pytest.approx(metrics.cohen_kappa_score(a, b))
    assert quadratic_kappa(table, labels) == pytest.approx(
        metrics.cohen_kappa_score(a, b, labels=labels, weights="quadratic")
    )
    assert spearman(table) == pytest.approx(stats.spearmanr(a, b).statistic)
    yes, said = a > 2, b > 2
    table = table_of(yes.astype(int), said.astype(int), 2)
    assert f1(table, 1) == pytest.approx(metrics.f1_score(yes, said))


@pytest.mark.parametrize("kind", ["binary", "grade"])
def test_intervals_are_percentiles_of_the_measure_on_resampled_items(kind: Kind) -> None:
    """Every tenth draw of the bootstrap made anew, item by item."""
    rng = np.random.default_rng(5)
    a = rng.integers(0, 2 if kind == "binary" else 5, 30)
    b = np.where(rng.random(30) < 0.7, a, a[::-1])
    found = compare_raters(file_of(a.tolist()), file_of(b.tolist()), kind)
    items = sorted(map(str, range(30)))
    order = np.array([int(item) for item in items])
    values = []
    for draw in np.concatenate(list(Bootstrap(items).draws())):
        times = draw.astype(int)
        chosen = np.repeat(order, times)
        values.append(float(cohen_kappa(table_of(a[chosen], b[chosen], 5))))
    low, high = np.nanpercentile(values, [2.5, 97.5])
    kappa = found["measures"]["kappa"]
    assert (kappa["low"], kappa["high"]) == pytest.approx((low, high))
    assert kappa["low"] < kappa["value"] < kappa["high"]
    assert found == compare_raters(file_of(a.tolist()), file_of(b.tolist()), kind)


def test_clusters_are_drawn_whole() -> None:
    """Ten rows of five equal items each are ten things, not fifty: the interval is wider."""
    a = [i % 2 for i in range(10) for _ in range(5)]
    b = [1 if i < 7 else 0 for i in range(10) for _ in range(5)]
    rows = [str(i) for i in range(10) for _ in range(5)]
    single = compare_raters(file_of(a), file_of(b), "binary")["measures"]["kappa"]
    whole = compare_raters(file_of(a, rows), file_of(b), "binary")
    assert whole["clusters"] == 10
    clustered = whole["measures"]["kappa"]
    assert single["value"] == clustered["value"]
    assert clustered["high"] - clustered["low"] > 1.5 * (single["high"] - single["low"])


@pytest.mark.parametrize(
    ("kind", "a", "b", "undefined"),
    [
        ("binary", [1, 1, 1], [1, 1, 1], {"kappa"}),
        ("binary", [0, 0, 0], [0, 0, 0], {"kappa", "f1"}),
        ("grade", [3, 3, 3], [3, 3, 3], {"kappa", "quadratic_kappa", "spearman"}),
        ("grade", [3, 3, 3], [3, 4, 5], {"spearman"}),
        ("binary", [1], [0], set()),
    ],
)
def test_what_is_not_defined_is_null_with_the_reason(
    kind: Kind, a: list[int], b: list[int], undefined: set[str]
) -> None:
    found = compare_raters(file_of(a), file_of(b), kind)
    text = json.dumps(found, allow_nan=False)
    assert "NaN" not in text
    measures = found["measures"]
    assert {name for name, one in measures.items() if one["value"] is None} == undefined
    assert all(measures[name]["reason"] for name in undefined)
    assert all("nan" not in line.lower() for line in describe_agreement(found))


def test_a_measure_without_spread_has_no_interval_that_pretends_certainty() -> None:
    found = compare_raters(file_of([0, 1, 1]), file_of([0, 1, 1]), "binary")["measures"]
    assert (found["kappa"]["value"], found["kappa"]["low"]) == (1.0, None)
    assert found["agreement"]["method"] == "wilson"
    assert found["agreement"]["low"] < 0.5


def test_resamples_without_the_measure_are_counted() -> None:
    found = compare_raters(file_of([0, 1, 1, 1]), file_of([0, 1, 1, 0]), "binary")
    assert 0 < found["measures"]["kappa"]["undefined_resamples"] < 10_000


def test_unjudged_items_have_their_own_counts() -> None:
    a, b = file_of([1, None, 0, 1, None]), file_of([1, 1, None, 0, None, 1])
    found = compare_raters(a, b, "binary")
    assert (found["in_both"], found["n"], found["coverage"]) == (5, 2, 0.4)
    assert found["a"]["unjudged"] == {"rate limited": 2}
    assert (found["a"]["only_here"], found["b"]["only_here"]) == (0, 1)
    assert found["confusion"] == [[0, 0], [1, 1]]


def test_incorrect_and_not_correct_are_no_correct(tmp_path: Path) -> None:
    said = {"1": "CORRECT", "2": "INCORRECT", "3": "not correct"}
    rows = [{"item": item, "verdict": verdict} for item, verdict in said.items()]
    found = read_verdicts(write_lines(tmp_path / "a.jsonl", rows))
    assert found.labels == {"1": 1, "2": 0}
    assert found.unjudged == {"3": "not a verdict"}
    assert found.unreadable == [(3, '"not correct"')]


@pytest.mark.parametrize(
    ("value", "kind", "label"),
    [
        *[(value, "binary", 1) for value in (True, 1, 1.0, "yes", " Pass ", "true", "1")],
        *[(value, "binary", 0) for value in (False, 0, "no", "FAIL", "false", "0")],
        *[(value, "binary", None) for value in ("", "maybe", "yes and no", "passed", 0.5)],
        *[(value, "binary", None) for value in ([True], {"verdict": True})],
        *[(value, "grade", 4) for value in (4, 4.0, "4", " 4 ")],
        *[(value, "grade", None) for value in ("four", "4/5", 3.5, [4], "", "²")],
    ],
)
def test_a_verdict_is_parsed(tmp_path: Path, value: object, kind: Kind, label: int | None) -> None:
    path = write_lines(tmp_path / "a.jsonl", [{"item": 1, "verdict": value}])
    found = read_verdicts(path, kind=kind)
    assert found.labels.get("1") == label
    assert ("1" in found.unjudged) == (label is None)


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([{"item": "a", "verdict": 3}], {}, "--scale grade"),
        ([{"item": "a", "verdict": True}], {"kind": "grade"}, "--scale binary"),
        ([{"item": "a", "verdict": 1}, {"item": "a", "verdict": 1}], {}, "a.jsonl:2.*line 1"),
        ([{"verdict": 1}], {}, "a.jsonl:1.*`item`"),
        ([{"item": "a", "mark": 1}], {}, "no row has the field `verdict`"),
        ([{"item": "a", "verdict": 1}], {"cluster": "row"}, "a.jsonl:1.*`row`"),
        ([], {}, "empty"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, rows: Any, options: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_verdicts(write_lines(tmp_path / "a.jsonl", rows), **options)


def test_fields_may_be_paths_and_a_null_on_the_way_tells_its_cause(tmp_path: Path) -> None:
    rows = [
        {"item": "1", "model": "m", "result": {"verdict": {"reception": 4}}},
        {"item": "1", "model": "n", "result": {"verdict": None, "cause": "timeout"}},
        {"item": "2", "model": "m", "result": None, "error": "cut at the output limit"},
        {"item": "2", "model": "n", "result": {"verdict": {}}},
    ]
    path = write_lines(tmp_path / "a.jsonl", rows)
    found = read_verdicts(path, ["item", "model"], "result.verdict.reception", "grade")
    assert found.labels == {"1 m": 4}
    causes = {"1 n": "timeout", "2 m": "cut at the output limit", "2 n": "no verdict"}
    assert found.unjudged == causes


def test_nothing_in_common_and_far_too_many_grades_are_refused() -> None:
    with pytest.raises(UserError, match="no item is judged in both"):
        compare_raters(file_of([1, None]), file_of([None, 1]), "binary")
    many = file_of(range(40))
    with pytest.raises(UserError, match="40 different grades"):
        compare_raters(many, many, "grade")


def test_the_command_prints_json_and_ends_with_2_for_a_users_mistake(tmp_path: Path) -> None:
    a = write_lines(tmp_path / "a.jsonl", [{"item": i, "verdict": i % 2 == 0} for i in range(8)])
    b = write_lines(tmp_path / "b.jsonl", [{"item": i, "verdict": i % 4 == 0} for i in range(8)])
    done = python("-m", "judges.agreement", a, b, "--json", cwd=tmp_path)
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert (found["n"], found["positive"]) == (8, True)
    assert found["confusion"] == [[4, 0], [2, 2]]
    assert found["measures"]["kappa"]["value"] == pytest.approx(0.5)
    assert found["measures"]["f1"]["value"] == pytest.approx(2 / 3)
    one_line_error(run(app, a, b, "--field", "mark"))
    one_line_error(run(app, a, "nowhere.jsonl"), "nowhere.jsonl")
