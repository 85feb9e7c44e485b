"""`analysis.audit`: planted shortcuts are found and removed, and nothing is found without one."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.audit import Audit, app, audit
from analysis.audit_data import AuditRow
from analysis.findings import Finding
from analysis.runs import read_run
from analysis.shortcut_scores import score_shortcuts
from recallbed.corpus import Memory
from recallbed.corpus.custom import load_custom
from recallbed.errors import DataError
from tests.kit import python, read_lines, run, run_json, swept, write_lines

Row = dict[str, Any]
LABELS = [f"{top}/{low}" for top in ("Food", "Work", "Home") for low in ("Likes", "Plans", "Past")]
QUERIES, SIZE = 40, 20


def word(rng: random.Random) -> str:
    return "".join(rng.choice("bdfglmnprst") + rng.choice("aeiou") for _ in range(4))


def sentence(rng: random.Random) -> str:
    return " ".join(word(rng) for _ in range(4))


def made(
    seed: int = 0, plant: Callable[[Row, int, random.Random], None] | None = None
) -> list[Row]:
    """Rows of pools in which the gold is like the others, before `plant(row, gold, rng)`."""
    rng = random.Random(seed)
    rows = []
    for number in range(QUERIES):
        ids = [f"m{i}" for i in range(SIZE + 1)]
        rng.shuffle(ids)
        pool = [
            {"memory_id": name, "value": sentence(rng), "label": rng.choice(LABELS)} for name in ids
        ]
        row = {
            "benchmark_id": f"q{number}",
            "session_id": f"s{number}",
            "stratum": "none",
            "input": {"query": sentence(rng), "candidate_memories": pool, "metadata": {"n": 7}},
        }
        gold = rng.randrange(SIZE + 1)
        row["gold"] = pool[gold]
        if plant:
            plant(row, gold, rng)
        rows.append(row)
    return rows


def write(root: Path, rows: Sequence[Row], split: str = "dev") -> Path:
    """Write rows of `made` as a release."""
    folder = root / split / "task3" / f"d{SIZE}"
    write_lines(
        folder / "model_input.jsonl",
        [{key: value for key, value in row.items() if key != "gold"} for row in rows],
    )
    write_lines(
        folder / "reference_output.jsonl",
        [{"benchmark_id": r["benchmark_id"], "gold": {"selected_memory": r["gold"]}} for r in rows],
    )
    return root


def pool(row: Row) -> list[Row]:
    found: list[Row] = row["input"]["candidate_memories"]
    return found


def others(row: Row) -> list[Row]:
    return [memory for memory in pool(row) if memory is not row["gold"]]


# Plants: each changes a row so that one thing gives the gold away.


def smallest_id(row: Row, gold: int, rng: random.Random) -> None:
    row["gold"]["memory_id"] = "m0"
    for number, memory in enumerate(others(row), 1):
        memory["memory_id"] = f"m{number}"


def rarest_id(row: Row, gold: int, rng: random.Random) -> None:
    names = rng.sample(["m1", "m2", "m3"], 3)
    for memory in others(row):
        memory["memory_id"] = rng.choice(names[:2])
    row["gold"]["memory_id"] = names[2]


def first_position(row: Row, gold: int, rng: random.Random) -> None:
    pool(row).sort(key=lambda memory: memory is not row["gold"])


def tenth(row: Row, gold: int, rng: random.Random) -> None:
    rest = others(row)
    row["input"]["candidate_memories"] = [*rest[:7], row["gold"], *rest[7:]]


def longest(row: Row, gold: int, rng: random.Random) -> None:
    row["gold"]["value"] += f" {sentence(rng)}"


def shortest(row: Row, gold: int, rng: random.Random) -> None:
    row["gold"]["value"] = word(rng)


def gold_label(row: Row, gold: int, rng: random.Random) -> None:
    for memory in others(row):
        memory["label"] = rng.choice(LABELS[1:])
    row["gold"]["label"] = LABELS[0] if rng.random() < 0.8 else rng.choice(LABELS)


def rare_label(row: Row, gold: int, rng: random.Random) -> None:
    rare, *rest = rng.sample(LABELS, 4)
    for memory in others(row):
        memory["label"] = rng.choice(rest)
    row["gold"]["label"] = rare


def script(row: Row, gold: int, rng: random.Random) -> None:
    row["input"]["query"] = f"какой чай {rng.choice('абв')}"
    row["gold"]["value"] = f"любит{rng.choice('абв')} {rng.choice('где')}чай с лимоном {gold}"


def repeats(row: Row, gold: int, rng: random.Random) -> None:
    rest = others(row)
    for one, other in zip(rest[::2], rest[1::2], strict=True):
        other["value"] = one["value"]


def shared_distractors(row: Row, gold: int, rng: random.Random) -> None:
    texts = [sentence(random.Random(number)) for number in range(30)]
    for memory, text in zip(others(row), rng.sample(texts, SIZE), strict=True):
        memory["value"] = text


def marked(row: Row, gold: int, rng: random.Random) -> None:
    row["gold"]["value"] += " [ERROR: unsupported]"


def stratum(row: Row, gold: int, rng: random.Random) -> None:
    row["stratum"] = row["gold"]["label"]


def text_field(row: Row, gold: int, rng: random.Random) -> None:
    row["input"]["metadata"]["notes"] = [{"seen": f"answer: {row['gold']['value']}"}]


def id_field(row: Row, gold: int, rng: random.Random) -> None:
    row["input"]["metadata"]["about"] = row["gold"]["memory_id"]


def position_field(row: Row, gold: int, rng: random.Random) -> None:
    row["input"]["metadata"]["place"] = gold


def flag(row: Row, gold: int, rng: random.Random) -> None:
    for memory in pool(row):
        memory["chosen"] = memory is row["gold"]


def number(row: Row, gold: int, rng: random.Random) -> None:
    for memory in pool(row):
        memory["relevance"] = rng.random() + (memory is row["gold"])


Plant = Callable[[Row, int, random.Random], None]
# Plants that do not disturb each other share a release.
RELEASES: list[list[tuple[Plant, str, str | None]]] = [
    [
        (smallest_id, "smallest id", "ids renumbered at random"),
        (first_position, "first position", "pools shuffled"),
        (longest, "longest", None),
        (gold_label, "commonest gold label", "labels hidden"),
        (stratum, "field `stratum`: label", "fields dropped"),
        (flag, "candidates' `chosen`: likeliest value of a gold", "fields dropped"),
    ],
    [
        (rarest_id, "rarest id", "ids renumbered at random"),
        (tenth, "tenth 4 of positions", "pools shuffled"),
        (shortest, "shortest", None),
        (rare_label, "rarest label", "labels hidden"),
    ],
    [
        (script, "script of the query", None),
        (repeats, "text rarest in the pool", "repeated texts removed"),
        (id_field, "field `input.metadata.about`: id", "fields dropped"),
        (number, "candidates' `relevance`: largest value", "fields dropped"),
    ],
    [
        (shared_distractors, "text rarest in all pools", None),
        (marked, "marked text", "marks cut out of the texts"),
        (position_field, "field `input.metadata.place`: position from 0", "fields dropped"),
        (text_field, "field `input.metadata.notes[].seen`: text", "fields dropped"),
    ],
]
PLANTS = [(i, *one) for i, release in enumerate(RELEASES) for one in release]


def named(found: Audit, name: str) -> Finding:
    [one] = [one for one in found.findings if one.name == name]
    return one


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Audit]:
    """The audit of a release with all of its plants."""

    @cache
    def audited(number: int) -> Audit:
        def plant(row: Row, gold: int, rng: random.Random) -> None:
            for one, _, _ in RELEASES[number]:
                one(row, gold, rng)

        return audit(write(tmp_path_factory.mktemp("planted"), made(1, plant)))

    return audited


@pytest.mark.parametrize(
    ("number", "plant", "name", "step"), PLANTS, ids=[plant.__name__ for _, plant, _, _ in PLANTS]
)
def test_a_planted_shortcut_is_found_and_removed(
    number: int, plant: Plant, name: str, step: str | None, planted: Callable[[int], Audit]
) -> None:
    found = planted(number)
    one = named(found, name)
    least = {"repeats": 1 / 21, "tenth": 0.4, "rare_label": 0.5, "stratum": 0.2}
    assert one.verdict in ("shortcut", "note")
    assert one.value is not None
    assert one.value > least.get(plant.__name__, 0.6)
    assert one.interval is not None
    assert one.interval.low > 1 / 21
    assert one.cleaned is not None
    assert one.cleaned.step == step
    if step is None:
        assert one.cleaned.reason
    else:
        assert one.cleaned.verdict in ("clear", "not applicable")
    # The worst of each group is in the first lines.
    worst = next(other for other in found.findings if other.group == one.group)
    assert (worst.value or 0) >= one.value
    assert worst.by in " ".join(found.summary)


@pytest.mark.parametrize("seed", [0, 1])
def test_nothing_is_above_chance_without_a_shortcut(seed: int, tmp_path: Path) -> None:
    found = audit(write(tmp_path, made(seed)))
    assert found.of("shortcut", "note") == []
    assert found.summary == [
        f"No shortcut in dev, {SIZE} distractors, {QUERIES} queries.",
        f"None of {sum(one.holm is not None for one in found.findings)} rankers that read no text"
        " is above chance by 1 % of the way to 1.",
    ]


def test_nothing_is_above_chance_on_the_embedded_sample() -> None:
    found = audit()
    assert found.data.sample
    assert found.of("shortcut", "note") == []


# Scores


def rows_of(
    golds: Sequence[int], size: int, sessions: Sequence[str] | None = None
) -> list[AuditRow]:
    memories = tuple(Memory(f"text {i}") for i in range(size))
    return [
        AuditRow(f"q{i}", sessions[i] if sessions else f"s{i}", "q", memories, (gold,), i + 1)
        for i, gold in enumerate(golds)
    ]


def in_order(row: AuditRow) -> Any:
    return -np.arange(len(row.memories), dtype=float)


def test_the_p_value_is_that_of_a_random_gold() -> None:
    """8 hits of 10 in pools of two: P(X >= 8) = 56 / 1,024."""
    [score] = score_shortcuts(rows_of([0] * 8 + [1] * 2, 2), [in_order])
    assert score.recall[1] == pytest.approx(0.8)
    assert score.chance == pytest.approx({1: 0.5, 5: 1, 10: 1})
    assert score.p == pytest.approx(56 / 1024, abs=0.01)
    assert score.lift == pytest.approx(0.6)


def test_queries_of_one_session_are_one_draw() -> None:
    apart, together = (
        score_shortcuts(rows_of([0] * 10, 2, sessions), [in_order])[0].p
        for sessions in (None, ["s"] * 10)
    )
    assert apart is not None
    assert together is not None
    assert apart < 0.01
    assert together == pytest.approx(0.5, abs=0.02)


def test_a_constant_ranker_has_chance_and_is_no_test() -> None:
    constant, ranked = score_shortcuts(rows_of([0, 1, 2, 0], 3), [lambda row: np.ones(3), in_order])
    assert constant.recall[1] == pytest.approx(1 / 3)
    assert (constant.p, constant.holm, constant.informed) == (None, None, 0)
    assert ranked.p == ranked.holm  # the only test of the family


def test_ties_and_several_golds_count_in_expectation() -> None:
    row = AuditRow("q", "s", "q", tuple(Memory(f"t{i}") for i in range(4)), (0, 3), 1)
    [score] = score_shortcuts([row], [lambda row: np.array([1.0, 1, 0, 0])])
    assert score.recall[1] == pytest.approx(0.25)  # one gold of two, which shares rank 1
    assert score.chance[1] == pytest.approx(0.25)


# Texts and rows


def test_gold_in_the_query(tmp_path: Path) -> None:
    rows = made(3)
    rows[0]["input"]["query"] = f"about {rows[0]['gold']['value']}, please"
    rows[1]["input"]["query"] = f"ABOUT {rows[1]['gold']['value'].upper().replace(' ', ' - ')}"
    found = audit(write(tmp_path, rows))
    one = named(found, "gold in the query")
    assert one.verdict == "shortcut"  # 5 % of the queries
    assert one.value == pytest.approx(2 / QUERIES)
    assert [(example.query_id, example.how) for example in one.examples] == [
        ("q0", "exact"),
        ("q1", "normalised"),
    ]
    assert one.cleaned is not None
    assert one.cleaned.value == 0
    assert len(found.cleaned.rows) == QUERIES - 2
    assert named(found, "words of the gold").value == pytest.approx(2 / QUERIES)


def test_paraphrases_of_the_gold_are_listed_and_removed(tmp_path: Path) -> None:
    rows = made(4)
    near, gold = others(rows[5])[3], rows[5]["gold"]
    near["value"] = gold["value"].upper() + "!"
    found = audit(write(tmp_path, rows))
    one = named(found, "paraphrases of the gold")
    assert one.verdict == "note"
    [example] = one.examples
    assert (example.query_id, example.positions) == ("q5", (pool(rows[5]).index(near),))
    assert example.text == near["value"]
    assert example.similarity == pytest.approx(1.0)
    assert one.cleaned is not None
    assert one.cleaned.value == 0
    sizes = [len(row.memories) for row in found.cleaned.rows]
    assert sorted(sizes) == [SIZE] + [SIZE + 1] * (QUERIES - 1)


def test_a_model_finds_paraphrases_by_cosine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows = made(4)
    near = others(rows[2])[0]["value"], rows[2]["gold"]["value"]

    def vectors(rows: Sequence[AuditRow], model: str) -> dict[str, Any]:
        assert model == "minilm"
        texts = sorted({memory.text for row in rows for memory in row.memories})
        axes = np.eye(len(texts))
        return {text: axes[0 if text in near else i] for i, text in enumerate(texts, 0)}

    monkeypatch.setattr("analysis.second_golds.embedded", vectors)
    root = write(tmp_path, rows)
    assert not named(audit(root), "paraphrases of the gold").examples
    examples = named(audit(root, encoder="minilm"), "paraphrases of the gold").examples
    assert ("q2", "cosine", near[0]) in [(e.query_id, e.how, e.text) for e in examples]


def test_equal_queries_of_a_split(tmp_path: Path) -> None:
    rows = made(5)
    rows[7]["input"]["query"] = rows[2]["input"]["query"].upper()
    found = audit(write(tmp_path, rows))
    one = named(found, "equal queries")
    assert [(e.query_id, e.how) for e in one.examples] == [
        ("q7", "query, with another gold, as in q2")
    ]
    assert "q7" not in {row.query_id for row in found.cleaned.rows}


def test_rows_that_two_splits_share(tmp_path: Path) -> None:
    rows, test = made(6), made(7)
    for row in test:
        row["benchmark_id"], row["session_id"] = f"t{row['benchmark_id']}", f"t{row['session_id']}"
    test[0]["input"]["query"] = rows[3]["input"]["query"]
    test[1]["session_id"] = "s9"
    root = write(write(tmp_path, rows), test, "test")
    found = audit(root)
    examples = named(found, "rows in other splits").examples
    assert [(e.query_id, e.how) for e in examples] == [
        ("q3", "query, as in tq0 of test"),
        ("q9", "session, as in tq1 of test"),
    ]
    alone = named(audit(write(tmp_path / "alone", rows)), "rows in other splits")
    assert alone.verdict == "not applicable"


def test_encoding_faults_are_listed_and_repaired(tmp_path: Path) -> None:
    rows = made(8)
    wrong = rows[0]["gold"]["value"] + " caf\u00c3\u00a9"
    rows[0]["gold"]["value"] = wrong
    others(rows[1])[0]["value"] = "tab\tis fine, \x07 is not"
    others(rows[2])[0]["value"] = "nul \x00 is replaced"
    found = audit(write(tmp_path, rows))
    one = named(found, "encoding")
    assert one.verdict == "note"
    assert [(e.how, e.text) for e in one.examples] == [
        ("mojibake", wrong),
        ("control character", "tab\tis fine, \x07 is not"),
        ("replacement character", "nul \ufffd is replaced"),
    ]
    assert "NUL 1 (repaired by the loader)" in one.text
    texts = {memory.text for row in found.cleaned.rows for memory in row.memories}
    assert "tab\tis fine,  is not" in texts


# Own files


def own(path: Path, rows: Sequence[Row]) -> Path:
    """The rows of `made` as a file of own memories."""
    write_lines(
        path,
        [
            {
                "id": row["benchmark_id"],
                "query": row["input"]["query"],
                "memories": [
                    {"text": m["value"], "label": m["label"], "id": m["memory_id"]}
                    for m in pool(row)
                ],
                "gold": pool(row).index(row["gold"]),
                "category": row["stratum"],
            }
            for row in rows
        ],
    )
    return path


def test_a_file_of_your_own(tmp_path: Path) -> None:
    found = audit(own(tmp_path / "mine.jsonl", made(9, stratum)))
    assert named(found, "field `category`: label").verdict == "shortcut"
    assert named(found, "smallest id").verdict == "clear"
    assert named(found, "rows in other splits").verdict == "not applicable"


def test_a_plain_file_has_no_ids_labels_or_fields(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    rng = random.Random(0)
    write_lines(
        path,
        [
            {"query": sentence(rng), "memories": [sentence(rng) for _ in range(5)], "gold": [0, 1]}
            for _ in range(4)
        ],
    )
    found = audit(path)
    missing = {one.name: one.text for one in found.of("not applicable")}
    assert missing["smallest id"] == "the memories have no stored ids"
    assert missing["rarest label"] == "no memory has a label"
    assert missing["tenth 1 of positions"] == "the pools have fewer than ten memories"
    assert named(found, "fields").verdict == "clear"


def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    path = own(tmp_path / "mine.jsonl", made(9, stratum)[:12])
    read, written = os.pipe()
    os.write(written, path.read_bytes())
    os.close(written)
    found = audit(Path(f"/dev/fd/{read}"))
    os.close(read)
    assert named(found, "fields").verdict == "not applicable"
    assert named(found, "smallest id").text == "the memories have no stored ids"


# The command


@pytest.fixture(scope="module")
def leaking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release with several shortcuts, and texts that would steer a terminal."""

    def plant(row: Row, gold: int, rng: random.Random) -> None:
        rarest_id(row, gold, rng)
        stratum(row, gold, rng)
        gold_label(row, gold, rng)
        row["stratum"] = row["gold"]["label"]

    rows = made(11, plant)
    near = others(rows[0])[0]
    near["value"] = f"{rows[0]['gold']['value']} \x1b[31m<script>"
    return write(tmp_path_factory.mktemp("leaking"), rows)


def test_the_first_lines_are_the_summary(leaking: Path) -> None:
    lines = run(app, leaking, "--list", code=0).stdout.splitlines()
    assert lines[0].endswith(f"shortcuts in dev, {SIZE} distractors, {QUERIES} queries:")
    assert lines[1].startswith("  recall@1 1.000 [")
    assert "stored id" in lines[1]
    assert any("by the label that the field `stratum` names" in line for line in lines[:5])
    assert any("\\x1b[31m<script>" in line for line in lines)
    assert not any("\x1b" in line for line in lines)


def test_json_has_every_finding_once(leaking: Path) -> None:
    [found] = run_json(app, leaking)
    names = [one["name"] for one in found["findings"]]
    assert len(names) == len(set(names))
    assert {one["verdict"] for one in found["findings"]} <= {
        *("shortcut", "note", "clear", "not applicable")
    }
    assert found["findings"][0]["verdict"] == "shortcut"
    assert found["summary"] == audit(leaking).summary


def test_the_exit_code_can_say_that_there_is_a_shortcut(leaking: Path, tmp_path: Path) -> None:
    assert run(app, leaking, "--fail-on-shortcut", code=1)
    assert run(app, write(tmp_path, made(0)), "--fail-on-shortcut", code=0)


def test_cleaned_pools_are_a_file_that_can_be_swept(leaking: Path, tmp_path: Path) -> None:
    out = tmp_path / "cleaned.jsonl"
    run(app, leaking, "--clean", out, code=0)
    before = {row["benchmark_id"]: row["gold"] for row in _references(leaking)}
    rows = load_custom(out).file.rows
    assert {row.benchmark_id: row.gold_memory.text for row in rows} == {
        name: gold["selected_memory"]["value"] for name, gold in before.items()
    }
    assert {memory.label for row in rows for memory in row.candidates} == {None}
    assert {*read_lines(out)[0]} == {"id", "query", "memories", "gold", "session"}
    assert audit(out).of("shortcut") == []
    assert len(read_run(swept(["overlap"], out, out=tmp_path / "run").path).rows) == QUERIES

    refused = run(app, leaking, "--clean", out, code=2)
    assert "already exists" in refused.stderr
    assert run(app, leaking, "--clean", out, "--overwrite", code=0)
    assert "must end in .jsonl" in run(app, leaking, "--clean", tmp_path / "x.txt", code=2).stderr


def _references(root: Path) -> list[Row]:
    return read_lines(root / "dev" / "task3" / f"d{SIZE}" / "reference_output.jsonl")


def test_faulty_data_is_one_line(leaking: Path, tmp_path: Path) -> None:
    assert "no released pool of 300" in run(app, leaking, "--distractors", 300, code=2).stderr
    assert "no split `test`" in run(app, leaking, "--split", "test", code=2).stderr
    mine = own(tmp_path / "mine.jsonl", made(0)[:3])
    assert "Leave --distractors out" in run(app, mine, "--distractors", 20, code=2).stderr
    (tmp_path / "broken.jsonl").write_text('{"query": ', encoding="utf-8")
    result = run(app, tmp_path / "broken.jsonl", code=2)
    assert "broken.jsonl:1: not valid JSON" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    with pytest.raises(DataError):
        audit(tmp_path / "nothing")


def test_the_result_does_not_depend_on_hashes(leaking: Path) -> None:
    one, other = (
        python("-m", "analysis.audit", leaking, "--json", PYTHONHASHSEED=seed).stdout
        for seed in ("1", "2")
    )
    assert json.loads(one) == json.loads(other)
    assert one == other


# Real data


def test_ids_and_stratum_give_the_gold_of_the_release_away(alpsbench: Path) -> None:
    found = audit(alpsbench)
    assert len(found.data.rows) == 410
    values = {one.name: one.value or 0.0 for one in found.of("shortcut")}
    assert values["rarest id, then smallest"] >= 0.99
    assert values["field `stratum`: label"] == pytest.approx(0.3636, abs=5e-4)
    assert values["task2: field `input.metadata.selected_memory_id`: id"] == 1
    assert values["task4_ability1: field `input.model_input.selected_memory.value`: text"] == 1
    first = found.summary[:3]
    assert "stored id" in first[1]
    assert "`stratum`" in first[2]
    for one in found.of("shortcut"):
        if one.group in ("ids", "fields"):
            assert one.cleaned is not None
            assert one.cleaned.verdict in ("clear", "not applicable")
