"""The paper's two baselines on real data: split dev, released pools of 100, 410 queries."""

import os
from pathlib import Path

import pytest

from recallbed.harness.configurations import parse_configurations
from task3.predict import app as predict
from task3.score import score_choices
from task3.sweep_run import Outcome, run_sweep
from tests.kit import read_lines, rows_of, run, sweep_config, write_lines
from tests.test_predict import KEYS

RETRIEVERS = ["minilm", "paper=bm25", "oracle=rank-bm25", "default=bm25"]
SETTINGS = ["paper.variant=okapi", "paper.tokens=paper"]


@pytest.fixture(scope="module")
def outcome(alpsbench: Path, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The one run over all of dev; its embeddings stay in the tests' store."""
    config = sweep_config(
        parse_configurations(RETRIEVERS, SETTINGS),
        data=alpsbench,
        pools="released",
        distractors=(100,),
        ks=(1, 3, 5, 10),
        out=tmp_path_factory.mktemp("published") / "run",
        store=os.environ["RECALLBED_STORE"],
    )
    return run_sweep(config)


@pytest.fixture(scope="module")
def recall(outcome: Outcome) -> dict[str, dict[int, float]]:
    cells = outcome.summary["cells"]
    assert all(cell["scored"] == 410 for cell in cells)
    return {
        cell["retriever"]: {int(k): figures["mean"] for k, figures in cell["recall"].items()}
        for cell in cells
    }


def test_minilm(recall: dict[str, dict[int, float]]) -> None:
    expected = {1: 0.6195, 3: 0.7634, 5: 0.8146, 10: 0.8829}
    assert recall["minilm"] == pytest.approx(expected, abs=0.003)


def test_bm25_as_in_the_paper(recall: dict[str, dict[int, float]]) -> None:
    found = {k: recall["paper"][k] for k in (1, 5, 10)}
    assert found == pytest.approx({1: 0.291, 5: 0.490, 10: 0.580}, abs=0.005)


def test_our_okapi_is_the_packages_okapi(recall: dict[str, dict[int, float]]) -> None:
    assert recall["paper"] == pytest.approx(recall["oracle"], abs=1e-6)


def test_default_tokens_lose_nothing_overall(recall: dict[str, dict[int, float]]) -> None:
    for k in (1, 5, 10):
        assert recall["default"][k] >= recall["paper"][k] - 0.005


@pytest.mark.parametrize("name", ["default=bm25", "minilm"])
def test_accuracy_of_predictions_is_the_recall_where_the_gold_is_not_tied(
    alpsbench: Path,
    outcome: Outcome,
    recall: dict[str, dict[int, float]],
    tmp_path: Path,
    name: str,
) -> None:
    out, label = tmp_path / "p.jsonl", name.partition("=")[0]
    words = ("--data", alpsbench, "--retriever", name, "--size", 100, "--out", out)
    run(predict, *words, code=0)
    predicted = read_lines(out)
    assert [list(row) for row in predicted] == [KEYS] * 410
    mine = [row for row in rows_of(outcome.path) if row["retriever"] == label]
    clear = {row["query"]: row["above"] == 0 for row in mine if row["tied"] == 1}
    assert len(clear) > 200
    answers = [row for row in predicted if row["benchmark_id"] in clear]
    scores = score_choices(
        write_lines(tmp_path / "c.jsonl", answers), alpsbench, "dev", 100
    ).to_json()["all"]
    assert scores["answered"] == len(clear)
    assert scores["causes"]["correct"]["count"] == sum(clear.values())
    share = sum(clear.values()) / len(clear)
    assert scores["accuracy_over_answered"]["mean"] == pytest.approx(share, abs=1e-6)
    # With ties, each choice is one draw from the expectation that recall@1 is.
    whole = score_choices(out, alpsbench, "dev", 100).to_json()["all"]["accuracy_over_answered"][
        "mean"
    ]
    assert whole == pytest.approx(recall[label][1], abs=0.02)
