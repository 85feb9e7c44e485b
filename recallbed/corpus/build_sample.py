"""`python -m recallbed.corpus.build_sample`: the embedded sample from its hand-written sessions.

The sessions in `sample_source/` (a checkout has them, an installed package does not) are the
project's own words. This lays them out like the release, under `sample/`: pools of 100
distractors drawn from what other sessions said, near misses among it; some texts repeat, and ids
are local to their session, as in the real files.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from recallbed.corpus.layout import sample_root
from recallbed.harness.files import write_atomically

SOURCE = Path(__file__).parent / "sample_source"
DISTRACTORS = 100
# Of the four near misses written for a session. With all four in a bank of this size, most pools
# of 1,000 would hold several, and every curve would end on the floor.
NEAR = 2
Entry = dict[str, Any]


def read_sessions(source: Path = SOURCE) -> list[Entry]:
    """The hand-written sessions, by id."""
    sessions = [line for path in sorted(source.glob("*.jsonl")) for line in _lines(path)]
    return sorted(sessions, key=lambda session: str(session["id"]))


def _lines(path: Path) -> list[Entry]:
    return [json.loads(line) for line in path.read_bytes().splitlines() if line.strip()]


def build(target: Path, sessions: list[Entry]) -> None:
    """Write all tracks under `target/dev`, model_input and reference_output of each."""
    mine = {session["id"]: _own_items(session) for session in sessions}
    # Whatever another user said may be a distractor, whether it was a gold, a near miss or neither.
    common = [
        ({**memory, "memory_id": f"m{2 + _number(memory['value']) % 4}"}, session["id"])
        for session in sessions
        for memory in (*session["near"][:NEAR], *session["other"])
    ]
    common += [(item, name) for name, items in mine.items() for item in items]
    rng = random.Random("recallbed-sample-1")
    dealt = sorted(common, key=lambda pair: rng.random())
    weights = [8 if _number(memory["value"]) % 12 == 0 else 1 for memory, _ in common]
    share = -(-len(dealt) // len(sessions))
    tasks: dict[str, list[Entry]] = {name: [] for name in ("in1", "ref1", "in3", "ref3")}
    tracks = {"1": "task1", "3": f"task3/d{DISTRACTORS}"}
    for number, session in enumerate(sessions):
        items = mine[session["id"]]
        gold = next(item for item in items if item["gold"])
        barred = {item["value"] for item in items}
        # Deal every memory out once, so that the bank is complete, then draw with replacement.
        members = [m for m, _ in dealt[number * share : (number + 1) * share]]
        while len(members) < DISTRACTORS:
            members += [rng.choices(common, weights)[0][0] for _ in range(DISTRACTORS)]
            members = [m for m in members if m["value"] not in barred]
        members = [m for m in members if m["value"] not in barred][:DISTRACTORS]
        pool = [_candidate(gold), *(_candidate(m, gold["memory_id"]) for m in members)]
        pool.sort(key=lambda candidate: rng.random())
        _write_rows(session, items, gold, pool, tasks)
    for task, track in tracks.items():
        _write_track(target / "dev" / track, tasks["in" + task], tasks["ref" + task])
    build_update_rows(target, sessions)
    build_utilization_rows(target, sessions)


def build_update_rows(target: Path, sessions: list[Entry], source: Path = SOURCE) -> None:
    """Write `target/dev/task2` from the sessions for which an update was written."""
    by_id = {session["id"]: session for session in sessions}
    inputs, references = [], []
    for update in _lines(source / "updates" / "updates.jsonl"):
        session = by_id[update["id"]]
        name = _name(session)
        items = [_item(item, name, session) for item in _own_items(session)]
        changed = next(item for item in items if item["value"] == update["changes"])
        head = {"benchmark_id": name, "task": "task2", "session_id": name, "canonical_id": name}
        body = {
            "old_dialogue": session["dialogue"],
            "new_dialogue": update["new_dialogue"],
            "memory": items,
            "query": "",
            "metadata": {"session_id": name, "selected_memory_id": changed["memory_id"]},
        }
        inputs.append({**head, "stratum": changed["label"], "input": body})
        fresh = {"evidence": None, "reasoning": None}
        answer = [item for item in items if item is not changed]
        answer.append(
            {
                **changed,
                **fresh,
                "memory_id": f"{changed['memory_id']}_updated",
                "value": update["changed_to"],
            }
        )
        added = {**changed, **fresh, **update["new"], "memory_id": "m_new_1"}
        added["confidence"] = 0.9 if added["type"] == "direct" else 0.6
        references.append({**head, "gold": {"answer": [*answer, added]}})
    _write_track(target / "dev" / "task2", inputs, references)


ABILITY = {"PA": 1, "PF": 2, "VRA": 3, "CF": 4, "EI": 5}


def build_utilization_rows(target: Path, sessions: list[Entry], source: Path = SOURCE) -> None:
    """Write `target/dev/task4_ability1` to 5: a session's dimension says which."""
    more = {line["id"]: line["queries"] for line in _lines(source / "updates" / "feelings.jsonl")}
    tasks: dict[int, tuple[list[Entry], list[Entry]]] = {n: ([], []) for n in ABILITY.values()}
    for session in sessions:
        ability = ABILITY[session["dimension"]]
        name = f"ability{ability}_{_name(session)}"
        head = {
            "benchmark_id": name,
            "task": "task4",
            "ability": f"ability{ability}",
            "session_id": name,
            "canonical_id": name,
        }
        texts = [{"query": session["query"]}, *more.get(session["id"], ())]
        feelings = ability == ABILITY["EI"]
        if feelings:
            texts[0]["category"] = "Emotional Support"
        first = 0 if feelings else 1
        queries = [{"query_id": f"{name}:{i}", **text} for i, text in enumerate(texts, first)]
        items = [_item(item, _name(session), session) for item in _own_items(session)]
        # As in the release, ability 5 gives no ids.
        keys = ["label", "value", "evidence"]
        chosen = next(i for i in items if i["value"] == session["gold"]["value"])
        selected = {key: chosen[key] for key in (keys if feelings else ("memory_id", "value"))}
        keys = keys if feelings else ["memory_id", *keys]
        given: Entry = {"query": session["query"], "dialogue_history": session["dialogue"]}
        if ability == ABILITY["PA"]:  # the release carries the gold here; no loader may read it
            given = {"query": session["query"], "selected_memory": selected}
        body = {
            "query": session["query"],
            "queries": queries,
            "model_input": given,
            "audit_context": {"conversation": session["dialogue"], "source_dataset_file": None},
        }
        gold = {
            "memory_key": None if feelings else chosen["memory_id"],
            "selected_memory": selected,
            "extracted_memory": [{k: item[k] for k in keys} for item in items],
            "conversation": session["dialogue"],
        }
        inputs, references = tasks[ability]
        inputs.append({**head, "stratum": "UNKNOWN", "input": body})
        references.append({**head, "gold": gold})
    for ability, (inputs, references) in tasks.items():
        _write_track(target / "dev" / f"task4_ability{ability}", inputs, references)


def _write_track(folder: Path, inputs: list[Entry], references: list[Entry]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "model_input.jsonl", inputs)
    _write(folder / "reference_output.jsonl", references)


def _name(session: Entry) -> str:
    return "sample_" + str(session["id"]).replace("-", "_")


def _own_items(session: Entry) -> list[Entry]:
    items = [{**session["gold"], "gold": True, "type": session["type"]}]
    items += [{**memory, "gold": False, "type": "direct"} for memory in session["own"]]
    items.sort(key=lambda item: _number(item["value"]))
    return [{**item, "memory_id": f"m{i}"} for i, item in enumerate(items, 1)]


def _candidate(memory: Entry, taken: str | None = None) -> Entry:
    # In the release the gold's id appears once in its pool; that is why no retriever may see ids.
    name = memory["memory_id"]
    if name == taken:
        name = f"m{int(name[1:]) + 1}"
    return {"memory_id": name, "value": memory["value"], "label": memory["label"]}


def _write_rows(
    session: Entry,
    items: list[Entry],
    gold: Entry,
    pool: list[Entry],
    tasks: dict[str, list[Entry]],
) -> None:
    name = _name(session)
    head = {"benchmark_id": name, "session_id": name, "canonical_id": name}
    stratum = {"stratum": gold["label"]}
    turns = {"sessions": [{"session_id": name, "turns": session["dialogue"]}]}
    meta = {
        "language": session["language"],
        "dimension": session["dimension"],
        "type": session["type"],
        "shares_word": session["overlap"],
    }
    chosen = {key: gold[key] for key in ("memory_id", "value", "label")}
    tasks["in1"].append({**head, "task": "task1", **stratum, "input": turns})
    tasks["ref1"].append(
        {
            **head,
            "task": "task1",
            "gold": {
                "memory_items": [_item(item, name, session) for item in items],
                "selected_memory_id": gold["memory_id"],
            },
        }
    )
    body = {
        "dialogue": [],
        "candidate_memories": pool,
        "query": session["query"],
        "metadata": {"session_id": name, **meta},
    }
    tasks["in3"].append({**head, "task": "task3", **stratum, "input": body})
    tasks["ref3"].append(
        {
            **head,
            "task": "task3",
            "gold": {"selected_memory_id": gold["memory_id"], "selected_memory": chosen},
        }
    )


def _item(item: Entry, session_id: str, session: Entry) -> Entry:
    return {
        "memory_id": item["memory_id"],
        "type": item["type"],
        "label": item["label"],
        "label_suggestion": None,
        "value": item["value"],
        "reasoning": None,
        "evidence": {
            "session_id": session_id,
            "utterance_index": 0,
            "text": session["dialogue"][0]["text"],
        },
        "confidence": 0.9 if item["type"] == "direct" else 0.6,
        "time_scope": "long_term",
        "emotion": None,
        "preference_attitude": None,
    }


def _number(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big")


def _write(path: Path, rows: Iterable[Entry]) -> None:
    write_atomically(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


if __name__ == "__main__":
    build(sample_root(), read_sessions())
