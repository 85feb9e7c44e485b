"""A bound on what a run may spend, kept before a call is sent and not after."""

from __future__ import annotations

import math
import threading
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recallbed.chat_models.base import BudgetReached, Message, Usage
from recallbed.errors import UserError
from recallbed.harness.strict_json import STRICT_JSON

_COUNTED = 10**12
"""Tokens. What a call took beyond that is expected of no other: it is past the range of floats."""


@dataclass(slots=True)
class Reservation:
    """The most that a call under way may take, by its estimate and what earlier calls took.

    `prompt` is the estimate of its prompt alone.
    """

    tokens_in: int
    tokens_out: int
    cost: float
    prompt: int


class Budget:
    """Bounds on the tokens and the money of all calls sent since it was made; None for no bound.

    A call is let through if all that was spent, all that is reserved for calls under way and its
    own estimate (prompt, and the longest reply it may get) stay within the bounds. Replies from a
    cache are not calls. One budget may be shared by several models and threads.

    Some servers bill more than a call's estimate: reasoning that is not bounded by max_tokens, a
    vocabulary that takes more tokens. What one call took, the next are expected to take.
    """

    def __init__(self, max_tokens: int | None = None, max_cost: float | None = None) -> None:
        if max_tokens is not None and max_tokens < 1:
            raise UserError(f"--max-tokens-total {max_tokens}: must be at least 1")
        if max_cost is not None and not (math.isfinite(max_cost) and max_cost > 0):
            raise UserError(f"--max-cost {max_cost}: must be more than 0")
        self.max_tokens, self.max_cost = max_tokens, max_cost
        self.spent = Usage()
        """All calls sent. Those that told no tokens, cut off or not, are in it with all that they
        might have taken, as estimates."""
        self._cost = self._reserved_cost = 0.0
        self._reserved = 0
        self._prompt_ratio, self._longest_out = 1.0, 0
        self.measured = False
        """Whether a call has ended. Until then it is unknown how far estimates are off."""
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[Budget], tuple[()]]:
        if self.bounded:
            raise UserError("a budget can't be shared with other processes: use --workers 1")
        return Budget, ()

    @property
    def bounded(self) -> bool:
        """Whether there is any bound."""
        return self.max_tokens is not None or self.max_cost is not None

    def check_price(self, model: str, price: Price | None) -> None:
        """Raises UserError where a bound on cost can't be kept for want of a price."""
        if self.max_cost is not None and price is None:
            raise UserError(
                f"--max-cost can't be kept: no price for `{model}`."
                " Add it to the table of prices, or bound the tokens with --max-tokens-total"
            )

    def reserve(self, tokens_in: int, tokens_out: int, price: Price | None) -> Reservation:
        """Set aside what a call may take. Raises BudgetReached where that is too much."""
        with self._lock:
            prompt = tokens_in
            tokens_in = math.ceil(prompt * self._prompt_ratio)
            tokens_out = max(tokens_out, self._longest_out)
            cost = price.of(tokens_in, tokens_out) if price else 0.0
            tokens = self.spent.estimate_in + self.spent.estimate_out + self._reserved
            if self.max_tokens is not None and tokens + tokens_in + tokens_out > self.max_tokens:
                raise BudgetReached(
                    f"budget reached: {tokens} tokens spent or under way, the next call may take"
                    f" {tokens_in + tokens_out}, and --max-tokens-total is {self.max_tokens}."
                    " Run this again to go on from here"
                )
            spent = self._cost + self._reserved_cost
            if self.max_cost is not None and spent + cost > self.max_cost:
                raise BudgetReached(
                    f"budget reached: {spent:.4f} spent or under way, the next call may cost"
                    f" {cost:.4f}, and --max-cost is {self.max_cost}."
                    " Run this again to go on from here"
                )
            self._reserved += tokens_in + tokens_out
            self._reserved_cost += cost
        return Reservation(tokens_in, tokens_out, cost, prompt)

    def settle(self, held: Reservation, usage: Usage, price: Price | None) -> None:
        """Replace a reservation by what the call took.

        Whatever goes wrong here, the reservation is given back first: one that stayed would block
        a part of the budget for good.
        """
        with self._lock:
            self._reserved -= held.tokens_in + held.tokens_out
            self._reserved_cost -= held.cost
            self.spent += usage
            try:
                self._cost += price.of(usage.estimate_in, usage.estimate_out) if price else 0.0
            except OverflowError:  # more than any bound
                self._cost = math.inf
            self.measured = self.measured or usage.calls > 0
            took_in, took_out = (min(n, _COUNTED) for n in (usage.estimate_in, usage.estimate_out))
            self._prompt_ratio = max(self._prompt_ratio, took_in / max(held.prompt, 1))
            if took_out > held.tokens_out:
                self._longest_out = max(self._longest_out, took_out)


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


BYTES_PER_TOKEN = 3
"""Of UTF-8. Low on purpose: English has four to five bytes a token, so it is overestimated by a
third; Chinese has one token a character (three bytes) or less in the vocabularies of today's
multilingual models. Four *characters* a token would take Chinese for a quarter of what it is."""
_PER_MESSAGE = 6
"""The role, and the marks around a message."""


def estimate_text(text: str) -> int:
    """A guess at the tokens of `text`, more likely too many than too few."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN)


def estimate_messages(messages: Iterable[Message]) -> int:
    """A guess at the tokens of a prompt, marks of the turns included."""
    return sum(estimate_text(m.content) + _PER_MESSAGE for m in messages) + _PER_MESSAGE
