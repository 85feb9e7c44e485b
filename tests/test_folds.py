"""The retriever `folds`: each query goes to the model that did not see it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recallbed.corpus.records import Memory
from recallbed.corpus.sessions import query_digest, session_digest
from recallbed.harness.configurations import Configuration
from retrievers import Retriever, RetrieverError, RunContext, build_retriever, register
from retrievers.folds import Folds
from retrievers.overlap import Overlap
from retrievers.testing import POOL, QUERIES, RetrieverContract
from task3 import sweep
from tests.kit import WriteRelease, one_line_error, read_json, rows_of, run


@register("of-folder")
class OfFolder(Overlap):
    """`overlap` times a factor; a folder holds the factor and the sessions behind it."""

    def __init__(self, model: str, sign: int = 1) -> None:
        super().__init__()
        found = json.loads(Path(model, "model.json").read_text("utf-8"))
        self.factor = found["factor"] * sign
        self.trained_on = tuple(map(session_digest, found["sessions"]))

    def score(self, query: str, pool: Any) -> Any:
        return np.asarray(super().score(query, pool)) * self.factor


def write_cross_validation(folder: Path, queries: list[str], **changed: Any) -> Path:
    """Two models, 2 and 3 times overlap; query i, of session q<i>, is in fold i % 2."""
    folder.mkdir(exist_ok=True)
    for fold in (0, 1):
        sessions = [f"q{i}" for i in range(len(queries)) if i % 2 != fold]
        (folder / f"fold-{fold}").mkdir(exist_ok=True)
        model = json.dumps({"factor": fold + 2, "sessions": sessions})
        (folder / f"fold-{fold}" / "model.json").write_text(model)
    content = {
        "format": 1,
        "retriever": "of-folder",
        "setting": "model",
        "settings": {"sign": 1},
        "folds": ["fold-0", "fold-1"],
        "fold_of": {query_digest(query): i % 2 for i, query in enumerate(queries)},
    }
    (folder / "folds.json").write_text(json.dumps(content | changed), "utf-8")
    return folder


def built(folder: Path) -> Retriever:
    return build_retriever(
        Configuration("cv", "folds", {"folder": str(folder)}), RunContext(seed=5)
    )


class TestFolds(RetrieverContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        texts = {memory.text for memory in POOL}
        self.folder = write_cross_validation(tmp_path / "cv", sorted({*QUERIES, *texts}))

    def make(self) -> Retriever:
        return built(self.folder)


def test_each_query_is_scored_by_its_own_fold(tmp_path: Path) -> None:
    folds = built(write_cross_validation(tmp_path / "cv", list(QUERIES)))
    plain = Overlap()
    for i, query in enumerate(QUERIES):
        wanted = np.asarray(plain.score(query, POOL)) * (i % 2 + 2)
        assert np.array_equal(np.asarray(folds.score(query, POOL).scores), wanted)  # type: ignore[union-attr]


def test_a_query_of_no_fold_is_not_scored(tmp_path: Path) -> None:
    folds = built(write_cross_validation(tmp_path / "cv", list(QUERIES)))
    first, unknown = folds.score_batch([QUERIES[0], "new"], [POOL, POOL])
    assert not isinstance(first, RetrieverError)
    assert isinstance(unknown, RetrieverError)
    assert unknown.cause == "the query is in no fold of the cross-validation"
    assert not folds.saw("new", "q0")


def test_a_query_in_the_wrong_fold_was_seen(tmp_path: Path) -> None:
    folder = write_cross_validation(tmp_path / "cv", list(QUERIES))
    folds = built(folder)
    assert not any(folds.saw(query, f"q{i}") for i, query in enumerate(QUERIES))
    wrong = {query_digest(query): 1 - i % 2 for i, query in enumerate(QUERIES)}
    folds = built(write_cross_validation(folder, list(QUERIES), fold_of=wrong))
    assert all(folds.saw(query, f"q{i}") for i, query in enumerate(QUERIES))


def test_settings_tell_models_and_queries_apart(tmp_path: Path) -> None:
    folder = write_cross_validation(tmp_path / "cv", list(QUERIES))
    before = built(folder).settings()
    assert [one["label"] for one in before["folds"]] == ["fold-0", "fold-1"]
    write_cross_validation(folder, list(QUERIES[:2]))
    assert built(folder).settings() != before


def test_a_sweep_over_a_cross_validation_has_ordinary_rows(
    write_release: WriteRelease, tmp_path: Path
) -> None:
    queries = [f"tea {i}" for i in range(6)]
    release = write_release([(q, [f"{q} now", f"cat {q}", "dog", "cow"], 0) for q in queries])
    folder = write_cross_validation(tmp_path / "cv", queries)
    words = ["--retriever", "cv=folds", "--set", f"cv.folder={folder}", "--retriever", "overlap"]
    given = ["--data", release, "--distractors", "3", "--out", tmp_path / "run", *words]
    run(sweep.app, *given, code=0)
    rows = rows_of(tmp_path / "run")
    mine, plain = ([r for r in rows if r["retriever"] == label] for label in ("cv", "overlap"))
    assert [r["above"] for r in mine] == [r["above"] for r in plain]
    recorded = read_json(tmp_path / "run" / "manifest.json")["fingerprint"]["retrievers"][0]
    assert recorded["name"] == "folds"
    # A query that was added later is counted as failed.
    write_cross_validation(folder, queries[:5])
    run(sweep.app, *given[:5], tmp_path / "other", *words, code=0)
    failed = [r["error"] for r in rows_of(tmp_path / "other") if r["retriever"] == "cv"]
    assert failed == [None] * 5 + ["the query is in no fold of the cross-validation"]


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        ({"format": 2}, "format 2 is not known"),
        ({"folds": []}, "is not a folds.json"),
        ({"folds": ["../elsewhere", "fold-1"]}, "is not a folds.json"),
        ({"retriever": "package.module:Class"}, "is not a folds.json"),
        ({"fold_of": {"00": 2}}, "is not a folds.json"),
        ({"fold_of": {"00": True}}, "is not a folds.json"),
        ({"settings": None}, "is not a folds.json"),
        ({"retriever": "bm26"}, "bm26"),
        ({"setting": "weights"}, "weights"),
        ({"settings": {"sign": "many"}}, "fold-0"),
    ],
)
def test_a_faulty_file_is_one_line(changed: dict[str, Any], part: str, tmp_path: Path) -> None:
    folder = write_cross_validation(tmp_path / "cv", list(QUERIES), **changed)
    words = ("--retriever", "cv=folds", "--set", f"cv.folder={folder}")
    one_line_error(run(sweep.app, *words, "--out", tmp_path / "run"), part)


def test_a_missing_folder_is_one_line(tmp_path: Path) -> None:
    words = ("--retriever", "cv=folds", "--set", f"cv.folder={tmp_path / 'none'}")
    one_line_error(run(sweep.app, *words, "--out", tmp_path / "run"), "folds.json: cannot be read")
    without = run(sweep.app, "--retriever", "cv=folds", "--out", tmp_path / "run")
    one_line_error(without, "cv: `folds` needs a setting; give folder=FOLDER")


def test_a_text_that_is_no_json_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "folds.json").write_bytes(b"\xff{")
    words = ("--retriever", "cv=folds", "--set", f"cv.folder={tmp_path}")
    one_line_error(run(sweep.app, *words, "--out", tmp_path / "run"), "is not a folds.json")


def test_weights_of_the_folds_are_used_outside_a_run(tmp_path: Path) -> None:
    folds = Folds(str(write_cross_validation(tmp_path / "cv", ["tea"])))
    assert np.asarray(folds.score("tea", [Memory("tea")]).scores).tolist() == [2]
