"""A run on disk: opened, locked, resumed at the first missing row, refused if it is another run."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recallbed.errors import UserError
from recallbed.harness.checksums import seal, unseal
from recallbed.harness.files import write_atomically
from recallbed.harness.fingerprint import canonical, difference, file_hash
from recallbed.harness.run_options import OnExisting
from recallbed.harness.terminal import note
from recallbed.harness.users_code import changed_modules, late_modules

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Scores = Sequence[float] | NDArray[np.float32] | None

MANIFEST, ROWS, TIMINGS, SUMMARY = "manifest.json", "rows.jsonl", "timings.jsonl", "summary.json"
SCORES, LOCK = "scores.jsonl", ".lock"
PREDICTIONS = "predictions.jsonl"
LATE_CODE = "late_code"
_OURS = (MANIFEST, ROWS, TIMINGS, SUMMARY, SCORES, PREDICTIONS, "curve.csv", "curve.png")
_PLACE = ("retriever", "distractors", "query", "item")


def encode_row(row: Mapping[str, Any]) -> bytes:
    """One line of JSON. Key order is the row's own, so equal rows are equal bytes."""
    return json.dumps(row, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def encode_kept(row: Mapping[str, Any]) -> bytes:
    """One line of rows.jsonl: the row, and its check as last key."""
    return seal(encode_row(row))


def read_rows(
    path: Path, sound: Callable[[Any], bool], what: str = "a row of this program"
) -> tuple[list[dict[str, Any]], int]:
    """The rows of a rows.jsonl, without their checks, and how many bytes they take.

    A last line cut short by a crash is left out. Rows of older versions, without a check, are
    accepted. Raises UserError, with the line, for a row that is damaged or not `what`, and for a
    file that cannot be read.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    *lines, rest = raw.split(b"\n")
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row, undamaged = unseal(line)
        except (ValueError, RecursionError):
            row, undamaged = None, True
        if not undamaged:
            raise _damaged(path, number)
        if not sound(row):
            raise UserError(f"{path}:{number}: not {what}. {_CUT}")
        rows.append(row)
    if _is_whole(rest[:-1]):  # its newline was changed: a row cut short is never so long
        raise _damaged(path, len(lines) + 1)
    return rows, len(raw) - len(rest)


_CUT = (
    "Remove this line and those after it and pass --resume, which keeps the rows before it,"
    " or start again with --overwrite"
)


def _damaged(path: Path, number: int) -> UserError:
    return UserError(f"{path}:{number}: the row is damaged (its check does not match). {_CUT}")


def _is_whole(line: bytes) -> bool:
    try:
        return bool(line) and isinstance(unseal(line)[0], dict)
    except (ValueError, RecursionError):
        return False


def encode_scores(row: Mapping[str, Any], scores: Scores) -> bytes:
    """One line of scores.jsonl: which pool, and its scores in pool order; null for a failed row.

    Nine significant digits give a float32 back exactly.
    """
    kept = None if scores is None else [float(f"{score:.9g}") for score in scores]
    head = {key: row[key] for key in ("query", "retriever", "distractors", "pool")}
    return encode_kept({**head, "scores": kept})


def is_count(value: Any) -> bool:
    """Whether this is a whole number from 0, and no bool."""
    return type(value) is int and value >= 0


class RunFolder:
    """The files of one run. Use `open_run`, which locks it.

    Every write raises UserError if the lock, or rows that were written, are no longer there or no
    longer ours: another process may be writing the run.
    """

    def __init__(self, path: Path, manifest: dict[str, Any], sound: Callable[[Any], bool]) -> None:
        self.path, self.manifest, self._sound = path, manifest, sound
        self.rows = self._read_whole_rows()
        cut_last_line(path / TIMINGS)
        self._states = {name: _state(path / name) for name in (LOCK, ROWS, SCORES)}

    def _refuse_if_replaced(self) -> None:
        """Raise UserError if the lock or the rows are not what they were after our last write."""
        for name, before in self._states.items():
            if _state(self.path / name) != before:
                raise UserError(
                    f"{self.path / name}: was deleted, replaced or changed while this run was"
                    " writing. Nothing more is written. See that no other process writes this"
                    " folder, then pass --resume"
                )

    def _read_whole_rows(self) -> list[dict[str, Any]]:
        """The rows kept so far. A last line cut short by a crash is cut off the file too."""
        path = self.path / ROWS
        if not path.exists():
            return []
        rows, whole = read_rows(path, self._sound)
        if whole < path.stat().st_size:
            os.truncate(path, whole)
        self._cut_scores(len(rows))
        return rows

    def _cut_scores(self, rows: int) -> None:
        """Scores are written before their row: those of rows that never came are cut off."""
        path = self.path / SCORES
        if not path.exists():
            if rows and self.manifest["fingerprint"].get("kept"):
                raise UserError(f"{path}: is missing. Start again with --overwrite")
            return
        ends = [match.end() for match in re.finditer(rb"\n", path.read_bytes())]
        if len(ends) < rows:
            raise UserError(
                f"{path}: has scores for {len(ends)} of {rows} rows. Start again with --overwrite"
            )
        os.truncate(path, ends[rows - 1] if rows else 0)

    def write_manifest(self) -> None:
        """Put the manifest on disk, whole."""
        self._refuse_if_replaced()
        write_atomically(self.path / MANIFEST, canonical(self.manifest) + "\n")

    def append(
        self,
        rows: Sequence[dict[str, Any]],
        seconds: Sequence[float],
        scores: Sequence[Scores] | None = None,
    ) -> None:
        """Add rows, each in one write, the seconds that each took, and where kept its scores."""
        self._refuse_if_replaced()
        if scores is not None:  # first, so that no row is ever without its scores
            self._write(SCORES, map(encode_scores, rows, scores))
        self._write(ROWS, map(encode_kept, rows))
        self.rows += rows
        places = ({key: row[key] for key in _PLACE if key in row} for row in rows)
        times = ({"seconds": round(taken, 7)} for taken in seconds)
        self._write(TIMINGS, (encode_row(p | t) for p, t in zip(places, times, strict=True)))

    def _write(self, name: str, lines: Iterable[bytes]) -> None:
        with (self.path / name).open("ab", buffering=0) as stream:
            try:
                for line in lines:
                    if stream.write(line) < len(line):
                        why = "no room to write rows; free some, then --resume"
                        raise OSError(errno.ENOSPC, why)
            finally:
                if name in self._states:
                    self._states[name] = _state_of(os.fstat(stream.fileno()))

    def rewrite(
        self, rows: list[dict[str, Any]], scores: Mapping[int, Scores] | None = None
    ) -> None:
        """Replace all rows in one step; `scores` are those of the rows that changed, by place."""
        self._refuse_if_replaced()
        if scores:
            kept = (self.path / SCORES).read_bytes().splitlines(keepends=True)
            for i, changed in scores.items():
                kept[i] = encode_scores(rows[i], changed)
            write_atomically(self.path / SCORES, b"".join(kept))
        write_atomically(self.path / ROWS, b"".join(map(encode_kept, rows)))
        self.rows = rows
        self._states |= {name: _state(self.path / name) for name in (ROWS, SCORES)}

    def time(self, **record: Any) -> None:
        """Add a line to timings.jsonl, which is not promised to be equal."""
        self._refuse_if_replaced()
        self._write(TIMINGS, [encode_row(record)])


State = tuple[int, int, int]
"""Device, inode and size of a file."""


def _state_of(found: os.stat_result) -> State:
    return found.st_dev, found.st_ino, found.st_size


def _state(path: Path) -> State | None:
    try:
        return _state_of(path.stat())
    except (FileNotFoundError, NotADirectoryError):
        return None


def cut_last_line(path: Path) -> None:
    """Remove what a full disk or a crash left of a last line; nothing if there is no file."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return
    if not raw.endswith(b"\n"):
        os.truncate(path, raw.rfind(b"\n") + 1)


@contextmanager
def open_run(
    path: Path,
    fingerprint: dict[str, Any],
    on_existing: OnExisting,
    sound: Callable[[Any], bool],
) -> Iterator[RunFolder]:
    """Open `path` for a run with this fingerprint, and keep every other process out meanwhile.

    `sound` returns whether a value is a row of this kind of run.

    A new or empty folder starts a run. One that holds a run is taken up again (`resume`), emptied
    of the run's own files (`overwrite`) or refused. A run with another fingerprint is never taken
    up: the UserError names the field that differs. A folder with other files is never emptied.
    A folder that was made for a run that ends by an exception before its first row is removed.
    """
    from filelock import FileLock, Timeout

    try:
        new = [folder for folder in (path, *path.parents) if not folder.exists()]
        path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path / LOCK)
        lock.acquire(timeout=0)
    except Timeout:
        raise UserError(
            f"{path}: another process is writing this run. Wait, or use --out"
        ) from None
    except OSError as error:
        raise UserError(
            f"{path}: cannot be written ({error.strerror}). Choose another --out"
        ) from None
    folder = None
    try:
        folder = _enter(path, fingerprint, on_existing, sound)
        _refuse_changed_late_code(folder)
        loaded = frozenset(sys.modules)
        yield folder
        _keep_late_code(folder, loaded)
    except BaseException:
        if path in new and (folder is None or not folder.rows):
            # A first try that failed leaves nothing behind; parents made for it go if empty.
            shutil.rmtree(new[0], ignore_errors=True)
            with contextlib.suppress(OSError):
                for above in new[1:]:
                    above.rmdir()
        raise
    finally:
        lock.release()


def _keep_late_code(folder: RunFolder, loaded: Collection[str]) -> None:
    """Record the user's modules that were loaded after the fingerprint was made, if any."""
    fingerprint = folder.manifest["fingerprint"]
    late = late_modules(loaded, fingerprint)
    if late:
        folder.manifest[LATE_CODE] = {**folder.manifest.get(LATE_CODE, {}), **late}
        folder.write_manifest()
    if changed := changed_modules(fingerprint):
        note(
            f"{folder.path}: {', '.join(changed)} changed during the run. Its rows belong to the"
            " code as it was at the start; start again with --overwrite to be sure"
        )


def _refuse_changed_late_code(folder: RunFolder) -> None:
    """Raise UserError if a module that was loaded late in an earlier part of the run changed."""
    for name, module in folder.manifest.get(LATE_CODE, {}).items():
        file = Path(module["file"])
        if not file.exists() or file_hash(file) != module["sha256"]:
            raise UserError(
                f"{folder.path}: `{name}` ({file}), which this run imported while it was going on,"
                " has changed. Choose another --out, or start again with --overwrite"
            )


def _enter(
    path: Path,
    fingerprint: dict[str, Any],
    on_existing: OnExisting,
    sound: Callable[[Any], bool],
) -> RunFolder:
    manifest = path / MANIFEST
    others = [p.name for p in path.iterdir() if p.name not in _OURS and p.name[0] != "."]
    if not manifest.exists() and (others or (path / ROWS).exists()):
        raise UserError(
            f"{path}: holds files but no {MANIFEST}, so it isn't a run. Choose another --out"
        )
    if manifest.exists() and on_existing == "overwrite":
        for name in _OURS:
            (path / name).unlink(missing_ok=True)
    if manifest.exists():
        old = read_manifest(path)
        found = difference(old["fingerprint"], fingerprint)
        if found:
            raise UserError(
                f"{path}: holds another run; they differ in {found}."
                " Choose another --out, or start again with --overwrite"
            )
        if on_existing == "refuse":
            raise UserError(
                f"{path}: already holds this run."
                " Resume with --resume, or start again with --overwrite"
            )
        return RunFolder(path, old, sound)
    folder = RunFolder(path, {"fingerprint": fingerprint, "notes": {}}, sound)
    folder.write_manifest()
    return folder


def note_reused(kept: int, made: int) -> None:
    """Report on stderr how many rows of an earlier run were kept, if any were."""
    if kept:
        note(f"reused {kept} row{'s'[: kept != 1]}, scored {made}")


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of the run folder `path`, or a UserError that says why there is none."""
    file = path / MANIFEST
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: not a run folder (no {MANIFEST})") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file}: cannot be read ({error})") from None
    if not isinstance(value, dict) or not isinstance(value.get("fingerprint"), dict):
        raise UserError(f"{file}: not the manifest of a run")
    return value
