"""Reading `--retriever [LABEL=]NAME`, `--set LABEL.key=value` and `--set @FILE`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from recallbed.errors import UserError
from recallbed.harness.files import write_atomically
from recallbed.harness.input_text import STRICT_JSON

_LABEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class Configuration:
    """A retriever by name, the label its rows carry, and its settings as the user typed them.

    `fitted_on` holds the hashes of the rows that some of the settings were fitted on. `from_files`
    names the settings that a file gave and that may name registered retrievers only.
    """

    label: str
    name: str
    settings: Mapping[str, str]
    fitted_on: tuple[str, ...] = ()
    from_files: frozenset[str] = frozenset()


def is_label(text: str) -> bool:
    """Whether a retriever may be called so: letters, digits, - and _, no - in front."""
    return _LABEL.fullmatch(text) is not None


def parse_configurations(
    retrievers: Sequence[str], settings: Sequence[str], allow_code: bool = False
) -> tuple[Configuration, ...]:
    """Pair every `--retriever` with its `--set`s, in the order given.

    `@FILE` is replaced by the settings in a file that `task3.tune` wrote; a key that is also typed
    keeps what was typed. Unless `allow_code` is given, what comes from a file may name no class as
    package.module:Class: whoever wrote the file would choose the code that is run.

    Raises UserError for a label used twice, a malformed word, or a setting of an unknown label.
    """
    if not retrievers:
        raise UserError("no retriever named. Try --retriever bm25")
    names: dict[str, str] = {}
    for word in retrievers:
        label, equals, name = word.partition("=")
        if not equals:
            label, name = word.rpartition(":")[2].rpartition(".")[2], word
        if not is_label(label) or not name:
            raise UserError(
                f"--retriever {word}: a label is letters, digits, - and _. Write LABEL=NAME"
            )
        if label in names:
            raise UserError(
                f"--retriever {word}: the label `{label}` is used twice."
                " Give one of them another, LABEL=NAME"
            )
        names[label] = name
    chosen: dict[str, dict[str, str]] = {label: {} for label in names}
    for word in settings:
        if word.startswith("@"):
            continue
        target, equals, value = word.partition("=")
        label, dot, key = target.partition(".")
        if not (equals and dot and key):
            raise UserError(f"--set {word}: write it as LABEL.key=value")
        if label not in chosen:
            raise UserError(
                f"--set {word}: no retriever has the label `{label}` (labels: {', '.join(chosen)})"
            )
        if key in chosen[label]:
            raise UserError(f"--set {word}: `{label}.{key}` is set twice")
        chosen[label][key] = value
    typed = {label: set(keys) for label, keys in chosen.items()}
    fitted_on = _from_files([word[1:] for word in settings if word.startswith("@")], names, chosen)
    return tuple(
        Configuration(
            label,
            names[label],
            chosen[label],
            fitted_on[label],
            frozenset() if allow_code else frozenset(chosen[label].keys() - typed[label]),
        )
        for label in names
    )


def _from_files(
    paths: Sequence[str], names: Mapping[str, str], chosen: Mapping[str, dict[str, str]]
) -> dict[str, tuple[str, ...]]:
    """Add to `chosen` what the files set; by label, the rows that these were fitted on."""
    typed = {label: set(keys) for label, keys in chosen.items()}
    fitted_on: dict[str, tuple[str, ...]] = dict.fromkeys(names, ())
    for path in paths:
        file = read_settings(Path(path))
        for label, settings in file.settings.items():
            if names.get(label) != file.retrievers[label]:
                raise UserError(
                    f"--set @{path}: sets `{label}`, which is {file.retrievers[label]}."
                    f" Add --retriever {label}={file.retrievers[label]}"
                )
            for key, value in settings.items():
                if key not in typed[label] and key in chosen[label]:
                    raise UserError(f"--set @{path}: `{label}.{key}` is set by another file too")
                chosen[label].setdefault(key, value)
            if file.rows not in fitted_on[label]:
                fitted_on[label] += (file.rows,)
    return fitted_on


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
