"""Small releases and run folders written by hand, for what reads finished runs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from judges.verdicts import Judged, Unjudged, to_row
from memory_scoring.questions import read_task4
from memory_scoring.run_answers import answers_identity
from recallbed.corpus.inputs import read_inputs
from recallbed.corpus.jsonl import new_digest
from recallbed.corpus.tracks import TASK1, TASK2
from tests.kit import write_lines

GOLD = "Keeps bees on the roof"
ANSWER = "By all means."


def memory(text: str, **more: Any) -> dict[str, Any]:
    return {"value": text, "label": "Possessions/Pet", "evidence": None, **more}


# Releases


def write_task4(root: Path, abilities: Mapping[str, int], labels: Mapping[str, str] = {}) -> Path:
    """Rows by name with their ability, one question each, about GOLD; return `root`."""
    for ability in sorted(set(abilities.values())):
        inputs, references = [], []
        for name in (name for name, its in abilities.items() if its == ability):
            head = {"benchmark_id": name, "session_id": f"s-{name}", "task": "task4"}
            gold = memory(GOLD, memory_id="m1", label=labels.get(name, "Possessions/Pet"))
            selected = {"memory_id": "m1", "value": GOLD}
            queries = [{"query_id": "q", "query": f"What about {name}?"}]
            turns = [{"role": "user", "text": "hello there"}, {"role": "assistant", "text": "Hi."}]
            body = {"query": queries[0]["query"], "queries": queries, "model_input": {}}
            audit = {"conversation": turns}
            inputs.append({**head, "input": {**body, "audit_context": audit}})
            known = {"selected_memory": selected, "extracted_memory": [gold]}
            references.append({**head, "gold": {"memory_key": "m1", **known}})
        folder = root / "dev" / f"task4_ability{ability}"
        write_lines(folder / "model_input.jsonl", inputs)
        write_lines(folder / "reference_output.jsonl", references)
    return root


def write_sessions(root: Path, golds: Mapping[str, Sequence[str]], task: str = "task1") -> Path:
    """Sessions of task 1 or 2 by name with their gold memories; return `root`."""
    turns = [{"role": "user", "text": "hello there"}]
    inputs, references = [], []
    for name, texts in golds.items():
        head = {"benchmark_id": name, "session_id": f"s-{name}", "task": task}
        given = {"sessions": [{"session_id": f"s-{name}", "turns": turns}]}
        if task == "task2":
            given = {"old_dialogue": turns, "new_dialogue": turns, "memory": [memory("an old one")]}
        inputs.append({**head, "input": given})
        items = [memory(text, memory_id=f"m{n}") for n, text in enumerate(texts)]
        key = "memory_items" if task == "task1" else "answer"
        references.append({**head, "gold": {key: items}})
    write_lines(root / "dev" / task / "model_input.jsonl", inputs)
    write_lines(root / "dev" / task / "reference_output.jsonl", references)
    return root


# Run folders


def write_run(
    path: Path, fingerprint: Mapping[str, Any], rows: Sequence[Any], summary: Mapping[str, Any]
) -> Path:
    write_lines(path / "rows.jsonl", rows)
    (path / "manifest.json").write_text(json.dumps({"fingerprint": fingerprint, "notes": {}}))
    (path / "summary.json").write_text(json.dumps(summary))
    return path


def write_sweep_run(
    path: Path,
    ranks: Mapping[str, Mapping[int, Sequence[int | None]]],
    pools: str = "p",
    **more: Any,
) -> Path:
    """A sweep with the rank (from 1) of each query's gold by label and size; None is a failed row.

    Ranks may be fewer than those of the first label: the run is then not finished.
    """
    rows = []
    for label, by_size in ranks.items():
        for size, found in by_size.items():
            for number, rank in enumerate(found):
                head = {"query": f"q{number}", "retriever": label, "distractors": size}
                scored = {} if rank is None else {"above": rank - 1, "tied": 1}
                top = [] if rank is None else [[0, 1.0]]
                error = "it failed" if rank is None else None
                rows.append(
                    {
                        **head,
                        **{"pool": f"{pools}{size}/{number}", "gold": 0},
                        **{"above": None, "tied": None, **scored, "top": top},
                        **{"calls": 0, "tokens_in": 0, "tokens_out": 0, "repairs": {}},
                        "error": error,
                    }
                )
    first = next(iter(ranks.values()))
    prints = {
        "data": {"queries": len(next(iter(first.values()))), "sample": False, "split": "dev"},
        "pools": {"strategy": "nested", "seeds": [0], "distractors": sorted(first)},
        "retrievers": [{"label": label} for label in ranks],
        "seed": 0,
    }
    manifest = {
        "fingerprint": prints,
        **{"notes": {}, "repaired": {}, "sessions": {}, "duplicate_queries": {}},
        "pools_with_repeated_ids": 0,
        **more,
    }
    write_lines(path / "rows.jsonl", rows)
    (path / "manifest.json").write_text(json.dumps(manifest))
    return path


def item_row(name: str, result: Any, error: str | None = None) -> dict[str, Any]:
    usage = {"calls": 0, "tokens_in": 0, "tokens_out": 0}
    return {"item": name, "result": result, **usage, "error": error}


def _system_run(
    path: Path, task: str, data: Mapping[str, Any], rows: Sequence[Any], system: str
) -> Path:
    fingerprint = {"task": task, "data": data, "seed": 0, "retriever": {"label": "bm25"}}
    summary = {"system": system, "chat_models": ["openai:m"]}
    return write_run(path, fingerprint, rows, summary)


def answered(
    memories: Sequence[str],
    hits: Sequence[int],
    used: str = "",
    left_out: int = 0,
    answer: str = ANSWER,
    hits_left_out: Sequence[int] | None = None,
) -> dict[str, Any]:
    """The result of a row of task 4 with one question; earlier versions had no `hits_left_out`."""
    response = {
        "query_id": "q",
        "answer": answer,
        "used_memory_fact": used,
        "hits": [[position, 1.0] for position in hits],
        "left_out": left_out,
        "error": None,
    }
    if hits_left_out is not None:
        response["hits_left_out"] = list(hits_left_out)
    items = [memory(text) for text in memories]
    return {"memory_items": items, "operations": [], "responses": [response]}


def write_task4_run(
    path: Path, root: Path, results: Mapping[str, Any], system: str = "mem0"
) -> Path:
    """A run of task 4; a result that is text is the cause of a failed row."""
    rows = [
        item_row(name, None, one) if isinstance(one, str) else item_row(name, one)
        for name, one in results.items()
    ]
    return _system_run(path, "task4", read_task4(root, "dev").data, rows, system)


def write_memory_run(
    path: Path,
    root: Path,
    predicted: Mapping[str, Sequence[str] | None],
    task: str = "task1",
    system: str = "mem0",
) -> Path:
    """A run of task 1 or 2 with the predicted memories of each session; None is a failed row."""
    lists = {
        name: texts if texts is None else [memory(text) for text in texts]
        for name, texts in predicted.items()
    }
    rows = [
        item_row(name, None, "it failed")
        if items is None
        else item_row(name, {"memory_items": items, "operations": [], "unknown_labels": 0})
        for name, items in lists.items()
    ]
    data = read_inputs(root, "dev", {"task1": TASK1, "task2": TASK2}[task]).fingerprint()  # type: ignore[type-var]
    official = [
        {"benchmark_id": name, "memory_items": items}
        for name, items in lists.items()
        if items is not None
    ]
    write_lines(path / "predictions.jsonl", official)
    return _system_run(path, task, data, rows, system)


# Runs of a judge


def _verdict_rows(verdicts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of verdicts; text is the cause of an unjudged item."""
    rows = []
    for name, value in verdicts.items():
        verdict = Unjudged(value) if isinstance(value, str) else Judged(value)
        cause = value if isinstance(value, str) else None
        rows.append(item_row(name, to_row(verdict), cause))
    return rows


def write_answer_verdicts(
    path: Path, verdicts: Mapping[str, Any], answer: str = ANSWER, model: str = "openai:judge"
) -> Path:
    """Verdicts on the answers of task 4, by row; each answer is `answer`."""
    named = {f"{name} q": value for name, value in verdicts.items()}
    about = {"answers": answers_identity(dict.fromkeys(named, answer)), "data": {}}
    fingerprint = {"task": "task4, judged", **about, "judge": {}}
    return write_run(path, fingerprint, _verdict_rows(named), {"model": model, "votes": 1})


def write_pair_verdicts(path: Path, run: Path, verdicts: Mapping[str, Any]) -> Path:
    """Verdicts on the memory lists of `run`: pairs of positions by session."""
    task = json.loads((run / "manifest.json").read_text())["fingerprint"]["task"]
    digest = new_digest()
    digest.update((run / "predictions.jsonl").read_bytes())
    fingerprint = {
        "task": f"{task}, memories paired by a judge",
        "data": {},
        "predictions": digest.hexdigest()[:16],
        "judge": {},
    }
    summary = {"model": "openai:judge", "votes": 1}
    return write_run(path, fingerprint, _verdict_rows(verdicts), summary)
