"""`analysis.compare`: which queries are compared, what is left out and said, what is refused."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from analysis.compare import app
from analysis.statistics import wilson
from retrievers.base import RetrieverError
from retrievers.overlap import Overlap
from retrievers.registry import register
from tests import kit
from tests.kit import WriteRelease, one_line_error, read_json, swept, write_lines


@register("fails-on-odd-topics")
class FailsOnOddTopics(Overlap):
    """Scores as `overlap`, but no query with an odd number."""

    def score(self, query: str, pool: Any) -> Any:
        if int(query.split()[1]) % 2:
            raise RetrieverError("odd")
        return super().score(query, pool)


FAILING = "fails-on-odd-topics"
RETRIEVERS = {"words": "overlap", "half": FAILING, "also-half": FAILING}
LABELS = [f"{label}={name}" for label, name in RETRIEVERS.items()]


@pytest.fixture
def release(write_release: WriteRelease) -> Path:
    texts = [
        [f"topic {i if j == i % 6 else i * j % 7} note {i} {j}" for j in range(6)]
        for i in range(12)
    ]
    words = ["喜欢"] * 3 + ["colour"] * 9
    return write_release([(f"topic {i} {words[i]}", texts[i], i % 6) for i in range(12)])


@pytest.fixture
def run(release: Path, tmp_path: Path) -> Path:
    return swept(LABELS, release, distractors=(5, 12), ks=(1,), out=tmp_path / "run").path


def compare(*words: object) -> Result:
    return kit.run(app, *words, "--k", "1")


def as_json(*words: object) -> Any:
    return kit.run_json(app, *words, "--k", "1")


def test_failed_queries_are_counted_at_every_size(run: Path) -> None:
    found = as_json(f"{run}:words", f"{run}:half")
    assert [(r["distractors"], r["n"], r["unpaired"]) for r in found] == [(5, 6, 6), (12, 6, 6)]
    shown = compare(f"{run}:words", f"{run}:half").stderr
    assert "6 queries left out at 5 distractors" in shown
    assert "6 queries left out at 12 distractors" in shown
    found = as_json(f"{run}:half", f"{run}:also-half")
    assert [(r["n"], r["unpaired"]) for r in found] == [(6, 6), (6, 6)]


def test_columns_and_verdicts_name_what_is_compared(run: Path) -> None:
    shown = compare(f"{run}:words", f"{run}:half").stdout
    head = next(line for line in shown.splitlines() if line.startswith("distractors"))
    assert {"words", "half", "wins", "ties", "losses", "p"} <= set(head.split())
    assert " a " not in head


def test_equal_scores_have_no_interval_and_one_reason(run: Path) -> None:
    result = compare(f"{run}:words", f"{run}:half")
    assert "no interval and no verdict: no difference on any query" in result.stderr
    assert result.stderr.count("no interval") == 1
    assert "better" not in result.stdout


def test_a_script_filters_the_data_of_the_run(run: Path, release: Path) -> None:
    chosen = as_json(f"{run}:words", f"{run}:half", "--script", "Han", "--data", release)
    others = as_json(f"{run}:words", f"{run}:half", "--not-script", "Han", "--data", release)
    assert ([r["n"] for r in chosen], [r["n"] for r in others]) == ([2, 2], [4, 4])
    assert [r["unpaired"] for r in chosen] == [1, 1]


def test_a_script_needs_the_data_of_the_run(run: Path, release: Path) -> None:
    result = compare(f"{run}:words", f"{run}:half", "--not-script", "Han")
    one_line_error(result, "not of the embedded sample", "--data")
    file = next((release / "dev/task3").glob("d*/model_input.jsonl"))
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("colour", "shape"), encoding="utf-8")
    other = compare(f"{run}:words", f"{run}:half", "--script", "Han", "--data", release)
    one_line_error(other, "not the data that")


def test_a_label_that_the_run_does_not_have_gets_the_list_of_labels(run: Path) -> None:
    result = compare(f"{run}:wrods", f"{run}:half")
    one_line_error(result, "no retriever `wrods`", "words, half, also-half")


def test_a_run_of_one_session_has_no_verdict(write_release: WriteRelease, tmp_path: Path) -> None:
    rows = [
        {"query": f"topic {i}", "memories": [f"topic {i}", "x", "y"], "gold": i % 3, "session": "s"}
        for i in range(10)
    ]
    path = write_lines(tmp_path / "own.jsonl", rows)
    run = swept(["words=overlap", "chance=constant"], path, ks=(1,), out=tmp_path / "own").path
    [found] = as_json(f"{run}:words", f"{run}:chance")
    assert (found["low"], found["high"], found["p"], found["verdict"]) == (None,) * 4
    assert found["reason"] == "all queries are of one session"
    assert found["difference"] == pytest.approx(0.4 - 1 / 3)
    # The mean of a single session keeps Wilson's interval of one draw, which says how little it is.
    recall = read_json(run / "summary.json")["cells"][0]["recall"]["1"]
    alone = wilson(0.4, 1)
    assert (recall["low"], recall["high"]) == pytest.approx((alone.low, alone.high), abs=1e-6)
