"""No retriever is measured on sessions that it was trained on."""

from pathlib import Path
from typing import Any

import pytest

from analysis.ranked_pools import material_of
from analysis.runs import read_run
from recallbed.corpus.custom import load_custom
from recallbed.corpus.material import gather
from recallbed.corpus.sessions import query_digest, session_digest, session_key
from retrievers import Hybrid, Retriever
from retrievers.overlap import Overlap
from retrievers.unseen import unseen_rows
from task3 import predict, sweep, tune
from task4 import run as task4_run
from tests.kit import WriteRelease, one_line_error, read_json, read_lines, rows_of, run, write_lines
from tests.trained_retriever import TRAINED, Trained

KNOWN = [f"trained={TRAINED}", "--set", "trained.sessions=q1,q3"]
QUERIES = 6


@pytest.fixture
def release(write_release: WriteRelease) -> Path:
    return write_release(
        [
            (f"tea {i}", [f"tea {i} please", *(f"cat {i} {j}" for j in range(4))], 0)
            for i in range(6)
        ]
    )


def swept(release: Path, out: Path, *words: object, code: int = 0) -> Any:
    given = ["--data", release, "--distractors", "4,8", "--out", out, "--store", "none"]
    return run(sweep.app, *given, "--retriever", "bm25", *words, code=code)


def test_digests_are_as_models_already_hold_them() -> None:
    assert session_digest("sess_1") == "0cdbf24109fa7b74"
    assert query_digest("sess_1") != session_digest("sess_1")


def test_a_sweep_over_its_own_sessions_is_refused(release: Path, tmp_path: Path) -> None:
    done = swept(release, tmp_path / "run", "--retriever", *KNOWN, code=2)
    one_line_error(
        done,
        "trained was trained on 2 of these 6 sessions, so its recall here says nothing",
        "--unseen",
        "--folds",
    )
    assert not (tmp_path / "run").exists()


def test_unseen_leaves_the_rows_out_for_every_retriever(release: Path, tmp_path: Path) -> None:
    done = swept(release, tmp_path / "run", "--retriever", *KNOWN, "--unseen")
    assert "--unseen: 2 of 6 rows left out (trained was trained on 2 of these 6" in done.stderr
    left = ["q0", "q2", "q4", "q5"]
    rows = rows_of(tmp_path / "run")
    for label in ("bm25", "trained"):
        for size in (4, 8):
            named = [
                r["query"] for r in rows if (r["retriever"], r["distractors"]) == (label, size)
            ]
            assert named == left
    manifest = read_json(tmp_path / "run" / "manifest.json")
    assert manifest["left_out"] == ["q1", "q3"]
    assert manifest["fingerprint"]["unseen"]["left_out"] == 2
    assert manifest["fingerprint"]["data"]["queries"] == 4
    assert read_json(tmp_path / "run" / "summary.json")["left_out"] == 2


def test_the_rows_that_remain_are_those_of_a_sweep_over_all(release: Path, tmp_path: Path) -> None:
    swept(release, tmp_path / "all")
    swept(release, tmp_path / "part", "--retriever", *KNOWN, "--unseen")
    whole = {(r["query"], r["distractors"]): r for r in rows_of(tmp_path / "all")}
    part = [row for row in rows_of(tmp_path / "part") if row["retriever"] == "bm25"]
    assert len(part) == 8
    assert all(whole[row["query"], row["distractors"]] == row for row in part)


def test_a_run_without_some_rows_can_be_shown_again(release: Path, tmp_path: Path) -> None:
    swept(release, tmp_path / "run", "--retriever", *KNOWN, "--unseen")
    material = material_of(read_run(tmp_path / "run"), release)
    assert [row.benchmark_id for row in material.pools.rows] == ["q0", "q2", "q4", "q5"]


def test_unseen_changes_nothing_if_nothing_was_seen(release: Path, tmp_path: Path) -> None:
    swept(release, tmp_path / "one")
    done = swept(release, tmp_path / "other", "--unseen")
    assert "left out" not in done.stderr
    assert (tmp_path / "one" / "manifest.json").read_bytes() == (
        tmp_path / "other" / "manifest.json"
    ).read_bytes()


def test_a_sweep_without_any_row_left_is_an_error(release: Path, tmp_path: Path) -> None:
    every = f"trained.sessions={','.join(f'q{i}' for i in range(QUERIES))}"
    words = ("--retriever", f"trained={TRAINED}", "--set", every, "--unseen")
    done = swept(release, tmp_path / "run", *words, code=2)
    one_line_error(done, "--unseen: no row is left (trained was trained on 6 of these 6 sessions)")


def test_pools_of_some_rows_are_those_of_a_set_built_for_them(release: Path) -> None:
    material = gather(release, sizes=(4, 8))
    first = gather(release, sizes=(4, 8), limit=2).pools
    kept = material.only([0, 1])
    assert kept.left_out == ("q2", "q3", "q4", "q5")
    assert kept.pools.rows == first.rows
    assert kept.pools.memories == first.memories
    for at, members in first.pools.items():
        for one, other in zip(members, kept.pools.pools[at], strict=True):
            assert (one.golds, one.members.tolist()) == (other.golds, other.members.tolist())
    assert material.only(range(QUERIES)) is material


def test_a_fusion_and_a_reranker_saw_what_is_below_them(tmp_path: Path, release: Path) -> None:
    trained = Trained("q1")
    hybrid = Hybrid.of({"trained": trained, "words": Overlap()})
    assert hybrid.saw("tea 1", "q1")
    assert not hybrid.saw("tea 2", "q2")
    fused = ["fused=hybrid", "--set", "fused.legs=bm25,trained", "--retriever", *KNOWN]
    done = swept(release, tmp_path / "run", "--retriever", *fused, code=2)
    one_line_error(done, "fused was trained on 2, trained was trained on 2 of these 6 sessions")


def test_a_reranker_saw_what_its_first_stage_saw(tmp_path: Path, release: Path) -> None:
    words = ("--retriever", "chat=listwise", "--set", "chat.first_stage=trained")
    model = ("--set", "chat.model=openai:none", "--base-url", "http://127.0.0.1:9/v1")
    done = swept(release, tmp_path / "run", *words, *model, "--retriever", *KNOWN, code=2)
    one_line_error(done, "chat was trained on 2")


def test_tune_refuses_and_leaves_out_too(release: Path, tmp_path: Path) -> None:
    given = ["--data", release, "--distractors", "4", "--store", "none", "--folds", "2"]
    given += ["--retriever", "bm25", "--retriever", "trained=" + TRAINED]
    given += ["--retriever", "fused=hybrid", "--set", "fused.legs=bm25,trained"]
    given += ["--label", "fused", "--out", tmp_path / "tuned.json"]
    known = ("--set", "trained.sessions=q1,q3")
    one_line_error(run(tune.app, *given, *known, code=2), "fused was trained on 2 of these 6")
    done = run(tune.app, *given, *known, "--unseen", code=0)
    assert "4 queries" in done.stdout
    given[-1] = tmp_path / "other.json"
    grid = ("--grid", "trained.sessions=q0/q1,q2/none")
    one_line_error(run(tune.app, *given, *grid, code=2), "fused was trained on 3 of these 6")


def test_predictions_are_refused_or_left_out(release: Path, tmp_path: Path) -> None:
    given = ("--data", release, "--store", "none", "--out", tmp_path / "p.jsonl")
    one_line_error(run(predict.app, *given, "--retriever", *KNOWN, code=2), "trained on 2 of these")
    run(predict.app, *given, "--retriever", *KNOWN, "--unseen", code=0)
    named = [row["benchmark_id"] for row in read_lines(tmp_path / "p.jsonl")]
    assert named == ["q0", "q2", "q4", "q5"]


def test_rows_without_a_name_are_known_by_their_query(tmp_path: Path) -> None:
    rows = [{"query": f"tea {i}", "memories": ["tea", "cat"], "gold": 0} for i in range(3)]
    one = load_custom(write_lines(tmp_path / "one.jsonl", rows)).file.rows
    other = load_custom(write_lines(tmp_path / "other.jsonl", rows[1:])).file.rows
    assert [session_key(row) for row in one][1:] == [session_key(row) for row in other]
    named = [{**rows[0], "id": 7}, {**rows[1], "session": "s"}, {**rows[2], "id": ""}]
    keys = [
        session_key(row) for row in load_custom(write_lines(tmp_path / "n.jsonl", named)).file.rows
    ]
    assert keys == ["7", "s", "query: tea 2"]


def test_numbers_of_lines_are_no_sessions(tmp_path: Path) -> None:
    """Line 1 of one file is not line 1 of another."""
    rows = [{"query": f"tea {i}", "memories": ["tea", "cat"], "gold": 0} for i in range(2)]
    data = write_lines(tmp_path / "mine.jsonl", rows)
    words = ("--retriever", f"trained={TRAINED}", "--set", "trained.sessions=1,2")
    run(sweep.app, "--data", data, "--out", tmp_path / "run", *words, code=0)
    seen = ("--retriever", f"trained={TRAINED}", "--set", "trained.sessions=query: tea 1")
    done = run(sweep.app, "--data", data, "--out", tmp_path / "other", *seen, code=2)
    one_line_error(done, "1 of these 2 sessions")


class Faulty(Overlap):
    def saw(self, query: str, session: str) -> bool:
        raise ZeroDivisionError("by none")


def test_a_fault_in_saw_is_one_line(tmp_path: Path, release: Path) -> None:
    words = ("--retriever", f"mine={__name__}:Faulty")
    done = swept(release, tmp_path / "run", *words, code=2)
    one_line_error(done, "mine: `saw` failed (ZeroDivisionError")


def test_sessions_are_counted_once_each() -> None:
    retriever: Retriever = Trained("a")
    rows = [("1", "a"), ("2", "a"), ("3", "b")]
    assert unseen_rows([("x", retriever)], rows, leave_out=True) == [2]


def test_a_memory_system_is_not_run_on_sessions_that_its_retriever_knows(tmp_path: Path) -> None:
    given = ["--system", "extractive", "--ability", "1", "--limit", "3", "--store", "none"]
    given += ["--retriever", f"trained={TRAINED}"]
    run(task4_run.app, *given, "--out", tmp_path / "all", code=0)
    names = [row["item"] for row in rows_of(tmp_path / "all")]
    known = ("--set", f"trained.sessions={names[0]}")
    done = run(task4_run.app, *given, *known, "--out", tmp_path / "run", code=2)
    one_line_error(done, "trained was trained on 1 of these 3 sessions")
    run(task4_run.app, *given, *known, "--out", tmp_path / "run", "--unseen", code=0)
    assert [row["item"] for row in rows_of(tmp_path / "run")] == names[1:]
    recorded = read_json(tmp_path / "run" / "manifest.json")["fingerprint"]["data"]["unseen"]
    assert recorded == {"left_out": 1, "rows": names[1:]}
