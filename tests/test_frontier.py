"""analysis/frontier: what a query takes against what is found, from real run folders."""

import csv
import itertools
import json
import re
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import frontier_picture
from analysis.frontier import FrontierPoint, app, frontier
from analysis.frontier_picture import draw_frontier
from analysis.runs import read_run
from recallbed.corpus.records import Memory
from recallbed.errors import UserError
from recallbed.harness.configurations import Configuration
from retrievers import Retriever, RetrieverError, Scored, Usage
from task3.sweep_run import run_sweep
from tests import kit
from tests.kit import WriteRelease, one_line_error, read_lines, sweep_config

QUERIES = 8


class Model(Retriever):
    """Finds the gold ("kind 2") in `right` of ten queries, for `tokens` each."""

    def __init__(self, right: int = 5, tokens: int = 100, estimated: int = 0) -> None:
        self.right, self.tokens, self.estimated = right, tokens, estimated

    def score(self, query: str, pool: Sequence[Memory]) -> Scored:
        number = int(query.rpartition(" ")[2])
        if number == 7 and self.tokens == 666:
            raise RetrieverError("timeout")
        wanted = "kind 2" if number < self.right else "kind 0"
        scores = [float(memory.text.endswith(wanted)) for memory in pool]
        return Scored(scores, usage=Usage(1, self.tokens - 10, 10, self.estimated), depth=4)

    def notes(self) -> dict[str, Any]:
        return {"chat_model": "m"}


MODEL = "tests.test_frontier:Model"


def sweep(place: Path, name: str, *labels: Configuration, **given: Any) -> Path:
    prices = place / "prices.json"
    prices.write_text('{"m": {"in": 2, "out": 30}}')
    from recallbed.chat_models.session import ChatOptions

    options: dict[str, Any] = {"distractors": (2, 4), "ks": (1,), **given}
    chat = ChatOptions(prices=prices if options.pop("priced", True) else None, replies="none")
    config = sweep_config(labels, place / "release", out=place / name, chat=chat, **options)
    return run_sweep(config).path


def model(label: str, right: int, tokens: int, estimated: int = 0) -> Configuration:
    settings = {"right": right, "tokens": tokens, "estimated": estimated}
    return Configuration(label, MODEL, {key: str(value) for key, value in settings.items()})


FREE = Configuration("overlap", "overlap", {})


@pytest.fixture
def place(tmp_path: Path, write_release: WriteRelease, monkeypatch: pytest.MonkeyPatch) -> Path:
    texts = [[f"memory {i} of kind {j}" for j in range(5)] for i in range(QUERIES)]
    write_release([(f"query {i}", texts[i], 2) for i in range(QUERIES)])
    monkeypatch.chdir(tmp_path)
    return tmp_path


drawn = partial(kit.run, app)


def table(file: str) -> dict[str, dict[str, str]]:
    return {row["retriever"]: row for row in csv.DictReader(Path(file).read_text().splitlines())}


def test_a_point_a_configuration_with_all_three_amounts(place: Path) -> None:
    run = sweep(place, "run", FREE, model("small", 4, 100), model("large", 6, 1000))
    result = drawn(run, "--out", "f.png", code=0)
    assert Path("f.png").read_bytes().startswith(b"\x89PNG")
    rows = table("f.csv")
    assert list(rows) == ["overlap", "small", "large"]
    large = rows["large"]
    assert (large["distractors"], large["k"]) == ("4", "1")
    assert float(large["recall"]) == 6 / QUERIES
    cell = read_run(run).summary((1,)).to_json()["cells"][-1]["recall"]["1"]
    assert (float(large["low"]), float(large["high"])) == (cell["low"], cell["high"])
    assert [row["tokens"] for row in rows.values()] == ["0", "100", "1000"]
    assert float(large["cost"]) == pytest.approx((990 * 2 + 10 * 30) / 1e6)
    timings = read_lines(run / "timings.jsonl")
    mine = [t for t in timings if (t["retriever"], t.get("distractors")) == ("large", 4)]
    seconds = [t["seconds"] for t in mine]
    assert len(seconds) == QUERIES
    assert float(large["ms"]) == pytest.approx(1000 * sum(seconds) / QUERIES, rel=1e-4)
    assert re.search(r"large +0.750 \[.* yes$", result.stdout, re.MULTILINE)


def test_only_what_no_other_beats_is_on_the_frontier(place: Path) -> None:
    labels = (model("a", 4, 100), model("worse", 3, 300), model("dear", 4, 900), model("b", 6, 500))
    run = sweep(place, "run", FREE, *labels)
    drawn(run, "--out", "f.png")
    rows = table("f.csv")
    assert [name for name, row in rows.items() if row["frontier"] == "1"] == ["overlap", "a", "b"]


def points(amounts: Sequence[tuple[float | None, float]]) -> list[FrontierPoint]:
    return [
        FrontierPoint("r", f"p{i}", recall, recall, recall, {"tokens": amount}, 1.0, 0, 1, 1)
        for i, (amount, recall) in enumerate(amounts)
    ]


AMOUNTS = st.tuples(st.none() | st.integers(0, 5).map(float), st.integers(0, 5).map(float))


@given(st.lists(AMOUNTS, max_size=8))
def test_the_frontier_beats_all_points(
    amounts: list[tuple[float | None, float]],
) -> None:
    everything = points(amounts)
    best = [(p.amounts["tokens"] or 0.0, p.recall) for p in frontier(everything, "tokens")]
    assert best == sorted(set(best))
    assert [recall for _, recall in best] == sorted({recall for _, recall in best})
    for point in everything:
        amount = point.amounts["tokens"]
        if amount is not None:
            assert any(a <= amount and r >= point.recall for a, r in best)


def test_an_unknown_cost_is_left_out_and_said(place: Path) -> None:
    run = sweep(place, "run", FREE, model("a", 4, 100), model("guessed", 6, 500, estimated=1))
    result = drawn(run, "--x", "cost", "--out", "f.png", code=0)
    assert "left out, cost per query unknown: guessed" in result.stderr
    rows = table("f.csv")
    assert rows["guessed"]["cost"] == ""
    assert rows["guessed"]["frontier"] == "0"
    assert re.search(r"guessed .*unknown", result.stdout)
    by_tokens = drawn(run, "--out", "f.png")
    assert "guessed: tokens of 8 calls are estimates (not reported)" in by_tokens.stderr
    assert table("f.csv")["guessed"]["frontier"] == "1"


def test_failed_rows_are_said_and_in_no_recall(place: Path) -> None:
    result = drawn(sweep(place, "run", model("shaky", 6, 666)), "--out", "f.png")
    assert "shaky: 1 of 8 rows failed, not in recall" in result.stderr
    row = table("f.csv")["shaky"]
    assert (row["attempted"], row["scored"]) == ("8", "7")
    assert float(row["recall"]) == pytest.approx(6 / 7, abs=1e-6)


def test_what_takes_nothing_needs_another_axis(place: Path) -> None:
    free = sweep(place, "free", FREE)
    message = "--x tokens: no configuration of these runs used any"
    one_line_error(drawn(free, "--out", "f.png"), message)
    unpriced = sweep(place, "unpriced", model("a", 4, 100), priced=False)
    one_line_error(drawn(unpriced, "--x", "cost", "--out", "f.png"), "--prices")
    assert not list(place.glob("f.*"))
    assert drawn(free, "--x", "ms", "--out", "f.png").exit_code == 0


def test_a_configuration_in_several_runs_counts_once(place: Path) -> None:
    one = sweep(place, "one", FREE, model("a", 4, 100))
    two = sweep(place, "two", FREE, model("a", 5, 200))
    assert drawn(one, two, "--out", "f.png").exit_code == 0
    assert list(table("f.csv")) == ["overlap", "a (one)", "a (two)"]


def test_other_queries_and_other_pools_are_refused(place: Path) -> None:
    one = sweep(place, "one", model("a", 4, 100))
    fewer = sweep(place, "fewer", model("b", 4, 100), limit=5)
    message = "not have the same queries at 4 distractors: 3 are in one run only, such as `q5`"
    one_line_error(drawn(one, fewer, "--out", "f.png"), message)
    other = sweep(place, "other", model("b", 4, 100), pool_seeds=(1,), distractors=(2,))
    one_line_error(drawn(one, other, "--out", "f.png"), "not the same pools")
    assert not list(place.glob("f.*"))


def test_the_size_is_the_largest_that_all_have(place: Path) -> None:
    one = sweep(place, "one", model("a", 4, 100))
    two = sweep(place, "two", model("b", 5, 200), distractors=(2,))
    drawn(one, two, "--out", "f.png")
    assert {row["distractors"] for row in table("f.csv").values()} == {"2"}
    message = "--distractors 4: not a size that all runs have (they have: 2)"
    one_line_error(drawn(one, two, "--distractors", 4), message)


def test_an_unfinished_run_is_refused(place: Path) -> None:
    run = sweep(place, "run", model("a", 4, 100), model("b", 5, 200))
    lines = (run / "rows.jsonl").read_bytes().splitlines(keepends=True)
    (run / "rows.jsonl").write_bytes(b"".join(lines[:-3]))
    one_line_error(drawn(run), "`b` does not have the same queries")
    (run / "rows.jsonl").write_bytes(b"".join(lines[: 2 * QUERIES]))
    one_line_error(drawn(run), "is not finished")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--x", "time"], "--x time: choose one of tokens, cost, ms"),
        (["--out", "f.txt"], "name a .png, .pdf or .svg"),
        (["--distractors", "3"], "they have: 2, 4"),
    ],
    ids=["axis", "ending", "size"],
)
def test_a_mistake_is_one_line(place: Path, words: list[str], said: str) -> None:
    one_line_error(drawn(sweep(place, "run", model("a", 4, 100)), *words), said)
    one_line_error(drawn("nowhere"), "not a run folder")


def test_a_damaged_price_is_one_line(place: Path) -> None:
    run = sweep(place, "run", model("a", 4, 100))
    kept = json.loads((run / "manifest.json").read_text())
    for field, wrong in (("prices", {"m": {"in": "2"}}), ("chat_models", {"a": "m"})):
        (run / "manifest.json").write_text(json.dumps({**kept, field: wrong}))
        one_line_error(drawn(run), f"field `{field}`")


def test_equal_runs_give_equal_pictures(place: Path) -> None:
    run = sweep(place, "run", FREE, model("a", 4, 100), model("b", 5, 200))
    shutil.copytree(run, place / "again" / "run")
    for out, folder in (("f.svg", run), ("g.svg", place / "again" / "run")):
        assert drawn(folder, "--out", out).exit_code == 0
    assert table("f.csv") == table("g.csv")
    drawn(run, "--out", "f.png")
    drawn(place / "again" / "run", "--out", "g.png")
    assert Path("f.png").read_bytes() == Path("g.png").read_bytes()


def crowd(amounts: Sequence[float]) -> list[FrontierPoint]:
    recalls = {True: (0.6, 0.5, 0.7), False: (0.4, 0.3, 0.5)}
    return [
        FrontierPoint("r", f"configuration-{i}", *recalls[a > 0], {"tokens": a}, 1.0, 0, 9, 9)
        for i, a in enumerate(amounts)
    ]


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that were to be saved; no file is written."""
    figures: list[Any] = []
    monkeypatch.setattr(frontier_picture, "save", lambda figure, out: figures.append(figure))
    return figures


def placed(points_: Sequence[FrontierPoint], saved: list[Any]) -> dict[str, Any]:
    """The boxes of the labels in a drawn picture, in pixels."""
    draw_frontier(points_, "tokens", 1, ["title"], Path("none.png"))
    [figure] = saved
    figure.draw_without_rendering()
    texts = figure.axes[0].texts
    return {text.get_text(): text.get_window_extent() for text in texts if text.get_text()}


def test_labels_of_close_points_do_not_overlap(saved: list[Any]) -> None:
    boxes = placed(crowd([0.0, 100.0, 100.0, 101.0, 110.0, 900.0, 0.0]), saved)
    assert len(boxes) == 8  # the frontier has a name too
    for one, other in itertools.combinations(boxes.values(), 2):
        assert not one.overlaps(other)


def test_a_crowd_past_all_room_is_labelled(saved: list[Any]) -> None:
    assert len(placed(crowd([100.0] * 60), saved)) == 61


def test_points_without_amounts_are_no_picture() -> None:
    point = FrontierPoint("r", "x", 0.5, 0.4, 0.6, {"ms": None}, 1.0, 0, 1, 1)
    with pytest.raises(UserError, match="no timings"):
        draw_frontier([point], "ms", 1, ["t"], Path("x.png"))


def test_a_stopped_run_is_marked(place: Path, saved: list[Any]) -> None:
    folder = sweep(place, "run", model("llm", 5, 100), distractors=(4,))
    lines = (folder / "rows.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "rows.jsonl").write_bytes(b"".join(lines[:5]))
    result = kit.run(app, "run", code=0)
    assert "llm: 3 of 8 rows are not run yet" in result.stderr
    assert "llm (5 of 8)" in [text.get_text() for text in saved[0].axes[0].texts]
