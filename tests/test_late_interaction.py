"""The retriever `maxsim`: the best match of every token."""

from pathlib import Path

import numpy as np
import pytest

from recallbed.corpus.records import Memory
from recallbed.errors import UserError
from retrievers.base import RunContext
from retrievers.late_interaction import MaxSim
from retrievers.testing import POOL, QUERIES, RetrieverContract
from tests.tiny_models import save_bert, save_static, words_of

WORDS = words_of([*QUERIES, *(memory.text for memory in POOL)])

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_bert(tmp_path_factory.mktemp("models") / "tokens", WORDS, kind="BertModel")


def maxsim(model: Path, **settings: object) -> MaxSim:
    return MaxSim(str(model), device="cpu", **settings)  # type: ignore[arg-type]


class TestMaxSim(RetrieverContract):
    @pytest.fixture(autouse=True)
    def _folder(self, model: Path) -> None:
        self.folder = model

    def make(self) -> MaxSim:
        return maxsim(self.folder, batch_size=2)


def test_each_direction_is_a_mean_of_best_cosines(model: Path) -> None:
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    network = AutoModel.from_pretrained(model).eval()

    def tokens(text: str) -> np.ndarray:  # type: ignore[type-arg]
        with torch.no_grad():
            hidden = network(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        kept = hidden[1:-1].numpy()  # without [CLS] and [SEP]
        return kept / np.linalg.norm(kept, axis=1, keepdims=True)

    query, memory = "green tea over coffee", "Has an office with a broken kettle"
    cosines = tokens(query) @ tokens(memory).T
    of_query, of_memory = cosines.max(axis=1).mean(), cosines.max(axis=0).mean()
    for direction, expected in (
        ("query", of_query),
        ("memory", of_memory),
        ("both", of_query + of_memory),
    ):
        [found] = maxsim(model, direction=direction).score(query, [Memory(memory)])
        assert found == pytest.approx(expected, abs=1e-5)


def test_texts_that_are_equal_after_truncation_tie(model: Path) -> None:
    retriever = maxsim(model, max_tokens=8, batch_size=1)
    pool = [Memory("tea tea tea tea tea tea tea cat"), Memory("tea " * 20), Memory("Biscuit")]
    first, second, other = retriever.score("tea", pool)
    assert first == second != other
    assert retriever.settings()["max_tokens"] == 8


def test_an_empty_text_scores_zero_and_a_text_of_unknown_words_does_not(model: Path) -> None:
    empty, unknown = maxsim(model).score("tea", [Memory(""), Memory("zzz")])
    assert empty == 0
    assert unknown != 0


def test_vectors_beyond_the_bound_of_memory_are_in_a_file_and_score_the_same(model: Path) -> None:
    bounded = MaxSim.from_run(
        {"model": str(model), "device": "cpu"}, RunContext(max_memory=2 * 32 * 4)
    )
    pool = list(POOL)
    assert (bounded.score(QUERIES[0], pool) == maxsim(model).score(QUERIES[0], pool)).all()
    assert bounded._table.on_disk


def test_a_model_without_token_vectors_is_refused(tmp_path: Path) -> None:
    static = save_static(tmp_path / "static", {"tea": (1.0, 0.0)})
    with pytest.raises(UserError, match="no vectors of tokens"):
        maxsim(static).score("tea", [Memory("tea")])
