"""How a run is kept: settings, fingerprint, run folder, resume, progress."""

from harness.configurations import Configuration, parse_configurations, parse_numbers
from harness.errors import UserError

__all__ = ["Configuration", "UserError", "parse_configurations", "parse_numbers"]
