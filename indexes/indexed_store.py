"""A store of a user's own memories: a folder with an index, the texts, and a header."""

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
from recallbed.corpus.jsonl import Fields, Repairs, read_jsonl
from recallbed.errors import UserError
from recallbed.harness.checksums import check_of, seal, unseal
from recallbed.harness.files import drafted_folder, write_atomically
from recallbed.harness.fingerprint import canonical
from recallbed.harness.sqlite_file import FAULTS, IN_LIST, explain

if TYPE_CHECKING:
    from indexes.encoder import Encoder

HEADER, INDEX, TEXTS, MILVUS = "store.json", "index", "texts.sqlite", "milvus.db"
_FIELDS = ("text", "id", "label")
_AGAIN = "Build the store again"
_TRIES, _PAUSE = 10, 0.05  # to open a store that is being replaced; seconds in between


class StoredMemory(NamedTuple):
    """A memory as one line of a user's file."""

    id: int
    text: str
    label: str | None


@dataclass(frozen=True, slots=True)
class StoreHeader:
    """The header of a store; `model` and `weights` are None for a lexical index."""

    kind: str
    count: int
    model: str | None = None
    weights: str | None = None
    width: int | None = None
    build: str | None = None
    """The id of this build, part of every text's checksum. None in older stores."""
    index: str | None = None
    """The hash of the index (`index_hash`)."""
    memory_prompt: str = ""
    """The prompt of the model before each memory."""


def read_memories(path: Path) -> list[StoredMemory]:
    """Read the memories of a JSONL file, one {"text": str, "id": int, "label": str} per line.

    `id` is the number of the memory from 0, unless every line has one. Raises DataError, with file
    and line, for an invalid line, a repeated id, and ids on some lines only.
    """
    repairs = Repairs()
    found: list[StoredMemory] = []
    lines: dict[int, int] = {}
    numbered: bool | None = None
    for line, value in read_jsonl(path, repairs):
        fields = Fields(path, line, repairs)
        unknown = sorted(set(value) - set(_FIELDS))
        if unknown:
            raise fields.fault(f"unknown field `{unknown[0]}`", f"A line has {', '.join(_FIELDS)}")
        number = value.get("id", len(found))
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 2**63:
            raise fields.fault("`id` must be an integer from 0 to 2**63 - 1")
        if numbered is not None and numbered != ("id" in value):
            raise fields.fault("some lines have an `id` and some have none")
        numbered = "id" in value
        if number in lines:
            raise fields.fault(f"id {number} is already on line {lines[number]}")
        lines[number] = line
        label = fields.optional_text(value, "label")
        found.append(StoredMemory(number, fields.text(value, "text"), label))
    return found


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a folder to fill, which replaces `path` at the end if nothing is raised.

    Not every file system can exchange two folders atomically: a process killed between the two
    renames leaves the older folder at `aside(path)`. Raises UserError if `path` exists and is no
    store.
    """
    path = path.resolve()  # "." and links have no name to be replaced
    if path.exists() and not (path / HEADER).is_file():
        raise UserError(f"{path} already exists and is not a store. Give another --out")
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
    """The bytes of the header, which differ for every build."""
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
        found = f". Its older version is at {older}: rename it" if older.exists() else ""
        raise NotAnIndex(f"{path}: no store of memories (no {HEADER}){found}") from None
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise NotAnIndex(f"{path / HEADER}: cannot be read ({error}). {_AGAIN}") from None


def aside(path: Path) -> Path:
    """Return the path of an older store while a newer one replaces it."""
    return path.with_name(f".{path.name}.old")


def write_texts(folder: Path, memories: Sequence[StoredMemory], build: str) -> None:
    """Write the texts to the folder, each with a checksum that is valid for this build only.

    Raises IndexingError if they cannot be written.
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
    """Write the header, last: a folder without one is no store."""
    whole = replace(header, index=index_hash(folder / INDEX))
    write_atomically(folder / HEADER, seal(canonical(asdict(whole)).encode()))


class IndexedStore:
    """An opened store, which stays the same build if the folder is replaced meanwhile.

    Raises NotAnIndex if `path` is no store, is damaged, or is replaced repeatedly while it is
    opened. `address` as in `open_index`.
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
        raise NotAnIndex(f"{path} is being rebuilt. Run this again afterwards")

    def _open(self) -> None:
        self.header = _read_header(self.path)
        self.index: Index[Any] = open_index(self.path / INDEX, self._address)
        if len(self.index) != self.header.count:
            raise NotAnIndex(
                f"{self.path}: the index holds {len(self.index)} memories, not"
                f" {self.header.count} as in its header. {_AGAIN}"
            )
        if self.header.index not in (None, index_hash(self.path / INDEX)):
            raise NotAnIndex(f"{self.path}: the index is of another build. {_AGAIN}")
        with self._reading():
            # Kept open, so that the texts stay those of the index. This file is never written to.
            uri = f"{(self.path / TEXTS).resolve().as_uri()}?mode=ro&immutable=1"
            self._texts = sqlite3.connect(uri, uri=True, check_same_thread=False)
            weakref.finalize(self, self._texts.close)
            self._texts.text_factory = bytes
            self._texts.execute("SELECT id, text, label FROM memory LIMIT 0")

    def texts(self, ids: Sequence[int]) -> dict[int, StoredMemory]:
        """Return the memories with these ids.

        Raises NotAnIndex if a text is missing, damaged or of another build.
        """
        found: dict[int, StoredMemory] = {}
        for start in range(0, len(ids), IN_LIST):
            chunk = ids[start : start + IN_LIST]
            marks = ",".join("?" * len(chunk))
            found |= {memory.id: memory for memory in self._select(f"id IN ({marks})", chunk)}
        missing = [i for i in ids if i not in found]
        if missing:
            raise NotAnIndex(f"{self.path}: id {missing[0]} is in the index but has no text")
        return found

    def all_memories(self, block: int = 10_000) -> Iterator[list[StoredMemory]]:
        """Yield all memories by id, in blocks. Raises NotAnIndex as `texts` does."""
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
        except (*FAULTS, AttributeError) as error:  # the last for a damaged text
            why = " ".join(str(error).split())
            raise NotAnIndex(f"{self.path / TEXTS}: cannot be read ({why}). {_AGAIN}") from None

    @contextmanager
    def encoder(self) -> Iterator[Encoder]:
        """Yield the encoder of the store. Raises UserError if its weights or prompt changed."""
        assert self.header.model is not None
        with encoder_of(self.header.model) as encoder:
            weights = encoder.weights
            if weights != self.header.weights:
                raise UserError(
                    f"{self.path}: was built by {self.header.model} with weights"
                    f" {self.header.weights}, but {encoder.name} now has {weights}. {_AGAIN}"
                )
            if encoder.prompts["memory"] != self.header.memory_prompt:
                raise UserError(
                    f"{self.path}: was built with the memory prompt {self.header.memory_prompt!r},"
                    f" but {self.header.model} now has {encoder.prompts['memory']!r}. {_AGAIN}"
                )
            yield encoder


@contextmanager
def encoder_of(model: str) -> Iterator[Encoder]:
    """Yield the encoder `model` with the user's embedding store, which is closed at the end."""
    from indexes.embedding_store import EmbeddingStore, choose_store
    from indexes.encoder import make_encoder

    place = choose_store(None)
    store = EmbeddingStore(place) if place else None
    try:
        yield make_encoder(model, store=store)
    finally:
        if store is not None:
            store.close()


def encode_all(
    encoder: Encoder, texts: Sequence[str], place: Path, advance: Callable[[int], None]
) -> NDArray[np.float32]:
    """Return vectors, (len(texts), width), mapped from the file `place` to bound memory."""
    shape = (len(texts), encoder.width)
    try:
        # Allocated now: a full disk during a write to the map would crash the process.
        with place.open("wb") as stream:
            os.posix_fallocate(stream.fileno(), 0, shape[0] * shape[1] * 4 + 4096)
    except OSError as error:
        raise IndexingError(f"{place}: {cannot_be_written(error)}") from None
    vectors = np.lib.format.open_memmap(place, "w+", np.float32, shape)
    for made in encoder.batches(texts):
        vectors[made.places] = made.vectors
        advance(len(made.places))
    return vectors
