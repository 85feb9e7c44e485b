"""`--keep-scores`: every score of every pool, as durable as the rows."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recallbed.errors import UserError
from recallbed.harness.configurations import Configuration
from retrievers import RetrieverError, build_retriever
from retrievers.base import RunContext
from retrievers.overlap import Overlap
from task3.options import SweepConfig
from task3.sweep_run import run_sweep
from tests.kit import WriteRelease, sweep_config

NAMES = ("rows.jsonl", "scores.jsonl", "summary.json")
LABELS = (Configuration("overlap", "overlap", {}), Configuration("random", "random", {}))


@pytest.fixture
def release(write_release: WriteRelease) -> Path:
    return write_release(
        [
            (f"topic {i} colour", [f"topic {i * j % 17} note {i} {j}" for j in range(6)], i % 6)
            for i in range(12)
        ]
    )


def config(release: Path, out: Path, **options: Any) -> SweepConfig:
    asked: dict[str, Any] = {"distractors": (5, 12), "ks": (1,), "keep_scores": True, **options}
    return sweep_config(asked.pop("labels", LABELS), release, out=out, **asked)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_a_row_and_every_score_exact(release: Path, tmp_path: Path) -> None:
    run_sweep(config(release, tmp_path / "run"))
    rows, kept = lines(tmp_path / "run/rows.jsonl"), lines(tmp_path / "run/scores.jsonl")
    assert len(kept) == len(rows) == 48
    for row, line in zip(rows, kept, strict=True):
        assert {k: row[k] for k in ("query", "retriever", "distractors", "pool")} == {
            k: line[k] for k in ("query", "retriever", "distractors", "pool")
        }
        scores = np.array(line["scores"], np.float32)
        assert len(scores) == row["distractors"] + 1
        assert (scores > scores[row["gold"]]).sum() == row["above"]
        assert (scores == scores[row["gold"]]).sum() == row["tied"]
    retriever = build_retriever(LABELS[1], RunContext(0))
    material = lines(release / "dev/task3/d5/model_input.jsonl")
    assert material
    assert any(len(f"{s}") > 8 for line in kept for s in line["scores"]), "float32 needs 9 digits"
    assert retriever.settings()


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_cut_anywhere_and_resumed_both_files_end_in_equal_bytes(
    release: Path, tmp_path: Path, data: st.DataObject
) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    if not whole.exists():
        run_sweep(config(release, whole))
    shutil.rmtree(cut, ignore_errors=True)
    shutil.copytree(whole, cut)
    # A row is written after its scores, so a crash leaves as many scores as rows, or more.
    rows = data.draw(st.integers(0, (whole / "rows.jsonl").stat().st_size))
    raw = (whole / "rows.jsonl").read_bytes()[:rows]
    (cut / "rows.jsonl").write_bytes(raw)
    scores = (whole / "scores.jsonl").read_bytes()
    least = len(b"".join(scores.splitlines(keepends=True)[: raw.count(b"\n")]))
    (cut / "scores.jsonl").write_bytes(scores[: data.draw(st.integers(least, len(scores)))])
    run_sweep(config(release, cut, on_existing="resume"))
    for name in NAMES:
        assert (whole / name).read_bytes() == (cut / name).read_bytes(), name


def test_two_workers_keep_the_same(release: Path, tmp_path: Path) -> None:
    for workers in (1, 2):
        run_sweep(config(release, tmp_path / str(workers), workers=workers))
    for name in NAMES:
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


class Flaky(Overlap):
    """Fails on one query in three while `down` is set."""

    down = True

    def score(self, query: str, pool: Any) -> Any:
        if self.down and int(query.split()[1]) % 3 == 0:
            raise RetrieverError("down")
        return super().score(query, pool)


def test_rows_tried_again_get_their_scores(release: Path, tmp_path: Path) -> None:
    labels = (Configuration("f", f"{__name__}:Flaky", {}),)
    Flaky.down = True
    run_sweep(config(release, tmp_path / "run", labels=labels))
    kept = lines(tmp_path / "run/scores.jsonl")
    assert sum(line["scores"] is None for line in kept) == 8
    Flaky.down = False
    run_sweep(config(release, tmp_path / "run", labels=labels, retry_failed=True))
    run_sweep(config(release, tmp_path / "healthy", labels=labels))
    for name in NAMES:
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "healthy" / name).read_bytes()


@pytest.mark.parametrize("first", [True, False])
def test_with_and_without_are_two_runs(release: Path, tmp_path: Path, first: bool) -> None:
    run_sweep(config(release, tmp_path / "run", keep_scores=first))
    assert (tmp_path / "run/scores.jsonl").exists() == first
    with pytest.raises(UserError, match="they differ in kept"):
        run_sweep(config(release, tmp_path / "run", keep_scores=not first, on_existing="resume"))


def test_scores_that_are_gone_are_said(release: Path, tmp_path: Path) -> None:
    run_sweep(config(release, tmp_path / "run"))
    path = tmp_path / "run/scores.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:7]))
    with pytest.raises(UserError, match="scores for 7 of 48 rows"):
        run_sweep(config(release, tmp_path / "run", on_existing="resume"))
    path.unlink()
    with pytest.raises(UserError, match=r"scores\.jsonl: is missing"):
        run_sweep(config(release, tmp_path / "run", on_existing="resume"))
    run_sweep(config(release, tmp_path / "run", on_existing="overwrite"))
    assert len(lines(path)) == 48
