"""What an external system needs of the gateway between it and the models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from recallbed.chat_models.base import NOTHING_USED, Usage
from recallbed.errors import UserError

GAVE_UP = "the system did not wait for the reply"
"""Failure of a call whose reply nobody reads: the system timed out, or was killed."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What one user of the gateway asked since it was last taken.

    `failures` are causes of calls without a usable reply, in order of time. `error` is the first
    BudgetReached or UserError of the model, which the run must end with.
    """

    usage: Usage = NOTHING_USED
    failures: tuple[str, ...] = ()
    error: UserError | None = None


class Witness(Protocol):
    """Sees every call of a system to a model, whatever the system says about it.

    Safe in threads: systems in flight share one.
    """

    url: str
    """Address of the OpenAI-compatible API, ending in /v1."""

    def register(self) -> str:
        """Return a new token, which is the API key of one system that is open."""

    def take(self, token: str) -> Taken:
        """Return what was asked with `token` since the last call, and forget it.

        Calls in progress are waited for or are refused: none is missed, none counts later.
        """

    def forget(self, token: str) -> None:
        """Refuse `token` from now on."""
