"""Real file systems that are full or read-only: one line with cause and remedy, nothing lost."""

import errno
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from recallbed.harness.sqlite_file import explain


def on_a_small_disk(tmp_path: Path, script: str, size: str = "1m") -> str:
    """Run a script in a mount namespace of its own, on a tmpfs of `size`; what it prints."""
    if shutil.which("unshare") is None:
        pytest.skip("no unshare: a small file system cannot be mounted")
    place = tmp_path / "disk"
    place.mkdir()
    probe = ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", str(place)]
    if subprocess.run(probe, capture_output=True).returncode:
        pytest.skip("no permission to mount a small file system")
    words = f"mount -t tmpfs -o size={size} tmpfs '{place}' && exec '{sys.executable}' - '{place}'"
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", words], input=script, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


BUILD = """
import json, sys
from pathlib import Path
sys.path.insert(0, "")
from typer.testing import CliRunner
from indexes.build import app
from indexes.indexed_store import IndexedStore
place = Path(sys.argv[1])
store, file = place / "store", place.parent / "memories.jsonl"

def build(count):
    lines = (json.dumps({"text": f"memory number {i} " + "x" * 40}) for i in range(count))
    file.write_text("\\n".join(lines) + "\\n")
    words = [str(file), "--out", str(store), "--kind", "bm25s", "--overwrite"]
    return CliRunner().invoke(app, words)

assert build(100).exit_code == 0
for count in range(200, 3000, 140):
    built = build(count)
    held = IndexedStore(store)
    assert sum(map(len, held.all_memories())) == held.header.count
    assert [p.name for p in place.iterdir()] == ["store"], list(place.iterdir())
    if built.exit_code:
        assert built.exit_code == 2, repr(built.exception)
        assert built.stderr.count("\\n") == 1, built.stderr
        print(built.stderr, end="")
"""


def test_an_index_built_on_a_full_disk_is_one_line_and_leaves_the_older(tmp_path: Path) -> None:
    said = set(on_a_small_disk(tmp_path, BUILD, "256k").splitlines())
    assert said
    for line in said:
        assert ("disk is full" in line) or ("No space left on device" in line), line
        assert "ree some space and run this again" in line
        assert "emove" not in line


VECTORS = """
import sys
from pathlib import Path
sys.path.insert(0, "")
from indexes.base import IndexingError
from indexes.indexed_store import encode_all

class Encoder:
    width = 384
    def batches(self, texts):
        raise AssertionError("nothing is encoded")

try:
    encode_all(Encoder(), ["x"] * 2000, Path(sys.argv[1]) / "vectors.npy", print)
except IndexingError as error:
    print(error)
"""


def test_room_for_vectors_is_claimed_before_anything_is_encoded(tmp_path: Path) -> None:
    # Written through a map, vectors that find no room end the process with SIGBUS.
    said = on_a_small_disk(tmp_path, VECTORS)
    assert "vectors.npy: cannot be written (No space left on device). Free some space" in said


STORES = """
import sys
from pathlib import Path
sys.path.insert(0, "")
from recallbed.chat_models.base import Usage
from recallbed.chat_models.cache import ReplyCache, Stored
from recallbed.corpus.records import MemoryItem
from recallbed.errors import UserError
from memory_systems.base import Action, Operation
from memory_systems.store import MemoryStore
place = Path(sys.argv[1])
room = place / "room"
room.write_bytes(bytes(300_000))

cache, stored = ReplyCache(place / "replies.sqlite"), 0
try:
    while True:
        cache.put(b"key %d" % stored, Stored("x" * 3000, Usage(1)))
        stored += 1
except UserError as error:
    print(error)
assert all(cache.get(b"key %d" % i) for i in range(stored))
room.unlink()
cache.put(b"key %d" % stored, Stored("x" * 3000, Usage(1)))
cache.close()
assert len(cache) == stored + 1
cache.close()
(place / "replies.sqlite").unlink()

store, stored = MemoryStore(place / "memory.sqlite"), 0
try:
    while True:
        store.apply("ana", [Operation(Action.ADD, None, MemoryItem("x" * 3000))])
        stored += 1
except UserError as error:
    print(error)
assert len(store.memories("ana")) == len(store.history("ana")) == stored
"""


def test_a_full_disk_loses_nothing_stored_and_is_no_call_to_remove_it(tmp_path: Path) -> None:
    replies, memories = on_a_small_disk(tmp_path, STORES).splitlines()
    for line, name in ((replies, "replies.sqlite"), (memories, "memory.sqlite")):
        assert f"{name}: the disk is full" in line
        assert "Nothing stored is lost: free some space and run this again" in line
        assert "emove" not in line
        assert "repair" not in line


READ_ONLY = """
import os, subprocess, sys
from pathlib import Path
sys.path.insert(0, "")
from recallbed.errors import UserError
from memory_systems.base import Action, Operation
from memory_systems.store import MemoryStore
from tests.test_damage import old_memories, small_history, whole_store
from recallbed.corpus.records import MemoryItem
place = Path(sys.argv[1])
expected = small_history(place / "memory.sqlite")
old_memories(place / "old.sqlite")
writer = MemoryStore(place / "open.sqlite")
writer.apply("ana", [Operation(Action.ADD, None, MemoryItem("in the log"))])
for name in ("open.sqlite", "open.sqlite-wal"):  # as copied from a running process
    (place / f"copied-{name}").write_bytes((place / name).read_bytes())
    assert (place / name).stat().st_size
writer.close()
assert not list(place.glob("memory.sqlite-*"))
subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
before = sorted(place.iterdir())

store = MemoryStore(place / "memory.sqlite")
assert whole_store(store) == expected
try:
    store.apply("ana", [Operation(Action.ADD, None, MemoryItem("new"))])
except UserError as error:
    print(error)
assert whole_store(store) == expected
old = MemoryStore(place / "old.sqlite")
assert [item.text for item in old.memories("ana")] == ["tea"]
try:
    MemoryStore(place / "copied-open.sqlite").memories("ana")
except UserError as error:
    print(error)
try:
    MemoryStore(place / "new.sqlite").memories("ana")
except UserError as error:
    print(error)
shown = subprocess.run(
    [sys.executable, "-m", "memory_systems.history", str(place / "memory.sqlite")],
    capture_output=True, text=True,
)
assert shown.returncode == 0, shown.stderr
assert "ana: 19 memories, 22 operations" in shown.stdout
assert sorted(place.iterdir()) == before
"""


def test_a_memory_store_on_a_read_only_file_system_is_read(tmp_path: Path) -> None:
    written, logged, new = on_a_small_disk(tmp_path, READ_ONLY, "8m").splitlines()
    assert "memory.sqlite: the memory store cannot be written" in written
    assert "Copy it to a writable folder" in written
    # Part of it lies in the log, which cannot be read there: it is not taken for the whole.
    assert "copied-open.sqlite: " in logged
    assert "Copy it, and the -wal file next to it, to a writable folder" in logged
    assert "new.sqlite: " in new


def sqlite_error(code: int, text: str) -> sqlite3.Error:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (sqlite_error(sqlite3.SQLITE_FULL, "full"), "the disk is full.*lost: free some space"),
        (OSError(errno.ENOSPC, "No space left"), "the disk is full.*lost: free some space"),
        (sqlite_error(sqlite3.SQLITE_READONLY_DIRECTORY, "ro"), "cannot be written.*Copy it"),
        (OSError(errno.EROFS, "Read-only"), "cannot be written.*Copy it"),
        (sqlite_error(sqlite3.SQLITE_IOERR_READ, "I/O"), "cannot be read or written.*the disk"),
        (sqlite_error(sqlite3.SQLITE_CORRUPT_INDEX, "bad"), "is damaged.*Keep it"),
        (sqlite_error(sqlite3.SQLITE_BUSY_SNAPSHOT, "busy"), "in use by another.*Wait"),
        (sqlite_error(sqlite3.SQLITE_CANTOPEN, "no"), "cannot be opened.*Check the path"),
    ],
)
def test_each_cause_has_a_remedy_of_its_own(
    tmp_path: Path, error: sqlite3.Error | OSError, said: str
) -> None:
    line = explain(error, tmp_path / "f.sqlite", "reply cache")
    assert re.search(said, line), line
    assert line.endswith("give")


def test_an_input_error_on_a_full_disk_is_that_of_the_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recallbed.harness.sqlite_file._free", lambda path: 0)
    error = sqlite_error(sqlite3.SQLITE_IOERR_SHMSIZE, "disk I/O error")
    assert "the disk is full" in explain(error, tmp_path / "f", "reply cache")


UNPACK = """
import os, sys
from pathlib import Path
sys.path.insert(0, "")
from recallbed.errors import UserError
from tests.split_models import FILES, install_parts
place = Path(sys.argv[1])
packages = place.parent / "packages"
sys.path.insert(0, str(packages))
os.environ["XDG_CACHE_HOME"] = str(place)
model = install_parts(packages, files={**FILES, "model.safetensors": os.urandom(3 << 20)})
try:
    model.folder()
except UserError as error:
    print(error)
print([path.name for path in (place / "recallbed" / "models").iterdir()])
"""


def test_a_model_that_does_not_fit_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    line, left = on_a_small_disk(tmp_path, UNPACK).splitlines()
    assert line.startswith(f"tiny: cannot be unpacked into {tmp_path}/disk/recallbed/models/tiny-")
    assert "(No space left on device)" in line
    assert "XDG_CACHE_HOME" in line
    assert re.fullmatch(r"\['tiny-[0-9a-f]{12}\.lock'\]", left)
