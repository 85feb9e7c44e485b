"""What a folder of trained weights says of the sessions that it was trained on."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from recallbed.errors import UserError

CARD_FILE = "training_card.json"


def read_card(folder: Path) -> dict[str, Any] | None:
    """Return the training card in a model's folder; None if there is none.

    Raises UserError for a card that cannot be read.
    """
    path = folder / CARD_FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict) or not _are_digests(found["sessions"]):
            raise ValueError("no list of `sessions`")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, RecursionError) as error:
        raise UserError(f"{path}: is no training card ({error})") from None
    return found


def trained_sessions(folders: Sequence[Path]) -> tuple[str, ...]:
    """Return the digests of all sessions that the models in `folders` were trained on, sorted."""
    cards = [read_card(folder) for folder in folders]
    return tuple(sorted({one for card in cards if card for one in card["sessions"]}))


def _are_digests(sessions: Any) -> bool:
    return isinstance(sessions, list) and all(isinstance(one, str) for one in sessions)


def model_folder(name: str, retriever: str, shipped: Collection[str], trainer: str) -> Path:
    """Return the folder of a trained model: one that is shipped by its name, else a folder.

    A folder that is called like a shipped model is `./NAME`. Raises UserError if there is no such
    folder, naming the models shipped for the retriever and the command that trains one.
    """
    if name in shipped:
        folder = Path(__file__).parent / "models" / retriever / name
    else:
        folder = Path(name).expanduser()
    if not folder.is_dir():
        raise UserError(
            f"{name}: no such model ({', '.join(sorted(shipped))}) and no such folder."
            f" Train one: python -m {trainer} --out FOLDER"
        )
    return folder


def read_json_object(path: Path, version: int) -> dict[str, Any]:
    """Return the JSON object in a model's file of this format version. Raises UserError."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict) or found.get("format") != version:
            raise ValueError(f"no object with `format` {version}")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file, so the folder holds no trained model") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: cannot be read ({error})") from None
    return found
