"""What a finished run says of itself: cells, intervals, ceilings, the table and its remarks."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.metrics import recall_at, reciprocal_rank
from analysis.rows import SweepRow
from analysis.statistics import Bootstrap
from analysis.summary import SweepSummary
from analysis.summary import summarise as summarise_rows
from analysis.tables import build_table, remarks
from recallbed.corpus import Memory
from retrievers import Retriever, RetrieverError, Scored, Usage
from tests import kit
from tests.kit import WriteRelease


class FailsOnEven(Retriever):
    """A retriever that cannot score every second query."""

    def score(self, query: str, pool: Sequence[Memory]) -> Scored:
        if int(query.rpartition(" ")[2]) % 2 == 0:
            raise RetrieverError("even number")
        return Scored([0.0] * len(pool), usage=Usage(1, 10, 2), repairs={"cut": 1})


class FailsAlways(Retriever):
    """A retriever whose service is down."""

    def score(self, query: str, pool: Sequence[Memory]) -> Scored:
        raise RetrieverError("service down")


def manifest(**facts: Any) -> dict[str, Any]:
    return {
        "fingerprint": {
            "data": {"sample": False, "split": "dev", "sha256": "0", "queries": 4},
            "pools": {"strategy": "nested", "seeds": [0], "distractors": [9]},
            "retrievers": [{"label": "x"}],
            "seed": 0,
        },
        "sessions": {},
        "duplicate_queries": {},
        "notes": {},
        "repaired": {},
        "pools_with_repeated_ids": 0,
        **facts,
    }


def row(query: str, above: int | None, tied: int | None = 1, **other: Any) -> dict[str, Any]:
    error = "broken" if above is None else None
    of = {"query": query, "retriever": "x", "distractors": 9, "pool": "p", "gold": 0}
    ranks = {"above": above, "tied": None if above is None else tied, "top": []}
    used = {"calls": 0, "tokens_in": 0, "tokens_out": 0, "repairs": {}}
    return {**of, **ranks, **used, "error": error, **other}


def summarise(
    facts: dict[str, Any], rows: Sequence[dict[str, Any]], ks: Sequence[int]
) -> SweepSummary:
    return summarise_rows(facts, [SweepRow.from_json(row) for row in rows], ks)


def only_cell(summary: SweepSummary) -> dict[str, Any]:
    [cell] = summary.to_json()["cells"]
    return dict(cell)


def shown(summary: SweepSummary) -> str:
    return "\n".join(build_table(summary, {"x": (1.5, 0.25)}).lines())


def numbered(write_release: WriteRelease, queries: int) -> Path:
    texts = [[f"memory {i} of kind {j}" for j in range(5)] for i in range(queries)]
    return write_release([(f"query {i}", texts[i], i % 5) for i in range(queries)])


@pytest.fixture
def swept(write_release: WriteRelease, tmp_path: Path) -> Callable[..., Any]:
    """The cells of a sweep over `queries` queries with pools of five."""

    def sweep(*retrievers: str, queries: int = 5, out: str = "run", **options: Any) -> Any:
        labels = [f"x{i}={name}" for i, name in enumerate(retrievers)]
        given = {"out": tmp_path / out, "distractors": (4,), "ks": (1,), **options}
        return kit.swept(labels, numbered(write_release, queries), **given).summary["cells"]

    return sweep


def test_figures_are_means_over_the_rows() -> None:
    ties = [(0, 1), (1, 4), (3, 1), (0, 2)]
    rows = [row(f"q{i}", *t) for i, t in enumerate(ties)]
    cell = only_cell(summarise(manifest(), rows, (1, 5, 10)))
    for k in (1, 5):
        figures = cell["recall"][str(k)]
        assert figures["mean"] == pytest.approx(np.mean([recall_at(k, *t) for t in ties]), abs=1e-6)
    assert cell["recall"]["1"]["worst"] == 0.25
    assert cell["recall"]["1"]["best"] == 0.5
    assert cell["recall"]["1"]["chance"] == 0.1
    figures = cell["reciprocal_rank"]
    assert figures["mean"] == pytest.approx(np.mean([reciprocal_rank(*t) for t in ties]), abs=1e-6)
    assert figures["chance"] == pytest.approx(sum(1 / r for r in range(1, 11)) / 10, abs=1e-6)
    assert cell["tie_rate"] == 0.5
    assert cell["all_tied"] == 0


def test_failed_rows_are_counted_by_cause_and_enter_no_mean() -> None:
    rows = [row("q0", 0), row("q1", None), row("q2", 9), row("q3", None, error="timeout")]
    cell = only_cell(summarise(manifest(), rows, (1,)))
    assert (cell["attempted"], cell["scored"], cell["failed"]) == (4, 2, 2)
    assert cell["failures"] == {"broken": 1, "timeout": 1}
    assert cell["recall"]["1"]["mean"] == 0.5  # not 0.25, not 0.75


def test_a_cell_of_failures_only_has_no_score_at_all() -> None:
    cell = only_cell(summarise(manifest(), [row("q0", None), row("q1", None)], (1,)))
    assert "recall" not in cell
    assert "reciprocal_rank" not in cell
    assert (cell["attempted"], cell["scored"], cell["failed"]) == (2, 0, 2)


def test_the_interval_is_bootstrapped_over_sessions_with_the_runs_seed() -> None:
    sessions = {f"q{i}": f"s{i // 4}" for i in range(12)}
    above = [0, 0, 0, 0, 0, 0, 5, 5, 5, 5, 5, 5]
    facts = manifest(sessions=sessions)
    facts["fingerprint"]["seed"] = 11
    cell = only_cell(summarise(facts, [row(f"q{i}", a) for i, a in enumerate(above)], (1,)))
    values = np.array([float(a == 0) for a in above])
    expected = Bootstrap([sessions[f"q{i}"] for i in range(12)], 11).interval(values)
    got = cell["recall"]["1"]
    assert (got["low"], got["high"]) == pytest.approx((expected.low, expected.high), abs=1e-6)
    assert got["interval"] == "bootstrap"


def test_equal_values_are_given_wilsons_interval() -> None:
    figures = only_cell(summarise(manifest(), [row(f"q{i}", 0) for i in range(8)], (1,)))["recall"]
    assert figures["1"]["interval"] == "wilson"
    assert figures["1"]["low"] == pytest.approx(0.675592, abs=1e-5)  # 8 of 8
    assert figures["1"]["high"] == 1.0


def test_usage_and_repairs_are_added_up() -> None:
    rows = [
        row("q0", 0, calls=2, tokens_in=100, tokens_out=7, repairs={"cut": 1}),
        row("q1", 0, calls=1, tokens_in=50, tokens_out=3, repairs={"cut": 2, "fenced": 1}),
    ]
    cell = only_cell(summarise(manifest(), rows, (1,)))
    assert (cell["calls"], cell["tokens_in"], cell["tokens_out"]) == (3, 150, 10)
    assert cell["repairs"] == {"cut": 3, "fenced": 1}


def test_a_summary_can_be_made_again_for_other_ks() -> None:
    rows = [row("q0", 2), row("q1", 6)]
    assert list(only_cell(summarise(manifest(), rows, (3, 7)))["recall"]) == ["3", "7"]


def test_failures_of_a_real_sweep(swept: Callable[..., Any]) -> None:
    [cell] = swept(f"{__name__}:FailsOnEven")
    assert (cell["attempted"], cell["scored"], cell["failed"]) == (5, 2, 3)
    assert cell["failures"] == {"even number": 3}
    assert cell["recall"]["1"]["mean"] == 0.2
    assert (cell["calls"], cell["tokens_in"], cell["repairs"]) == (2, 20, {"cut": 2})


def test_a_failed_retriever_leaves_the_others(swept: Callable[..., Any]) -> None:
    broken, fine = swept(f"{__name__}:FailsAlways", "constant")
    assert "recall" not in broken
    assert fine["recall"]["1"]["mean"] == 0.2


def test_pool_seeds_are_averaged(swept: Callable[..., Any]) -> None:
    options = {"queries": 8, "distractors": (20,), "ks": (5,)}
    single = [
        swept("random", out=f"seed{seed}", pool_seeds=(seed,), **options)[0]["recall"]["5"]["mean"]
        for seed in (0, 1, 2)
    ]
    assert len(set(single)) > 1, "the pools of several seeds must differ"
    [together] = swept("random", pool_seeds=(0, 1, 2), **options)
    assert together["attempted"] == 24
    assert together["recall"]["5"]["mean"] == pytest.approx(np.mean(single), abs=1e-6)


def test_the_seeds_of_a_query_are_one_cluster(swept: Callable[..., Any]) -> None:
    # Three pools of one query are not three independent queries.
    [several] = swept("constant", queries=8, pool_seeds=(0, 1, 2))
    [one] = swept("constant", queries=8, out="one")
    for end in ("low", "high"):
        assert several["recall"]["1"][end] == one["recall"]["1"][end]


def test_the_table_shows_every_promised_column() -> None:
    rows = [row("q0", 0), row("q1", 2, 2), row("q2", None)]
    text = shown(summarise(manifest(), rows, (1, 5)))
    head = next(line for line in text.splitlines() if "retriever" in line)
    for column in ("R@1 [95 %]", "R@5", "E[RR]", "tied", "chance", "attempted", "scored", "failed"):
        assert column in head
    line = next(line for line in text.splitlines() if line.strip().startswith("x "))
    assert "0.500 [0.000, 1.000]" in line
    assert "0.1000" in line  # chance at k = 1
    assert "50.0%" in line  # tie rate
    assert line.split()[-7:] == ["3", "2", "1", "1.5", "+", "0.2", "s"]


def test_a_cell_without_scores_is_shown_as_dashes() -> None:
    text = shown(summarise(manifest(), [row("q0", None)], (1, 5)))
    line = next(line for line in text.splitlines() if line.strip().startswith("x "))
    assert line.split()[2:-4] == ["-", "-", "-", "-", "-", "-", "1", "0", "1"]


def test_the_sample_is_called_a_sample() -> None:
    facts = manifest()
    assert "sample" not in shown(summarise(facts, [row("q0", 0)], (1,)))
    facts["fingerprint"]["data"]["sample"] = True
    assert "sample, not AlpsBench" in shown(summarise(facts, [row("q0", 0)], (1,)))


def test_remarks_name_what_a_reader_must_know() -> None:
    facts = manifest(
        repaired={"byte order mark": 1},
        notes={"x": {"truncated_queries": 1, "of_queries": 4, "truncated_memories": 0}},
        duplicate_queries={"9/0": {"q0": 2}},
    )
    rows = [row("q0", 0, 10), row("q1", None, error="timeout"), row("q2", 0)]
    text = "\n".join(remarks(summarise(facts, rows, (1,))))
    for expected in (
        "x at 9: 1 failed: timeout",
        "x at 9: pools in which all memories have one score: 1 of 2",
        "R@1 cannot exceed 0.750",
        "truncated queries: 1 of 4",
        "byte order mark x 1",
    ):
        assert expected in text
    assert "truncated memories" not in text


def test_nothing_matches_is_not_said_of_a_pool_of_one_memory() -> None:
    facts = manifest(pool_sizes={"9/0": {"q0": 1, "q1": 1}})
    summary = summarise(facts, [row("q0", 0, 1), row("q1", 0, 1), row("q2", 0, 10)], (1,))
    assert only_cell(summary)["all_tied"] == 1  # q2, of which all ten memories tie
    assert "one score: 1 of 3" in "\n".join(remarks(summary))


def test_a_remark_that_holds_for_many_cells_appears_once() -> None:
    rows = [
        row(f"q{i}", None if i == 0 else 0, error="timeout" if i == 0 else None, **cell)
        for cell in (
            {"retriever": label, "distractors": size} for label in "xy" for size in (9, 19)
        )
        for i in range(3)
    ]
    facts = manifest(duplicate_queries={f"{size}/0": {"q1": 2} for size in (9, 19)})
    assert remarks(summarise(facts, rows, (1,))) == [
        "at all sizes: 1 failed: timeout",
        "at all sizes: R@1 cannot exceed 0.750: queries with the same text have different golds",
    ]
    rows[0].update(error=None, above=0, tied=1)
    rows[3].update(error=None, above=0, tied=1)
    facts["duplicate_queries"] = {}
    assert remarks(summarise(facts, rows, (1,))) == ["y at 9, 19: 1 failed: timeout"]
    rows[4].update(error="timeout", above=None, tied=None)
    rows[7].update(error="timeout", above=None, tied=None)
    assert remarks(summarise(facts, rows, (1,))) == ["1 (at 19), 2 (y at 9) failed: timeout"]


def test_a_clean_run_needs_no_remark() -> None:
    assert remarks(summarise(manifest(), [row("q0", 0)], (1,))) == []


def test_summaries_are_json_without_nan() -> None:
    for rows in ([row("q0", None)], [row("q0", 0)], [row("q0", 0, 10), row("q1", None)]):
        json.dumps(summarise(manifest(), rows, (1, 50)).to_json(), allow_nan=False)
