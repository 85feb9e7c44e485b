"""What a folder of trained weights says of the sessions that it was trained on."""

from __future__ import annotations

import json
from collections.abc import Sequence
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
