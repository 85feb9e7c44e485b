"""The retriever `learned`: its files, its sum of legs, and the order of its candidates."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recallbed.corpus.records import Memory
from recallbed.errors import UserError
from recallbed.harness.configurations import Configuration, parse_configurations
from retrievers.base import Retriever, RunContext, Scored
from retrievers.candidate_order import BoostedOrder, CandidateOrder, LinearOrder
from retrievers.features import PoolScores, candidate_features, feature_names
from retrievers.hybrid import Hybrid, as_leg
from retrievers.learned import Learned
from retrievers.learned_model import LearnedModel, read_learned, write_learned
from retrievers.registry import build_retriever
from retrievers.testing import POOL, QUERIES, RetrieverContract

LEGS = (
    Configuration("bm25", "bm25", {}),
    Configuration("words", "overlap", {}),
)
FEATURES = tuple(feature_names(["bm25", "words"]))
QUERY = QUERIES[0]


def linear(**coefficients: float) -> LinearOrder:
    """A linear order of FEATURES with some coefficients, 0 for the others."""
    values = [coefficients.get(name.replace(":", "_"), 0.0) for name in FEATURES]
    size = len(FEATURES)
    return LinearOrder(np.zeros(size), np.ones(size), np.array(values))


def saved(folder: Path, order: CandidateOrder | None, **more: Any) -> Path:
    folder.mkdir()
    features = () if order is None else FEATURES
    write_learned(folder, LearnedModel(LEGS, (0.7, 0.3), features=features, order=order, **more))
    return folder


def scores(retriever: Retriever, query: str, pool: Sequence[Memory]) -> Any:
    [result] = retriever.results([query], [pool])
    assert isinstance(result, Scored), result
    return np.asarray(result.scores)


class TestLearned(RetrieverContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = saved(tmp_path / "model", linear(z_bm25=1, overlap=2, length=-0.1), depth=4)

    def make(self) -> Learned:
        return Learned(str(self.folder))


def test_without_an_order_it_is_the_weighted_sum(tmp_path: Path) -> None:
    learned = Learned(str(saved(tmp_path / "model", None)))
    legs = dict(zip(("bm25", "words"), learned.first_stage.legs, strict=True))
    sum_of_legs = Hybrid.of(legs, weights="0.7,0.3")
    assert scores(learned, QUERY, POOL).tolist() == scores(sum_of_legs, QUERY, POOL).tolist()


def test_the_best_candidates_are_ordered_and_the_rest_keep_the_order_of_the_sum(
    tmp_path: Path,
) -> None:
    pool = [Memory("tea " * n + "kettle " * (n % 2)) for n in range(1, 9)]
    plain = scores(Learned(str(saved(tmp_path / "sum", None))), "tea kettle", pool)
    longest = Learned(str(saved(tmp_path / "long", linear(length=1.0), depth=3)))
    found = scores(longest, "tea kettle", pool)
    by_sum, by_order = (np.argsort(-one, kind="stable").tolist() for one in (plain, found))
    best = sorted(by_sum[:3], key=lambda i: -len(pool[i].text))
    assert by_order == [*best, *by_sum[3:]]
    assert best != by_sum[:3]


def test_a_folder_read_again_gives_the_same_scores_and_files(tmp_path: Path) -> None:
    first = saved(tmp_path / "one", linear(z_words=1.5, rarity=0.3))
    (tmp_path / "two").mkdir()
    write_learned(tmp_path / "two", read_learned(first))
    for name in ("learned.json", "weights.safetensors"):
        assert (first / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_trees_walk_as_their_arrays_say() -> None:
    # length <= 2 gives -1, else overlap <= 0.5 gives 0.25, else 4; and a tree of one leaf.
    order = BoostedOrder(
        roots=np.array([0, 5]),
        feature=np.array([1, -1, 0, -1, -1, -1]),
        threshold=np.array([2.0, 0, 0.5, 0, 0, 0]),
        left=np.array([1, 0, 3, 0, 0, 0]),
        right=np.array([2, 0, 4, 0, 0, 0]),
        leaf=np.array([0, -1.0, 0, 0.25, 4.0, 0.5]),
    )
    rows = np.array([[9.0, 2.0], [0.5, 3.0], [0.6, 3.0]])
    assert order.values(rows).tolist() == [-0.5, 0.75, 4.5]
    again = BoostedOrder.of_arrays(order.arrays(), features=2)
    assert again.values(rows).tolist() == [-0.5, 0.75, 4.5]
    with pytest.raises(ValueError, match="another number of features"):
        BoostedOrder.of_arrays(order.arrays(), features=1)
    circle = {**order.arrays(), "left": np.array([0, 0, 3, 0, 0, 0])}
    with pytest.raises(ValueError, match="nodes that are not there"):
        BoostedOrder.of_arrays(circle, features=2)


def features_of(query: str, pool: Sequence[Memory], legs: Sequence[Sequence[float]]) -> Any:
    labels = [f"leg{i}" for i in range(len(legs))]
    names = feature_names(labels)
    given = PoolScores([as_leg(one) for one in legs], [1.0] * len(legs))
    found = candidate_features(query, pool, range(len(pool)), given, labels, names)
    return {name: found[:, i].tolist() for i, name in enumerate(names)}


def test_features_have_the_values_of_their_definition() -> None:
    pool = [Memory("green tea", "Preferences/tea"), Memory("black tea"), Memory("ein alter Hund")]
    found = features_of("green tea please", pool, [[3.0, 1.0, 2.0]])
    deviation = math.sqrt(2 / 3)
    assert found["z:leg0"] == pytest.approx([1 / deviation, -1 / deviation, 0])
    assert found["gap:leg0"] == pytest.approx([0, -2 / deviation, -1 / deviation])
    assert found["next:leg0"] == pytest.approx([1 / deviation, 0, 1 / deviation])
    assert found["rank:leg0"] == pytest.approx(np.log([2, 4, 3]))
    once, twice, never = (math.log1p((3 - n + 0.5) / (n + 0.5)) for n in (1, 2, 0))
    asked = once + twice + never
    assert found["overlap"] == pytest.approx([(once + twice) / asked, twice / asked, 0])
    assert found["covered"] == pytest.approx([1, twice / (once + twice), 0])
    assert found["rarity"][:2] == pytest.approx([(once + twice) / 2] * 2)
    assert found["length"] == pytest.approx(np.log1p([9, 9, 14]))
    assert found["label"] == [0.5, 0, 0]
    assert found["spread"] == pytest.approx([(1 + 1 / 3) / 3, (1 + 1 / 3) / 3, 1 / 3])


def test_features_do_not_depend_on_the_order_of_the_pool() -> None:
    legs = [[0.1 * i * i for i in range(len(POOL))], [0.3] * len(POOL)]
    order = [4, 2, 6, 0, 1, 3, 5]
    straight = features_of(QUERY, POOL, legs)
    turned = features_of(QUERY, [POOL[i] for i in order], [[one[i] for i in order] for one in legs])
    for name, values in straight.items():
        assert [values[i] for i in order] == turned[name], name
        assert np.isfinite(values).all()


def test_a_memory_twice_with_two_labels_ties_whatever_the_order(tmp_path: Path) -> None:
    learned = Learned(str(saved(tmp_path / "model", linear(label=1.0, z_bm25=0.1))))
    pool = [Memory("tea", "tea"), Memory("tea", "a pet"), Memory("kettle"), Memory("cat")]
    found = scores(learned, "tea kettle", pool)
    assert found[0] == found[1]
    assert scores(learned, "tea kettle", pool[::-1]).tolist() == found[::-1].tolist()


def test_a_run_builds_the_legs_and_records_them(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", linear(overlap=1.0))
    [configuration] = parse_configurations(["best=learned"], [f"best.model={folder}"])
    retriever = build_retriever(configuration, RunContext(seed=5))
    settings = json.loads(json.dumps(retriever.settings()))
    assert settings["model"] == "model"
    assert settings["order"] == "linear"
    assert [leg["label"] for leg in settings["sum"]["settings"]["legs"]] == ["bm25", "words"]
    assert list(retriever.depends_on()) == [folder]
    assert "nltk" in retriever.libraries


def test_a_setting_may_name_a_folder_inside_the_model(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", None)
    file = folder / "learned.json"
    described = json.loads(file.read_text("utf-8"))
    described["legs"][0]["settings"] = {"model": "./legs/one"}
    file.write_text(json.dumps(described), "utf-8")
    assert read_learned(folder).legs[0].settings["model"] == str(folder / "legs" / "one")
    described["legs"][0]["settings"] = {"model": "./../other"}
    file.write_text(json.dumps(described), "utf-8")
    with pytest.raises(UserError, match="is not inside the folder"):
        read_learned(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "not a learned model of format 1"),
        ({"legs": []}, "no legs"),
        ({"features": ["z:other"]}, "no feature 'z:other'"),
        ({"features": ["overlap"]}, "another number of features"),
        ({"order": "magic"}, "no order 'magic'"),
        ({"depth": "20"}, "depth '20'"),
        (
            {"legs": [{"label": "x", "retriever": "os:system", "settings": {}}]},
            "legs are registered",
        ),
    ],
)
def test_a_damaged_model_is_one_line(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    folder = saved(tmp_path / "model", linear(overlap=1.0))
    file = folder / "learned.json"
    file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), **change}), "utf-8")
    with pytest.raises(UserError, match=message):
        read_learned(folder)


def test_missing_or_damaged_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere: no such model \(mpnet\) and no such folder"):
        Learned(str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match=r"learned\.json: cannot be read"):
        Learned(str(tmp_path))
    folder = saved(tmp_path / "model", None)
    (folder / "weights.safetensors").write_bytes(b"version https://git-lfs")
    with pytest.raises(UserError, match=r"weights\.safetensors: cannot be read"):
        Learned(str(folder))
