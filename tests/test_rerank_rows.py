"""What runs keep of reranking: rows, summaries, remarks; the sweep's options for chat models."""

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import Result

from analysis.metrics import recall_at, recall_within
from analysis.rows import RERANKED_KEYS, ROW_KEYS, Reranking, SweepRow, is_sweep_row
from analysis.runs import read_run
from analysis.tables import build_table, remarks
from recallbed.corpus.records import Memory
from recallbed.errors import UserError
from recallbed.harness.run_folder import encode_row
from retrievers import NotScored, Retriever, Scored, Usage
from retrievers.overlap import Overlap
from task3.sweep import app
from tests.kit import WriteRelease, one_line_error, rows_of, run, swept
from tests.reader import reader
from tests.scripted_server import ScriptedServer, scripted_server
from tests.test_summary import manifest, only_cell, row, shown, summarise

POOL = [Memory(f"memory {i}") for i in range(5)]
PLACE = ("q", "x", 4)


# --- rows


def reranked_row(pool: Sequence[Memory], at: Sequence[int], *known: Any) -> dict[str, Any]:
    scores = np.array([3, 5, 4, 1, 2][: len(pool)], np.float32)
    of = ("q", "x", len(pool) - len(at))
    row = SweepRow.scored(of, pool, at, scores, reranked=Reranking.of(at, *known))
    assert SweepRow.from_json(json.loads(encode_row(row.to_json()))).to_json() == row.to_json()
    return row.to_json()


def test_a_row_has_the_first_stage_the_depth_and_the_place_in_the_prompt() -> None:
    first = np.array([0.5, 0.5, 0.9, 0.1, 0.5], np.float32)
    found = reranked_row(POOL, [1], first, 3, [2, 1, 4])
    assert tuple(found) == ROW_KEYS + RERANKED_KEYS
    assert [found[key] for key in RERANKED_KEYS] == [[1, 3], 3, 1, 0]


def test_a_gold_that_was_not_shown_has_no_place() -> None:
    found = reranked_row(POOL, [3], None, None, [2, 1])
    assert [found[key] for key in RERANKED_KEYS] == [None, None, None, 0]


def test_several_golds_have_lists_in_the_order_of_gold() -> None:
    first = np.array([0.5, 0.5, 0.9, 0.1, 0.5], np.float32)
    found = reranked_row(POOL, [3, 2], first, 2, [2, 0])
    assert (found["above"], found["first"]) == ([4, 1], [[4, 0], [1, 1]])
    assert found["shown"] == [None, 0]


def test_without_a_first_stage_a_row_is_byte_for_byte_what_it_was() -> None:
    scores = np.arange(5, dtype=np.float32)
    plain = SweepRow.scored(PLACE, POOL, [1], scores).to_json()
    more = SweepRow.scored(PLACE, POOL, [1], scores, reranked=Reranking()).to_json()
    assert tuple(plain) == ROW_KEYS
    assert encode_row(more).startswith(encode_row(plain)[:-2])


@pytest.mark.parametrize(
    "wrong",
    [
        *({"first": value} for value in ([5, 1], [0, 0], [[0, 1], [1, 1]], 0)),
        *({"depth": value} for value in (0, True)),
        *({"shown": value} for value in (5, -1, [1, 2])),
        *({"estimated": value} for value in (3, None)),
        {"error": "broken"},
    ],
    ids=str,
)
def test_a_damaged_row_of_a_reranked_pool_is_none(wrong: dict[str, Any]) -> None:
    sound = reranked_row(POOL, [1], np.zeros(5, np.float32), 3, [1]) | {"calls": 2}
    assert is_sweep_row(sound)
    assert not is_sweep_row(sound | wrong)
    assert not is_sweep_row(dict(reversed(sound.items())))
    assert not is_sweep_row({key: value for key, value in sound.items() if key != "shown"})


class WithFields(Retriever):
    """Word overlap; on queries with "faulty" with the fields `of`."""

    def __init__(self, independent: bool = False, **of: Any) -> None:
        self.of, self.independent = of, independent

    @property
    def pool_independent(self) -> bool:
        return self.independent

    def score(self, query: str, pool: Sequence[Memory]) -> Scored:
        scores = np.asarray(Overlap().score(query, pool))
        return Scored(scores, **(self.of if "faulty" in query else {"depth": 2}))


@pytest.mark.parametrize(
    ("of", "cause"),
    [
        ({"first_stage": [0.0] * 4}, "first stage: scores of shape (4,) for a pool of 5"),
        ({"first_stage": [0.0, np.nan, 0, 0, 0]}, "first stage: score not finite at position 1"),
        ({"shown": [0, 1, 0]}, "shown: not distinct positions in a pool of 5"),
        ({"shown": [-1]}, "shown: not distinct positions in a pool of 5"),
        ({"shown": [5]}, "shown: not distinct positions in a pool of 5"),
        ({"shown": ["0"]}, "TypeError"),
        ({"depth": 0}, "depth 0: must be at least 1"),
        ({"depth": 2.5}, "TypeError"),
    ],
    ids=str,
)
def test_a_wrong_field_of_a_result_fails_its_own_query(of: dict[str, Any], cause: str) -> None:
    right, wrong = WithFields(**of).results(["memory", "faulty memory"], [POOL, POOL])
    assert right.depth == 2
    assert isinstance(wrong, NotScored)
    assert cause in wrong.cause


def test_unions_have_no_first_stage(write_release: WriteRelease) -> None:
    release = numbered(write_release)
    for name, keys in (("Union", ROW_KEYS), ("Estimates", ROW_KEYS + RERANKED_KEYS)):
        out = release / name
        found = read_run(swept([f"{__name__}:{name}"], release, distractors=(4,), out=out).path)
        assert {tuple(one.to_json()) for one in found.rows} == {keys}
        for one in found.rows:
            assert one.reranked in (None, Reranking(estimated=1))


class Union(Retriever):
    """Pool-independent, and yet it has a first stage."""

    pool_independent = True
    usage = Usage()

    def score(self, query: str, pool: Sequence[Memory]) -> Scored:
        scores = np.asarray(Overlap().score(query, pool))
        return Scored(scores, first_stage=scores, shown=[0], depth=3, usage=self.usage)


class Estimates(Union):
    """Its tokens are estimates."""

    usage = Usage(2, 10, 3, unreported=1)


# --- the ceiling


@pytest.mark.parametrize("k", [1, 2, 3, 5])
@pytest.mark.parametrize("depth", [1, 2, 4, 5, 9])
def test_the_ceiling_is_the_mean_over_all_ways_to_break_the_ties(depth: int, k: int) -> None:
    scores, gold = [3, 2, 2, 2, 1, 1], [1, 3, 4]
    ties = [(sum(s > scores[g] for s in scores), scores.count(scores[g])) for g in gold]
    best = []
    for tiebreak in itertools.permutations(range(len(scores))):
        order = sorted(range(len(scores)), key=lambda i: (-scores[i], tiebreak[i]))
        inside = [g in order[:depth] for g in gold]
        first = [g in order[:k] for g in gold]
        best.append(sum(first) / 3 if k >= depth else min(k, sum(inside)) / 3)
    assert recall_within(k, depth, ties) == pytest.approx(np.mean(best), abs=1e-12)


@pytest.mark.parametrize("tie", [(0, 1), (18, 5), (19, 1), (20, 1), (3, 900)], ids=str)
def test_with_one_gold_the_ceiling_is_recall_at_the_depth(tie: tuple[int, int]) -> None:
    assert recall_within(1, 20, [tie]) == pytest.approx(recall_at(20, *tie))
    assert recall_within(30, 20, [tie]) == recall_at(30, *tie)


# --- the summary


def reranked(query: str, above: int, **other: Any) -> dict[str, Any]:
    known = {"first": [above, 1], "depth": 4, "shown": None, "estimated": 0}
    used = {"calls": 2, "tokens_in": 100, "tokens_out": 10}
    return row(query, above, **(used | known | other))


TWO = {"chat_models": {"x": ["m", "n"]}}
PRICED = {"chat_models": {"x": ["m"]}, "prices": {"m": {"in": 2.0, "out": 30.0}}}


def test_cost_is_tokens_at_the_price_of_the_manifest() -> None:
    rows = [reranked("a", 0), reranked("b", 0, tokens_in=300), row("c", None)]
    cell = only_cell(summarise(manifest(**PRICED), rows, (1,)))
    assert cell["per_query"] == {"calls": 2.0, "tokens_in": 200.0, "tokens_out": 10.0}
    assert cell["cost"] == pytest.approx((400 * 2 + 20 * 30) / 1e6)
    assert cell["estimated_calls"] == 0


@pytest.mark.parametrize(
    ("facts", "other", "message"),
    [
        ({"chat_models": {"x": ["m"]}}, {}, "x: cost unknown, no price for m"),
        ({}, {}, "x: cost unknown, no price for its model"),
        (PRICED | TWO, {}, "x: cost unknown, it asks several models: m, n"),
        (PRICED, {"estimated": 1}, "x: tokens of 2 calls are estimates (not reported): no cost"),
    ],
    ids=["no price", "no model", "two models", "estimates"],
)
def test_an_unknown_cost_is_null(facts: Any, other: Any, message: str) -> None:
    rows = [reranked("a", 0, **other), reranked("b", 1, **other)]
    summary = summarise(manifest(**facts), rows, (1,))
    assert only_cell(summary)["cost"] is None
    assert message in remarks(summary)
    assert "unknown" in shown(summary)


def test_no_calls_cost_nothing() -> None:
    rows = [reranked("a", 0, calls=0, tokens_in=0, tokens_out=0)]
    assert only_cell(summarise(manifest(), rows, (1,)))["cost"] == 0.0


def test_the_first_stages_recall_is_expected_under_its_ties() -> None:
    rows = [reranked("a", 0, first=[3, 2]), reranked("b", 2), reranked("c", 7)]
    cell = only_cell(summarise(manifest(), rows, (1, 5)))
    assert cell["depth"] == 4
    expected = {"1": round((0.5 + 1 + 0) / 3, 6), "5": round((1 + 1 + 0) / 3, 6)}
    assert cell["first_stage_recall"] == expected
    assert "ceiling" in shown(summarise(manifest(), rows, (1, 5)))


def test_recall_is_reported_by_thirds_of_the_prompt() -> None:
    rows = [
        reranked(f"q{place}{above}", above, shown=place, depth=6)
        for place, above in ((0, 0), (1, 2), (2, 0), (5, 1), (5, 0))
    ]
    places = only_cell(summarise(manifest(), rows, (1, 2)))["recall_by_place"]
    thirds = [(0.0, 0.3333, 2), (0.3333, 0.6667, 1), (0.6667, 1.0, 2)]
    assert [(p["from"], p["to"], p["golds"]) for p in places] == thirds
    recalls = [tuple(p["recall"].items()) for p in places]
    assert recalls == [(("1", one), ("2", two)) for one, two in ((0.5, 0.5), (1, 1), (0.5, 1))]


def test_long_prompts_are_cut_into_tenths_and_each_gold_has_its_place() -> None:
    facts = manifest(pool_sizes={"199/0": {"a": 201}})
    both = {"gold": [1, 2], "above": [0, 9], "tied": [1, 1], "shown": [200, 19]}
    rows = [reranked("a", 0, first=None, depth=None, distractors=199) | both]
    places = only_cell(summarise(facts, rows, (1,)))["recall_by_place"]
    assert [p["golds"] for p in places] == [1] + [0] * 8 + [1]
    assert [places[i]["recall"] for i in (0, 4, 9)] == [{"1": 0}, {}, {"1": 1}]


def test_labels_without_reranking_keep_their_summary_and_table() -> None:
    summary = summarise(manifest(), [row("a", 0), row("b", 1)], (1,))
    new = {"per_query", "cost", "estimated_calls", "depth", "first_stage_recall", "recall_by_place"}
    assert not new & set(only_cell(summary))
    assert "chat_models" not in summary.to_json()
    heads = build_table(summary, {}).columns
    assert not {"calls per query", "cost", "ceiling"} & set(heads)


def test_a_k_of_at_least_the_depth_is_remarked_upon() -> None:
    summary = summarise(manifest(), [reranked("a", 0), reranked("b", 5)], (1, 4, 5))
    message = remarks(summary)
    assert "x: reranking the first 4 cannot change R@4" in message
    assert "x: reranking the first 4 cannot change R@5" in message
    assert not any("cannot change R@1" in line for line in message)


def test_a_k_past_the_places_that_are_ordered_well_is_remarked_upon() -> None:
    rows = [reranked("a", 0, depth=9)]
    message = remarks(summarise(manifest(notes={"x": {"sound_places": 2}}), rows, (1, 5)))
    assert "x: R@5 is past the 2 positions that it orders reliably" in message
    assert not any("R@1 goes" in line for line in message)


# --- the sweep, over HTTP


def numbered(write_release: WriteRelease, queries: int = 6) -> Path:
    texts = [
        [f"{'query ' * (j == 0)}memory {i} of kind {j}" for j in range(5)] for i in range(queries)
    ]
    return write_release([(f"query {i}", pool, 2) for i, pool in enumerate(texts)])


def kind_two(query: str, text: str) -> float:
    """The golds, to a reader who knows them: kind 2, not the kind 0 that shares a word."""
    return float(text.endswith("kind 2"))


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server(reader(kind_two)) as running:
        yield running


@pytest.fixture
def place(tmp_path: Path, write_release: WriteRelease, monkeypatch: pytest.MonkeyPatch) -> Path:
    numbered(write_release)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RECALLBED_API_KEY", "k")
    (tmp_path / "prices.toml").write_text("[scripted]\nin = 2.0\nout = 30.0\n")
    return tmp_path


LISTWISE = {"model": "openai:scripted", "first_stage": "overlap", "depth": "3"}


def asked(server: ScriptedServer, *words: str, code: int | None = None, **settings: str) -> Result:
    given = [f"--set=lw.{key}={value}" for key, value in (LISTWISE | settings).items()]
    return run(
        app,
        *("--retriever=lw=listwise", *given, "--data=release", "--distractors=4"),
        *(f"--base-url={server.url}", "--replies=replies.sqlite", *words),
        code=code,
    )


def test_a_sweep_keeps_what_its_replies_took(place: Path, server: ScriptedServer) -> None:
    result = asked(server, "--k=1,2", "--out=run", "--prices=prices.toml", "--json", code=0)
    rows = rows_of("run")
    assert [(one["calls"], one["depth"], one["estimated"]) for one in rows] == [(1, 3, 0)] * 6
    assert all(one["first"] == [1, 4] for one in rows)
    [cell] = json.loads(result.stdout)["cells"]
    # The reader knows the gold wherever it is shown: recall is its chance to be in the cut.
    in_cut = [one["shown"] is not None for one in rows]
    assert cell["recall"]["1"]["mean"] == pytest.approx(np.mean(in_cut))
    assert cell["first_stage_recall"]["1"] == 0.5
    tokens_in, tokens_out = (sum(one[key] for one in rows) for key in ("tokens_in", "tokens_out"))
    assert tokens_in == 10 * len(server.calls)
    assert cell["cost"] == pytest.approx((tokens_in * 2 + tokens_out * 30) / 1e6)
    kept = json.loads(Path("run/manifest.json").read_text())
    assert kept["chat_models"] == {"lw": ["scripted"]}
    assert kept["prices"] == {"scripted": {"in": 2.0, "out": 30.0}}
    assert "prices" not in json.dumps(kept["fingerprint"])
    assert "tokens in / out per query" not in result.output
    shown = asked(server, "--k=1", "--out=run", "--resume")
    assert "tokens in / out per query" in shown.stdout


def test_prices_may_come_later_and_stay(place: Path, server: ScriptedServer) -> None:
    first = json.loads(asked(server, "--k=1", "--out=run", "--json").stdout)
    assert first["cells"][0]["cost"] is None
    words = ("--k=1", "--out=run", "--resume", "--json")
    priced = json.loads(asked(server, *words, "--prices=prices.toml").stdout)
    assert priced["cells"][0]["cost"] > 0
    assert json.loads(asked(server, *words).stdout)["cells"] == priced["cells"]
    assert len(server.calls) == 6


def test_reversing_changes_no_recall_at_its_depth(place: Path, server: ScriptedServer) -> None:
    server.answer = reader(lambda query, text: -kind_two(query, text))
    server.choose = lambda call: "reversed"
    result = asked(server, "--k=1,3", "--out=run", "--retriever=overlap", "--json", code=0)
    cells = {cell["retriever"]: cell["recall"] for cell in json.loads(result.stdout)["cells"]}
    assert cells["lw"]["1"]["mean"] != cells["overlap"]["1"]["mean"]
    ceilings = [c for c in json.loads(result.stdout)["cells"] if c["retriever"] == "lw"]
    assert ceilings[0]["first_stage_recall"]["3"] == cells["overlap"]["3"]["mean"]
    assert "lw: reranking the first 3 cannot change R@3" in result.stderr


def test_a_run_that_changes_no_figure_is_refused(place: Path, server: ScriptedServer) -> None:
    for more in ((), ("--dry-run",)):
        result = asked(server, "--k=3,5", "--out=run", *more)
        one_line_error(result, "lw: reranking the first 3 cannot change R@3 or beyond")
    assert not server.calls
    assert not Path("run").exists()


def test_a_depth_that_is_no_rerankers_refuses_nothing(write_release: WriteRelease) -> None:
    release = numbered(write_release, 2)
    given = {"distractors": (4,), "ks": (3,), "out": release.parent / "run"}
    assert swept([f"{__name__}:Deep"], release, **given).summary["cells"]


class Deep(Overlap):
    """A retriever with a depth of its own meaning, as an index has."""

    depth = 1


def test_a_dry_run_plans_what_a_run_then_sends(place: Path, server: ScriptedServer) -> None:
    result = asked(server, "--k=1", "--out=run", "--prices=prices.toml", "--dry-run", code=0)
    assert not server.calls
    assert not Path("run").exists()
    first, hedge = result.stdout.splitlines()
    assert first.startswith("openai:scripted: 6 calls, 0 stored, ")
    assert "unknown" not in first
    assert "re-asks" in hedge
    asked(server, "--k=1", "--out=run", code=0)
    assert len(server.calls) == 6
    again = asked(server, "--k=1", "--dry-run", "--json")
    plan = json.loads(again.stdout)["openai:scripted"]
    assert (plan["calls"], plan["stored"], plan["tokens_in"]) == (0, 6, 0)


def test_a_dry_run_counts_windows_without_replies(place: Path, server: ScriptedServer) -> None:
    windows = {"depth": "4", "window": "2", "stride": "1"}
    plan = json.loads(asked(server, "--k=1", "--dry-run", "--json", **windows).stdout)
    assert plan["openai:scripted"]["calls"] == 3 * 6
    assert plan["openai:scripted"]["cost"] is None
    assert not server.calls


def test_a_dry_run_without_a_chat_model_is_a_mistake(place: Path) -> None:
    result = run(app, "--retriever=bm25", "--data=release", "--distractors=4", "--dry-run")
    one_line_error(result, "nothing here asks a chat model")


def test_a_spent_budget_stops_and_a_larger_one_resumes(place: Path, server: ScriptedServer) -> None:
    words = ("--k=1", "--in-flight=1", "--out=run")
    longest = 1024 + 400
    stopped = asked(server, *words, f"--max-tokens-total={longest}")
    one_line_error(stopped, "budget reached", after_notes=True)
    kept = rows_of("run")
    assert 0 < len(kept) < 6
    assert all(one["error"] is None for one in kept)
    refused = asked(server, *words, "--max-tokens-total=100000")
    one_line_error(refused, "--resume")
    asked(server, *words, "--max-tokens-total=100000", "--resume", code=0)
    assert len(server.calls) == len(set(server.prompts())) == 6
    asked(server, "--k=1", "--out=whole", code=0)
    assert Path("run/rows.jsonl").read_bytes() == Path("whole/rows.jsonl").read_bytes()
    assert len(server.calls) == 6


def test_a_stopped_retry_keeps_what_it_repaired(place: Path, server: ScriptedServer) -> None:
    words = ("--k=1", "--in-flight=1", "--out=run")
    server.choose = lambda call: "perfect" if "query 5" in call.prompt else "status 400"
    asked(server, *words, code=0)

    def failed() -> int:
        return sum(one["error"] is not None for one in rows_of("run"))

    assert failed() == 5
    server.choose = lambda call: "perfect"
    stopped = asked(server, *words, "--retry-failed", f"--max-tokens-total={1024 + 400}")
    one_line_error(stopped, "budget reached", after_notes=True)
    assert 0 < failed() < 5
    asked(server, *words, "--retry-failed", code=0)
    assert failed() == 0


def test_a_budget_and_workers_exclude_each_other(place: Path, server: ScriptedServer) -> None:
    words = ("--k=1", "--in-flight=1", "--workers=2", "--out=run", "--max-tokens-total=100000")
    message = "lw: a budget cannot be shared with other processes: use --workers 1"
    one_line_error(asked(server, *words), message, after_notes=True)
    assert not server.calls


def test_a_refused_key_ends_the_run(place: Path, server: ScriptedServer) -> None:
    server.key = "another"
    one_line_error(asked(server, "--k=1", "--out=run"), "key", after_notes=True)
    assert len(server.calls) <= 8
    assert not Path("run/rows.jsonl").exists()


def test_run_sweep_takes_no_dry_run(write_release: WriteRelease) -> None:
    from recallbed.chat_models.session import ChatOptions

    with pytest.raises(UserError, match="dry run"):
        swept((), numbered(write_release), chat=ChatOptions(dry_run=True))
