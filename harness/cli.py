"""What every command does alike: one line for a user's mistake, a stop that can be resumed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from harness.errors import UserError


@contextmanager
def one_line_errors(*kinds: type[Exception]) -> Iterator[None]:
    """Turn UserError and `kinds` into one line on stderr and exit code 2; Ctrl-C into 130."""
    expected: tuple[type[Exception], ...] = (UserError, *kinds)
    try:
        yield
    except expected as error:
        print("error: " + " ".join(str(error).split()), file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print("stopped. What was finished is kept; go on with --resume", file=sys.stderr)
        raise SystemExit(130) from None
