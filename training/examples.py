"""Labelled pairs of a text and the memory that belongs to it, each with its session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from recallbed.corpus.custom import is_custom
from recallbed.corpus.dataset import Dataset, load_dataset
from recallbed.corpus.inputs import read_inputs
from recallbed.corpus.jsonl import find_jsonl
from recallbed.corpus.layout import sample_root, split_folder
from recallbed.corpus.records import Task1Row, Task3Row, Task4Row, Turn
from recallbed.corpus.sessions import session_key
from recallbed.corpus.tracks import ABILITIES, TASK1, task4_track
from recallbed.errors import UserError

Kind = Literal["query", "evidence", "utilization"]
KINDS: tuple[Kind, ...] = get_args(Kind)
SPLIT = "dev"
"""The one split of a release that may be learned from."""


@dataclass(frozen=True, slots=True)
class TrainingExample:
    """A text and a memory that should be found with it.

    `kind` says where the text is from: `query` is a retrieval query with its gold (task 3, or a
    user's own row), `evidence` an utterance with a memory extracted from it (task 1), `utilization`
    a question with the memory that its answer uses (task 4).
    """

    session: str
    query: str
    memory: str
    kind: Kind


@dataclass(frozen=True)
class TrainingData:
    """What a trainer learns from.

    `rows` are the retrieval queries, `bank` the distinct memories of all their pools, sorted by
    text, with `labels` of those that have one. `own` maps a session to its own memories, golds
    included. Sessions are named as `session_key` does; `aliases` are the names that task 4 has for
    them besides. `provenance` is JSON for a card.
    """

    examples: tuple[TrainingExample, ...]
    rows: tuple[Task3Row, ...]
    bank: tuple[str, ...]
    own: Mapping[str, frozenset[str]]
    provenance: Mapping[str, Any]
    labels: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def sessions(self) -> tuple[str, ...]:
        """All sessions with examples, sorted."""
        return tuple(sorted({example.session for example in self.examples}))

    def of_kinds(self, kinds: Collection[Kind]) -> TrainingData:
        """Return the data with the examples of these kinds only. Raises UserError for none."""
        examples = tuple(one for one in self.examples if one.kind in kinds)
        if not examples:
            raise UserError(
                f"--examples {', '.join(sorted(kinds))}: the data has none of this kind"
            )
        return self._with(examples, self.rows)

    def of_sessions(self, sessions: Collection[str]) -> TrainingData:
        """Return the data with the examples and rows of these sessions only; the bank stays."""
        kept = frozenset(sessions)
        return self._with(
            tuple(one for one in self.examples if one.session in kept),
            tuple(row for row in self.rows if session_key(row) in kept),
        )

    def _with(
        self, examples: tuple[TrainingExample, ...], rows: tuple[Task3Row, ...]
    ) -> TrainingData:
        counts = dict(sorted(Counter(one.kind for one in examples).items()))
        facts = {**self.provenance, "examples": counts}
        return replace(self, examples=examples, rows=rows, provenance=facts)


def read_training_data(
    data: Path | None = None, split: str = SPLIT, kinds: Collection[Kind] = KINDS
) -> TrainingData:
    """Read the examples of `kinds` in file order, retrieval queries first.

    `data` is a release folder, a user's own file, or None for the embedded sample. A file has the
    kind `query` alone, one example for each gold. A row of task 4 gets the session whose dialogue
    equals its history, else the one session that most of its extracted memories are from; rows
    without one are left out and counted in `provenance`.

    Raises UserError for a split other than dev, and if no examples are found; DataError for faulty
    data.
    """
    root = data or sample_root()
    if not is_custom(root) and split != SPLIT:
        raise UserError(f"--split {split}: models are trained on {SPLIT} alone; other splits test")
    dataset = load_dataset(root, split)
    rows = dataset.smallest.rows
    own: dict[str, set[str]] = {}
    for row in rows:
        golds = {memory.text for memory in row.gold_memories}
        own.setdefault(session_key(row), set()).update(golds)
    for session, texts in dataset.own.items():
        own.setdefault(session, set()).update(texts)
    facts: dict[str, Any] = {"sha256": {"task3": dataset.sha256}}
    aliases: dict[str, set[str]] = {}
    found = [
        TrainingExample(session_key(row), row.query, memory.text, "query")
        for row in rows
        for memory in row.gold_memories
        if "query" in kinds
    ]
    if not is_custom(root):
        found += _of_other_tasks(root, split, kinds, own, facts, aliases)
    if not found:
        raise UserError(f"{root}: holds no examples of {', '.join(sorted(kinds))}")
    examples = tuple(dict.fromkeys(found))
    counts = Counter(example.kind for example in examples)
    return TrainingData(
        examples,
        rows,
        tuple(memory.text for memory in dataset.bank),
        {session: frozenset(texts) for session, texts in own.items()},
        {**_origin(dataset, root), **facts, "examples": dict(sorted(counts.items()))},
        {memory.text: memory.label for memory in dataset.bank if memory.label},
        {session: frozenset(names) for session, names in aliases.items()},
    )


def _origin(dataset: Dataset, root: Path) -> dict[str, Any]:
    """Which data: of a file neither path nor name, which a card would carry to others."""
    if is_custom(root):
        return {"data": "own file", "split": None}
    sample = root.resolve() == sample_root().resolve()
    return {"data": "embedded sample" if sample else "AlpsBench", "split": dataset.split}


def _of_other_tasks(
    root: Path,
    split: str,
    kinds: Collection[Kind],
    own: Mapping[str, set[str]],
    facts: dict[str, Any],
    aliases: dict[str, set[str]],
) -> Iterator[TrainingExample]:
    folder = split_folder(root, split)
    if find_jsonl(folder / TASK1.name, "reference_output") is None:
        return
    task1 = read_inputs(root, split, TASK1, with_gold=True)
    facts["sha256"]["task1"] = task1.sha256
    sessions = task1.rows.values()
    if "evidence" in kinds:
        for row in sessions:
            for item in row.gold or ():
                if item.evidence is not None and item.evidence.text.strip():
                    yield TrainingExample(row.session_id, item.evidence.text, item.text, "evidence")
    home = _Home({row.session_id: row for row in sessions}, own)
    questions = list(_of_task4(root, split, home, facts, aliases))
    if "utilization" in kinds:
        yield from questions


def _of_task4(
    root: Path,
    split: str,
    home: _Home,
    facts: dict[str, Any],
    aliases: dict[str, set[str]],
) -> Iterator[TrainingExample]:
    folder, unmapped = split_folder(root, split), 0
    for ability in ABILITIES:
        track = task4_track(ability)
        if find_jsonl(folder / track.name, "reference_output") is None:
            continue
        task4 = read_inputs(root, split, track, with_gold=True)
        facts["sha256"][track.name] = task4.sha256
        for row in task4.rows.values():
            session = home.of(row)
            if session is None or row.gold is None:
                unmapped += 1
                continue
            aliases.setdefault(session, set()).add(row.session_id)
            for query in row.queries:
                yield TrainingExample(session, query.text, row.gold.selected.text, "utilization")
    facts["task4_rows_without_a_session"] = unmapped


class _Home:
    """The session of task 1 that a row of task 4 was made from."""

    def __init__(self, rows: Mapping[str, Task1Row], own: Mapping[str, set[str]]) -> None:
        self._by_dialogue: dict[tuple[Turn, ...], str] = {}
        for session, row in rows.items():
            self._by_dialogue.setdefault(row.dialogue, session)
        self._by_memory: dict[str, list[str]] = {}
        for session, texts in own.items():
            for text in texts:
                self._by_memory.setdefault(text, []).append(session)

    def of(self, row: Task4Row) -> str | None:
        """Return its session; None if there is none or if several fit equally well."""
        if row.history in self._by_dialogue:
            return self._by_dialogue[row.history]
        if row.gold is None:
            return None
        texts = {item.text for item in (*row.gold.memories, row.gold.selected)}
        counts = Counter(one for text in texts for one in self._by_memory.get(text, ()))
        best = [session for session, n in counts.items() if n == max(counts.values())]
        return best[0] if len(best) == 1 else None
