"""What a perfect model answers to the prompts of external systems, about a dog and a bicycle.

The prompts are told apart by phrases of the versions that are installed, and the answers follow
from the dialogue in the prompt, never from the order of the calls.
"""

from __future__ import annotations

import ast
import hashlib
import random
import re
from collections.abc import Mapping
from functools import cache, partial
from typing import Any, TypeVar

from tests.memory_models import perfect
from tests.scripted_server import Call, ToolCalls

JSON = Any
K = TypeVar("K")
DOG, GREEN, RED = "Has a dog called Pepper", "Has a green bicycle", "Has a red bicycle"
SOLD = "Sold the bicycle"
DIALOGUES = (
    [
        ("user", "my dog is called Pepper"),
        ("assistant", "What a good name."),
        ("user", "I bought a green bicycle"),
        ("assistant", "Nice."),
    ],
    [("user", "my bicycle is red now"), ("assistant", "Red suits it.")],
    [("user", "I sold my bicycle"), ("assistant", "Good.")],
)


KNOWN = {DOG: "called Pepper", GREEN: "a green bicycle", RED: "is red now"}
"""Facts by the words that tell them. A benchmark adds those of its dialogues."""
OUTDATES: dict[str, str] = {}
"""The old fact that a new one replaces, other than those about the bicycle."""


def facts(dialogue: str) -> list[str]:
    """Return what the user says about themselves."""
    return [fact for fact, words in KNOWN.items() if words in dialogue]


def outdated(fact: str, old: Mapping[K, str]) -> list[K]:
    """Return the keys of the memories that do not hold any more after `fact`."""
    before = OUTDATES.get(fact)
    return [
        key
        for key, text in old.items()
        if ("bicycle" in fact and "bicycle" in text) or (before is not None and before in text)
    ]


def sold(dialogue: str) -> bool:
    return "I sold my bicycle" in dialogue


def numbered(number: str, text: str, prompt: str) -> dict[str, str]:
    """Return the texts by number of memories that a prompt shows as Python dictionaries."""
    quoted = r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
    found = re.findall(rf"'{number}': '?(\d+)'?, '{text}': {quoted}", prompt)
    return {key: ast.literal_eval(literal) for key, literal in found}


@cache
def _word(word: str) -> list[float]:
    draw = random.Random(hashlib.sha256(word.encode()).digest())
    return [draw.gauss(0, 1) for _ in range(384)]


def embed(text: str) -> list[float]:
    """Return a vector that is near those of texts with the same words; its length is 1."""
    words = re.findall(r"\w+", text.lower()) or [""]
    vector = [sum(column) for column in zip(*map(_word, words), strict=True)]
    norm = sum(value**2 for value in vector) ** 0.5
    return [value / norm for value in vector]


def answer(call: Call) -> JSON:
    """Return the answer to a prompt of any system here."""
    texts = [str(message["content"] or "") for message in call.body["messages"]]
    whole, last = "\n".join(texts), texts[-1]
    if "<DATA " in whole:
        return perfect(call)  # our own prompt, which asks for an answer from memories
    tools = {tool["function"]["name"] for tool in call.body.get("tools") or []}
    for asks, reply in (
        ("PatchDoc" in tools or "Memory" in tools, langmem),
        (bool(tools), mem0_graph),
        ("structured analysis" in last or "memory evolution agent" in last, a_mem),
        (any(phrase in last for phrase in A_MEM_PAPER), a_mem_paper),
        (bool(schema_name(call)), partial(graphiti, schema_name(call))),
        (any(phrase in whole for phrase in MEMORYOS), memoryos),
        ("memory list" in last, memos),
        (any(phrase in last for phrase in EVERMEMOS), evermemos),
        ('"source_id"' in whole or "Target memory:" in last, lightmem),
        ("## New Messages" in last, mem0_additive),
        ("smart memory manager" in whole, mem0_update),
        ("Personal Information Organizer" in whole, mem0_facts),
    ):
        if asks:
            return reply(whole, last, tools)
    raise AssertionError(f"no answer to {whole[:2000]}")


def schema_name(call: Call) -> str:
    wanted = call.body.get("response_format") or {}
    return str((wanted.get("json_schema") or {}).get("name") or "")


# Mem0


def mem0_facts(whole: str, last: str, tools: set[str]) -> JSON:
    return {"facts": facts(last) + [SOLD] * sold(last)}


def mem0_update(whole: str, last: str, tools: set[str]) -> JSON:
    before, _, fenced = last.rpartition("triple backticks")
    old = numbered("id", "text", before)
    found = []
    for fact in ast.literal_eval(fenced.split("```")[1].strip()):
        same = [number for number, text in old.items() if text == fact]
        others = outdated(fact, old)
        if same:
            event = {"id": same[0], "event": "NONE"}
        elif fact == SOLD:
            found += [{"id": n, "text": old[n], "event": "DELETE"} for n in others]
            continue
        elif others:
            event = {"id": others[0], "event": "UPDATE", "old_memory": old[others[0]]}
        else:
            event = {"id": str(len(old) + len(found)), "event": "ADD"}
        found.append({**event, "text": fact})
    return {"memory": found}


def mem0_additive(whole: str, last: str, tools: set[str]) -> JSON:
    new = last.rpartition("## New Messages")[2].rpartition("## Observation Date")[0]
    return {"memory": [{"text": fact, "attributed_to": "user"} for fact in facts(new)]}


def mem0_graph(whole: str, last: str, tools: set[str]) -> JSON:
    things = {"Pepper": "dog", "bicycle": "thing"}
    if "extract_entities" in tools:
        named = [{"entity": name, "entity_type": kind} for name, kind in things.items()]
        entities = [one for one in named if one["entity"] in last]
        return ToolCalls(
            (
                (
                    "extract_entities",
                    {"entities": [*entities, {"entity": "ann", "entity_type": "person"}]},
                ),
            )
        )
    if "establish_relationships" in tools:
        edges = [
            {"source": "ann", "relationship": relation, "destination": thing}
            for fact, relation, thing in (
                (DOG, "has_dog", "Pepper"),
                (GREEN, "has_green", "bicycle"),
                (RED, "has_red", "bicycle"),
            )
            if fact in facts(last)
        ]
        return ToolCalls((("establish_relationships", {"entities": edges}),))
    old = {"has_green": "is red now", "has_red": "I sold my bicycle"}
    for relation, words in old.items():
        if f"-- {relation} --" in last and words in last:
            edge = {"source": "ann", "relationship": relation, "destination": "bicycle"}
            return ToolCalls((("delete_graph_memory", edge),))
    return ToolCalls((("noop", {}),)) if "noop" in tools else "nothing"


# LangMem


def langmem(whole: str, last: str, tools: set[str]) -> JSON:
    said = whole.partition("<session_")[2].partition("</session_")[0]
    old = re.findall(r"<instance id=(\S+) .*?>\s*(.*?)\s*</instance>", whole, re.S)
    calls: list[tuple[str, JSON]] = []
    for fact in facts(said):
        if before := outdated(fact, dict(old)):
            patch = {"op": "replace", "path": "/content", "value": fact}
            edit = {"json_doc_id": before[0], "planned_edits": "colour", "patches": [patch]}
            calls.append(("PatchDoc", edit))
        else:
            calls.append(("Memory", {"content": fact}))
    if sold(said):
        calls += [("RemoveDoc", {"json_doc_id": number}) for number in outdated(SOLD, dict(old))]
    return ToolCalls(tuple(calls)) if calls else "nothing"


# Graphiti


def _thing(fact: str) -> str:
    return "Pepper" if fact == DOG else "bicycle" if "bicycle" in fact else "things"


def graphiti(schema: str, whole: str, last: str, tools: set[str]) -> JSON:
    current = re.split("<CURRENT[ _]MESSAGES?>", last)[-1]
    if schema == "ExtractedEntities":
        named = [name for name in ("user", "Pepper", "bicycle") if name in current]
        named += ["things"] * any(_thing(fact) == "things" for fact in facts(current))
        entity = {"entity_type_id": 0, "episode_indices": [0]}
        return {"extracted_entities": [{"name": name, **entity} for name in named]}
    if schema == "ExtractedEdges":
        new = [*facts(current), *([SOLD] * sold(current))]
        return {
            "edges": [
                {
                    "source_entity_name": "user",
                    "target_entity_name": _thing(fact),
                    "relation_type": "HAS",
                    "fact": fact,
                    "episode_indices": [0],
                }
                for fact in new
            ]
        }
    if schema == "EdgeDuplicate":
        old, _, new = last.partition("<NEW FACT>")
        known = numbered("idx", "fact", old)
        fact = new.partition("</NEW FACT>")[0].strip()
        others = [int(number) for number in outdated(fact, known)]
        return {"duplicate_facts": [], "contradicted_facts": others}
    if schema.endswith("EdgeTimestamps"):
        day = re.search(r"\d{4}-\d\d-\d\d", last.partition("<REFERENCE TIME>")[2])
        time = {"valid_at": f"{day[0]}T00:00:00Z" if day else None, "invalid_at": None}
        return {"timestamps": [time]} if schema.startswith("Batch") else time
    if schema == "NodeResolutions":
        return {"entity_resolutions": []}
    if schema == "SummarizedEntities":
        return {"summaries": []}
    raise AssertionError(f"no answer to the schema {schema}: {last[:2000]}")


# MemoryOS

MEMORYOS = (
    "continuity detector",
    "meta-summary updater",
    "analyzing dialogue topics",
    "keyword extraction",
    "preference analysis",
    "knowledge extraction assistant",
)


def memoryos(whole: str, last: str, tools: set[str]) -> JSON:
    if "continuity detector" in whole:
        return "false"
    if "meta-summary updater" in whole:
        return "A chat about things."
    if "analyzing dialogue topics" in whole:
        return [{"theme": "things", "keywords": ["dog", "bicycle"], "content": "Things they have."}]
    if "keyword extraction" in whole:
        return "dog, bicycle"
    if "preference analysis" in whole:
        return "Animal Concern ( High ): has a dog."
    new = [*facts(last), *([SOLD] * sold(last))]
    private = "\n".join(f"- {fact}" for fact in new) or "None"
    return f"【User Private Data】\n{private}\n\n【Assistant Knowledge】\n- Replies politely"


# LightMem

NO_MORE = "Has a red bicycle no more"


def lightmem(whole: str, last: str, tools: set[str]) -> JSON:
    """A fact that is like an earlier one is a reason to delete that."""
    if "Target memory:" in last:
        target, _, new = last.partition("Candidate memories:")
        pairs = [(NO_MORE, RED), *OUTDATES.items()]
        stale = any(old in target and fact in new for fact, old in pairs)
        return {"action": "delete" if stale else "ignore"}
    found = []
    for number, said in re.findall(r"\] (\d+)\.user: (.*)", last):
        new = [*facts(said), *([NO_MORE] * sold(said))]
        found += [{"source_id": int(number), "fact": fact} for fact in new]
    return {"data": found}


# MemOS


def memos(whole: str, last: str, tools: set[str]) -> JSON:
    said = last.rpartition("Conversation:")[2]
    new = [*facts(said), *([SOLD] * sold(said))]
    kind = {"memory_type": "LongTermMemory", "tags": ["things"]}
    return {"memory list": [{"key": fact, "value": fact, **kind} for fact in new], "summary": ""}


# EverMemOS

EVERMEMOS = ('"boundaries"', "episodic memory generation", '"atomic_facts"', "【Output Format】")


def evermemos(whole: str, last: str, tools: set[str]) -> JSON:
    """An episode states the facts, which are then extracted from it."""
    if '"boundaries"' in last:
        return {"reasoning": "one topic", "boundaries": [], "should_wait": False}
    if '"atomic_facts"' in last:
        found = [fact for fact in (*KNOWN, SOLD) if fact in last]
        return {"atomic_facts": {"time": "January 1, 2025", "atomic_fact": found}}
    if "【Conversation Records】" in last:
        said = last.partition("【Conversation Records】")[2].partition("【Task】")[0]
        data = {"category": "bicycle", "description": "Sold." if sold(said) else "It is red."}
        return {"operations": [{"action": "add", "type": "explicit_info", "data": data}]}
    if '"explicit_info"' in last:
        info = {"category": "pets", "description": "Has a dog.", "evidence": "They said so."}
        return {"explicit_info": [info], "implicit_traits": []}
    new = [*facts(last), *([SOLD] * sold(last))]
    return {"title": "Things they have", "content": f"The user said: {', '.join(new)}."}


# A-Mem


def a_mem(whole: str, last: str, tools: set[str]) -> JSON:
    if "memory evolution agent" not in last:
        return {"keywords": ["things"], "context": "Things they have.", "tags": ["personal"]}
    neighbours = re.findall(r"memory_id:(\S+)", last)
    new = re.split("content:", last, flags=re.I)[1].partition("eywords:")[0]
    changes = "bicycle" in new
    return {
        "should_evolve": changes,
        "actions": ["strengthen", "update_neighbor"] if changes else [],
        "suggested_connections": neighbours[:1] if changes else [],
        "tags_to_update": ["bicycle"] if changes else [],
        "new_context_neighborhood": ["Things."] * len(neighbours),
        "new_tags_neighborhood": [["things"]] * len(neighbours),
    }


# A-Mem, its authors' source: sections of text

A_MEM_PAPER = ("KEYWORDS: keyword1", "CONNECTIONS: 0, 2, 3", "NEIGHBOR 0:")


def a_mem_paper(whole: str, last: str, tools: set[str]) -> JSON:
    """The decision is asked for as in the package, whose answer is understood here too."""
    if "KEYWORDS: keyword1" in last:
        return "KEYWORDS: things, user, talk\nCONTEXT: Things.\nTAGS: personal, life, talk"
    neighbours = re.findall(r"memory index:(\d+)", last)
    if "CONNECTIONS: 0, 2, 3" in last:
        return f"CONNECTIONS: {neighbours[0]}\nTAGS: bicycle, life, talk"
    return "\n\n".join(
        f"NEIGHBOR {place}:\nCONTEXT: Things.\nTAGS: things" for place in range(len(neighbours))
    )
