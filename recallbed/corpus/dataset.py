"""One split made ready for pools: its rows, its bank, and what each session already owns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from recallbed.corpus.custom import is_custom, load_custom
from recallbed.corpus.jsonl import Fields, find_jsonl, new_digest, read_jsonl
from recallbed.corpus.layout import released_sizes, split_folder
from recallbed.corpus.records import Memory, Task3File, bank_of
from recallbed.corpus.tracks import load_task3
from recallbed.errors import DataError


@dataclass(frozen=True, slots=True)
class Dataset:
    """A split of task 3.

    `released` maps each size asked for to its file; the smallest size of the release is always
    there. `bank` holds the distinct candidate texts of that smallest pool over the whole split,
    sorted by text, each with the label of its first occurrence. `own` maps a session to the texts
    of its task 1 gold; it is empty, and `own_known` False, if the split has no task 1
    references. `types` maps a session and such a text to its type, such as `direct`, if it has one;
    it is for breakdowns only. `abstentions` are the queries that no memory answers, which no pool
    is built for.
    """

    root: Path
    split: str
    released: Mapping[int, Task3File]
    bank: tuple[Memory, ...]
    own: Mapping[str, frozenset[str]]
    own_known: bool
    sha256: str
    abstentions: tuple[str, ...] = ()
    types: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def repairs(self) -> Counter[str]:
        """What was repaired while reading, over all files of pools."""
        total: Counter[str] = Counter()
        for file in self.released.values():
            total.update(file.repairs)
        return total

    @property
    def smallest(self) -> Task3File:
        """The file of the smallest released pool."""
        return self.released[min(self.released)]


def load_dataset(root: Path, split: str, sizes: tuple[int, ...] = ()) -> Dataset:
    """Load a split: the smallest released pool, and the released pools of `sizes` besides.

    If `root` is a file, it is a user's own (`corpus.custom`), which has neither splits nor sizes.

    Raises DataError for a faulty file, a size that is not released, a split without references,
    files whose queries or gold differ
    from those of the smallest, or a pool of `sizes` that isn't as large as its folder says.
    """
    if is_custom(root):
        return _load_own_memories(root)
    folder = split_folder(root, split)
    there = released_sizes(folder)
    for size in sizes:
        if size not in there:
            raise DataError(
                f"no released pool of {size} distractors (there are: {_join(there)})",
                folder / "task3",
                todo="Ask for one of these, or build pools of any size with --pools nested",
            )
    files = {size: load_task3(folder, size) for size in sorted({there[0], *sizes})}
    smallest = files[there[0]]
    for size, file in files.items():
        for row in file.rows:
            if row.gold is None:
                raise DataError(
                    "no reference_output.jsonl next to it, so nothing can be scored",
                    file.path,
                    todo="Choose a split that has references",
                )
        _same_queries(smallest, file, size)
        if size in sizes:
            _full_pools(file)
    digest = new_digest()
    for file in files.values():
        digest.update(file.sha256.encode())
    own = _load_own(folder, digest)
    return Dataset(
        root=root,
        split=split,
        released=files,
        bank=bank_of(smallest.rows),
        own={session: frozenset(types) for session, types in (own or {}).items()},
        own_known=own is not None,
        sha256=digest.hexdigest(),
        types={
            session: {text: kind for text, kind in types.items() if kind is not None}
            for session, types in (own or {}).items()
        },
    )


def _load_own_memories(path: Path) -> Dataset:
    custom = load_custom(path)
    file = custom.file
    return Dataset(
        root=path,
        split=path.name if path.is_file() else "pipe",  # a pipe's name is another every time
        released={file.size: file},
        bank=custom.bank,
        own={},
        own_known=False,
        sha256=file.sha256,
        abstentions=custom.abstentions,
    )


def _same_queries(smallest: Task3File, file: Task3File, size: int) -> None:
    if file is smallest:
        return
    known = {row.benchmark_id: row for row in smallest.rows}
    for row in file.rows:
        base = known.pop(row.benchmark_id, None)
        if base is None:
            raise DataError(
                f"`{row.benchmark_id}` is not among the queries of d{smallest.size}",
                file.path,
                row.line,
            )
        if (base.query, base.gold_memory.text) != (row.query, row.gold_memory.text):
            raise DataError(
                f"`{row.benchmark_id}` has another query or gold than in d{smallest.size}",
                file.path,
                row.line,
            )
    for missing in known:
        raise DataError(f"`{missing}` of d{smallest.size} has no row in d{size}", file.path)


def _full_pools(file: Task3File) -> None:
    for row in file.rows:
        if len(row.candidates) != file.size + 1:
            raise DataError(
                f"the pool of `{row.benchmark_id}` has {len(row.candidates) - 1} distractors,"
                f" not the {file.size} of its folder's name",
                file.path,
                row.line,
            )


def _load_own(folder: Path, digest: object) -> dict[str, dict[str, str | None]] | None:
    """By session, the texts of its task 1 gold with the type of the first of each; None without."""
    path = find_jsonl(folder / "task1", "reference_output")
    if path is None:
        return None
    own: dict[str, dict[str, str | None]] = {}
    repairs: Counter[str] = Counter()
    for line, value in read_jsonl(path, repairs, digest):
        fields = Fields(path, line, repairs)
        session = fields.text(value, "session_id")
        items = fields.take(fields.take(value, "gold", dict), "memory_items", list, "gold")
        for i, item in enumerate(items):
            text = fields.text(item, "value", f"gold.memory_items[{i}]")
            kind = item.get("type")
            own.setdefault(session, {}).setdefault(text, kind if isinstance(kind, str) else None)
    return own


def _join(sizes: tuple[int, ...]) -> str:
    return ", ".join(map(str, sizes))
