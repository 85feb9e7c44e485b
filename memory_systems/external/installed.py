"""Systems of the catalogue, each in the environment that was installed for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from typing_extensions import override

from indexes.sentence_encoder import SentenceEncoder
from memory_systems.external.catalogue import EXTERNAL, ExternalSpec
from memory_systems.external.environments import environment_of
from memory_systems.external.gateway import EMBEDDER
from memory_systems.external.system import ExternalSystem, packages_of
from memory_systems.registry import register_system
from recallbed.chat_models.base import JSON


class InstalledSystem(ExternalSystem):
    """The system that `spec` declares. With `python` another environment runs it."""

    spec: ClassVar[ExternalSpec]
    needs_chat = True
    libraries = ("numpy", *SentenceEncoder.libraries)  # the gateway's embedder

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
        environment: Mapping[str, JSON]
        if self._python is None:
            found = environment_of(self.spec)
            environment = {"version": found.version, "checksum": found.checksum}
        else:
            environment = packages_of(self.python)
        return {**super().settings(), "environment": environment, "embedder": EMBEDDER}

    @override
    def depends_on(self) -> list[Path]:
        from indexes.model_folder import resolve_model

        return [resolve_model(EMBEDDER)]

    @property
    @override
    def _name(self) -> str:
        return self.spec.name


def _class_of(spec: ExternalSpec) -> type[InstalledSystem]:
    about = f"{spec.title} ({spec.version}), in a process of its own."
    return type(f"Installed {spec.name}", (InstalledSystem,), {"spec": spec, "__doc__": about})


for _spec in EXTERNAL.values():
    register_system(_spec.name)(_class_of(_spec))
