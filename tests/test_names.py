"""No public class or function name has two meanings in the project."""

import ast
from collections import defaultdict
from pathlib import Path

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
    "training",
)

# Both extractive systems copy from the input; their class paths are in fingerprints.
ONE_MEANING = {"Extractive"}


def is_command(node: ast.ClassDef | ast.FunctionDef) -> bool:
    """Return whether typer calls a function: its name is that of a command."""
    return any("command(" in ast.unparse(one) for one in node.decorator_list)


def public_definitions() -> dict[str, list[str]]:
    """Return the places (`file:line`) of each public top-level class and function, by name."""
    places = defaultdict(list)
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if not isinstance(node, ast.ClassDef | ast.FunctionDef):
                    continue
                if not node.name.startswith("_") and not is_command(node):
                    where = f"{path.relative_to(ROOT).as_posix()}:{node.lineno}"
                    places[node.name].append(where)
    return places


def test_a_public_name_has_one_meaning() -> None:
    places = public_definitions()
    assert {"Retriever", "BM25", "RunFolder"} <= places.keys()
    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert twice.keys() - ONE_MEANING == set(), twice
