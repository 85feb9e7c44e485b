"""No public class or function name has two meanings in the project."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = (
    "analysis",
    "indexes",
    "judges",
    "memory_scoring",
    "memory_systems",
    "recallbed",
    "retrievers",
    "task1",
    "task2",
    "task3",
    "task4",
)

# Every `python -m` module defines these: the console entry and the typer object.
OF_A_COMMAND = {"main", "app"}


def is_command(tree: ast.Module) -> bool:
    """Return whether a module is run with `python -m`."""
    return any(
        isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"
        for node in tree.body
    )


def public_definitions() -> dict[str, list[str]]:
    """Return the places (`file:line`) of each public top-level class and function, by name."""
    places = defaultdict(list)
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            command = is_command(tree)
            for node in tree.body:
                if not isinstance(node, ast.ClassDef | ast.FunctionDef):
                    continue
                if node.name.startswith("_") or (command and node.name in OF_A_COMMAND):
                    continue
                where = f"{path.relative_to(ROOT).as_posix()}:{node.lineno}"
                places[node.name].append(where)
    return places


DEFINITIONS = public_definitions()


def test_the_walk_sees_the_packages() -> None:
    assert {"Retriever", "BM25", "RunFolder"} <= DEFINITIONS.keys()


@pytest.mark.parametrize(
    "name", sorted(name for name, places in DEFINITIONS.items() if len(places) > 1)
)
def test_a_public_name_has_one_meaning(name: str) -> None:
    places = ", ".join(DEFINITIONS[name])
    pytest.fail(f"{name} is defined {len(DEFINITIONS[name])} times: {places}")
