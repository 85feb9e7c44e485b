"""The external memory systems that can be installed: versions, licences, workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from recallbed.errors import UserError


@dataclass(frozen=True, slots=True)
class Source:
    """A public repository at a commit, for systems that no package registry has."""

    repository: str
    commit: str


@dataclass(frozen=True, slots=True)
class ExternalSpec:
    """One system. `worker` is a file of workers/, `package` the distribution that is measured.

    A system that is run from its source has no `package`.
    `pins` is the name of a file of pins/: every distribution of the environment with its version.
    `settings` are passed to the worker, which serves several systems.
    """

    name: str
    title: str
    licence: str
    worker: str
    package: str
    pins: str
    python: tuple[int, int] = (3, 11)
    source: Source | None = None
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def requirements(self) -> tuple[str, ...]:
        """The pinned requirements, one per distribution."""
        text = files("memory_systems.external").joinpath("pins", self.pins).read_text("utf-8")
        return tuple(line for line in text.splitlines() if line and not line.startswith("#"))

    @property
    def worker_file(self) -> Path:
        """The file that runs the system in its environment."""
        return Path(str(files("memory_systems"))) / "external" / "workers" / self.worker

    @property
    def version(self) -> str:
        """The pinned version, or the commit of a system that is run from its source."""
        if self.source is not None:
            return self.source.commit[:8]
        [pin] = [one for one in self.requirements if one.startswith(f"{self.package}==")]
        return pin.partition("==")[2]


_LISTED = (
    ExternalSpec(
        "mem0", "Mem0 1.x: adds, updates, deletes", "Apache-2.0", "mem0.py", "mem0ai", "mem0.txt"
    ),
    ExternalSpec("mem0-2", "Mem0 2.x: adds only", "Apache-2.0", "mem0.py", "mem0ai", "mem0-2.txt"),
    ExternalSpec(
        "mem0g",
        "Mem0 1.x with a graph in Kuzu",
        "Apache-2.0 and MIT",
        "mem0.py",
        "mem0ai",
        "mem0.txt",
        settings=(("graph", "kuzu"),),
    ),
    ExternalSpec("a-mem", "A-Mem: linked notes of turns", "MIT", "a_mem.py", "a-mem", "a-mem.txt"),
    ExternalSpec(
        "a-mem-paper",
        "A-Mem as its authors published it",
        "MIT",
        "a_mem_paper.py",
        "",
        "a-mem-paper.txt",
        source=Source("WujiangXu/A-mem", "0c8039f28fdcc08189a23c07a3437d9d2482f9c2"),
    ),
    ExternalSpec(
        "lightmem",
        "LightMem: facts, with an update after each dialogue",
        "MIT",
        "lightmem.py",
        "",
        "lightmem.txt",
        source=Source("zjunlp/LightMem", "8fc9a9179f9170c4a40fc653fcb410375900f26e"),
    ),
    ExternalSpec(
        "memoryos",
        "MemoryOS: three levels of memory and a profile",
        "MIT",
        "memoryos.py",
        "memoryos-pro",
        "memoryos.txt",
    ),
    ExternalSpec(
        "memos", "MemOS: general text memory", "Apache-2.0", "memos.py", "MemoryOS", "memos.txt"
    ),
    ExternalSpec(
        "memos-tree",
        "MemOS: tree text memory in PostgreSQL",
        "Apache-2.0, PostgreSQL and LGPL-3.0",
        "memos_tree.py",
        "MemoryOS",
        "memos.txt",
    ),
    ExternalSpec(
        "evermemos",
        "EverMemOS: atomic facts of episodes, and a profile",
        "Apache-2.0",
        "evermemos.py",
        "everos",
        "evermemos.txt",
        python=(3, 12),
    ),
    ExternalSpec("langmem", "LangMem", "MIT", "langmem.py", "langmem", "langmem.txt"),
    ExternalSpec(
        "graphiti",
        "Graphiti, a graph with times, in Kuzu",
        "Apache-2.0 and MIT",
        "graphiti.py",
        "graphiti-core",
        "graphiti.txt",
    ),
)
EXTERNAL: Mapping[str, ExternalSpec] = {spec.name: spec for spec in _LISTED}


def external_spec(name: str) -> ExternalSpec:
    """Return the system called `name`. Raise UserError if there is none."""
    if name not in EXTERNAL:
        raise UserError(
            f"{name}: no external system has this name. Choose from {', '.join(EXTERNAL)}"
        )
    return EXTERNAL[name]
