"""What calls cost, from a user's own table. An unknown price is an unknown cost, never 0."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recallbed.chat_models.base import Usage
from recallbed.errors import UserError
from recallbed.harness.strict_json import STRICT_JSON


@dataclass(frozen=True, slots=True)
class Price:
    """For a million tokens, in the table's currency."""

    tokens_in: float
    tokens_out: float

    def of(self, tokens_in: int, tokens_out: int) -> float:
        """What so many tokens cost."""
        return (tokens_in * self.tokens_in + tokens_out * self.tokens_out) / 1e6


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices by the exact name of a model."""

    by_model: Mapping[str, Price] = field(default_factory=dict)

    def cost(self, model: str, usage: Usage) -> float | None:
        """What `usage` cost; None where the price isn't known or a call told no tokens."""
        price = self.by_model.get(model)
        if price is None or usage.tokens_in is None or usage.tokens_out is None:
            return None
        return price.of(usage.tokens_in, usage.tokens_out)


def read_prices(path: Path) -> Prices:
    """The table in a .toml or .json file: `["model name"]`, `in = 0.15`, `out = 0.60`.

    Raises UserError with the file and the entry at fault.
    """
    try:
        text = path.read_text(encoding="utf-8")
        table = STRICT_JSON.decode(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:  # both decoders' errors, and UnicodeDecodeError
        raise UserError(f"{path}: no table of prices ({error})") from None
    if not isinstance(table, dict):
        raise UserError(f"{path}: a table of prices by model is needed")
    return Prices({model: _price(path, model, entry) for model, entry in table.items()})


def _price(path: Path, model: str, entry: Any) -> Price:
    if not isinstance(entry, dict) or set(entry) != {"in", "out"}:
        raise UserError(f"{path}: `{model}` needs `in` and `out`, the price of a million tokens")
    for side, value in entry.items():
        sound = isinstance(value, int | float) and not isinstance(value, bool)
        if not sound or not math.isfinite(value) or value < 0:
            raise UserError(f"{path}: `{model}`.{side} is {value!r}, not a price")
    return Price(float(entry["in"]), float(entry["out"]))
