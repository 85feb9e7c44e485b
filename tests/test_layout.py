"""The import contract of the packages: what each may import, inside functions too."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from recallbed.packages import ROOT, own_packages

HARNESS = ("recallbed.errors", "recallbed.harness")
GROUND = (*HARNESS, "recallbed.corpus", "recallbed.chat_models")
PURE = ("analysis.metrics", "analysis.statistics")
RETRIEVAL = (*GROUND, *PURE, "indexes", "retrievers")
MEASURED = (*RETRIEVAL, "analysis", "judges", "memory_scoring", "memory_systems")
MAY_IMPORT = {
    "recallbed": ("recallbed",),
    "recallbed.errors": (),
    "recallbed.packages": (),
    "recallbed.harness": ("recallbed.errors", "recallbed.packages"),
    "recallbed.corpus": HARNESS,
    "recallbed.chat_models": HARNESS,
    "indexes": GROUND,
    "retrievers": (*GROUND, *PURE, "indexes"),
    "memory_systems": RETRIEVAL,
    "analysis": (*GROUND, "indexes", "judges", "memory_scoring"),
    "analysis.errors": (*GROUND, "analysis", "indexes", "judges", "memory_scoring", "retrievers"),
    "analysis.metrics": (),
    "analysis.statistics": (),
    "judges": (*GROUND, *PURE, "indexes"),
    "memory_scoring": (*GROUND, *PURE, "indexes", "judges"),
    "task1": MEASURED,
    "task2": MEASURED,
    "task3": MEASURED,
    "task4": MEASURED,
    "training": RETRIEVAL,
}
"""By package or module, what it may import besides itself and `recallbed`, which has the guard."""


def modules() -> Iterator[tuple[str, Path]]:
    for package in sorted(own_packages()):
        for file in sorted((ROOT / package).rglob("*.py")):
            *parents, name = file.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parents if name == "__init__" else (*parents, name)), file


MODULES = dict(modules())


def imported(source: bytes) -> Iterator[tuple[int, str]]:
    """The line and the name of every module of ours that a source imports."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            names = sorted(inner & MODULES.keys()) or [str(node.module)]
        else:
            continue
        yield from ((node.lineno, name) for name in names if name in MODULES)


def is_in(module: str, packages: tuple[str, ...]) -> bool:
    return any(f"{module}.".startswith(f"{package}.") for package in packages)


def violations(module: str, source: bytes) -> list[str]:
    home = max((key for key in MAY_IMPORT if is_in(module, (key,))), key=len)
    allowed = (home, *MAY_IMPORT[home])
    return [
        f"{module}, line {line}: imports {name}"
        for line, name in imported(source)
        if name != "recallbed" and not is_in(name, allowed)
    ]


def test_every_package_has_a_rule() -> None:
    assert own_packages() <= MAY_IMPORT.keys()


@pytest.mark.parametrize("package", sorted(own_packages()))
def test_a_package_imports_only_what_it_may(package: str) -> None:
    named = [(name, file) for name, file in MODULES.items() if is_in(name, (package,))]
    found = [line for name, file in named for line in violations(name, file.read_bytes())]
    assert found == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("task1.x", "from task3 import sweep"),
        ("indexes.x", "from retrievers import BM25"),
        ("retrievers.x", "from training import examples"),
        ("training.x", "from task3 import sweep"),
        ("judges.x", "import analysis.summary"),
        ("analysis.metrics", "from recallbed.corpus.pools import Pool"),
        ("recallbed.harness.x", "def f():\n    from recallbed.corpus.pools import Pool"),
    ],
)
def test_an_import_that_goes_up_is_found(module: str, source: str) -> None:
    [line] = violations(module, source.encode())
    assert line.startswith(f"{module}, line ")
