"""What a perfect model answers to the prompts of memory systems, by rules that a reader can check.

It understands sentences that say "my TOPIC ...": each such user turn is a fact, a later one on the
same topic replaces the memory of it, and "forget my TOPIC" takes it back.
"""

import re
from typing import Any

from tests.scripted_server import Call

JSON = Any
TOPIC = re.compile(r"\bmy (\w+)|我的(\w\w)", re.IGNORECASE)


def data_of(prompt: str) -> str:
    """What stands between the marks; a prompt with more or fewer of them is refused."""
    found = re.findall(r"<DATA (\w{8})>\n(.*?)\n</DATA \1>", prompt, re.DOTALL)
    assert len(found) == prompt.count("<DATA ") == prompt.count("</DATA ") == 1, prompt
    return str(found[0][1])


def perfect(call: Call) -> JSON:
    prompt = call.prompt
    data = data_of(prompt)
    asked = prompt.replace(data, "")  # the data may hold anything
    if '"used_memory_fact"' in asked:
        return answer(data, prompt.partition("The question:\n")[2])
    if '"action"' in asked:
        return decision(data)
    assert '"facts"' in asked
    return facts(data)


def facts(data: str) -> JSON:
    said = re.findall(r"^\[(\d+)\] user: (.*)$", data, re.MULTILINE)
    return {
        "facts": [
            {
                "text": text,
                "type": "direct",
                "label": "Possessions/Pet" if "dog" in text else "UNMAPPED",
                "confidence": 0.9,
                "time_scope": "long_term",
                "attitude": None,
                "emotion": None,
                "evidence": [int(number)],
            }
            for number, text in said
            if TOPIC.search(text)
        ]
    }


def decision(data: str) -> JSON:
    fact = data.partition("\n")[0].removeprefix("New fact: ")
    for label, memory in re.findall(r"^\[(\d+)\] (.*)$", data, re.MULTILINE):
        if topic(memory) == topic(fact):
            if "forget" in fact:
                return {"action": "DELETE", "memory": int(label), "text": None}
            if memory.split()[-1] == fact.split()[-1]:
                return {"action": "NOOP", "memory": int(label), "text": None}
            return {"action": "UPDATE", "memory": int(label), "text": fact}
    return {"action": "ADD", "memory": None, "text": None}


def answer(data: str, query: str) -> JSON:
    for note in data.splitlines():
        if topic(note) and topic(note) == topic(query):
            return {"answer": f"As you said: {note[2:]}.", "used_memory_fact": note[2:]}
    return {"answer": "I don't know you well enough.", "used_memory_fact": ""}


def topic(text: str) -> str | None:
    found = TOPIC.search(text)
    return (found[1] or found[2]) if found else None
