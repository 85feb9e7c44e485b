"""How a run is kept: settings, fingerprint, run folder, resume, progress."""

from recallbed.errors import UserError
from recallbed.harness.configurations import Configuration, parse_configurations
from recallbed.harness.options import flatten, parse_numbers
from recallbed.harness.run_options import RunOptions

__all__ = [
    "Configuration",
    "RunOptions",
    "UserError",
    "flatten",
    "parse_configurations",
    "parse_numbers",
]
