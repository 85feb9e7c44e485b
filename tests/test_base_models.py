"""Which models of others a trained retriever stands on."""

from pathlib import Path

import pytest

from retrievers.adapted import SMALLER_MODEL, Adapted
from retrievers.bm25 import BM25
from retrievers.dense import MiniLM
from retrievers.hybrid import Hybrid
from retrievers.trained import read_card
from training.base_models import base_models


def test_a_retriever_without_weights_stands_on_none() -> None:
    assert base_models(BM25()) == []


@pytest.mark.slow
def test_a_fusion_stands_on_the_models_of_its_legs_and_of_their_cards() -> None:
    minilm, adapted = MiniLM(device="cpu"), Adapted(SMALLER_MODEL, device="cpu")
    card = read_card(Path(adapted.folder))
    assert card is not None
    [of_minilm] = base_models(minilm)
    assert (of_minilm.name, of_minilm.license) == ("all-MiniLM-L6-v2", "Apache-2.0")
    found = base_models(Hybrid.of({"minilm": minilm, "adapted": adapted, "bm25": BM25()}))
    assert [(one.name, one.weights) for one in found] == [
        (one["name"], one["weights"]) for one in card["base"]
    ]
