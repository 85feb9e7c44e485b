"""`recallbed errors`: kinds of misses, reasons, formats, and the agreement of two retrievers."""

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import Result

from analysis.errors import app
from analysis.export import app as export_app
from analysis.importing import app as import_app
from analysis.metrics import Recall
from analysis.miss_texts import CSV_COLUMNS, cell_text
from analysis.misses import KINDS, misses
from analysis.near_duplicates import nearly_equal
from analysis.ranked_pools import material_of
from analysis.retriever_agreement import agreement_of
from analysis.runs import Run, read_run
from analysis.sides import Side
from recallbed.chat_models import ChatOptions
from recallbed.corpus.material import Material
from retrievers.base import Retriever, RetrieverError, Scored
from retrievers.overlap import Overlap
from retrievers.registry import register
from tests import kit
from tests.kit import one_line_error, rows_of, swept, write_lines
from tests.reader import reader
from tests.scripted_server import scripted_server

HOSTILE = "<script>alert(1)</script> [red]tea[/red] $x_1$ \x1b[31mred\x07 \u202eabc </script>"
SHOWN = r"<script>alert(1)</script> [red]tea[/red] $x_1$ \x1b[31mred\x07 \u202eabc </script>"
FORMULA = '=HYPERLINK("tea")'


@register("reranks-two")
class ReranksTwo(Retriever):
    """The first two by words in common, the other way round, above the rest; fails on storms."""

    def score(self, query: str, pool: Any) -> Any:
        if "storm" in query:
            raise RetrieverError("no storms")
        first = np.array(Overlap().score(query, pool), np.float32)
        order = np.argsort(-first, kind="stable")
        ranks = np.empty(len(pool))
        ranks[order] = np.arange(len(pool))
        ranks[order[:2]] = [1, 0]
        return Scored(-ranks, first_stage=first, depth=2)


FILLERS = [f"filler {i}" for i in range(9)]


def own_row(name: str, query: str, gold: str, *others: str, label: str | None = None) -> Any:
    """A query whose gold is first in its pool, and has the label `Drinks`."""
    memories: list[dict[str, str | None]] = [{"text": gold, "label": "Drinks"}]
    memories += [{"text": text, "label": label} for text in (*others, *FILLERS[len(others) :])]
    return {
        "id": name,
        "query": query,
        "memories": memories,
        "gold": 0,
        "category": name[:4],
        "x": HOSTILE,
    }


ROWS = [
    own_row("hit", "loves green tea", "green tea"),
    own_row("near", "a very big teapot", "one big old red teapot", "very big old red teapot"),
    own_row("none", "what about rain", "umbrella", "rain again", "rain now"),
    own_row("tied", "red boats", "red", "boats"),
    own_row("same", "coffee or tea", "tea", "coffee or milk", label="Drinks"),
    own_row("other", "warm hats or gloves", "gloves", "warm hats", label="Clothes"),
    own_row("storm", f"storm {HOSTILE}", FORMULA, f"storm {HOSTILE}"),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_lines(tmp_path_factory.mktemp("errors") / "own.jsonl", ROWS)


@pytest.fixture(scope="module")
def run(data: Path) -> Path:
    retrievers = ["words=overlap", "bm25", "two=reranks-two", "mix=hybrid"]
    settings = ["mix.legs=words,bm25"]
    out = data.parent / "run"
    return swept(retrievers, data, settings=settings, ks=(1,), out=out, keep_going=True).path


@pytest.fixture(scope="module")
def finished(run: Path) -> Run:
    return read_run(run)


@pytest.fixture(scope="module")
def material(finished: Run, data: Path) -> Material:
    return material_of(finished, data)


def errors(run: Path, data: Path, *words: object) -> Result:
    return kit.run(app, run, "--data", data, *words)


def listed(run: Path, data: Path, *words: object) -> list[dict[str, Any]]:
    done = kit.run(app, run, "--data", data, *words, "--format", "jsonl", code=0)
    return [json.loads(line) for line in done.stdout.splitlines()]


# --- kinds


def test_each_miss_has_the_kind_that_it_was_made_for(finished: Run, material: Material) -> None:
    found = misses(finished, material, "words", 9)
    assert {miss.query.benchmark_id: miss.kind for miss in found.found} == {
        "near": "near-duplicate",
        "none": "no-shared-term",
        "tied": "tied",
        "same": "same-label",
        "other": "other-label",
        "storm": "other-label",
    }
    summary = found.summary
    assert (summary.scored, summary.hits, sum(summary.misses.values())) == (7, 1, 6)
    assert summary.expected["tied"] == 0.5


@pytest.mark.parametrize("label", ["words", "bm25", "mix", "two"])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_expected_misses_make_the_recall(
    finished: Run, material: Material, label: str, k: int
) -> None:
    """With one gold per query, whatever the ties."""
    summary = misses(finished, material, label, 9, k).summary
    rows = [row for row in finished.rows if row.retriever == label and row.error is None]
    recall = sum(Recall(k).value(row.ties) for row in rows) / len(rows)
    assert 1 - sum(summary.expected.values()) / summary.scored == pytest.approx(recall)
    assert summary.hits + sum(summary.misses.values()) == summary.scored == len(rows)


def test_a_gold_that_the_first_stage_lost_is_told_from_one_that_was_misordered(
    finished: Run, material: Material
) -> None:
    found = {m.query.benchmark_id: m for m in misses(finished, material, "two", 9).found}
    assert found["none"].candidate is False
    assert found["none"].kind == "not-a-candidate"
    assert found["hit"].candidate is True
    assert found["hit"].kind == "other-label"
    assert {miss.candidate for miss in misses(finished, material, "words", 9).found} == {None}


def test_a_failed_query_is_no_miss(finished: Run, material: Material) -> None:
    summary = misses(finished, material, "two", 9).summary
    assert summary.failed == {"no storms": 1}
    assert summary.scored == 6


def test_near_duplicates_are_those_of_the_breakdown() -> None:
    assert nearly_equal("likes the green tea", "Likes green tea!")
    assert not nearly_equal("likes green tea", "likes coffee")
    assert nearly_equal("喜欢喝绿茶", "喜欢喝绿茶。")
    assert nearly_equal("", " ")


# --- what is printed


def test_the_summary_of_all_retrievers_comes_first(run: Path, data: Path) -> None:
    done = errors(run, data)
    text = done.stdout
    assert text.startswith(
        "Queries by outcome at 9 distractors; a hit has a gold among the first 1"
    )
    header = next(line for line in text.splitlines() if line.startswith("outcome"))
    assert header.split() == ["outcome", "words", "bm25", "two", "mix"]
    for kind in ("near-duplicate", "no-shared-term", "tied", "same-label", "other-label"):
        assert f"{kind}: {KINDS[kind]}" in text
    assert "failed: no storms" in text
    assert "--retriever" in done.stderr


def test_a_list_shows_query_gold_first_and_reasons(run: Path, data: Path) -> None:
    text = errors(run, data, "--retriever", "bm25", "--miss-kind", "other-label").stdout
    start = text.index("\nother: ") + 1
    _, query, gold, of_gold, first, of_first = text[start:].splitlines()[:6]
    assert query == "  query  warm hats or gloves"
    assert gold == "  gold   gloves [Drinks]"
    assert re.fullmatch(r" {9}rank 2 of 10; score \d\.\d{4}; glove \d\.\d\d", of_gold)
    assert first == "  first  warm hats [Clothes]"
    assert re.fullmatch(
        r" {9}rank 1 of 10; score \d\.\d{4}; hat \d\.\d\d \+ warm \d\.\d\d", of_first
    )


def test_reasons_make_the_scores_of_the_run(run: Path, data: Path) -> None:
    for label in ("bm25", "mix"):
        found = listed(run, data, "--retriever", label)
        assert found
        for miss in found:
            why = miss["first"]["why"]
            assert why["score"] == pytest.approx(miss["first"]["score"], abs=1e-5)
            assert miss["gold"]["why"] is not None
    found = listed(run, data, "--retriever", "mix")
    assert [leg["leg"] for leg in found[0]["first"]["why"]["legs"]] == ["words", "bm25"]
    assert found[0]["first"]["why"]["legs"][1]["explanation"]["kind"] == "terms"


def test_a_retriever_without_reasons_is_noted_once(run: Path, data: Path) -> None:
    done = errors(run, data, "--retriever", "words")
    assert done.stderr.splitlines() == ["no reason for 6 of 6 misses: words gives none"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"settings": {"k1": 1.2}}, "reasons are left out: bm25: is not what the run had"),
        ({"settings": None}, "reasons are left out: bm25: its recorded settings cannot be read"),
        ({"name": "bm26"}, "reasons are left out: no retriever `bm26`"),
        ({"name": "m:C"}, "reasons are left out: bm25: is of the class `m:C`. Pass --allow-code"),
    ],
    ids=str,
)
def test_without_the_retriever_only_the_reasons_are_missing(
    run: Path, data: Path, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    manifest = kit.read_json(run / "manifest.json")
    entries = manifest["fingerprint"]["retrievers"]
    entries[1] |= change
    (copy / "manifest.json").write_text(json.dumps(manifest))
    (copy / "rows.jsonl").write_bytes((run / "rows.jsonl").read_bytes())
    done = errors(copy, data, "--retriever", "bm25")
    [line] = done.stderr.splitlines()
    assert line.startswith(message)
    assert done.exit_code == 0
    assert "near-duplicate" in done.stdout


def test_filters_and_limits(run: Path, data: Path) -> None:
    def names(*words: object) -> list[str]:
        return [one["query"] for one in listed(run, data, "--retriever", "words", *words)]

    assert names("--miss-kind", "tied", "--miss-kind", "same-label") == ["tied", "same"]
    assert names("--where", "category=othe") == ["other"]
    assert names("--limit", 2) == ["near", "none"]
    assert names("--k", 2) == ["none", "storm"]
    done = errors(run, data, "--retriever", "words", "--limit", 2)
    assert "2 of 6 misses. --limit 6 lists all" in done.stderr


def test_csv_has_one_line_per_miss_and_no_formula(run: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "misses.csv"
    words = ("--retriever", "bm25", "--format", "csv")
    assert errors(run, data, *words, "--out", out).stdout == ""
    assert errors(run, data, *words).stdout == out.read_text("utf-8")
    rows = list(csv.DictReader(io.StringIO(out.read_text("utf-8"))))
    assert tuple(rows[0]) == CSV_COLUMNS
    [storm] = [row for row in rows if row["query"] == "storm"]
    assert storm["gold"] == "'" + FORMULA
    assert storm["text"] == f"storm {SHOWN}"
    assert storm["first"] == f"storm {SHOWN}"
    assert json.loads(storm["fields"]) == {"category": "stor", "x": HOSTILE}
    assert [row["gold_rank"] for row in rows if row["query"] == "tied"] == ["1-2"]
    one_line_error(errors(run, data, *words, "--out", out), "already exists")
    assert errors(run, data, *words, "--out", out, "--overwrite").exit_code == 0


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x"])
def test_a_cell_is_never_a_formula(text: str) -> None:
    assert cell_text(text) == f"'{text}"
    assert cell_text(f"a {text}") == f"a {text}"


def test_texts_steer_nothing(run: Path, data: Path) -> None:
    for words in ((), ("--format", "jsonl"), ("--format", "csv")):
        text = errors(run, data, "--retriever", "bm25", *words).stdout
        assert not {"\x1b", "\x07", "\u202e"} & set(text)
        assert "[red]tea[/red] $x_1$" in text
    [storm] = [one for one in listed(run, data, "--retriever", "bm25") if one["query"] == "storm"]
    assert storm["first"]["text"] == f"storm {HOSTILE}"


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--retriever", "x"], ["--retriever x", "words, bm25, two, mix"]),
        (["--retriever", "words", "--miss-kind", "x"], ["--miss-kind x", "near-duplicate"]),
        (["--limit", 3], ["one retriever", "words"]),
        (["--format", "csv"], ["one retriever"]),
        (["--agreement", "words", "x"], ["x"]),
        (["--agreement", "words", "bm25", "--retriever", "words"], ["--agreement excludes"]),
        (["--agreement", "words", "bm25", "--pool-seeds", 0], ["--pool-seeds"]),
        (["--distractors", 7], ["--distractors 7", "It has 9"]),
        (["--retriever", "words", "--out", "/nowhere/x.csv"], ["/nowhere"]),
    ],
    ids=str,
)
def test_a_mistake_is_one_line(run: Path, data: Path, words: list[Any], parts: list[str]) -> None:
    one_line_error(errors(run, data, *words), *parts)


# --- agreement


def test_agreement_counts_what_both_one_and_neither_find(finished: Run) -> None:
    """Worked by hand: on `tied` both break their ties independently of each other."""
    found = agreement_of(Side(finished, "words"), Side(finished, "bm25"), 9)
    rows = {label: by_query(finished, label) for label in ("words", "bm25")}
    values = [(rows["words"][q], rows["bm25"][q]) for q in rows["words"]]
    assert found.counts["both"] == pytest.approx(sum(a * b for a, b in values))
    assert found.counts["neither"] == pytest.approx(sum((1 - a) * (1 - b) for a, b in values))
    assert sum(found.counts.values()) == pytest.approx(7) == found.n
    assert found.oracle.mean == pytest.approx(1 - found.counts["neither"] / 7)
    only = found.counts["both"] + found.counts["only a"]
    assert only / 7 == pytest.approx(found.recall_a.mean)
    better = max(found.recall_a.mean, found.recall_b.mean)
    assert found.room.mean == pytest.approx(found.oracle.mean - better)
    assert found.oracle.low <= found.oracle.mean <= found.oracle.high


def by_query(run: Run, label: str) -> dict[str, float]:
    return {row.query: Recall(1).value(row.ties) for row in run.rows if row.retriever == label}


def test_a_hybrid_of_the_run_stands_next_to_the_room(run: Path, data: Path) -> None:
    [found] = listed(run, data, "--agreement", "words", "bm25")
    [mix] = found["hybrids"]
    assert (mix["label"], mix["legs"], mix["n"]) == ("mix", ["words", "bm25"], 7)
    better = max(found["recall_a"]["mean"], found["recall_b"]["mean"])
    assert mix["gain"] == pytest.approx(mix["recall"]["mean"] - better, abs=1e-5)
    text = errors(run, data, "--agreement", "words", "bm25").stdout
    assert "words only" in text
    assert "oracle of both" in text
    assert f"mix (words, bm25): {mix['gain']:+.4f} over the better of the two" in text


def test_a_query_that_failed_on_one_side_is_left_out_and_counted(run: Path, data: Path) -> None:
    done = errors(run, data, "--agreement", "words", "two")
    assert "1 query left out" in done.stderr
    [found] = listed(run, data, "--agreement", "words", "two")
    assert (found["n"], found["unpaired"]) == (6, 1)


def test_agreement_of_a_part_and_across_runs(run: Path, data: Path, tmp_path: Path) -> None:
    other = swept(["bm25"], data, out=tmp_path / "other").path
    [inside] = listed(run, data, "--agreement", "words", "bm25")
    [across] = listed(run, data, "--agreement", "words", f"{other}:bm25")
    assert across["counts"] == inside["counts"]
    [same] = listed(run, data, "--agreement", "bm25", f"{other}:bm25")
    assert {same["a"], same["b"]} == {f"{run}:bm25", f"{other}:bm25"}
    [part] = listed(run, data, "--agreement", "words", "bm25", "--where", "category=tied")
    assert part["n"] == 1
    elsewhere = swept(["bm25"], out=tmp_path / "sample", distractors=(9,), limit=3).path
    one_line_error(errors(run, data, "--agreement", "words", f"{elsewhere}:bm25"), "not the same")


def test_pool_seeds_are_averaged(tmp_path: Path) -> None:
    run = read_run(
        swept(
            ["overlap", "bm25"], out=tmp_path / "r", distractors=(20,), pool_seeds=(1, 2), limit=6
        ).path
    )
    found = agreement_of(Side(run, "overlap"), Side(run, "bm25"), 20)
    assert found.n == 6
    assert sum(found.counts.values()) == pytest.approx(6)


# --- unfinished runs


@pytest.fixture
def part(run: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "part"
    folder.mkdir()
    (folder / "manifest.json").write_bytes((run / "manifest.json").read_bytes())
    lines = (run / "rows.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "rows.jsonl").write_bytes(b"".join(lines[:10]))
    return folder


def test_a_run_that_is_not_finished_has_the_misses_of_its_rows(part: Path, data: Path) -> None:
    assert len(rows_of(part)) == 10
    found = listed(part, data, "--retriever", "bm25")
    assert {one["query"] for one in found} <= {"hit", "near", "none"}
    summaries = listed(part, data)
    assert [one["scored"] for one in summaries] == [7, 3, 0, 0]
    one_line_error(errors(part, data, "--agreement", "words", "bm25"), "not the same queries")


# --- rerankers


def test_a_reranker_shows_its_reply_and_calls_no_model(data: Path, tmp_path: Path) -> None:
    """The model takes fillers for the best, so that each miss was misordered by a reply or lost."""
    replies = str(tmp_path / "replies.sqlite")
    with scripted_server(reader(lambda query, text: float("filler" in text))) as server:
        run = swept(
            ["words=overlap", "llm=listwise"],
            data,
            settings=["llm.model=openai:m", "llm.first_stage=words", "llm.depth=3"],
            ks=(1,),
            out=tmp_path / "run",
            chat=ChatOptions(base_url=server.url, replies=replies),
        ).path
        calls = len(server.calls)
        found = listed(run, data, "--retriever", "llm", "--replies", replies)
        text = errors(run, data, "--retriever", "llm", "--replies", replies).stdout
        assert len(server.calls) == calls > 0
    by_name = {one["query"]: one for one in found}
    hit, none = by_name["hit"], by_name["none"]
    assert (hit["candidate"], none["candidate"]) == (True, False)
    assert none["kind"] == "not-a-candidate"
    assert none["gold"]["why"]["candidate"] is False
    assert hit["gold"]["why"]["first_stage_rank"] == [1, 1]
    [reply] = hit["first"]["why"]["replies"]
    assert json.loads(reply["reply"])["order"][0] == reply["shown_as"]
    assert 'reply {"order"' in text
    assert "not among the 3 candidates" in text
    missing = errors(run, data, "--retriever", "llm", "--replies", tmp_path / "none.sqlite")
    assert "reply {" not in missing.stdout
    assert "not among the 3 candidates" in missing.stdout


def test_an_imported_run_has_misses_without_reasons(run: Path, data: Path, tmp_path: Path) -> None:
    kit.run(export_app, run, "--data", data, "--out", tmp_path / "trec", code=0)
    file = tmp_path / "trec" / "words.d9.run"
    out = tmp_path / "imported"
    words = ("--label", "theirs", "--data", data, "--k", 1, "--out", out)
    kit.run(import_app, file, *words, code=0)
    done = errors(out, data)
    assert "near-duplicate" in done.stdout
    [line] = done.stderr.splitlines()
    assert line.startswith("reasons are left out: ")
