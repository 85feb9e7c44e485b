"""Scripted models for memory systems: a perfect one, and one whose decisions follow a hash."""

import re
from typing import Any

from tests.scripted_server import Call

JSON = Any
TOPIC = re.compile(r"\bmy (\w+)|我的(\w\w)", re.IGNORECASE)
LABELS = ("Thoughts/Curiosity", "Preferences/Entertainment", "UNMAPPED")
_USER_LINE = re.compile(r"^\[(\d+)\] user: (.*)$", re.M)


def fact(text: str, label: str, number: int, confidence: float, time_scope: str) -> JSON:
    return {
        "text": text,
        "type": "direct",
        "label": label,
        "confidence": confidence,
        "time_scope": time_scope,
        "attitude": None,
        "emotion": None,
        "evidence": [number],
    }


def data_of(prompt: str) -> str:
    """Return the text between the marks; a prompt with more or fewer of them is refused."""
    found = re.findall(r"<DATA (\w{8})>\n(.*?)\n</DATA \1>", prompt, re.DOTALL)
    assert len(found) == prompt.count("<DATA ") == prompt.count("</DATA ") == 1, prompt
    return str(found[0][1])


# The perfect model understands "my TOPIC ...": each such user turn is a fact, a later one on the
# same topic replaces the memory of it, and "forget my TOPIC" deletes it.


def perfect(call: Call) -> JSON:
    prompt = call.prompt
    data = data_of(prompt)
    asked = prompt.replace(data, "")  # the data may hold anything
    if '"used_memory_fact"' in asked:
        return answer(data, prompt.partition("The question:\n")[2])
    if '"action"' in asked:
        return decision(data)
    if '"memories"' in asked:
        return updated(data)
    assert '"facts"' in asked
    return facts(data)


def facts(data: str) -> JSON:
    found = [(int(number), text) for number, text in _USER_LINE.findall(data)]
    return {
        "facts": [
            fact(text, "Possessions/Pet" if "dog" in text else "UNMAPPED", n, 0.9, "long_term")
            for n, text in found
            if TOPIC.search(text)
        ]
    }


def decision(data: str) -> JSON:
    new = data.partition("\n")[0].removeprefix("New fact: ")
    for label, memory in re.findall(r"^\[(\d+)\] (.*)$", data, re.MULTILINE):
        if topic(memory) == topic(new):
            if "forget" in new:
                return {"action": "DELETE", "memory": int(label), "text": None}
            if memory.split()[-1] == new.split()[-1]:
                return {"action": "NOOP", "memory": int(label), "text": None}
            return {"action": "UPDATE", "memory": int(label), "text": new}
    return {"action": "ADD", "memory": None, "text": None}


def updated(data: str) -> JSON:
    """Return the list after the new dialogue: each fact replaces or deletes those on its topic."""
    before, _, new = data.partition("New dialogue:\n")
    listed = before.partition("Old dialogue:")[0]
    kept: list[JSON] = [
        {**fact(text, "UNMAPPED", 0, 0.9, "long_term"), "evidence": [], "memory": int(label)}
        for label, text in re.findall(r"^\[(\d+)\] (.*)$", listed, re.M)
    ]
    for found in facts(new)["facts"]:
        on_topic = [one for one in kept if topic(one["text"]) == topic(found["text"])]
        if on_topic:
            found["memory"] = on_topic[0]["memory"]
        if "forget" in found["text"]:
            kept = [one for one in kept if one not in on_topic]
        elif on_topic and on_topic[0]["text"].split()[-1] != found["text"].split()[-1]:
            kept[kept.index(on_topic[0])] = found
        elif not on_topic:
            kept.append({**found, "memory": None})
    return {"memories": kept}


def answer(data: str, query: str) -> JSON:
    for note in data.splitlines():
        if topic(note) and topic(note) == topic(query):
            return {"answer": f"As you said: {note[2:]}.", "used_memory_fact": note[2:]}
    return {"answer": "I don't know you well enough.", "used_memory_fact": ""}


def topic(text: str) -> str | None:
    found = TOPIC.search(text)
    return (found[1] or found[2]) if found else None


def by_hash(call: Call) -> JSON:
    """Take the first user lines as facts, decide in one of five ways, answer from the first note.

    One of the decisions has a label that names nothing.
    """
    if new := re.findall(r"^New fact: (.*)$", call.prompt, re.M):
        [text] = new
        return [
            {"action": "ADD", "memory": None, "text": None},
            {"action": "UPDATE", "memory": 1, "text": f"{text}, and more"},
            {"action": "DELETE", "memory": 1, "text": None},
            {"action": "NOOP", "memory": 1, "text": None},
            {"action": "UPDATE", "memory": 99, "text": "nothing"},
        ][call.digest % 5]
    if '"memories"' in call.prompt and "New dialogue:" in call.prompt:
        kept = re.findall(r"^\[(\d+)\] (?!user:|assistant:)(.*)$", call.prompt, re.M)
        return {"memories": [{"memory": int(n), "text": f"Now: {text}"} for n, text in kept[1:]]}
    if '"facts"' in call.prompt:
        lines = [(int(n), text) for n, text in _USER_LINE.findall(call.prompt)[:3]]
        found = [
            fact(f"Once said: {text[:60]}", LABELS[n % 3], n, 0.8, "unknown") for n, text in lines
        ]
        return {"facts": found}
    notes = re.findall(r"^- (.*)$", call.prompt, re.M)
    return {"answer": "By all means.", "used_memory_fact": notes[0] if notes else ""}
