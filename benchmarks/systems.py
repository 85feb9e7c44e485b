"""What each memory system stores and finds in the same dialogues, and what that takes.

    HF_HUB_OFFLINE=1 python benchmarks/systems.py [--data DIR] [--limit 10] [--system NAME ...]
        [--retrievers own,bm25,minilm] [--out FOLDER] [--json FILE]

Runs every external system that is installed, `llm` and `mem0-like` on the first --limit dialogues
of tasks 1, 2 and 4 (shared out over the abilities of task 4), one after the other. The model behind
them is scripted, and served over HTTP as any model would be: it tells the memories of the reference
whose evidence is in the prompt, and in task 2 the new and changed ones of the new dialogue. So what
is missing was lost by the system, not by a model, and what is found depends on the search alone.

Calls, tokens and seconds are per dialogue: tokens estimated from the bytes of requests and replies
as everywhere (`estimate_text`), seconds the median, since the first dialogue starts the workers.
Task 4 runs once per retriever, `own` being the search of the system itself; the runs after the
first take the replies from the cache, and their time is not counted. Recall at k is over the
questions whose gold memory was stored, next to that of a random order.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from memory_scoring.questions import read_task4
from memory_systems.external.catalogue import EXTERNAL
from memory_systems.external.environments import environment_of
from memory_systems.options import TaskOptions
from memory_systems.run import Task, TaskRun
from recallbed import __version__
from recallbed.chat_models.budget import estimate_text
from recallbed.chat_models.session import ChatOptions, open_chats
from recallbed.corpus.inputs import read_inputs
from recallbed.corpus.options import DataOptions
from recallbed.corpus.records import MemoryItem, Turn
from recallbed.corpus.tracks import ABILITIES, TASK1, TASK2
from recallbed.errors import UserError
from recallbed.harness.experiment import execute
from recallbed.harness.item_run import USAGE_KEYS
from recallbed.harness.run_options import RunOptions
from retrievers.options import OneRetrieverOptions
from task1.extraction import extraction_task
from task2.update import update_task
from task4.report import read_answered, score_answered
from task4.utilization import utilization_task
from tests import system_replies
from tests.memory_models import data_of, fact
from tests.scripted_server import Call, scripted_server

JSON = Any
OURS = ("llm", "mem0-like")
PLAIN = re.compile(r"""(?:[^\s"'`\\<>{}]| (?! ))+""")
"""Text that looks the same in every prompt, whatever it is quoted in."""
LONGEST = 60


# The model


def words_of(text: str) -> str:
    """Return the longest part of `text` by which it is known in a prompt."""
    return max(PLAIN.findall(text), key=len, default="").strip()[:LONGEST].strip()


def learn(dialogues: Sequence[tuple[Sequence[Turn], Sequence[MemoryItem]]]) -> None:
    """Tell the scripted model the memories that each dialogue holds.

    One without evidence of its own is told by the first turn of the user.
    """
    texts = ["\n".join(turn.text for turn in turns) for turns, _ in dialogues]
    for own, (turns, items) in zip(texts, dialogues, strict=True):
        first = words_of(next((turn.text for turn in turns if turn.role == "user"), ""))
        for item in items:
            words = words_of(item.evidence.text) if item.evidence else first
            in_others = any(words in text for text in texts if text != own)
            system_replies.KNOWN[item.text] = first if in_others or words not in own else words


def learn_all(data: Path | None, limit: int) -> Mapping[str, Callable[[], None]]:
    """Return what the model is taught before each task."""

    def task1() -> None:
        rows = read_inputs(data, "dev", TASK1, limit, with_gold=True).rows.values()
        learn([(row.dialogue, row.gold or ()) for row in rows])

    def task2() -> None:
        rows = read_inputs(data, "dev", TASK2, limit, with_gold=True).rows.values()
        found = []
        for row in rows:
            before = {item.text for item in row.memories}
            by_id = {item.id: item.text for item in row.memories}
            new = [item for item in row.gold or () if item.text not in before]
            found.append((row.new_dialogue, [MemoryItem(item.text) for item in new]))
            for item in new:
                old = by_id.get((item.id or "").removesuffix("_updated"))
                if old is not None:
                    system_replies.OUTDATES[item.text] = old
        learn(found)

    def task4() -> None:
        rows = read_task4(data, "dev", limit=per_ability(limit), with_gold=True).rows.values()
        golds = [(row.history, row.gold) for row in rows if row.gold]
        learn([(turns, [*gold.memories, gold.selected]) for turns, gold in golds])

    return {"task1": task1, "task2": task2, "task4": task4}


def answer(call: Call) -> JSON:
    """Return what the model says."""
    return ours(call) if "<DATA " in call.prompt else system_replies.answer(call)


def ours(call: Call) -> JSON:
    """Return the answer to a prompt of our own systems."""
    data = data_of(call.prompt)
    asked = call.prompt.replace(data, "")
    if '"used_memory_fact"' in asked:
        [note, *_] = [*re.findall(r"^- (.*)$", data, re.M), ""]
        return {"answer": "As you told me.", "used_memory_fact": note}
    listed, _, dialogue = data.rpartition("New dialogue:\n")
    old = {int(n): text for n, text in re.findall(r"^\[(\d+)\] (.*)$", listed or data, re.M)}
    if '"action"' in asked:
        new = data.partition("\n")[0].removeprefix("New fact: ")
        [changed, *_] = [*system_replies.outdated(new, old), None]
        known = next((number for number, text in old.items() if text == new), None)
        action = "NOOP" if known else "UPDATE" if changed else "ADD"
        return {"action": action, "memory": known or changed, "text": new if changed else None}
    found = system_replies.facts(dialogue)
    if '"memories"' not in asked:
        return {"facts": [fact(text, "UNMAPPED", 1, 0.9, "long_term") for text in found]}
    listed = listed.partition("Old dialogue:")[0]
    kept: dict[int | None, str] = {
        int(n): text for n, text in re.findall(r"^\[(\d+)\] (.*)$", listed, re.M)
    }
    memories = [{"memory": number, "text": text} for number, text in kept.items()]
    for text in found:
        [changed, *_] = [*system_replies.outdated(text, kept), None]
        memories = [one for one in memories if changed is None or one["memory"] != changed]
        memories.append({"memory": changed, "text": text})
    return {
        "memories": [
            {**fact(str(one["text"]), "UNMAPPED", 0, 0.9, "long_term"), **one, "evidence": []}
            for one in memories
        ]
    }


def count(call: Call, text: str) -> tuple[int, int]:
    asked = {key: call.body[key] for key in ("messages", "tools") if key in call.body}
    return estimate_text(json.dumps(asked, ensure_ascii=False)), estimate_text(text)


# The runs


@dataclass(frozen=True)
class Row:
    """One run; calls, tokens and seconds are per dialogue."""

    system: str
    version: str
    task: str
    done: int
    failed: dict[str, int]
    memories: int
    operations: dict[str, int]
    calls: float
    tokens_in: float
    tokens_out: float
    seconds: float


@dataclass(frozen=True)
class Found:
    """What one search found of the gold memories that were stored."""

    system: str
    search: str
    questions: int
    stored: int
    recall: dict[str, float]
    chance: dict[str, float]


def per_ability(limit: int) -> int:
    return max(1, limit // len(ABILITIES))


def task_of(name: str, options: TaskOptions) -> Task[Any]:
    return {"task1": extraction_task, "task2": update_task, "task4": utilization_task}[name](
        options
    )


def run(system: str, task: str, retriever: str, url: str, asked: argparse.Namespace) -> Path:
    """Return the folder of a finished run. Raise UserError if it cannot begin."""
    out = asked.out / f"{system}-{task}-{retriever}"
    options = TaskOptions(
        system,
        chat_model="openai:scripted",
        retrievers=OneRetrieverOptions((retriever,)),
        data=DataOptions(
            asked.data, "dev", per_ability(asked.limit) if task == "task4" else asked.limit
        ),
        chat=ChatOptions(base_url=url, replies=str(asked.out / f"{system}.sqlite"), in_flight=1),
        run=RunOptions(out=out, overwrite=True, keep_going=True),
    )
    with open_chats(options.chat) as chats:
        execute(TaskRun(options, task_of(task, options), chats), options.run)
    return out


def read_lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def measured(system: str, task: str, out: Path) -> Row:
    rows = read_lines(out / "rows.jsonl")
    done = [row["result"] for row in rows if row["error"] is None]
    seconds = [one["seconds"] for one in read_lines(out / "timings.jsonl") if "seconds" in one]
    actions = Counter(one["action"] for result in done for one in result["operations"])
    return Row(
        system,
        version_of(system),
        task,
        len(done),
        dict(Counter(row["error"] for row in rows if row["error"] is not None)),
        sum(len(result["memory_items"]) for result in done),
        dict(sorted(actions.items())),
        *(sum(row[key] for row in rows) / len(rows) for key in USAGE_KEYS),
        statistics.median(seconds),
    )


def found_in(system: str, search: str, out: Path, data: Path | None) -> Found | None:
    """Return what the run found; None for a system that does not search."""
    retrieval = score_answered(read_answered([out], data, "dev")).retrieval
    if retrieval is None or retrieval.not_searched == retrieval.questions:
        return None
    recall = {k: one.mean for k, one in retrieval.recall.items() if one}
    chance = {k: retrieval.chance[k] or 0.0 for k in recall}
    stored = sum(retrieval.recognised_by.values())
    return Found(system, search, retrieval.questions, stored, recall, chance)


def version_of(system: str) -> str:
    if system not in EXTERNAL:
        return __version__
    spec = EXTERNAL[system]
    return environment_of(spec).packages.get(spec.package, spec.version)


def systems(named: Sequence[str]) -> Iterator[str]:
    """Return those that can run, and print why the others cannot."""
    for name in named or (*OURS, *EXTERNAL):
        try:
            version_of(name)
        except UserError as error:
            print(f"{name}: skipped, {error}", file=sys.stderr)
        else:
            yield name


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    cells = [[shown(one) for one in row] for row in rows]
    lines = [columns, ["---" if i < 3 else "---:" for i in range(len(columns))], *cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def shown(cell: object) -> str:
    if isinstance(cell, float):
        return f"{cell:,.0f}" if cell >= 100 else f"{cell:.1f}" if cell >= 1 else f"{cell:.2g}"
    return str(cell)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--limit", type=int, default=10)
    parser.add_argument("--system", action="append", default=[])
    parser.add_argument("--retrievers", default="own,bm25,minilm")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    os.environ.setdefault("OPENAI_API_KEY", "none")  # the scripted server takes any
    teach = learn_all(asked.data, asked.limit)
    rows: list[Row] = []
    found: list[Found] = []
    with tempfile.TemporaryDirectory() as folder, scripted_server(answer, count=count) as server:
        asked.out = asked.out or Path(folder)
        for system in systems(asked.system):
            own = [] if system in OURS else ["own"]
            searches = [one for one in asked.retrievers.split(",") if one != "own" or own]
            for task in ("task1", "task2", "task4"):
                system_replies.KNOWN.clear()
                system_replies.OUTDATES.clear()
                teach[task]()
                outs = [
                    (search, run(system, task, search, server.url, asked))
                    for search in (searches if task == "task4" else searches[:1])
                ]
                rows.append(measured(system, task, outs[0][1]))
                print(rows[-1], file=sys.stderr, flush=True)
                if task == "task4":
                    found += [
                        one
                        for search, out in outs
                        if (one := found_in(system, search, out, asked.data))
                    ]
    print(table(
        ("system", "version", "task", "done", "failed", "memories", "calls", "tokens in",
         "tokens out", "seconds"),
        [(f"`{r.system}`", r.version, r.task[-1], r.done, sum(r.failed.values()), r.memories,
          r.calls, r.tokens_in, r.tokens_out, r.seconds) for r in rows],
    ))  # fmt: skip
    for row in rows:
        for cause, times in row.failed.items():
            print(f"failed: {row.system}, {row.task}: {cause}: {times}")
    ks = list(dict.fromkeys(k for one in found for k in one.recall))
    print()
    print(table(
        ("system", "search", "gold stored",
         *(f"recall@{k} (chance)" for k in ks)),
        [(f"`{one.system}`", one.search, f"{one.stored} of {one.questions}",
          *(f"{one.recall[k]:.2f} ({one.chance[k]:.2f})" if k in one.recall else "-" for k in ks))
         for one in found],
    ))  # fmt: skip
    if asked.json:
        result = {"runs": [asdict(one) for one in rows], "searches": [asdict(one) for one in found]}
        asked.json.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
