"""What every command does alike: one line for a user's mistake, a stop that can be resumed."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from recallbed.errors import UserError
from recallbed.harness.app import debugging
from recallbed.harness.cause import cause_of, users_place
from recallbed.harness.terminal import note, one_line


class Terminated(KeyboardInterrupt):
    """SIGTERM, answered like Ctrl-C."""


def _terminate(signum: int, frame: FrameType | None) -> None:
    raise Terminated


@contextmanager
def one_line_errors(
    *kinds: type[Exception], on_stop: str = "nothing was written"
) -> Iterator[None]:
    """Turn UserError and `kinds` into one line on stderr and exit code 2.

    So is an exception that passed through a user's own code, with the file and line. --debug shows
    tracebacks. Ctrl-C ends with exit code 130 and SIGTERM with 143, in one line too, which says
    `on_stop`. A closed pipe on stdout ends silently with 141, as it does other programs. Too
    little memory is one line and exit code 2.
    """
    expected: tuple[type[Exception], ...] = (UserError, *kinds)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever reads our output, such as `head`, has seen enough: nothing is left to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141) from None
    except expected as error:
        if debugging():
            note(*traceback.format_exc().splitlines())
        note("error: " + one_line(error))
        raise SystemExit(2) from None
    except MemoryError as error:
        detail = f" ({one_line(error)})" if str(error) else ""
        note(f"error: not enough memory{detail}: {on_stop}. Free some memory, then run it again")
        raise SystemExit(2) from None
    except Exception as error:
        # A class of the user's that fails outside a query: in its constructor, settings, notes.
        if debugging() or users_place(error) is None:
            raise
        note(f"error: {cause_of(error)}. --debug shows the traceback")
        raise SystemExit(2) from None
    except KeyboardInterrupt as stop:
        note(f"stopped: {on_stop}")
        raise SystemExit(143 if isinstance(stop, Terminated) else 130) from None
