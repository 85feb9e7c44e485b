"""The blended score of tasks 1 and 2: penalties of a review, recorded scores, a judge's reviews."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.verdict_runs import read_verdict_run
from judges.memory_reviews import Findings, blended_score, review_score
from memory_scoring.figures import SessionPairs
from memory_scoring.pairing import similar_pairs
from memory_scoring.predictions import predicted_item
from recallbed.corpus.inputs import read_inputs
from recallbed.corpus.jsonl import Repairs
from recallbed.corpus.stream import Track
from recallbed.corpus.tracks import TASK1, TASK2
from recallbed.errors import UserError
from task1.score import app
from task2.score import app as task2_app
from tests.kit import one_line_error, read_lines, run, run_json, write_lines
from tests.scripted_server import Call, scripted_server

NONE: Findings = ()


@pytest.mark.parametrize(
    ("findings", "score"),
    [
        (NONE, 100.0),
        ((("missing", 0, "MISSING", 1),), 90.0),
        ((("missing", 0, "MISSING", 0),), 95.0),
        ((("pair", 0, "VALUE_DRIFT", 2), ("extra", 3, "HALLUCINATED", 3)), 100 - 18 - 30),
        (tuple(("pair", i, "HALLUCINATION", 3) for i in range(4)), 0.0),
    ],
)
def test_penalties_by_hand(findings: Findings, score: float) -> None:
    assert review_score(findings) == score
    assert blended_score(50, score) == (50 + score) / 2


def recorded_findings(output: dict[str, Any]) -> Findings:
    pairs = [
        ("pair", i, one["error_type"], one["severity"])
        for i, one in enumerate(output["pair_reviews"])
        if not one["ok"]
    ]
    missing = [
        ("missing", i, "MISSING", one["severity"])
        for i, one in enumerate(output["missing_reviews"])
        if one["should_have_extracted"]
    ]
    extra = [
        ("extra", i, "HALLUCINATED", one["severity"])
        for i, one in enumerate(output["extra_reviews"])
        if one["hallucinated"]
    ]
    return (*pairs, *missing, *extra)


@pytest.mark.slow
def test_every_recorded_score_is_reproduced(alpsbench: Path) -> None:
    """The judge's score exactly; the final score as near as our pair scores are."""
    folder = alpsbench.parent / "recorded" / "dev" / "judge"
    if not folder.is_dir():
        pytest.skip(f"no recorded judge at {folder}")
    checked = 0
    tracks: tuple[Track[Any], ...] = (TASK1, TASK2)
    for track in tracks:
        rows = read_inputs(alpsbench, "dev", track, with_gold=True).rows.values()
        golds = {row.session_id: tuple(row.gold or ()) for row in rows}
        for item in read_lines(folder / f"{track.name}.jsonl"):
            if item["judge_score"] is None:
                continue
            score = review_score(recorded_findings(item["judge_output"]))
            assert score == pytest.approx(item["judge_score"], abs=1e-9)
            members = item["model_output"]["memory_items"]
            predicted = tuple(predicted_item(one, Repairs()) for one in members)
            gold = golds[item["session_id"]]
            session = SessionPairs("s", gold, predicted, similar_pairs(gold, predicted), score)
            assert session.reviewed[1] == pytest.approx(item["final_score"], abs=0.25)
            checked += 1
    assert checked == 43


# A judge's reviews, scripted: what is marked in a memory's text is found


def reviews(call: Call) -> dict[str, Any]:
    text = call.prompt
    lists = re.split(r"^(?:PAIRS|MISSING|EXTRA)$", text.rpartition("</DATA")[0], flags=re.M)[-3:]

    def entries(part: str, key: str, value: Callable[[str], Any]) -> list[dict[str, Any]]:
        return [
            {"number": int(n), "evidence": "e", key: value(line), "severity": 1}
            for n, line in re.findall(r"^\[(\d+)\] (.*)$", part, re.M)
        ]

    return {
        "pairs": entries(
            lists[0], "error", lambda s: "VALUE_DRIFT" if "cat" in s else "EQUIVALENT"
        ),
        "missing": entries(lists[1], "should_have_extracted", lambda s: "tea" in s),
        "extra": entries(lists[2], "hallucinated", lambda s: "flies" in s),
    }


def memory(value: str, label: str) -> dict[str, Any]:
    return {"memory_id": "m", "type": "direct", "label": label, "value": value, "confidence": 0.9}


TEA, CAT = memory("Likes green tea", "Preferences/Food"), memory("Owns a cat", "Possessions/Pet")
FLIES = memory("Once flies to the moon", "Plans/Trip")


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Two sessions with the gold TEA and CAT; predicted are CAT and FLIES, then both golds."""
    monkeypatch.setenv("RECALLBED_API_KEY", "k")
    turns = [{"role": "user", "text": "My cat drinks green tea."}]
    head = [{"benchmark_id": f"s{i}", "session_id": f"s{i}"} for i in range(2)]
    folder = tmp_path / "data" / "dev" / "task1"
    body = {"input": {"sessions": [{"turns": turns}]}}
    write_lines(folder / "model_input.jsonl", [{**one, **body} for one in head])
    gold = {"gold": {"memory_items": [TEA, CAT]}}
    write_lines(folder / "reference_output.jsonl", [{**one, **gold} for one in head])
    rows = [{**head[0], "memory_items": [CAT, FLIES]}, {**head[1], "memory_items": [TEA, CAT]}]
    path = write_lines(tmp_path / "p.jsonl", rows)
    judge = ("--scorer", "blended", "--judge-model", "openai:scripted", "--out", tmp_path / "run")
    return [path, "--data", tmp_path / "data", *judge, "--replies", tmp_path / "r.sqlite"]


def test_a_judge_reviews_pairs_missing_and_extra_memories(words: list[object]) -> None:
    """s0: a pair with drift 12, tea missing 10, an invention 15: 63. s1: one drift: 88."""
    with scripted_server(reviews) as server:
        words += ["--base-url", server.url]
        plan = json.loads(run(app, *words, "--dry-run", code=0).stdout)["openai:scripted"]
        assert plan["calls"] == 2
        found = run_json(app, *words)
        assert len(server.calls) == 2
        assert "My cat drinks green tea." in server.calls[0].prompt
    assert found["review_score"] == pytest.approx((63 + 88) / 2)
    algorithmic = (100 * (0.6 + 0.4 * 0.5) + 100) / 2
    assert found["algorithmic_score"] == pytest.approx(algorithmic)
    assert found["blended_score"] == pytest.approx((75.5 + algorithmic) / 2)
    assert (found["scorer"], found["judge"]["judged"], found["f1"]) == ("blended", 2, 0.75)
    assert found["by_language"]["english"]["blended_score"] == found["blended_score"]


def test_reviews_are_not_taken_for_pairs(words: list[object], tmp_path: Path) -> None:
    with scripted_server(reviews) as server:
        run(app, *words, "--base-url", server.url, code=0)
    with pytest.raises(UserError, match="Pass verdicts of --scorer judge"):
        read_verdict_run(tmp_path / "run")


def test_unjudged_sessions_have_no_blended_score(words: list[object], tmp_path: Path) -> None:
    with scripted_server(
        reviews, lambda c: "empty" if "flies" in c.prompt else "perfect"
    ) as server:
        found = run_json(app, *words, "--base-url", server.url)
    assert found["judge"]["unjudged"] == {"empty reply": 1}
    assert (found["sessions"], found["review_score"]) == (1, 88)
    rows = read_lines(tmp_path / "run" / "rows.jsonl")
    assert rows[1]["result"]["verdict"] == [["pair", 1, "VALUE_DRIFT", 1]]


def test_most_votes_decide_and_odd_reviews_are_counted(words: list[object], tmp_path: Path) -> None:
    """Two of three votes see the drift, with severities 1 and 3; one names no. 9, and 1 again."""
    severities = iter([1, 3, 0] * 2)

    def voted(call: Call) -> dict[str, Any]:
        found = reviews(call)
        severity = next(severities)
        for one in found["pairs"]:
            one["severity"] = severity
            one["error"] = one["error"] if severity else "EQUIVALENT"
        if not severity:
            found["pairs"] += [{**found["pairs"][0], "number": n} for n in (9, 1)]
        found["missing"] = []
        return found

    with scripted_server(voted) as server:
        more = ("--votes", 3, "--base-url", server.url, "--in-flight", 1)
        found = run_json(app, *words, *more)
    first, second = (row["result"] for row in read_lines(tmp_path / "run" / "rows.jsonl"))
    drift = [["pair", 0, "VALUE_DRIFT", 1]]
    assert first["verdict"] == [["extra", 0, "HALLUCINATED", 1], *drift]
    assert second["verdict"] == [["pair", 1, "VALUE_DRIFT", 1]]
    assert first["repairs"] == {
        "memory reviewed twice": 1,
        "memory without a review": 3,
        "review with an unknown number": 1,
    }
    assert found["judge"]["disagreement"] == 1.0


def test_a_blended_score_needs_a_judge(tmp_path: Path) -> None:
    for one in (app, task2_app):
        result = run(one, tmp_path / "p.jsonl", "--scorer", "blended")
        one_line_error(result, "--scorer blended and --judge-model go together")
