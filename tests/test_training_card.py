"""Cards of trained weights, recall on held-out sessions, and folders written whole."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from recallbed.corpus.material import gather
from recallbed.corpus.records import Memory
from recallbed.corpus.sessions import session_digest
from recallbed.errors import UserError
from retrievers.base import Retriever, RetrieverError
from retrievers.overlap import Overlap
from retrievers.trained import read_card, trained_sessions
from tests.kit import python
from training.card import BaseModel, Card, card_text, write_card
from training.examples import read_training_data
from training.measure import figures_table, held_out_figures, measure
from training.options import whole_folder


def a_card(sessions: Sequence[str] = ("s2", "s1")) -> Card:
    provenance = read_training_data().provenance
    base = [BaseModel("all-MiniLM-L6-v2", "0123456789abcdef", "Apache-2.0")]
    aliases = {"s1": ("ability1_7",)}
    how = {"rate": 0.03}
    return Card.of("adapted", "python -m x", 3, how, provenance, sessions, base, aliases=aliases)


def test_a_card_lists_digests_and_is_read_back(tmp_path: Path) -> None:
    write_card(tmp_path, a_card())
    found = read_card(tmp_path)
    assert found is not None
    assert found["sessions"] == sorted(map(session_digest, ("s1", "s2", "ability1_7")))
    assert found["number_of_sessions"] == 2
    assert trained_sessions([tmp_path]) == tuple(found["sessions"])
    text = (tmp_path / "README.md").read_text("utf-8")
    assert "Not measured" in text
    assert "2 sessions" in text
    assert "query" in text


def test_a_folder_without_a_card_was_trained_on_nothing(tmp_path: Path) -> None:
    assert read_card(tmp_path) is None
    assert trained_sessions([tmp_path]) == ()


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"sessions": [1]}', "\udcff"])
def test_a_damaged_card_is_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "training_card.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(UserError, match="is no training card"):
        read_card(tmp_path)


class Right(Retriever):
    """Scores the gold of its own queries first, and fails on a query without a known gold."""

    def __init__(self, golds: dict[str, str]) -> None:
        self.golds = golds

    def score(self, query: str, pool: Sequence[Memory]) -> list[float]:
        if query not in self.golds:
            raise RetrieverError("an unknown query")
        return [float(memory.text == self.golds[query]) for memory in pool]


def test_each_row_is_measured_with_the_model_of_its_fold() -> None:
    material = gather(sizes=(10, 20), seeds=(0, 1), limit=8)
    rows = material.pools.rows
    golds = [{row.query: row.gold_memory.text for row in rows[i::2]} for i in range(2)]
    models = [Right(golds[0]), Right(golds[1])]
    overlap = Overlap()
    found = measure(
        material, {"overlap": lambda i: overlap, "right": lambda i: models[i % 2]}, ks=(1, 5)
    )
    assert found.failed == 0
    assert {v.mean() for v in found.recalls["right"].values()} == {1.0}
    figures = held_out_figures(found, material, "overlap", folds=2)
    mean = figures["retrievers"]["overlap"]["R@1"]["20"]["mean"]
    assert mean == pytest.approx(found.recalls["overlap"][20, 1].mean(), abs=1e-6)
    gap = figures["retrievers"]["right"]["R@1"]["20"]["minus overlap"]
    assert gap["mean"] == pytest.approx(1 - mean, abs=1e-6)
    assert json.loads(json.dumps(figures)) == figures
    lines = figures_table(figures).lines()
    assert sum("1.0000" in line for line in lines) == 2
    card = a_card()
    text = card_text(Card(**{**card.__dict__, "figures": figures}))
    assert "| right | R@1 | 1.000 | 1.000 |" in text


def test_the_text_of_a_card_has_metrics_in_order_and_no_notation_of_python() -> None:
    by_size = {"10": {"mean": 0.5}}
    figures = {
        **{"folds": 2, "queries": 3, "strategy": "nested", "pool_seeds": [0], "distractors": [10]},
        "retrievers": {"a": dict.fromkeys(("R@1", "R@10", "R@20", "R@5"), by_size)},
    }
    encoders = [{"model": "small", "weight": 1.0}, {"model": "use", "weight": 0.6}]
    settings = {"encoders": encoders, "kinds": ["query"], "limit": None}
    text = card_text(replace(a_card(), figures=figures, settings=settings))
    assert re.findall(r"R@\d+", text) == ["R@1", "R@5", "R@10", "R@20"]
    assert "- encoders: small 1.0, use 0.6\n- kinds: query\n- limit: none\n" in text


def test_a_query_that_one_model_fails_on_is_left_out_for_all() -> None:
    material = gather(sizes=(10,), seeds=(0,), limit=4)
    rows = material.pools.rows
    some = Right({row.query: row.gold_memory.text for row in rows[1:]})
    overlap = Overlap()
    found = measure(material, {"some": lambda i: some, "overlap": lambda i: overlap}, ks=(1,))
    assert found.failed == 1
    assert found.queries == [row.benchmark_id for row in rows[1:]]
    nothing = Right({})
    with pytest.raises(UserError, match="no query could be scored"):
        measure(material, {"nothing": lambda i: nothing}, ks=(1,))


def test_measured_recall_is_that_of_a_sweep() -> None:
    """The union of a query's pools is scored once; a sweep ranks each pool."""
    material = gather(sizes=(10, 20), seeds=(0,), limit=6)
    found = measure(material, {"overlap": lambda i: Overlap()}, ks=(1,))
    for size in (10, 20):
        for i, value in enumerate(found.recalls["overlap"][size, 1]):
            pool = material.pools.pools[size, 0][i]
            query, texts = material.pools.rows[i].query, material.pools.texts(pool)
            [scored] = Overlap().results([query], [texts])
            scores = np.asarray(scored.scores)  # type: ignore[union-attr]
            above, tied = (scores > scores[pool.gold]).sum(), (scores == scores[pool.gold]).sum()
            assert value == pytest.approx(np.clip((1 - above) / tied, 0, 1))


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    out = tmp_path / "model"
    with pytest.raises(FileNotFoundError), whole_folder(out, False) as draft:
        (draft / "missing" / "x").write_text("1")
    assert list(tmp_path.iterdir()) == []
    with whole_folder(out, False) as draft:
        write_card(draft, a_card())
    with pytest.raises(UserError, match="already exists"), whole_folder(out, False):
        pass
    with whole_folder(out, True) as draft:
        write_card(draft, a_card(["s3"]))
    assert trained_sessions([out]) == (session_digest("s3"),)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_folder_that_holds_no_model_is_not_replaced(tmp_path: Path) -> None:
    out = tmp_path / "thesis"
    out.mkdir()
    (out / "chapter1.txt").write_text("years of work")
    with pytest.raises(UserError, match="holds no trained model"), whole_folder(out, True):
        pass
    assert (out / "chapter1.txt").read_text() == "years of work"


def test_a_card_is_equal_under_another_hash_seed() -> None:
    code = (
        "from tests.test_training_card import a_card; from training.card import card_text\n"
        "print(card_text(a_card()))"
    )
    one, other = (python("-c", code, PYTHONHASHSEED=seed).stdout for seed in ("1", "2"))
    assert one == other
