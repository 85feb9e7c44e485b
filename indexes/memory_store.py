"""A user's own memories as a lasting store: a folder with an index, the texts, and a header."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from corpus.fields import Fields
from corpus.jsonl import Repairs, read_jsonl
from harness.errors import UserError
from harness.files import write_atomically
from harness.fingerprint import canonical
from indexes.base import Index
from indexes.choose import open_index
from indexes.errors import NotAnIndex

if TYPE_CHECKING:
    from indexes.encoder import Encoder

HEADER, INDEX, TEXTS, MILVUS = "store.json", "index", "texts.sqlite", "milvus.db"
_FIELDS = ("text", "id", "label")
_ASKED = 500  # values in one SQL statement: some builds of SQLite take 999


class StoredMemory(NamedTuple):
    """One line of a user's file."""

    id: int
    text: str
    label: str | None


@dataclass(frozen=True, slots=True)
class StoreHeader:
    """What a store is made of; `model` and `weights` are None where texts are searched as words."""

    kind: str
    count: int
    model: str | None = None
    weights: str | None = None
    width: int | None = None


def read_memories(path: Path) -> list[StoredMemory]:
    """The memories of a JSONL file, {"text": str, "id": int, "label": str} a line.

    `id` is the number of the memory, from 0, unless every line has one. Raises DataError, with
    file and line, for a faulty line, an id given twice, and ids on some lines only.
    """
    repairs = Repairs()
    found: list[StoredMemory] = []
    lines: dict[int, int] = {}
    numbered: bool | None = None
    for line, value in read_jsonl(path, repairs):
        fields = Fields(path, line, repairs)
        strange = sorted(set(value) - set(_FIELDS))
        if strange:
            raise fields.fault(f"unknown field `{strange[0]}`", f"A line has {', '.join(_FIELDS)}")
        number = value.get("id", len(found))
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 2**63:
            raise fields.fault("`id` must be a whole number from 0 to 2**63 - 1")
        if numbered is not None and numbered != ("id" in value):
            raise fields.fault("some lines have an `id` and some have none")
        numbered = "id" in value
        if number in lines:
            raise fields.fault(f"id {number} stands on line {lines[number]} already")
        lines[number] = line
        label = fields.optional_text(value, "label")
        found.append(StoredMemory(number, fields.text(value, "text"), label))
    return found


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A folder to fill, which takes the place of `path` when all went well.

    Until then, and where it goes wrong, `path` stays as it was. A file system can't exchange two
    folders in one step everywhere, so killed at the one wrong moment the older one lies beside, at
    `aside(path)`. Raises UserError for a `path` that holds something else than a store.
    """
    path = path.resolve()  # "." and links have no name to be replaced
    if path.exists() and not (path / HEADER).is_file():
        raise UserError(f"{path}: is there and is no store. Give another --out")
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    try:
        yield draft
        old = aside(path)
        if path.exists():
            shutil.rmtree(old, ignore_errors=True)
            path.rename(old)
        try:
            draft.rename(path)
        except BaseException:
            if old.exists() and not path.exists():
                old.rename(path)
            raise
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def aside(path: Path) -> Path:
    """Where an older store lies while a newer one takes its place."""
    return path.with_name(f".{path.name}.old")


def write_texts(folder: Path, memories: Sequence[StoredMemory]) -> None:
    """Keep the texts beside the index."""
    with closing(sqlite3.connect(folder / TEXTS)) as connection, connection:
        connection.execute("CREATE TABLE memory (id INTEGER PRIMARY KEY, text TEXT, label TEXT)")
        connection.executemany("INSERT INTO memory VALUES (?, ?, ?)", memories)


def write_header(folder: Path, header: StoreHeader) -> None:
    """Write the header, last of all: a folder without one is no store."""
    write_atomically(folder / HEADER, canonical(asdict(header)) + "\n")


class MemoryStore:
    """An opened store. Raises NotAnIndex where `path` is none, or a damaged one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            value = json.loads((path / HEADER).read_text(encoding="utf-8"))
            self.header = StoreHeader(**value)
        except (FileNotFoundError, NotADirectoryError):
            older = aside(path.resolve())
            found = f". Its older version lies at {older}: rename it" if older.exists() else ""
            raise NotAnIndex(f"{path}: no store of memories (no {HEADER}){found}") from None
        except (OSError, ValueError, TypeError) as error:
            raise NotAnIndex(f"{path / HEADER}: cannot be read ({error})") from None
        self.index: Index[Any] = open_index(path / INDEX)
        if len(self.index) != self.header.count:
            raise NotAnIndex(
                f"{path}: the index holds {len(self.index)} memories, its header says"
                f" {self.header.count}. Build it again"
            )

    def texts(self, ids: Sequence[int]) -> dict[int, StoredMemory]:
        """The memories with these ids. Raises NotAnIndex where one has no text here."""
        found: dict[int, StoredMemory] = {}
        for start in range(0, len(ids), _ASKED):
            chunk = list(ids[start : start + _ASKED])
            marks = ",".join("?" * len(chunk))
            with self._texts() as opened:
                rows = opened.execute(f"SELECT * FROM memory WHERE id IN ({marks})", chunk)
                found |= {row[0]: StoredMemory(*row) for row in rows}
        missing = [i for i in ids if i not in found]
        if missing:
            raise NotAnIndex(f"{self.path}: id {missing[0]} is in the index and has no text here")
        return found

    def all_memories(self, block: int = 10_000) -> Iterator[list[StoredMemory]]:
        """All memories by id, in blocks."""
        with self._texts() as opened:
            rows = opened.execute("SELECT * FROM memory ORDER BY id")
            while chunk := rows.fetchmany(block):
                yield [StoredMemory(*row) for row in chunk]

    @contextmanager
    def _texts(self) -> Iterator[sqlite3.Connection]:
        path = self.path / TEXTS
        try:
            with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as opened:
                yield opened
        except sqlite3.Error as error:
            raise NotAnIndex(f"{path}: cannot be read ({error})") from None

    @contextmanager
    def encoder(self) -> Iterator[Encoder]:
        """The encoder that the store was built with.

        Raises UserError where the model of that name has other weights now.
        """
        from indexes.encoder import model_hash

        assert self.header.model is not None
        with encoder_of(self.header.model) as encoder:
            weights = model_hash(encoder.folder)
            if weights != self.header.weights:
                raise UserError(
                    f"{self.path}: was built by {self.header.model} with weights"
                    f" {self.header.weights}, and {encoder.folder.name} here has {weights}."
                    " Build it again"
                )
            yield encoder


@contextmanager
def encoder_of(model: str) -> Iterator[Encoder]:
    """The encoder `model` over the user's embedding store, which is closed at the end."""
    from indexes.embedding_store import EmbeddingStore, choose_store
    from indexes.encoder import Encoder

    place = choose_store(None)
    store = EmbeddingStore(place) if place else None
    try:
        yield Encoder(model, store=store)
    finally:
        if store is not None:
            store.close()


def encode_all(
    encoder: Encoder, texts: Sequence[str], place: Path, advance: Callable[[int], None]
) -> NDArray[np.float32]:
    """Vectors (len(texts), width), mapped from the file `place`, so that memory stays bounded."""
    shape = (len(texts), encoder.width)
    vectors = np.lib.format.open_memmap(place, "w+", np.float32, shape)
    for made in encoder.batches(texts):
        vectors[made.places] = made.vectors
        advance(len(made.places))
    return vectors
