"""The commands of README.md and docs/: taken from their fenced blocks, checked, and run.

    python -m tests.docs_commands [PAGE ...]    # every block that can be run, slow ones included

docs/contributing.md states the conventions of a page.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.testing import CliRunner

from recallbed import cli
from recallbed.corpus import sample_root
from tests.kit import ROOT
from tests.scripted_server import Call, scripted_server

SERVER = "http://127.0.0.1:8000/v1"
PACKAGES = {"analysis", "indexes", "judges", "memory_scoring", "memory_systems", "recallbed"}
PACKAGES |= {"retrievers", "task1", "task2", "task3", "task4", "training"}
OTHER_PROGRAMS = {".", "cat", "cp", "head", "llama-server", "ollama", "pip", "pytest", "vllm"}
_BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>slow|not run): (?P<reason>.+?) -->\n+)?"
    r'^```(?P<language>\w*)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^```$',
    re.MULTILINE | re.DOTALL,
)
_CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")


@dataclass(frozen=True)
class Block:
    """A fenced block; `mark` is "", "slow" or "not run"."""

    line: int
    language: str
    title: str
    text: str
    mark: str
    reason: str

    def commands(self) -> list[str]:
        lines = self.text.replace("\\\n", " ").splitlines()
        return [line.strip() for line in lines if shlex.split(line, comments=True)]


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            text.count("\n", 0, found.start("language")) + 1,
            *(found[part] or "" for part in ("language", "title", "text", "mark", "reason")),
        )
        for found in _BLOCK.finditer(text)
    ]


def command_lines(page: Path) -> Iterator[tuple[int, str, bool]]:
    """Every command shown, with its line number and whether it is whole.

    Whole are the lines of `sh` blocks; inline code that begins like a command may lack arguments.
    """
    for block in blocks(page):
        if block.language == "sh":
            yield from ((block.line, command, True) for command in block.commands())
    prose = _BLOCK.sub(lambda found: "\n" * found[0].count("\n"), page.read_text(encoding="utf-8"))
    for number, line in enumerate(prose.splitlines(), 1):
        for code in _CODE.findall(line):
            if code.startswith(("recallbed ", "python ", "make ")):
                yield number, code, False


# Checking


def check(line: str, whole: bool = True) -> None:
    """Raise ValueError if the program named in a command line does not accept it.

    Unless it is `whole`, arguments, required options and sub-commands may be missing.
    """
    line = re.sub(r"<\([^)]*\)", "FILE", line)
    words = [word for word in shlex.split(line, comments=True) if not re.match(r"[A-Z_]+=", word)]
    if words[0] == "make":
        for target in words[1:]:
            if not re.search(rf"^{target}:", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE):
                raise ValueError(f"no target {target}")
    elif words[0] == "python" and words[1].endswith(".py"):
        source = (ROOT / words[1]).read_text("utf-8") if words[1].startswith("benchmarks/") else ""
        unknown = [word for word in words if source and word[:2] == "--" and word not in source]
        if unknown and "parse_known_args" not in source:
            raise ValueError(f"{words[1]} has no option {unknown[0]}")
    elif is_ours(words):
        app, rest = command_of(words)
        _parse(typer.main.get_command(app), rest, whole)
    elif words[0] not in OTHER_PROGRAMS and words[:2] != ["python", "-m"]:
        raise ValueError(f"unknown program {words[0]}")


def command_of(words: list[str]) -> tuple[typer.Typer, list[str]]:
    """The app that the words call, and the words after it."""
    if words[0] == "recallbed":
        return cli.app, words[1:]
    module = import_module(words[2])
    if not hasattr(module, "app"):  # it only calls the `main` of another
        module = sys.modules[module.main.__module__]
    return module.app, words[3:]


def is_ours(words: list[str]) -> bool:
    package = words[2].partition(".")[0] if words[:2] == ["python", "-m"] else words[0]
    return package in PACKAGES


def _parse(command: Any, words: list[str], whole: bool, parent: Any = None) -> None:
    """Parse as the command line does, sub-commands included, and run nothing."""
    if hasattr(command, "resolve_command") and not (words or whole):
        return
    try:
        context = command.make_context(command.name or "", list(words), parent=parent)
        if hasattr(command, "resolve_command"):
            _, inner, rest = command.resolve_command(context, list(words))
            _parse(inner, rest, whole, context)
    except typer.Exit:  # --help and --version
        return
    except Exception as error:
        # Click's own class lies in click or in typer, by the version of typer.
        if not hasattr(error, "format_message"):
            raise
        if whole or not error.format_message().startswith("Missing"):
            raise ValueError(error.format_message()) from None


# Running


def instance(schema: Any, names: Any = None) -> Any:
    """A value that a JSON schema accepts: what the scripted server replies."""
    names = names if names is not None else schema.get("$defs", {})
    if "$ref" in schema:
        return instance(names[schema["$ref"].rpartition("/")[2]], names)
    if "anyOf" in schema:
        return instance(schema["anyOf"][0], names)
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type")
    if kind == "object":
        return {key: instance(value, names) for key, value in schema.get("properties", {}).items()}
    if kind == "array":
        return [instance(schema["items"], names)] * max(schema.get("minItems", 1), 1)
    if kind in ("integer", "number"):
        return max(schema.get("minimum", 1), 1)
    return {"boolean": True, "null": None}.get(str(kind), "As you like.")


def reply(call: Call) -> Any:
    return instance(call.body["response_format"]["json_schema"]["schema"])


@contextmanager
def page_folder(page: Path, folder: Path) -> Iterator[None]:
    """Work in a folder that holds the files the page shows, with a scripted chat server."""
    (folder / "benchmark_data").symlink_to(sample_root())
    for block in blocks(page):
        if block.title:
            (folder / block.title).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.title).write_text(block.text, encoding="utf-8")
    before, environment, modules = Path.cwd(), dict(os.environ), set(sys.modules)
    os.chdir(folder)
    sys.path.append(str(folder))
    os.environ |= {"OPENAI_API_KEY": "none", "RECALLBED_REPLIES": str(folder / "replies.sqlite")}
    with scripted_server(reply) as server:
        os.environ["OPENAI_BASE_URL"] = server.url
        try:
            yield
        finally:
            os.chdir(before)
            sys.path.remove(str(folder))
            os.environ.clear()
            os.environ.update(environment)
            for name in set(sys.modules) - modules:
                if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
                    del sys.modules[name]


def run_page(page: Path, folder: Path, slow: bool) -> int:
    """Run the page's blocks in order; return how many commands ran.

    Raises AssertionError for a command that fails, or if its output has no line that begins like a
    line of the `text` block that follows ("..." marks what is left out).
    """
    ran = 0
    with page_folder(page, folder):
        output = ""
        for block in blocks(page):
            if block.language == "sh":
                runs = not block.mark or (slow and block.mark == "slow")
                output = "" if runs else "not run"
                for command in block.commands() if runs else []:
                    started = time.perf_counter()
                    output += run_command(command)
                    print(f"{time.perf_counter() - started:6.1f} s  {command}", flush=True)
                    ran += 1
            elif block.language == "text" and output != "not run":
                shown = _comparable(output)
                for line in _comparable(block.text):
                    start = line.removesuffix("...").strip()
                    assert any(given.startswith(start) for given in shown), (
                        f"{name_of(page)}:{block.line}: not printed: {line}\n{output}"
                    )
    return ran


def _comparable(text: str) -> list[str]:
    """The lines, with single spaces and without the values of times."""
    return [
        re.sub(r"\d{4}-\d\d-\d\dT\S+", "TIME", " ".join(line.split())) for line in text.splitlines()
    ]


def run_command(line: str) -> str:
    """Run one command line, ours in this process; return its stdout and stderr."""
    line = line.replace(SERVER, os.environ["OPENAI_BASE_URL"])
    words = shlex.split(line, comments=True)
    if words == ["make", "sweep"]:
        recipe = (ROOT / "Makefile").read_text("utf-8").partition("\nsweep:")[2]
        words = recipe.splitlines()[1].strip().replace("$(VENV)/bin/", "").split()
    elif words[0] in ("make", "pip"):
        return ""  # sets up an environment of its own; `check` knows the targets
    if is_ours(words):
        app, rest = command_of(words)
        result = CliRunner().invoke(app, rest)
        code, output = result.exit_code, result.output + result.stderr
        if result.exception and not isinstance(result.exception, SystemExit):
            output += repr(result.exception)
    else:
        binaries = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            [
                "bash",
                "-euo",
                "pipefail",
                "-c",
                line.replace(" benchmarks/", f" {ROOT}/benchmarks/"),
            ],
            env={**os.environ, "PATH": binaries, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        code, output = done.returncode, done.stdout + done.stderr
    assert code == 0, f"{line}\n{output[-3000:]}"
    return output


def main(names: list[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="recallbed-docs-") as made:
        os.environ["RECALLBED_STORE"] = f"{made}/embeddings.sqlite"
        for page in pages():
            if not names or name_of(page) in names:
                print(f"== {name_of(page)}", flush=True)
                folder = Path(made, name_of(page).replace("/", "-"))
                folder.mkdir()
                run_page(page, folder, slow=True)
                for block in blocks(page):
                    if block.mark == "not run":
                        print(f"not run (line {block.line}): {block.reason}")


if __name__ == "__main__":
    main(sys.argv[1:])
