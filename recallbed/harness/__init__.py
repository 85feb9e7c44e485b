"""How a run is kept: settings, fingerprint, run folder, resume, progress."""

from recallbed.errors import UserError
from recallbed.harness.configurations import Configuration, parse_configurations, parse_numbers

__all__ = ["Configuration", "UserError", "parse_configurations", "parse_numbers"]
