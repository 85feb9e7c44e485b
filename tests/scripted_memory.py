"""A perfect model for memory systems: it answers by what stands in the prompt, and by a hash of it.

It writes down the first user lines of a dialogue as facts, decides on each in one of five ways, one
of them a label that names nothing, and answers a question from the first note.
"""

import re
from typing import Any

from tests.scripted_server import Call

_USER_LINE = re.compile(r"^\[(\d+)\] user: (.*)$", re.M)
_NEW_FACT = re.compile(r"^New fact: (.*)$", re.M)
_NOTE = re.compile(r"^- (.*)$", re.M)
LABELS = ("Thoughts/Curiosity", "Preferences/Entertainment", "UNMAPPED")


def remembers(call: Call) -> Any:
    """The answer to any prompt of a memory system."""
    if _NEW_FACT.search(call.prompt):
        return _decision(call)
    return _facts(call) if '"facts"' in call.prompt else _answer(call)


def _facts(call: Call) -> Any:
    lines = _USER_LINE.findall(call.prompt)[:3]
    return {
        "facts": [
            {
                "text": f"Once said: {text[:60]}",
                "type": "direct",
                "label": LABELS[int(number) % 3],
                "confidence": 0.8,
                "time_scope": "unknown",
                "attitude": None,
                "emotion": None,
                "evidence": [int(number)],
            }
            for number, text in lines
        ]
    }


def _decision(call: Call) -> Any:
    [fact] = _NEW_FACT.findall(call.prompt)
    return [
        {"action": "ADD", "memory": None, "text": None},
        {"action": "UPDATE", "memory": 1, "text": f"{fact}, and more"},
        {"action": "DELETE", "memory": 1, "text": None},
        {"action": "NOOP", "memory": 1, "text": None},
        {"action": "UPDATE", "memory": 99, "text": "nothing"},
    ][call.digest % 5]


def _answer(call: Call) -> Any:
    notes = _NOTE.findall(call.prompt)
    return {"answer": "By all means.", "used_memory_fact": notes[0] if notes else ""}
