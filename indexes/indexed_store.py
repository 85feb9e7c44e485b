"""A user's own memories as a lasting store: a folder with an index, the texts, and a header."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexes.base import Index, IndexingError, NotAnIndex, open_index
from indexes.files import cannot_be_written, index_hash
from recallbed.corpus.fields import Fields
from recallbed.corpus.jsonl import Repairs, read_jsonl
from recallbed.errors import UserError
from recallbed.harness.checksums import check_of, seal, unseal
from recallbed.harness.files import drafted_folder, write_atomically
from recallbed.harness.fingerprint import canonical
from recallbed.harness.sqlite_file import FAULTS, explain

if TYPE_CHECKING:
    from indexes.encoder import Encoder

HEADER, INDEX, TEXTS, MILVUS = "store.json", "index", "texts.sqlite", "milvus.db"
_FIELDS = ("text", "id", "label")
_AGAIN = "Build the store again"
_TRIES, _PAUSE = 10, 0.05  # of opening a store that is being replaced; seconds between them
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
    build: str | None = None
    """Tells this build from any other; part of every text's check. None in older stores."""
    index: str | None = None
    """The identity of the index file."""
    memory_prompt: str = ""
    """The prompt of the model before each memory."""


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
    with drafted_folder(path) as draft:
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


def _stamp(path: Path) -> bytes | None:
    """The header as it lies there; another build has another."""
    try:
        return (path / HEADER).read_bytes()
    except OSError:
        return None


def _read_header(path: Path) -> StoreHeader:
    try:
        value, undamaged = unseal((path / HEADER).read_bytes())
        if not undamaged:
            raise ValueError("damaged: its check does not match")
        return StoreHeader(**value)
    except (FileNotFoundError, NotADirectoryError):
        older = aside(path.resolve())
        found = f". Its older version lies at {older}: rename it" if older.exists() else ""
        raise NotAnIndex(f"{path}: no store of memories (no {HEADER}){found}") from None
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise NotAnIndex(f"{path / HEADER}: cannot be read ({error}). {_AGAIN}") from None


def aside(path: Path) -> Path:
    """Where an older store lies while a newer one takes its place."""
    return path.with_name(f".{path.name}.old")


def write_texts(folder: Path, memories: Sequence[StoredMemory], build: str) -> None:
    """Keep the texts beside the index, each with a check that holds for this build alone.

    Raises IndexingError where they cannot be written.
    """
    path = folder / TEXTS
    rows = ((*memory, check_of(build, *memory)) for memory in memories)
    try:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(
                "CREATE TABLE memory (id INTEGER PRIMARY KEY, text TEXT, label TEXT, crc INTEGER)"
            )
            connection.executemany("INSERT INTO memory VALUES (?, ?, ?, ?)", rows)
    except sqlite3.Error as error:
        why = explain(error, path, "file of texts", "Build it again, or give")
        raise IndexingError(f"{path}: {why} another --out") from None


def write_header(folder: Path, header: StoreHeader) -> None:
    """Write the header, last of all: a folder without one is no store."""
    whole = replace(header, index=index_hash(folder / INDEX))
    write_atomically(folder / HEADER, seal(canonical(asdict(whole)).encode()))


class IndexedStore:
    """An opened store: one build, whatever takes its place meanwhile.

    Raises NotAnIndex where `path` is none, or a damaged one, or is built again and again while it
    is opened. `address` is what `open_index` takes.
    """

    def __init__(self, path: Path, address: str | None = None) -> None:
        self.path, self._address = path, address
        for left in reversed(range(_TRIES)):
            before = _stamp(path)
            try:
                self._open()
                if _stamp(path) == before:
                    return
            except NotAnIndex:
                replaced = _stamp(path) != before or aside(path.resolve()).exists()
                if not (replaced and left):
                    raise
            time.sleep(_PAUSE)
        raise NotAnIndex(f"{path}: is built again while it is opened. Run this when that is done")

    def _open(self) -> None:
        self.header = _read_header(self.path)
        self.index: Index[Any] = open_index(self.path / INDEX, self._address)
        if len(self.index) != self.header.count:
            raise NotAnIndex(
                f"{self.path}: the index holds {len(self.index)} memories, its header says"
                f" {self.header.count}. Build it again"
            )
        if self.header.index not in (None, index_hash(self.path / INDEX)):
            raise NotAnIndex(f"{self.path}: the index is of another build. Build it again")
        with self._reading():
            # Kept open, so that the texts stay those of the index. No one writes to this file.
            uri = f"{(self.path / TEXTS).resolve().as_uri()}?mode=ro&immutable=1"
            self._texts = sqlite3.connect(uri, uri=True, check_same_thread=False)
            weakref.finalize(self, self._texts.close)
            self._texts.text_factory = bytes
            self._texts.execute("SELECT id, text, label FROM memory LIMIT 0")

    def texts(self, ids: Sequence[int]) -> dict[int, StoredMemory]:
        """The memories with these ids.

        Raises NotAnIndex where one has no text here, or one that is damaged or of another build.
        """
        found: dict[int, StoredMemory] = {}
        for start in range(0, len(ids), _ASKED):
            chunk = list(ids[start : start + _ASKED])
            marks = ",".join("?" * len(chunk))
            found |= {memory.id: memory for memory in self._select(f"id IN ({marks})", chunk)}
        missing = [i for i in ids if i not in found]
        if missing:
            raise NotAnIndex(f"{self.path}: id {missing[0]} is in the index and has no text here")
        return found

    def all_memories(self, block: int = 10_000) -> Iterator[list[StoredMemory]]:
        """All memories by id, in blocks. Raises NotAnIndex as `texts` does."""
        last, count = -1, 0
        while chunk := self._select(f"id > ? ORDER BY id LIMIT {block}", [last]):
            yield chunk
            last, count = chunk[-1].id, count + len(chunk)
        if count != self.header.count:
            raise NotAnIndex(
                f"{self.path / TEXTS}: holds {count} texts, not {self.header.count}. {_AGAIN}"
            )

    def _select(self, where: str, values: Sequence[int]) -> list[StoredMemory]:
        build, found = self.header.build, []
        crc = "NULL" if build is None else "crc"
        with self._reading():
            rows = self._texts.execute(
                f"SELECT id, text, label, {crc} FROM memory WHERE {where}", values
            ).fetchall()
            for number, text, label, check in rows:
                if build is not None and check != check_of(build, number, text, label):
                    raise NotAnIndex(
                        f"{self.path / TEXTS}: the text of id {number} is damaged, or of another"
                        f" build. {_AGAIN}"
                    )
                found.append(
                    StoredMemory(number, text.decode(), None if label is None else label.decode())
                )
        return found

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (*FAULTS, AttributeError) as error:  # the last for text that is no text
            why = " ".join(str(error).split())
            raise NotAnIndex(f"{self.path / TEXTS}: cannot be read ({why}). {_AGAIN}") from None

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
            if encoder.prompts["memory"] != self.header.memory_prompt:
                raise UserError(
                    f"{self.path}: was built with the prompt {self.header.memory_prompt!r} before"
                    f" each memory, and {self.header.model} has"
                    f" {encoder.prompts['memory']!r}. Build it again"
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
    try:
        # The room is claimed now: a full disk met later, through the map, would be a crash.
        with place.open("wb") as stream:
            os.posix_fallocate(stream.fileno(), 0, shape[0] * shape[1] * 4 + 4096)
    except OSError as error:
        raise IndexingError(f"{place}: {cannot_be_written(error)}") from None
    vectors = np.lib.format.open_memmap(place, "w+", np.float32, shape)
    for made in encoder.batches(texts):
        vectors[made.places] = made.vectors
        advance(len(made.places))
    return vectors
