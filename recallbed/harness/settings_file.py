"""Settings kept in a file with where they come from: `--set @tuned.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from recallbed.errors import UserError
from recallbed.harness.files import write_atomically
from recallbed.harness.strict_json import STRICT_JSON

FORMAT = "recallbed settings, version 1"


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """Settings of labels as a user would type them, and how they were found.

    `retrievers` names the retriever of every label that the settings were found with. `rows` is
    the hash of the rows that they were fitted on; `provenance` is for the reader.
    """

    retrievers: Mapping[str, str]
    settings: Mapping[str, Mapping[str, str]]
    rows: str
    provenance: Mapping[str, Any]


def write_settings(path: Path, file: SettingsFile) -> None:
    """Write it in one step."""
    value = {
        "format": FORMAT,
        "retrievers": dict(file.retrievers),
        "settings": {label: dict(chosen) for label, chosen in file.settings.items()},
        "rows": file.rows,
        "provenance": dict(file.provenance),
    }
    write_atomically(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def read_settings(path: Path) -> SettingsFile:
    """The settings in `path`. Raises UserError if it is no such file."""
    try:
        value: Any = STRICT_JSON.decode(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"--set @{path}: cannot be read ({error})") from None
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise UserError(f"--set @{path}: not a settings file. `python -m task3.tune` writes them")
    keys = ("retrievers", "settings", "rows", "provenance")
    retrievers, settings, rows, provenance = (value.get(key) for key in keys)
    if not (
        _words(retrievers)
        and isinstance(settings, dict)
        and all(_words(chosen) and label in retrievers for label, chosen in settings.items())
        and isinstance(rows, str)
        and isinstance(provenance, dict)
    ):
        raise UserError(f"--set @{path}: a damaged settings file. Write it again")
    return SettingsFile(retrievers, settings, rows, provenance)


def _words(value: Any) -> TypeGuard[dict[str, str]]:
    return isinstance(value, dict) and all(isinstance(word, str) for word in value.values())
