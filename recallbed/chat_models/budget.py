"""Budget of a run, checked before a call is sent; prices; estimates of tokens."""

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
from recallbed.harness.input_text import STRICT_JSON

_COUNTED = 10**12
"""Tokens. A larger usage is not expected of later calls: it is out of the range of floats."""


@dataclass(slots=True)
class Reservation:
    """The most that a call in progress may use, by its estimate and the usage of earlier calls.

    `prompt` is the estimate of its prompt alone, in tokens.
    """

    tokens_in: int
    tokens_out: int
    cost: float
    prompt: int


class Budget:
    """Limits on tokens and cost of all calls sent through it; None for no limit.

    A call is sent if what was spent, what is reserved for calls in progress and its own estimate
    (the prompt and the longest possible reply) are within the limits. Replies from a cache are not
    calls. Several models and threads may share one budget.

    Some servers bill more than the estimate: reasoning that max_tokens does not limit, another
    tokenizer. The usage of each call is therefore expected of the next ones.
    """

    def __init__(self, max_tokens: int | None = None, max_cost: float | None = None) -> None:
        if max_tokens is not None and max_tokens < 1:
            raise UserError(f"--max-tokens-total {max_tokens}: must be at least 1")
        if max_cost is not None and not (math.isfinite(max_cost) and max_cost > 0):
            raise UserError(f"--max-cost {max_cost}: must be more than 0")
        self.max_tokens, self.max_cost = max_tokens, max_cost
        self.spent = Usage()
        """All calls sent. If no tokens were reported, the most that a call may have used counts."""
        self._cost = self._reserved_cost = 0.0
        self._reserved = 0
        self._prompt_ratio, self._longest_out = 1.0, 0
        self.measured = False
        """Whether a call has ended. Until then the error of the estimates is unknown."""
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[Budget], tuple[()]]:
        if self.bounded:
            raise UserError("a budget cannot be shared with other processes: use --workers 1")
        return Budget, ()

    @property
    def bounded(self) -> bool:
        """Return whether there is any limit."""
        return self.max_tokens is not None or self.max_cost is not None

    def check_price(self, model: str, price: Price | None) -> None:
        """Raise UserError if there is a limit on cost and the model has no price."""
        if self.max_cost is not None and price is None:
            raise UserError(
                f"--max-cost needs a price for `{model}`."
                " Add it to the table of prices, or limit the tokens with --max-tokens-total"
            )

    def reserve(self, tokens_in: int, tokens_out: int, price: Price | None) -> Reservation:
        """Reserve what a call may use. Raise BudgetReached if it exceeds the budget."""
        with self._lock:
            prompt = tokens_in
            tokens_in = math.ceil(prompt * self._prompt_ratio)
            tokens_out = max(tokens_out, self._longest_out)
            cost = price.of(tokens_in, tokens_out) if price else 0.0
            tokens = self.spent.estimate_in + self.spent.estimate_out + self._reserved
            if self.max_tokens is not None and tokens + tokens_in + tokens_out > self.max_tokens:
                raise BudgetReached(
                    f"budget reached: {tokens} tokens spent or in progress, the next call may use"
                    f" {tokens_in + tokens_out}, and --max-tokens-total is {self.max_tokens}."
                    " Run this again with a larger budget to resume"
                )
            spent = self._cost + self._reserved_cost
            if self.max_cost is not None and spent + cost > self.max_cost:
                raise BudgetReached(
                    f"budget reached: {spent:.4f} spent or in progress, the next call may cost"
                    f" {cost:.4f}, and --max-cost is {self.max_cost}."
                    " Run this again with a larger budget to resume"
                )
            self._reserved += tokens_in + tokens_out
            self._reserved_cost += cost
        return Reservation(tokens_in, tokens_out, cost, prompt)

    def settle(self, held: Reservation, usage: Usage, price: Price | None) -> None:
        """Replace a reservation by the usage of the call.

        The reservation is released first, whatever fails later: else it would block a part of the
        budget for the rest of the run.
        """
        with self._lock:
            self._reserved -= held.tokens_in + held.tokens_out
            self._reserved_cost -= held.cost
            self.spent += usage
            try:
                self._cost += price.of(usage.estimate_in, usage.estimate_out) if price else 0.0
            except OverflowError:  # more than any limit
                self._cost = math.inf
            self.measured = self.measured or usage.calls > 0
            took_in, took_out = (min(n, _COUNTED) for n in (usage.estimate_in, usage.estimate_out))
            self._prompt_ratio = max(self._prompt_ratio, took_in / max(held.prompt, 1))
            if took_out > held.tokens_out:
                self._longest_out = max(self._longest_out, took_out)


@dataclass(frozen=True, slots=True)
class Price:
    """Price per million tokens, in the currency of the table."""

    tokens_in: float
    tokens_out: float

    def of(self, tokens_in: int, tokens_out: int) -> float:
        """Return the cost of a number of tokens."""
        return (tokens_in * self.tokens_in + tokens_out * self.tokens_out) / 1e6


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices by the exact name of a model. An unknown price is an unknown cost, never 0."""

    by_model: Mapping[str, Price] = field(default_factory=dict)

    def cost(self, model: str, usage: Usage) -> float | None:
        """Return the cost of `usage`; None if the price or the tokens of a call are unknown."""
        price = self.by_model.get(model)
        if price is None or usage.tokens_in is None or usage.tokens_out is None:
            return None
        return price.of(usage.tokens_in, usage.tokens_out)


def read_prices(path: Path) -> Prices:
    """Read the table in a .toml or .json file: `["model name"]`, `in = 0.15`, `out = 0.60`.

    Raise UserError with the file and the invalid entry.
    """
    try:
        text = path.read_text(encoding="utf-8")
        table = STRICT_JSON.decode(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:  # both decoders' errors, and UnicodeDecodeError
        raise UserError(f"{path}: not a table of prices ({error})") from None
    if not isinstance(table, dict):
        raise UserError(f"{path}: must be a table of prices by model")
    return Prices({model: _price(path, model, entry) for model, entry in table.items()})


def _price(path: Path, model: str, entry: Any) -> Price:
    if not isinstance(entry, dict) or set(entry) != {"in", "out"}:
        raise UserError(f"{path}: `{model}` needs `in` and `out`, prices per million tokens")
    for side, value in entry.items():
        sound = isinstance(value, int | float) and not isinstance(value, bool)
        if not sound or not math.isfinite(value) or value < 0:
            raise UserError(f"{path}: `{model}`.{side} is {value!r}, not a price")
    return Price(float(entry["in"]), float(entry["out"]))


BYTES_PER_TOKEN = 3
"""Of UTF-8. Low on purpose: English has four to five bytes per token and is overestimated by a
third; Chinese has one token per character (three bytes) or less in current multilingual models.
Four *characters* per token would underestimate Chinese by a factor of four."""
_PER_MESSAGE = 6
"""Tokens of the role and of the marks around a message."""


def estimate_text(text: str) -> int:
    """Estimate the tokens of `text` without the model's tokenizer; rather too many than too few."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN)


def estimate_messages(messages: Iterable[Message]) -> int:
    """Estimate the tokens of a prompt, including the marks of the turns."""
    return sum(estimate_text(m.content) + _PER_MESSAGE for m in messages) + _PER_MESSAGE
