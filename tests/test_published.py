"""The paper's two baselines on real data: split dev, released pools of 100, 410 queries."""

from pathlib import Path

import pytest

from recallbed.harness.configurations import parse_configurations
from task3.sweep_run import run_sweep
from tests.kit import sweep_config

RETRIEVERS = ["minilm", "paper=bm25", "oracle=rank-bm25", "default=bm25"]
SETTINGS = ["paper.variant=okapi", "paper.tokens=paper"]


@pytest.fixture(scope="module")
def recall(
    alpsbench: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[int, float]]:
    config = sweep_config(
        parse_configurations(RETRIEVERS, SETTINGS),
        data=alpsbench,
        pools="released",
        distractors=(100,),
        ks=(1, 3, 5, 10),
        out=tmp_path_factory.mktemp("published") / "run",
    )
    cells = run_sweep(config).summary["cells"]
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
