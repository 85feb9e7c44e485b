"""Reading JSON lines (gzip, byte order marks, CRLF, U+2028, LFS pointers), and their fields."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recallbed.corpus.user_file import BOM, empty, read_lines
from recallbed.errors import DataError
from recallbed.harness.input_text import STRICT_JSON, RepeatedKey, clean_text, is_clean

# What str.splitlines() and some readers take for line ends: U+0085, U+2028, U+2029.
_OTHER_ENDS = re.compile(b"\xc2\x85|\xe2\x80[\xa8\xa9]")


OnFault = Callable[[DataError], None]
BYTE_ORDER_MARK = "byte order mark"


class Repairs(Counter[str]):
    """Counts of what was repaired, with the first places of each kind.

    `seen` counts what is unusual but was kept as it is.
    """

    PLACES = 5
    LONG = 1_000_000

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[str, list[str]] = {}
        self.seen: Counter[str] = Counter()

    def at(self, kind: str, path: Path, line: int) -> None:
        """Remember a place, without counting."""
        places = self.places.setdefault(kind, [])
        place = f"{path.name}:{line}"
        if len(places) < self.PLACES and place not in places:
            places.append(place)

    def look(self, raw: bytes, path: Path, line: int) -> None:
        """Count what a raw line shows that readers are known to trip over."""
        for kind, found in (
            ("CRLF line end", raw.endswith(b"\r\n")),
            ("U+0085, U+2028 or U+2029 inside a string", _OTHER_ENDS.search(raw)),
            (f"line over {self.LONG:,} bytes", len(raw) > self.LONG),
        ):
            if found:
                self.seen[kind] += 1
                self.at(kind, path, line)


def count_repair(repairs: Counter[str], kind: str, path: Path, line: int) -> None:
    """Count one repair, and its place where places are kept."""
    repairs[kind] += 1
    if isinstance(repairs, Repairs):
        repairs.at(kind, path, line)


def find_jsonl(folder: Path, stem: str) -> Path | None:
    """`<folder>/<stem>.jsonl`, else `.jsonl.gz`, else None."""
    for name in (f"{stem}.jsonl", f"{stem}.jsonl.gz"):
        if (folder / name).is_file():
            return folder / name
    return None


def read_jsonl(
    path: Path,
    repairs: Counter[str],
    digest: Any | None = None,
    on_fault: OnFault | None = None,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number from 1, object) for every non-blank line of `path`.

    Lines end at a line feed and nowhere else, so U+2028 inside a string cuts nothing. `repairs`
    counts what was passed over or repaired; `digest`, a hashlib object, is fed the bytes read.
    `path` is opened once, so it may be a pipe.

    Raises DataError with file and line for anything that is not one JSON object per line, for an
    object that gives a key twice, and for a line longer than `user_file.max_line()`. With
    `on_fault` such a line is handed to it instead, and reading continues behind it.
    """
    seen = False
    for number, raw in read_lines(path, digest, on_fault):
        if number == 1 and raw.startswith(BOM):
            raw = raw[len(BOM) :]
            count_repair(repairs, BYTE_ORDER_MARK, path, number)
        if not raw.strip():
            count_repair(repairs, "blank line", path, number)
            continue
        seen = True
        if isinstance(repairs, Repairs):
            repairs.look(raw, path, number)
        try:
            value = _parse(raw, path, number)
        except DataError as error:
            if on_fault is None:
                raise
            on_fault(error)
            continue
        yield number, value
    if not seen:
        raise empty(path)


def _parse(raw: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        value = STRICT_JSON.decode(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise DataError(
            f"not UTF-8 at byte {error.start}", path, number, todo="Save it as UTF-8"
        ) from error
    except json.JSONDecodeError as error:
        raise DataError(
            f"not valid JSON at column {error.colno} ({error.msg})", path, number
        ) from error
    except RecursionError as error:
        raise DataError("JSON nested too deeply", path, number) from error
    except RepeatedKey as error:
        raise DataError(str(error), path, number, todo="Keep one of the two") from error
    except ValueError as error:
        raise DataError(f"not valid JSON ({error})", path, number) from error
    if not isinstance(value, dict):
        raise DataError(f"a line must hold a JSON object, not {type(value).__name__}", path, number)
    return value


def new_digest() -> Any:
    """The hash object that `read_jsonl` feeds."""
    return hashlib.sha256()


@dataclass(frozen=True, slots=True)
class Fields:
    """The whitelisting reader of one line: only what is asked for by name is ever taken."""

    path: Path
    line: int
    repairs: Counter[str]

    def fault(self, what: str, todo: str = "") -> DataError:
        """A DataError at this line."""
        return DataError(what, self.path, self.line, todo=todo)

    def take(self, value: Any, field: str, kind: type, where: str = "") -> Any:
        """`value[field]` if it is a `kind`."""
        name = f"{where}.{field}" if where else field
        if not isinstance(value, dict):
            raise self.fault(f"`{where or 'row'}` must be an object, not {type(value).__name__}")
        if field not in value:
            raise self.fault(f"field `{name}` is missing")
        found = value[field]
        if not isinstance(found, kind):
            raise self.fault(f"field `{name}` must be {_NAMES[kind]}, not {type(found).__name__}")
        return found

    def text(self, value: Any, field: str, where: str = "") -> str:
        """`value[field]` as clean text."""
        raw: str = self.take(value, field, str, where)
        if is_clean(raw):
            return raw
        found: Counter[str] = Counter()
        text = clean_text(raw, found)
        self.repairs.update(found)
        if isinstance(self.repairs, Repairs):
            for kind in found:
                self.repairs.at(kind, self.path, self.line)
        return text

    def optional_text(self, value: Any, field: str, where: str = "") -> str | None:
        """`value[field]` as clean text, None if it is missing or null."""
        if isinstance(value, dict) and value.get(field) is None:
            return None
        return self.text(value, field, where)

    def number(self, value: Any, field: str, where: str = "") -> float | None:
        """`value[field]` as a finite number, None if it is missing or null."""
        found = value.get(field) if isinstance(value, dict) else None
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise self.fault(
                f"field `{where}.{field}` must be a number, not {type(found).__name__}"
            )
        try:
            number = float(found)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise self.fault(f"field `{where}.{field}` is too large a number")
        return number

    def json(self, value: Any, where: str = "") -> Any:
        """A JSON value, such as the row itself, with its texts and keys clean."""
        try:
            return self._clean_json(value, where)
        except RecursionError:
            raise self.fault(f"field `{where}` is nested too deeply") from None

    def _clean_json(self, value: Any, where: str) -> Any:
        if isinstance(value, str):
            return self.text({"": value}, "", where)
        if isinstance(value, list):
            return [self._clean_json(member, f"{where}[{i}]") for i, member in enumerate(value)]
        if isinstance(value, dict):
            found = {}
            for key, member in value.items():
                name = f"{where}.{key}" if where else key
                found[self.text({name: key}, name)] = self._clean_json(member, name)
            if len(found) < len(value):
                raise self.fault(f"`{where or 'row'}` has keys that are equal once repaired")
            return found
        if isinstance(value, float) and not math.isfinite(value):
            raise self.fault(f"field `{where}` is too large a number")
        return value

    def objects(self, value: Any, field: str, where: str = "") -> Iterator[tuple[str, Any]]:
        """The members of the list `value[field]`, each with its name for messages."""
        name = f"{where}.{field}" if where else field
        for i, member in enumerate(self.take(value, field, list, where)):
            yield f"{name}[{i}]", member


_NAMES: dict[type, str] = {str: "a string", dict: "an object", list: "a list"}
