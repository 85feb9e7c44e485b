"""Task 4: every system on real histories, no gold in sight, and what answers come to."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from judges.verdicts import Grades, Judged
from memory_scoring.gold_search import (
    RunMemory,
    mutual_overlap,
    names_the_memory,
    recognise,
    search_for_gold,
)
from memory_scoring.questions import questions_of, read_task4
from memory_systems.base import Response, SystemFailure
from memory_systems.external.catalogue import EXTERNAL
from memory_systems.registry import MEMORY_SYSTEMS
from memory_systems.testing import Spy
from memory_systems.turns import Turns
from recallbed.corpus.records import Evidence, MemoryItem, Query, Task4Gold, Task4Row, Turn
from task4 import run as run_command
from task4 import score as score_command
from task4.figures import dimension_verdicts
from task4.utilization import gold_memories
from tests import kit
from tests.kit import assert_equal_runs, one_line_error, read_lines, write_lines
from tests.scripted_server import Call, ScriptedServer, kill_when, scripted_server

SYSTEMS = sorted({*MEMORY_SYSTEMS.names(), "extractive"} - EXTERNAL.keys())
KEPT = ("rows.jsonl", "predictions.jsonl", "summary.json", "manifest.json")


def answers(call: Call) -> Any:
    """A memory system's model and a judge in one: a yes where the answer speaks of means."""
    data, _, asked = call.prompt.rpartition("</DATA")
    if "ASSISTANT'S ANSWER" in data:
        if "resonation" in call.prompt.split("<DATA")[0]:
            return {"evidence": "its words", "resonation": 2, "expression": 3, "reception": 4}
        answer = data.rpartition("ASSISTANT'S ANSWER")[2]
        return {"evidence": "its words", "verdict": "yes" if "means" in answer else "no"}
    if '"used_memory_fact"' in asked:
        notes = re.findall(r"^- (.*)$", data, re.M)
        return {"answer": "By all means.", "used_memory_fact": notes[0] if notes else ""}
    if '"facts"' in asked:
        turns = re.findall(r"^\[(\d+)\] user: (.*)$", data, re.M)
        return {"facts": [fact(int(number), text) for number, text in turns[:3]]}
    assert '"action"' in asked
    return {"action": "ADD", "memory": None, "text": None}


def fact(number: int, text: str) -> dict[str, Any]:
    rest = {"label": "UNMAPPED", "confidence": 0.8, "time_scope": "unknown", "attitude": None}
    main = {"text": f"Once said: {text[:60]}", "type": "direct", "evidence": [number]}
    return {**main, **rest, "emotion": None}


run = partial(kit.run, run_command.app)
score = partial(kit.run, score_command.app)
scored = partial(kit.run_json, score_command.app)


def shared(server: ScriptedServer, folder: Path) -> list[Any]:
    return ["--base-url", server.url, "--replies", folder / "replies.sqlite"]


def options(system: str, data: Path, folder: Path, server: Any = None) -> list[Any]:
    """A run in `folder / "run"`; with a server it has a chat model."""
    chat = ["--chat-model", "openai:m", *shared(server, folder)] if server else []
    return ["--system", system, "--data", data, "--out", folder / "run", *chat]


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server(answers) as script:
        yield script


# --- an invented release ---

GOLD = "Keeps bees on the roof"
PA, PF, MANNER, VRA, CF, EI = "a1", "a2", "a3", "a4", "a5", "a6"


def history(word: str) -> list[str]:
    return [f"good morning, how are {word} made", f"my {word} stand by the window", "thank you"]


def entry(name: str, ability: int, word: str, label: str = "Possessions/Pet") -> tuple[Any, Any]:
    """One row and its reference: the gold memory was read from the second thing the user said."""
    turns = []
    for text in history(word):
        turns += [{"role": "user", "text": text}, {"role": "assistant", "text": "I see."}]
    evidence = {"session_id": "s", "utterance_index": [2], "text": history(word)[1]}
    of = {"memory_id": "m2", "value": f"Owns {word}, which nobody was told", "label": label}
    memory = {**of, "evidence": evidence}
    wonders = {"value": f"Wonders how {word} are made", "label": "Thoughts/Curiosity"}
    other = {"memory_id": "m1", **wonders}
    count = 3 if ability == 5 else 1
    queries = [
        {"query_id": f"{name}:{n}", "query": f"What should I do about the {word} of day {n}?"}
        for n in range(count)
    ]
    head = {"benchmark_id": name, "session_id": name, "task": "task4", "stratum": "s3cret"}
    selected = {key: memory[key] for key in ("memory_id", "value")}
    given = {"query": queries[0]["query"], "selected_memory": selected}
    audit = {"conversation": turns, "source_dataset_file": None}
    body = {"query": queries[0]["query"], "queries": queries, "model_input": given}
    gold = {"memory_key": "m2", "selected_memory": selected, "extracted_memory": [other, memory]}
    return {**head, "input": {**body, "audit_context": audit}}, {**head, "gold": gold}


ENTRIES = [
    (1, entry(PA, 1, "bees")),
    (2, entry(PF, 2, "lamps", "Preferences/Shopping")),
    (2, entry(MANNER, 2, "lists", "Preferences/Interaction_Preferences")),
    (3, entry(VRA, 3, "dragons", "UNMAPPED")),
    (4, entry(CF, 4, "peanuts", "Constraints_and_Boundaries/Disliked_Topics")),
    (5, entry(EI, 5, "letters")),
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for ability in {ability for ability, _ in ENTRIES}:
        folder = tmp_path / "release" / "dev" / f"task4_ability{ability}"
        mine = [pair for a, pair in ENTRIES if a == ability]
        write_lines(folder / "model_input.jsonl", [one for one, _ in mine])
        write_lines(folder / "reference_output.jsonl", [other for _, other in mine])
    return tmp_path / "release"


# --- runs ---


@pytest.fixture(scope="module")
def dev(alpsbench: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first five real rows of each ability, with their references."""
    root = tmp_path_factory.mktemp("dev")
    for file in (alpsbench / "dev").glob("task4_ability*/*.jsonl"):
        target = root / file.relative_to(alpsbench)
        target.parent.mkdir(parents=True, exist_ok=True)
        with file.open("rb") as stream:
            target.write_bytes(b"".join(islice(stream, 5)))
    return root


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_answers(
    system: str, dev: Path, server: ScriptedServer, tmp_path: Path
) -> None:
    """Twenty-five real rows of all abilities; official rows come out, and can be scored."""
    out = tmp_path / "run"
    summary = kit.run_json(run_command.app, *options(system, dev, tmp_path, server))
    rows, predicted = read_lines(out / "rows.jsonl"), read_lines(out / "predictions.jsonl")
    asked = read_task4(dev, "dev").rows
    assert len(asked) == 25
    assert [row["item"] for row in rows] == [row["benchmark_id"] for row in predicted]
    assert [row["item"] for row in rows] == list(asked)
    assert not any(row["error"] for row in rows)
    for row in predicted:
        ids = [one["query_id"] for one in row["responses"]]
        assert ids == [query.query_id for query in asked[row["benchmark_id"]].queries]
        keys = {tuple(one) for one in row["responses"]}
        assert keys == {("query_id", "response", "used_memory_fact")}
    answered = {a: one["answered"] for a, one in summary["answers"].items()}
    assert answered == {**{f"ability{n}": 5 for n in range(1, 5)}, "ability5": 25}
    found = scored(out, "--data", dev, *judge(server, tmp_path))
    judged = sum(one["judge"]["judged"] for one in found["dimensions"].values())
    assert judged == 45
    retrieval = found["retrieval"]
    if system in ("turns", "extractive"):
        assert retrieval["gold_stored"]["mean"] == 1.0
        assert retrieval["recognised_by"] == {"text": 0, "evidence": 45, "overlap": 0}
        assert retrieval["recall"]["10"]["n"] == 45
        assert 0 < retrieval["chance"]["1"] < retrieval["chance"]["10"] < 1
    elif system == "gold-memory":
        assert retrieval["recognised_by"] == {"text": 45, "evidence": 0, "overlap": 0}
        assert retrieval["recall"]["10"]["mean"] == 1.0
    elif system == "none":
        assert retrieval["nothing_stored"] == 45
        assert retrieval["recall"] == {"1": None, "5": None, "10": None}
    elif system == "full-dialogue":
        assert retrieval["not_searched"] == 45


@pytest.mark.slow
def test_no_system_but_the_control_sees_gold(alpsbench: Path, tmp_path: Path) -> None:
    """All of the dev rows of persona awareness, whose input carries the gold."""
    Spy.seen.clear()
    spy = options("memory_systems.testing:Spy", alpsbench, tmp_path)
    run(*spy, "--ability", 1, "--in-flight", 1, code=0)
    rows = read_task4(alpsbench, "dev", (1,)).rows
    given: dict[str, list[Any]] = {}
    for name, what in Spy.seen:
        given.setdefault(name, []).append(what)
    assert given == {
        "open": list(rows),
        "ingest": [row.history for row in rows.values()],
        "respond": [query.text for row in rows.values() for query in row.queries],
    }


@pytest.mark.slow
@pytest.mark.parametrize("system", [one for one in SYSTEMS if one != "gold-memory"])
def test_nothing_of_the_reference_is_in_a_prompt(
    system: str, root: Path, server: ScriptedServer, tmp_path: Path
) -> None:
    """Neither the gold nor the stratum, in what the model, the retriever or the store gets."""
    run(*options(system, root, tmp_path, server), code=0)
    kept = (tmp_path / "run" / "rows.jsonl").read_text(encoding="utf-8")
    assert not re.search("nobody was told|s3cret|Wonders how", "\n".join([*server.prompts(), kept]))


def test_only_the_control_opens_references(
    root: Path, server: ScriptedServer, tmp_path: Path
) -> None:
    """Those of the tests of leaks are no JSON, and other systems run on them."""
    for file in root.rglob("reference_output.jsonl"):
        file.write_text("not JSON\n")
    result = run(*options("gold-memory", root, tmp_path, server))
    one_line_error(result, "reference_output.jsonl:1", "not valid JSON")


def test_the_control_gets_gold_alone(root: Path, server: ScriptedServer, tmp_path: Path) -> None:
    run(*options("gold-memory", root, tmp_path, server), code=0)
    assert len(server.calls) == 8
    for prompt in server.prompts():
        assert "nobody was told" in prompt
        assert "Wonders how" in prompt
        assert "by the window" not in prompt


class Pretender(Turns):
    """Is called like the control, and is not it."""

    def load(self, items: Sequence[MemoryItem]) -> None:
        raise AssertionError("gold was loaded")

    def respond(self, query: str) -> Response:
        return Response("a")


def test_a_class_of_anyones_is_never_given_gold(root: Path, tmp_path: Path) -> None:
    run(*options("tests.test_task4:Pretender", root, tmp_path), code=0)


def test_a_history_is_read_once_for_all_its_questions(root: Path, tmp_path: Path) -> None:
    Spy.seen.clear()
    run(*options("memory_systems.testing:Spy", root, tmp_path), "--ability", 5, code=0)
    assert [name for name, _ in Spy.seen].count("ingest") == 1
    assert [name for name, _ in Spy.seen].count("respond") == 3


class Moody(Turns):
    """Fails at some questions."""

    def respond(self, query: str) -> Response:
        if "day 1" in query or "bees" in query:
            raise SystemFailure("in no mood")
        return Response("an answer", "", tuple(self.search(query, self.k)))


def test_a_question_that_fails_costs_its_row_no_other_answer(root: Path, tmp_path: Path) -> None:
    """Failures are counted by cause; a row without any answer is a failed row."""
    summary = kit.run_json(run_command.app, *options("tests.test_task4:Moody", root, tmp_path))
    failed = {"failed": {"in no mood": 1}, "reasons": {}}
    assert summary["rows"] == {"attempted": 6, "done": 5, **failed}
    assert summary["answers"]["ability5"]["failed"] == {"in no mood": 1}
    found = scored(tmp_path / "run", "--data", root, "--ability", 1, "--ability", 5)
    assert found["dimensions"]["pa"]["causes"]["missing"]["count"] == 1
    assert found["dimensions"]["ei_en"]["answered"] == 2
    assert found["dimensions"]["ei_en"]["retrieval"]["questions"] == 2


@pytest.mark.slow
def test_a_resumed_run_is_the_unbroken_one(
    root: Path, server: ScriptedServer, tmp_path: Path
) -> None:
    """A process killed within a history leaves nothing of it, and no call twice."""
    words = [*options("mem0-like", root, tmp_path, server), "--in-flight", 1]
    kill_when(server, lambda call: "dragons of day" in call.prompt, "task4.run", *words)
    kept = [row["item"] for row in read_lines(tmp_path / "run" / "rows.jsonl")]
    assert kept == [PA, PF, MANNER][: len(kept)]  # another thread writes them
    killed = len(server.calls)
    run(*words, "--resume", code=0)
    bodies = [json.dumps(call.body, sort_keys=True) for call in server.calls]
    assert bodies.count(bodies[killed - 1]) == 2
    assert len(bodies) == len(set(bodies)) + 1  # all but the one that was killed
    run(*words, "--out", tmp_path / "other", code=0)
    assert_equal_runs(tmp_path / "run", tmp_path / "other", KEPT)


def test_a_larger_budget_resumes(root: Path, server: ScriptedServer, tmp_path: Path) -> None:
    words = [*options("turns", root, tmp_path, server), "--in-flight", 1]
    plan = kit.run_json(run_command.app, *words, "--dry-run")["openai:m"]
    assert (plan["calls"], server.calls) == (8, [])
    assert not (tmp_path / "run").exists()
    enough = (plan["tokens_in"] + plan["tokens_out"]) // 8 + 60  # for one call and some more
    one_line_error(run(*words, "--max-tokens-total", enough), "budget")
    assert 1 <= len(server.calls) < 8
    run(*words, "--resume", code=0)
    assert len(server.calls) == 8


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--system", "turns"], "--chat-model"),
        (["--system", "mem0-like"], "--chat-model"),
        (["--system", "copy"], "no memory system has this name"),
        (["--system", "extractive", "--ability", "6"], "--ability 6"),
        (["--system", "extractive", "--split", "test"], "no split `test`"),
        (["--system", "extractive", "--retriever", "bm52"], "bm52"),
        ([], "--system"),
    ],
    ids=str,
)
def test_faulty_options_of_a_run(root: Path, tmp_path: Path, words: list[str], said: str) -> None:
    one_line_error(run(*words, "--data", root, "--out", tmp_path / "run"), said)


def test_a_missing_ability_and_a_repeated_id_are_one_line(root: Path, tmp_path: Path) -> None:
    folder = root / "dev" / "task4_ability4"
    for name in ("model_input.jsonl", "reference_output.jsonl"):
        (folder / name).write_text((folder.with_name("task4_ability3") / name).read_text())
    words = options("extractive", root, tmp_path)
    one_line_error(run(*words), f"`{VRA}` is in ability 3 too")
    for file in folder.iterdir():
        file.unlink()
    one_line_error(run(*words, "--ability", 4), "task4_ability4")
    run(*words, code=0)


# --- questions ---


def test_dimensions_of_the_real_questions(alpsbench: Path) -> None:
    """The two kinds of preference by the gold's label, emotional intelligence by language."""
    questions = questions_of(read_task4(alpsbench, "dev", with_gold=True).rows.values())
    known = {"pa": 97, "pf_general": 189, "pf_interaction": 44, "vra": 74, "cf": 55, "ei_en": 35}
    assert Counter(question.dimension for question in questions) == {**known, "ei_cn": 40}
    for question in questions:
        if question.dimension.startswith("ei"):
            language = {"ei_cn": "chinese", "ei_en": "english"}[question.dimension]
            assert question.row.benchmark_id.startswith(language)
        assert question.memory.evidence is not None
        assert question.memory.text not in question.others


# --- recognising the gold memory ---

TURNS = tuple(Turn("user", text) for text in ("hello", "I keep bees", "hello", "bye"))


def gold(text: str = GOLD, turns: tuple[int, ...] = (1,)) -> MemoryItem:
    return MemoryItem(text, evidence=Evidence("", turns, "")) if turns else MemoryItem(text)


def stored(*pairs: tuple[str, tuple[int, ...]]) -> list[RunMemory]:
    return [RunMemory(text, frozenset(turns)) for text, turns in pairs]


@pytest.mark.parametrize(
    ("memories", "by", "places"),
    [
        (stored(("keeps  BEES on the roof", ()), ("x", (1,))), "text", {0}),
        (stored(("x", (0, 1)), ("y", (2,)), ("z", (1,))), "evidence", {0, 2}),
        (stored(("I keep bees", ()), ("y", (2,))), "evidence", {0}),
        (stored(("Keeps bees upon his roof", ()), ("y", (2,))), "overlap", {0}),
        (stored(("Has a roof", ()), ("y", (2,))), None, set()),
        ([], None, set()),
    ],
    ids=str,
)
def test_the_gold_memory_is_recognised_in_three_ways(
    memories: list[RunMemory], by: object, places: set[int]
) -> None:
    assert recognise(gold(), TURNS, memories) == (by, places)


def test_a_repeated_turn_is_found_at_its_first_position() -> None:
    """`turns` stores it once, as read from the first."""
    assert recognise(gold(turns=(2,)), TURNS, stored(("hello", (0,)))) == ("evidence", {0})


def test_a_long_memory_that_holds_all_words_does_not_match() -> None:
    longer = f"{GOLD} and twenty other things that nobody would ever ask about"
    assert mutual_overlap(GOLD, longer) < 0.5
    assert mutual_overlap(GOLD, GOLD) == 1.0


def test_a_turn_that_is_stored_with_its_role_is_known_by_its_evidence() -> None:
    turn = TURNS[2]
    memories = stored(("x", ()), (f"{turn.role}: {turn.text}", ()))
    assert recognise(gold(turns=(2,)), TURNS, memories) == ("evidence", {1})


@pytest.mark.parametrize(
    ("hits", "k", "expected"), [([], 1, False), ([2], 5, False), ([], 10, None)]
)
def test_a_search_of_a_systems_own_that_finds_too_few_has_missed(
    hits: list[int | None], k: int, expected: bool | None
) -> None:
    memories = stored((GOLD, ()), *((f"x {n}", ()) for n in range(9)))
    found = search_for_gold(gold(), TURNS, memories, hits, depth=5)
    assert (found.searched, found.within(k)) == (True, expected)


@pytest.mark.parametrize(
    ("hits", "k", "expected"),
    [
        ([2, 0, 1], 1, False),
        ([2, 0, 1], 5, True),
        ([0], 1, True),
        ([0], 10, True),
        ([2], 1, False),
        ([2], 5, None),  # the store has three, and only one was looked for
        ([2, 1], 5, None),
        ([None, 0], 1, False),
        ([None, 0], 5, True),
    ],
    ids=str,
)
def test_recall_is_defined_up_to_the_search_depth(
    hits: list[int | None], k: int, expected: bool | None
) -> None:
    memories = stored((GOLD, ()), ("x", ()), ("y", ()))
    assert search_for_gold(gold(), TURNS, memories, hits).within(k) is expected


# --- scores ---


def response(name: str, text: Any = "by all means", used: Any = "", n: int = 0) -> dict[str, Any]:
    one = {"query_id": f"{name}:{n}", "response": text, "used_memory_fact": used}
    return {"benchmark_id": name, "responses": [one]}


def test_without_a_judge_the_report_names_what_is_missing(root: Path, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "p.jsonl", [response(PA), response(VRA), response(CF)])
    found = scored(path, "--data", root)
    assert [what.split(":")[0] for what in found["missing"]] == [
        "no judge was named",
        "predictions have no hits",
    ]
    assert found["judge"] is None
    assert found["retrieval"] is None
    assert set(found["dimensions"]) == {"pa", "vra", "cf"}
    shown = score(path, "--data", root).stdout
    assert "missing: no judge was named" in shown
    assert "persona awareness: 1 of 1 answered" in shown


def test_every_question_and_every_line_is_counted_once(root: Path, tmp_path: Path) -> None:
    """What isn't answered is told by cause, and no fault of a line stops the rest."""
    rows: list[Any] = [
        response(PA),
        {"benchmark_id": PF, "answer": "of its own", "used_memory_fact": None},  # one question
        response(MANNER, 7),  # faulty
        response(VRA, "  "),  # empty
        response(CF),
        response(CF),  # repeated
        response(EI, n=0),
        response(EI, n=9),  # no such question
        response("nobody"),
        {"benchmark_id": EI, "responses": "none"},
        {"responses": []},
        ["x"],
    ]
    found = scored(write_lines(tmp_path / "p.jsonl", rows), "--data", root)
    counts = {
        name: {cause: t["count"] for cause, t in one["causes"].items() if t["count"]}
        for name, one in found["dimensions"].items()
    }
    assert counts == {
        "pa": {"answered": 1},
        "pf_general": {"answered": 1},
        "pf_interaction": {"faulty": 1},
        "vra": {"null_or_empty": 1},
        "cf": {"repeated": 1},
        "ei_en": {"answered": 1, "missing": 2},
    }
    assert {name: t["count"] for name, t in found["lines_of_no_query"].items()} == {
        "unknown": 2,
        "without_benchmark_id": 1,
        "malformed": 2,
    }
    assert found["lines"] == 12
    assert found["dimensions"]["pf_interaction"]["causes"]["faulty"]["faults"]


def judge(server: ScriptedServer, folder: Path) -> list[Any]:
    return ["--judge-model", "openai:j", "--out", folder / "verdicts", *shared(server, folder)]


def test_unjudged_has_its_own_denominator(root: Path, tmp_path: Path) -> None:
    """An outage is neither right nor wrong, and the same command asks again."""
    rows = [response(PA), response(PF, "no"), response(MANNER), response(VRA), response(CF, "no")]
    path = write_lines(tmp_path / "p.jsonl", rows)

    def choose(call: Call) -> str:
        return "truncated" if "dragons" in call.prompt else "perfect"

    with scripted_server(answers, choose) as server:
        found = scored(path, "--data", root, *judge(server, tmp_path))["dimensions"]
        assert {
            name: one["judge"]["score"] and one["judge"]["score"]["mean"]
            for name, one in found.items()
        } == {"pa": 1.0, "pf_general": 0.0, "pf_interaction": 1.0, "vra": None, "cf": 0.0}
        assert found["vra"]["judge"]["unjudged"] == {"cut at the output limit": 1}
        assert (found["vra"]["judge"]["judged"], found["vra"]["answered"]) == (0, 1)
        server.choose = lambda call: "perfect"
        server.calls.clear()
        again = scored(path, "--data", root, *judge(server, tmp_path), "--retry-failed")
        assert again["dimensions"]["vra"]["judge"]["score"]["mean"] == 1.0
        assert len(server.calls) == 1
    kept = read_lines(tmp_path / "verdicts" / "rows.jsonl")
    assert all(row["result"]["raw"] and row["result"]["prompt"] for row in kept)


def test_nothing_judged_is_no_score(root: Path, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "p.jsonl", [response(PA)])
    with scripted_server(answers, "refusal") as server:
        result = score(path, "--data", root, *judge(server, tmp_path))
    one_line_error(result, "not one of 1 items could be judged", "refused")


def test_a_judge_sees_gold_and_question(root: Path, server: ScriptedServer, tmp_path: Path) -> None:
    words = [write_lines(tmp_path / "p.jsonl", [response(PA), response(EI)]), "--data", root]
    dry = score(*words, *judge(server, tmp_path), "--dry-run", "--votes", 3, "--json")
    assert (json.loads(dry.stdout)["openai:j"]["calls"], server.calls) == (6, [])
    assert not (tmp_path / "verdicts").exists()
    scored(*words, *judge(server, tmp_path))
    assert len(server.calls) == 2
    for prompt in server.prompts():
        assert "nobody was told" in prompt
        assert "Wonders how" in prompt
        assert "What should I do about the" in prompt
        assert "s3cret" not in prompt


def test_emotional_answers_have_grades(root: Path, server: ScriptedServer, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "p.jsonl", [response(EI, n=n) for n in range(3)])
    found = scored(path, "--data", root, *judge(server, tmp_path))["dimensions"]["ei_en"]
    means = {name: one["mean"] for name, one in found["judge"]["grades"].items()}
    assert means == {"resonation": 2.0, "expression": 3.0, "reception": 4.0, "mean": 3.0}


def test_forbidden_use_of_memory_has_its_own_denominators(root: Path, tmp_path: Path) -> None:
    """Answers that don't tell what they used are in the last share alone."""
    owns = "Owns dragons, which nobody was told"
    told, untold = response(VRA, "no more", owns), response(CF, "Owns peanuts, nobody was told")
    del untold["responses"][0]["used_memory_fact"]
    path = write_lines(tmp_path / "p.jsonl", [told, untold])
    found = scored(path, "--data", root)["over_personalization"]
    shares = {
        name: {
            key: share and (share["mean"], share["n"])
            for key, share in one.items()
            if isinstance(share, dict | None)
        }
        for name, one in found.items()
    }
    assert shares == {
        name: {"names_a_memory": named, "names_the_memory": named, "memory_in_answer": within}
        for name, named, within in (("vra", (1.0, 1), (0.0, 1)), ("cf", None, (1.0, 1)))
    }
    assert (found["cf"]["answered"], found["cf"]["tell_what_they_used"]) == (1, 0)


def test_a_turn_that_the_gold_was_read_from_is_the_memory_too(root: Path, tmp_path: Path) -> None:
    """A system that quotes the history names the memory in the user's words, not in the gold's."""
    run(*options("extractive", root, tmp_path), "--ability", 3, code=0)
    [row] = read_lines(tmp_path / "run" / "rows.jsonl")
    used = row["result"]["responses"][0]["used_memory_fact"]
    assert mutual_overlap("Owns dragons, which nobody was told", used) < 0.5
    found = scored(tmp_path / "run", "--data", root)["over_personalization"]["vra"]
    quoted = used == history("dragons")[1]
    assert found["names_the_memory"]["mean"] == float(quoted) == 1.0
    assert found["memory_in_answer"]["mean"] == 0.0
    # 0.460 from a run and 0.057 from its own predictions, on dev.
    alone = scored(tmp_path / "run" / "predictions.jsonl", "--data", root)
    assert alone["over_personalization"]["vra"] == found


def test_an_answer_names_the_memory_by_its_words_or_by_the_turn_it_was_read_from() -> None:
    turns = (Turn("user", "My  cat is called Momo."), Turn("user", "I live in Rome."))
    gold = MemoryItem("Owns a cat called Momo", evidence=Evidence("s", (0, 7), ""))
    assert names_the_memory("my cat IS called momo.", gold, turns)
    assert names_the_memory("The user owns a cat called Momo, they said", gold, turns)
    assert not names_the_memory("I live in Rome.", gold, turns)
    assert not names_the_memory(" ", gold, turns)
    unread = replace(gold, text="Keeps pets", evidence=None)
    assert not names_the_memory("My cat is called Momo.", unread, turns)


def test_verdicts_of_others_are_refused(root: Path, server: ScriptedServer, tmp_path: Path) -> None:
    words = [tmp_path / "p.jsonl", "--data", root, *judge(server, tmp_path)]
    write_lines(tmp_path / "p.jsonl", [response(PA)])
    scored(*words)
    write_lines(tmp_path / "p.jsonl", [response(PA, "another answer")])
    one_line_error(score(*words), "they differ in answers.hash")


@pytest.mark.parametrize(
    ("rows", "words", "said"),
    [
        ([response("nobody")], [], "no line can be scored (unknown id: 1)"),
        ([["x"]], [], "malformed line: 1"),
        ([], [], "empty"),
        ([response(PA)], ["--votes", "3"], "--judge-model"),
        ([response(PA)], ["--ability", "7"], "--ability 7"),
        ([response(PA)], ["--judge-model", "gpt"], "gpt"),
    ],
    ids=str,
)
def test_faulty_input_of_a_score_is_one_line(
    root: Path, tmp_path: Path, rows: list[Any], words: list[str], said: str
) -> None:
    path = write_lines(tmp_path / "p.jsonl", rows)
    one_line_error(score(path, "--data", root, *words), said)


def test_a_run_with_a_broken_row_is_one_line(root: Path, tmp_path: Path) -> None:
    one_line_error(score(tmp_path, "--data", root), "no predictions.jsonl here")
    out = tmp_path / "run"
    run(*options("extractive", root, tmp_path), code=0)
    whole = (out / "rows.jsonl").read_text(encoding="utf-8")
    for broken, said in ((whole[:-40], "rows.jsonl:6"), ("{}\n", "rows.jsonl:1: not a row")):
        (out / "rows.jsonl").write_text(broken, encoding="utf-8")
        one_line_error(score(out, "--data", root), said)


def test_the_sample_is_named_as_such(tmp_path: Path) -> None:
    """No data, no model: everything runs, and says what it is."""
    result = run("--system", "extractive", "--limit", 3, "--out", tmp_path / "run", code=0)
    assert "not AlpsBench" in result.stdout
    assert "no model" in result.stdout
    shown = score(tmp_path / "run").stdout
    assert "not AlpsBench" in shown
    assert "recall@10" in shown


def row_with(text: str, extracted: Sequence[str]) -> Task4Row:
    items = tuple(MemoryItem(one, id=f"m{n}") for n, one in enumerate(extracted))
    return Task4Row("b", "s", 1, (Query("q", "?"),), TURNS, 1, Task4Gold(MemoryItem(text), items))


def test_a_selected_memory_that_was_not_extracted_is_loaded_too() -> None:
    assert [m.text for m in gold_memories(row_with("a", ["b", "c"]))] == ["a", "b", "c"]
    assert [m.text for m in gold_memories(row_with("c", ["b", "c"]))] == ["b", "c"]


def test_grades_have_intervals_on_their_scale_and_missing_ones_are_counted() -> None:
    rows = read_task4(None, "dev", [5], with_gold=True).rows
    there = list(questions_of(rows.values()))[:10]
    assert len({q.row.session_id for q in there}) > 1
    grades = [Grades(3, 3, 3 if i else None) for i in range(len(there))]
    verdicts = {q.name: Judged(one) for q, one in zip(there, grades, strict=True)}
    found = dimension_verdicts("ei_en", there, verdicts).to_json()
    assert (found["judged"], found["missing_grades"]) == (len(there), 1)
    for name in ("resonation", "expression", "reception", "mean"):
        one = found["grades"][name]
        assert one["n"] == len(there) - (name == "reception")
        assert 1 <= one["low"] < one["mean"] == 3.0 < one["high"] <= 5
