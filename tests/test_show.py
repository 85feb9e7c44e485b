"""`recallbed show`: which queries are shown, what of them, and texts that steer nothing."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from typer.testing import Result

from analysis.query_views import query_rows, query_views
from analysis.ranked_pools import material_of
from analysis.runs import read_run
from analysis.show import app, view_lines
from recallbed.harness.run_folder import encode_row
from recallbed.harness.terminal import isolated
from recallbed.harness.text_table import text_block
from retrievers.base import RetrieverError
from retrievers.overlap import Overlap
from retrievers.registry import register
from tests import kit
from tests.kit import one_line_error, swept, write_lines

HOSTILE = "<script>alert(1)</script> [red]tea[/red] $x_1$ \x1b[31mred\x07 \u202eabc </script>"
SHOWN = r"<script>alert(1)</script> [red]tea[/red] $x_1$ \x1b[31mred\x07 \u202eabc </script>"
ARABIC = "يسكن في الطابق الخامس من عمارة قديمة بلا مصعد"
CHINESE = "住在六楼，老楼没有电梯，搬东西都要自己一趟一趟地扛上去"


@register("fails-on-storms")
class FailsOnStorms(Overlap):
    """Scores as `overlap`, but no query about storms."""

    def score(self, query: str, pool: Any) -> Any:
        if "storm" in query:
            raise RetrieverError("no \x1b[31mstorms")
        return [-score for score in super().score(query, pool)]


def own_row(name: str, query: str, texts: list[str], gold: Any, category: str) -> dict[str, Any]:
    memories = [{"text": text, "label": "Tea/Green" if "tea" in text else None} for text in texts]
    return {"id": name, "query": query, "memories": memories, "gold": gold, "category": category}


FILLERS = [f"filler number {i}" for i in range(12)]
ROWS = [
    own_row("hit", "likes green tea", ["green tea daily", "likes rain", *FILLERS], 0, "drinks"),
    own_row("miss", "wants a green hat", ["a green hat", "blue tea", *FILLERS], 1, "clothes"),
    own_row("tie", "red boat", ["red car", "boat trip", *FILLERS], 1, "travel"),
    own_row("storm", "storm", ["storm at sea", HOSTILE, *FILLERS], 1, "weather"),
    own_row("two", "green tea hat", ["green tea", "hat", "green tea hat", *FILLERS], [1, 2], "tea"),
    own_row("\x1b[2Jid", f"{HOSTILE} {ARABIC}", [ARABIC, CHINESE, *FILLERS], 0, HOSTILE),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_lines(tmp_path_factory.mktemp("show") / "own.jsonl", ROWS)


@pytest.fixture(scope="module")
def run(data: Path) -> Path:
    retrievers = ["words=overlap", "worst=fails-on-storms"]
    return swept(retrievers, data, out=data.parent / "run", keep_going=True).path


def show(run: Path, data: Path, *words: object) -> Result:
    return kit.run(app, run, "--data", data, *words)


def shown(run: Path, data: Path, *words: object) -> list[dict[str, Any]]:
    """The objects of `--json`."""
    done = kit.run(app, run, "--data", data, *words, "--json", code=0)
    return [json.loads(line) for line in done.stdout.splitlines()]


def names(run: Path, data: Path, *words: object) -> list[str]:
    return [found["query"] for found in shown(run, data, *words)]


def test_one_query_is_shown_with_the_rankings_of_all_retrievers(run: Path, data: Path) -> None:
    text = show(run, data, "--query", "hit", "--top", 2).stdout
    assert text.splitlines() == [
        "hit: 13 distractors, pool seed 0",
        "query  likes green tea",
        "gold   green tea daily [Tea/Green]",
        "category  drinks",
        "",
        "Rank of the gold among 14 memories",
        "",
        "retriever  rank   score  at 1",
        "-----------------------------",
        "words      1     2.0000  hit",
        "worst      14         -  miss",
        "",
        "words: first 2 of 14",
        "   1     2.0000  GOLD  green tea daily [Tea/Green]",
        "   2     1.0000        likes rain",
        "",
        "worst: first 2 of 14",
        "   1     0.0000        filler number 0",
        "   2     0.0000        filler number 1",
    ]


def test_equal_scores_share_a_range_of_ranks(run: Path, data: Path) -> None:
    [found] = shown(run, data, "--query", "tie", "--retriever", "words")
    [ranking] = found["rankings"]
    assert ranking["golds"][0]["rank"] == [1, 2]
    assert ranking["success"] == 0.5
    assert [one["rank"] for one in ranking["first"][:3]] == [[1, 2], [1, 2], [3, None]]
    assert "1-2" in show(run, data, "--query", "tie").stdout
    assert "tie (0.50)" in show(run, data, "--query", "tie").stdout


def test_every_gold_has_its_rank(run: Path, data: Path) -> None:
    [found] = shown(run, data, "--query", "two", "--retriever", "words")
    [ranking] = found["rankings"]
    assert [(one["position"], one["rank"]) for one in ranking["golds"]] == [
        (1, [3, 3]),
        (2, [1, 1]),
    ]
    assert [one["text"] for one in found["golds"]] == ["hat", "green tea hat"]
    assert "3, 1" in show(run, data, "--query", "two").stdout


def test_a_failed_row_shows_its_cause(run: Path, data: Path) -> None:
    text = show(run, data, "--query", "storm").stdout
    assert r"worst: failed: no \x1b[31mstorms" in text
    assert re.search(r"^worst +- +- +failed$", text, re.MULTILINE)
    [found] = shown(run, data, "--query", "storm", "--retriever", "worst")
    assert found["rankings"][0]["error"] == "no \x1b[31mstorms"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--hit"], ["hit", "two", "\x1b[2Jid"]),
        (["--miss"], ["miss", "tie", "storm"]),
        (["--miss", "--k", 2], ["miss", "storm"]),
        (["--where", "category=travel"], ["tie"]),
        (["--miss", "--where", "category=travel", "--where", "category=tea"], ["tie"]),
        (["--limit", 2], ["hit", "miss"]),
    ],
)
def test_filters(run: Path, data: Path, words: list[Any], expected: list[str]) -> None:
    found = names(run, data, "--retriever", "words", *words)
    assert found == expected


def test_a_beats_b_is_a_win_of_the_comparison(run: Path, data: Path) -> None:
    assert names(run, data, "--a-beats-b", "words", "worst") == ["hit", "tie", "two", "\x1b[2Jid"]
    found = shown(run, data, "--a-beats-b", "words", "worst", "--limit", 1)
    assert [one["retriever"] for one in found[0]["rankings"]] == ["words", "worst"]


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ([], ["several retrievers", "words, worst"]),
        (["--miss"], ["several retrievers", "words, worst"]),
        (["--query", "no"], ["--query no", "such as"]),
        (["--query", "hit", "--miss"], ["--query excludes"]),
        (["--retriever", "bm25"], ["--retriever bm25", "words, worst"]),
        (["--retriever", "words", "--miss", "--hit"], ["exclude each other"]),
        (["--a-beats-b", "words", "x"], ["no retriever `x`", "words, worst"]),
        (["--query", "hit", "--distractors", 9], ["--distractors 9", "It has 13"]),
        (["--query", "hit", "--pool-seeds", 3], ["--pool-seeds 3", "It has 0"]),
        (["--query", "hit", "--k", "1,5"], ["--k 1,5", "one value"]),
        (["--retriever", "words", "--where", "category=x"], ["--where category=x"]),
    ],
)
def test_a_mistake_is_one_line(run: Path, data: Path, words: list[Any], parts: list[str]) -> None:
    one_line_error(show(run, data, *words), *parts)


def test_texts_steer_neither_the_terminal_nor_rich(run: Path, data: Path) -> None:
    for words in (["--query", "storm"], ["--query", "\x1b[2Jid"], ["--retriever", "words"]):
        text = show(run, data, *words, "--top", 14).stdout
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert SHOWN in text
    as_json = kit.run(app, run, "--data", data, "--query", "storm", "--json").stdout
    assert "\x1b" not in as_json
    assert json.loads(as_json)["golds"][0]["text"] == HOSTILE


@pytest.mark.parametrize("width", [30, 47, 80])
def test_lines_fit_the_terminal(run: Path, data: Path, width: int) -> None:
    """East Asian characters are two cells wide; right-to-left lines are isolated."""
    finished = read_run(run)
    material = material_of(finished, data)
    rows = query_rows(finished, material, finished.labels, 13, (0,))
    found = query_views(finished, rows, finished.labels, 1, 10)
    lines = [line for view in found for line in view_lines(view, width)]
    assert max(map(cell_len, lines)) <= max(width, 45)
    joined = "".join(line.split("  ")[-1] for line in lines)
    assert all(character in joined for character in CHINESE)
    right_to_left = [line for line in lines if any("\u0600" <= c <= "\u06ff" for c in line)]
    assert right_to_left
    for line in right_to_left:
        assert line.count("\u2068") == line.count("\u2069") == 1
        assert line.index("\u2068") < next(
            i for i, c in enumerate(line) if "\u0600" <= c <= "\u06ff"
        )


def test_only_text_with_right_to_left_characters_is_isolated() -> None:
    assert isolated("tea") == "tea"
    assert isolated(f"a {ARABIC}") == f"\u2068a {ARABIC}\u2069"
    assert text_block("1  ", ARABIC, None) == [f"1  {ARABIC}"]  # a file or a pipe
    assert text_block("1  ", "one two", 5 + 20) == ["1  one two"]


def test_deeper_ranks_need_kept_scores(data: Path, run: Path, tmp_path: Path) -> None:
    kept = swept(["words=overlap"], data, out=tmp_path / "kept", keep_scores=True).path
    [deep] = shown(kept, data, "--query", "hit", "--top", 14)
    assert len(deep["rankings"][0]["first"]) == 14
    assert all(one["rank"][1] is not None for one in deep["rankings"][0]["first"])
    done = show(run, data, "--query", "hit", "--top", 14)
    assert "the first 10 memories" in done.stderr
    [shallow] = shown(run, data, "--query", "hit", "--top", 14)
    firsts = shallow["rankings"][0]["first"]
    assert len(firsts) == 10
    known = [one["position"] for one in deep["rankings"][0]["first"]]
    assert known[:10] == [one["position"] for one in firsts]
    damaged = (kept / "scores.jsonl").read_bytes().splitlines(keepends=True)
    (kept / "scores.jsonl").write_bytes(b"".join([damaged[1], *damaged[1:]]))
    one_line_error(show(kept, data, "--query", "hit"), "scores.jsonl:1: not the scores of its row")


def test_a_run_that_is_not_finished_shows_its_rows(run: Path, data: Path, tmp_path: Path) -> None:
    part = tmp_path / "part"
    part.mkdir()
    (part / "manifest.json").write_bytes((run / "manifest.json").read_bytes())
    lines = (run / "rows.jsonl").read_bytes().splitlines(keepends=True)
    (part / "rows.jsonl").write_bytes(b"".join(lines[:8]))
    found = shown(part, data, "--query", "tie")
    assert [one["retriever"] for one in found[0]["rankings"]] == ["words"]
    assert "no row yet of worst" in show(part, data, "--query", "tie").stderr
    assert names(part, data, "--retriever", "worst") == ["hit", "miss"]


def test_a_row_of_another_pool_is_one_line(run: Path, data: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "manifest.json").write_bytes((run / "manifest.json").read_bytes())
    rows = kit.rows_of(run)
    del rows[0]["check"]
    rows[0]["top"][3][0] = 14
    (other / "rows.jsonl").write_bytes(b"".join(map(encode_row, rows[:1])))
    one_line_error(show(other, data, "--query", "hit"), "rows.jsonl:1: not the row of its pool")


def test_several_pool_seeds(tmp_path: Path) -> None:
    run = swept(
        ["overlap"], out=tmp_path / "run", distractors=(10,), pool_seeds=(3, 5), limit=2
    ).path
    done = kit.run(app, run, "--limit", 1, code=0)
    assert "pool seed 3" in done.stdout
    assert "pool seed 3 of 3, 5" in done.stderr
    both = kit.run(app, run, "--query", "sample_ar_001", "--pool-seeds", "3,5", "--json", code=0)
    found = [json.loads(line) for line in both.stdout.splitlines()]
    assert [one["pool_seed"] for one in found] == [3, 5]
    assert found[0]["rankings"] != found[1]["rankings"]
