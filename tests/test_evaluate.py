"""Retrievers as instances, and sweeps from Python: `from task3 import evaluate`."""

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from recallbed.corpus.records import Memory
from recallbed.errors import UserError
from recallbed.harness.configurations import parse_configurations
from retrievers.base import Retriever, RunContext
from retrievers.bm25 import BM25
from retrievers.chance import Random
from retrievers.dense import MiniLM
from retrievers.hybrid import Hybrid
from retrievers.overlap import Overlap
from retrievers.registry import GivenInstance, build_retrievers, describe_retriever

SAME = {
    "bm25 with a setting": (BM25(k1=0.9), "bm25", ["k1=0.9"]),
    "a whole number for a float": (BM25(k1=1), "bm25", ["k1=1"]),
    "positional": (BM25("okapi"), "bm25", ["variant=okapi"]),
    "minilm": (MiniLM(batch_size=8), "minilm", ["batch_size=8"]),
    "legs": (Hybrid("bm25,overlap", rrf_k=20), "hybrid", ["legs=bm25,overlap", "rrf_k=20"]),
    "seed of the run": (Random(), "random", []),
    "seed of its own": (Random(3), "random", ["seed=3"]),
    "without settings": (Overlap(), "overlap", []),
}


@dataclass
class Longest(Retriever):
    weight: float = 2.0

    def score(self, query: str, pool: Sequence[Memory]) -> list[float]:
        return [len(memory.text) * self.weight for memory in pool]


def described(configuration: Any) -> Mapping[str, Any]:
    built = build_retrievers([configuration], RunContext(seed=7))
    return describe_retriever(configuration, built[configuration.label])


@pytest.mark.parametrize("name", SAME)
def test_an_instance_has_the_fingerprint_of_its_settings(name: str) -> None:
    instance, registered, settings = SAME[name]
    words = [f"mine.{setting}" for setting in settings]
    [typed] = parse_configurations([f"mine={registered}"], words)
    assert repr(described(GivenInstance.of("mine", instance))) == repr(described(typed))


def test_a_dataclass_is_used_as_it_is_and_described_by_its_fields() -> None:
    mine = Longest(3.0)
    given = GivenInstance.of("mine", mine)
    assert build_retrievers([given], RunContext()) == {"mine": mine}
    assert described(given)["settings"] == {"weight": 3.0}
    assert described(given)["name"] == f"{__name__}:Longest"


def test_a_hybrid_of_instances_is_used_as_it_is() -> None:
    made = Hybrid.of({"a": BM25(k1=3), "b": Overlap()})
    assert build_retrievers([GivenInstance.of("mine", made)], RunContext())["mine"] is made


def test_a_wrong_value_is_named() -> None:
    given = GivenInstance.of("mine", BM25(stem="perhaps"))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="mine, stem='perhaps': Input should be a valid boolean"):
        build_retrievers([given], RunContext())


def test_an_unknown_setting_is_refused_by_the_constructor() -> None:
    with pytest.raises(TypeError, match="foo"):
        BM25(foo=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Overlap(foo=1)  # type: ignore[call-arg]


def test_an_instance_survives_pickling() -> None:
    copy = pickle.loads(pickle.dumps(BM25(k1=2)))
    assert described(GivenInstance.of("mine", copy))["settings"]["k1"] == 2.0
