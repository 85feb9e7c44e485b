"""What a dry run prints: the calls that a run would make, by chat model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from recallbed.errors import UserError
from recallbed.harness.terminal import say_result

HEDGE = (
    "tokens in are estimated if the tokenizer is a server's; tokens out and cost are upper bounds;"
    " re-asks are not counted; calls that depend on earlier replies are counted as far as those"
    " replies are stored, so a run may make more calls or fewer"
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run would send to one chat model.

    `calls` would be sent, the replies of `stored` are in the cache. `tokens_in` is an estimate if
    the tokenizer is a server's. `tokens_out` is the most that may come; re-asks are in neither,
    since they depend on replies. `cost` is for both; None if the price is unknown. `seconds` is the
    time for both on this machine, None for a server's model. `at_least`: replies that are not
    stored lead to further calls, which are in none of these.
    """

    calls: int
    stored: int
    tokens_in: int
    tokens_out: int
    cost: float | None
    seconds: float | None = None
    at_least: bool = False

    def line(self, name: str) -> str:
        """Return one line about the model called `name`."""
        cost = "unknown: no price" if self.cost is None else f"at most {self.cost:.4f}"
        took = "" if self.seconds is None else f", at most about {self.seconds:.0f} s here"
        calls = f"{self.calls} calls, {self.stored} stored,"
        if self.at_least:
            calls = f"at least {calls} more after their replies; without those"
        return (
            f"{name}: {calls} {self.tokens_in} tokens in, at most {self.tokens_out} out,"
            f" cost {cost}{took}"
        )


def checked_plans(plans: Mapping[str, Plan]) -> Mapping[str, Plan]:
    """Return `plans`; raise UserError if there are none."""
    if not plans:
        raise UserError("--dry-run: nothing here asks a chat model")
    return plans


def print_plans(plans: Mapping[str, Plan], as_json: bool = False) -> None:
    """Print plans on stdout, as lines that end with what the figures mean, or as JSON."""
    lines = [*(one.line(name) for name, one in plans.items()), HEDGE]
    say_result({name: asdict(one) for name, one in plans.items()}, lines, as_json)
