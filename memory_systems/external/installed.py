"""Systems of the catalogue, each in the environment that was installed for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from typing_extensions import override

from memory_systems.external.catalogue import ExternalSpec
from memory_systems.external.environments import environment_of
from memory_systems.external.system import ExternalSystem, packages_of
from recallbed.chat_models.base import JSON


class InstalledSystem(ExternalSystem):
    """The system that `spec` declares. With `python` another environment runs it."""

    spec: ClassVar[ExternalSpec]
    needs_chat = True

    @property
    @override
    def worker_file(self) -> Path:
        return self.spec.worker_file

    @property
    @override
    def python(self) -> Path:
        return environment_of(self.spec).python if self._python is None else super().python

    @override
    def worker_settings(self) -> Mapping[str, JSON]:
        return dict(self.spec.settings)

    @override
    def settings(self) -> Mapping[str, JSON]:
        if self._python is not None:
            return {**super().settings(), "environment": packages_of(self.python)}
        found = environment_of(self.spec)
        environment = {"version": found.version, "checksum": found.checksum}
        return {**super().settings(), "environment": environment}

    @property
    @override
    def _name(self) -> str:
        return self.spec.name
