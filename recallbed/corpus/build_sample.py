"""`python -m recallbed.corpus.build_sample`: the embedded sample from its hand-written sessions.

The sessions in `sample_source/` (a checkout has them, an installed package does not) are the
project's own words. This lays them out like the release, under `sample/`: pools of 100
distractors drawn from what other sessions said, near misses among it; some texts repeat.

Unlike the release, nothing but reading finds the gold: ids are distinct and random, no field names
a memory of the pool, and distractors have the languages, labels and lengths of golds.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from recallbed.corpus.layout import sample_root
from recallbed.harness.files import write_atomically

SOURCE = Path(__file__).parent / "sample_source"
DISTRACTORS = 100
# Of the four near misses written for a session. With all four in a bank of this size, most pools
# of 1,000 would hold several, and every curve would end on the floor.
NEAR = 2
AGAIN = 0.05
"""The share of draws that may repeat a text of the pool."""
UNNAMED = "UNKNOWN"
"""What the field `stratum` holds, which names the gold's label in the release."""
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
        _Said(memory, session)
        for session in sessions
        for memory in (*session["near"][:NEAR], *session["other"])
    ]
    common += [_Said(item, session) for session in sessions for item in mine[session["id"]]]
    rng = random.Random("recallbed-sample-1")
    dealt = _dealt(common, sessions)
    likeness = _Likeness(common, sessions)
    tasks: dict[str, list[Entry]] = {name: [] for name in ("in1", "ref1", "in3", "ref3")}
    tracks = {"1": "task1", "3": f"task3/d{DISTRACTORS}"}
    for session in sessions:
        items = mine[session["id"]]
        gold = next(item for item in items if item["gold"])
        barred = {item["value"] for item in items}
        # Near misses of the query itself come with the bank, in large pools: few golds are found
        # among them.
        barred |= {memory["value"] for memory in session["near"]}
        # Every memory is dealt out once, so that the bank is complete; then draw.
        members = dealt[session["id"]]
        known = barred | {memory["value"] for memory in members}
        while len(members) < DISTRACTORS:
            memory = likeness.draw(session, known if rng.random() > AGAIN else (), rng)
            if memory["value"] not in barred:
                members.append(memory)
                known.add(memory["value"])
        numbers = sorted(range(1, DISTRACTORS + 2), key=lambda place: rng.random())
        pool = [
            {"memory_id": f"m{number}", "value": memory["value"], "label": memory["label"]}
            for number, memory in zip(numbers, (gold, *members), strict=True)
        ]
        chosen = pool[0]
        pool.sort(key=lambda candidate: rng.random())
        _write_rows(session, items, gold, chosen, pool, tasks)
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
            "metadata": {"session_id": name},
        }
        inputs.append({**head, "stratum": UNNAMED, "input": body})
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
        given: Entry = {"query": session["query"]}
        if ability != ABILITY["PA"]:  # where the release has no history, and its gold instead
            given["dialogue_history"] = session["dialogue"]
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
        inputs.append({**head, "stratum": UNNAMED, "input": body})
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


@dataclass(frozen=True, slots=True)
class _Said:
    """A memory with the session in which it was written."""

    memory: Entry
    session: Entry

    @property
    def language(self) -> str:
        return _language(self.memory["value"], self.session["language"])


@lru_cache(None)
def _language(text: str, of_session: str) -> str:
    """The language of a memory: that of its session, or English."""
    from stop_words import get_stop_words

    if not text.isascii() and sum(ord(c) > 0x24F for c in text) > len(text) / 3:
        return of_session
    words = [word.strip(".,;:!?()'\"").casefold() for word in text.split()]
    names = {"Spanish": "es", "French": "fr", "German": "de", "Turkish": "tr"}
    if of_session not in names:
        return "English"
    own, english = (set(get_stop_words(name)) for name in (names[of_session], "en"))
    marked = any("\u00c0" <= c <= "\u024f" for c in text)
    mine = sum(word in own for word in words) + marked
    return of_session if mine > sum(word in english for word in words) else "English"


def _dealt(common: Sequence[_Said], sessions: Sequence[Entry]) -> dict[str, list[Entry]]:
    """Deal the memories of each session to the other sessions of its language, one to each."""
    found: dict[str, list[Entry]] = {session["id"]: [] for session in sessions}
    groups: dict[str, list[str]] = {}
    for session in sessions:
        groups.setdefault(session["language"], []).append(session["id"])
    given: Counter[str] = Counter()
    for said in common:
        group = groups[said.session["language"]]
        name = said.session["id"]
        given[name] += 1
        step = 1 + (given[name] - 1) % (len(group) - 1)
        found[group[(group.index(name) + step) % len(group)]].append(said.memory)
    return found


class _Likeness:
    """Draws distractors that have the language, the label and the length of golds.

    A gold of another session is a pattern: if it is in its query's language the distractor is in
    the language of this query, else in English; it has the pattern's top label; and its length has
    the pattern's place among the memories of its language.
    """

    NEAREST = 8

    def __init__(self, common: Sequence[_Said], sessions: Sequence[Entry]) -> None:
        self._memories: dict[str, list[Entry]] = {}
        for said in common:
            self._memories.setdefault(said.language, []).append(said.memory)
        for members in self._memories.values():
            members.sort(key=lambda memory: (len(memory["value"]), memory["value"]))
        self._patterns = [_Said(session["gold"], session) for session in sessions]

    def draw(self, session: Entry, known: Collection[str], rng: random.Random) -> Entry:
        """Return a distractor for a query, if possible none of the texts that are known.

        It may be one of the session's own memories.
        """
        patterns = self._patterns_for(session)
        pattern = patterns[int(rng.random() * len(patterns))]
        foreign = pattern.language != pattern.session["language"]
        label, wanted = pattern.memory["label"], self._place(pattern)
        wished = "English" if foreign else session["language"]
        tries = [(wished, label), (wished, label.partition("/")[0]), (wished, "")]
        if pattern.session is session:  # or no other memory of a pool might have its gold's label
            tries = [(wished, label), ("English", label)]
        again: list[tuple[float, Entry]] = []
        for language, name in tries:
            found = self._like(language, name, wanted)
            again = again or found
            if fresh := [pair for pair in found if pair[1]["value"] not in known]:
                again = fresh
                break
        nearest = sorted(again, key=lambda pair: pair[0])[: self.NEAREST]
        return nearest[int(rng.random() * len(nearest))][1]

    def _like(self, language: str, label: str, wanted: float) -> list[tuple[float, Entry]]:
        """The memories under a label with how far their length is from the place that is wanted."""
        members = self._memories[language]
        return [
            (abs(place / len(members) - wanted), memory)
            for place, memory in enumerate(members)
            if not label or f"{memory['label']}/".startswith(f"{label}/")
        ]

    def _place(self, pattern: _Said) -> float:
        """The share of memories of its language that are shorter."""
        lengths = [len(memory["value"]) for memory in self._memories[pattern.language]]
        return sum(length < len(pattern.memory["value"]) for length in lengths) / len(lengths)

    def _patterns_for(self, session: Entry) -> list[_Said]:
        english = session["language"] == "English"
        return [
            pattern
            for pattern in self._patterns
            if english == (pattern.session["language"] == "English")
        ]


def _write_rows(
    session: Entry,
    items: list[Entry],
    gold: Entry,
    chosen: Entry,
    pool: list[Entry],
    tasks: dict[str, list[Entry]],
) -> None:
    name = _name(session)
    head = {"benchmark_id": name, "session_id": name, "canonical_id": name}
    stratum = {"stratum": UNNAMED}
    turns = {"sessions": [{"session_id": name, "turns": session["dialogue"]}]}
    meta = {
        "language": session["language"],
        "dimension": session["dimension"],
        "type": session["type"],
        "shares_word": session["overlap"],
    }
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
            "gold": {"selected_memory_id": chosen["memory_id"], "selected_memory": chosen},
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
