"""The legs of a learned combination as its folder records them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from recallbed.errors import UserError
from recallbed.harness.configurations import Configuration
from recallbed.harness.input_text import STRICT_JSON
from retrievers.folds import FOLDS_FILE

LEGS = "legs"
_FOLDS = "folds"


def model_legs(
    configurations: Sequence[Configuration], trained: Sequence[str], folder: Path | None
) -> list[Configuration]:
    """Return the legs to record, and copy the folders that they name into `folder`/legs.

    `trained`, LABEL=MODEL, names the model that takes the place of a leg of the retriever `folds`,
    which knows no other queries: a folder, or a name that the leg's retriever knows. With `folder`
    None, for models of folds, all legs stay as they are, their folders named by their whole path.

    Raise UserError for a label that is no such leg, and for such a leg without a model.
    """
    replaced = _by_label(configurations, trained, folder)
    found = []
    for one in configurations:
        if one.name == _FOLDS and folder is not None:
            if one.label not in replaced:
                raise UserError(
                    f"{one.label}: models of folds score the queries of their folds alone."
                    f" Name the model of all sessions, --trained {one.label}=MODEL"
                )
            one = _model_of(one, replaced[one.label])
        settings = {
            key: _kept(one.label, value, folder) if _is_folder(value) else value
            for key, value in one.settings.items()
        }
        found.append(replace(one, settings=settings))
    return found


def _by_label(
    configurations: Sequence[Configuration], trained: Sequence[str], folder: Path | None
) -> dict[str, str]:
    names = {one.label: one.name for one in configurations}
    found: dict[str, str] = {}
    for word in trained:
        label, equals, path = word.partition("=")
        if not equals or not path:
            raise UserError(f"--trained {word}: write it as LABEL=MODEL")
        if names.get(label) != _FOLDS or folder is None:
            why = "--folds trains no model of all sessions" if folder is None else ""
            raise UserError(f"--trained {word}: {why or f'`{label}` is no leg of `folds`'}")
        if "/" in path and not Path(path).is_dir():
            raise UserError(f"--trained {word}: there is no folder {path}")
        found[label] = path
    return found


def _model_of(leg: Configuration, model: str) -> Configuration:
    """The leg with the one model of all sessions in place of its cross-validated ones."""
    path = Path(leg.settings.get("folder", "")) / FOLDS_FILE
    try:
        described: Mapping[str, Any] = STRICT_JSON.decode(path.read_text(encoding="utf-8"))
        name, setting = str(described["retriever"]), str(described["setting"])
        settings = {str(k): _typed(v) for k, v in dict(described.get("settings", {})).items()}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: cannot be read ({error})") from None
    return Configuration(leg.label, name, {**settings, setting: model})


def _typed(value: Any) -> str:
    """A setting as a user types it."""
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_folder(value: str) -> bool:
    return bool(value) and Path(value).is_dir()


def _kept(label: str, value: str, folder: Path | None) -> str:
    source = Path(value).resolve()
    if folder is None:
        return str(source)
    shutil.copytree(source, folder / LEGS / label)
    return f"./{LEGS}/{label}"
