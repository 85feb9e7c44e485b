"""What many tests need: commands and their outcome, one-line errors, small data, rows of a run."""

from __future__ import annotations

import json
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from typer import Typer
from typer.testing import CliRunner, Result

from recallbed.corpus.options import DataOptions, PoolOptions
from recallbed.harness.configurations import Configuration
from recallbed.harness.item_run import Done, ItemExperiment
from recallbed.harness.plan import Plan
from recallbed.harness.run_folder import RunFolder
from recallbed.harness.run_options import RunOptions
from retrievers.options import RetrieverOptions
from task3.options import SweepConfig

if TYPE_CHECKING:
    from task3.sweep_run import Outcome

ROOT = Path(__file__).parents[1]
# Only a hang ends a test by time: far above what a loaded machine needs.
HANG = 300

Process = subprocess.CompletedProcess[str]
WriteRelease = Callable[..., Path]
T = TypeVar("T")


# Commands


def run(app: Typer, *words: object, code: int | None = None) -> Result:
    """Run a command in this process; an exception that is not an exit fails the test."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert isinstance(result.exception, SystemExit | None), repr(result.exception)
    assert code in (None, result.exit_code), result.output
    return result


def run_json(app: Typer, *words: object) -> Any:
    """What a command prints with `--json`; it must succeed."""
    return json.loads(run(app, *words, "--json", code=0).stdout)


def python(
    *words: object, cwd: Path | None = None, code: int | None = 0, **environment: str
) -> Process:
    """Run the interpreter in a process of its own (`python("-m", "task3.sweep", ...)`)."""
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    assert code in (None, done.returncode), done.stderr
    return done


class Forked:
    """A command in a process of its own that is forked where our modules are imported already.

    It costs no start-up, and is stopped and killed like any other. Not for tests of what is
    imported or shadowed, nor of stopped workers, which a forked process joins: those call `python`.
    """

    def __init__(self, module: str, *words: object, cwd: Path | None = None, **env: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="recallbed-tests-")
        self._files = [Path(self._folder.name, name) for name in ("stdout", "stderr")]
        self.args = (module, [str(word) for word in words])
        given = (*self.args, str(cwd or Path.cwd()), {**os.environ, **env}, self._files)
        self._process = _FORKS.Process(target=_run_module, args=given)
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float = HANG) -> int:
        self._process.join(timeout)
        assert self._process.exitcode is not None, f"{self.args} hangs"
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()

    def done(self, code: int | None = 0) -> Process:
        """Wait for the end: what was printed, and the exit code."""
        found = self.wait()
        out, err = (file.read_text("utf-8") for file in self._files)
        assert code in (None, found), err
        return subprocess.CompletedProcess(self.args, found, out, err)


_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        *("task3.sweep", "task3.sweep_run", "analysis.curves", "analysis.pictures", "pydoc"),
        *("indexes.embedding_store", "pydantic.main", "retrievers.bm25", "numpy.random"),
        *("matplotlib.backends.backend_agg", "matplotlib.figure", "PIL.Image"),
        *("typer.rich_utils", "recallbed.harness.app", "stop_words"),
    ]
)


def _run_module(
    module: str, words: list[str], cwd: str, environment: dict[str, str], files: list[Path]
) -> None:
    os.setsid()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    for number, name in enumerate(files, start=1):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    sys.path.insert(0, cwd)
    sys.argv = [module, *words]
    sys.modules.pop(module, None)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def one_line_error(done: Result | Process, *parts: object, after_notes: bool = False) -> str:
    """Assert exit code 2, nothing on stdout and one line of stderr that holds `parts`; return it.

    `after_notes`: warnings and progress may stand above the error.
    """
    if isinstance(done, Result):
        assert isinstance(done.exception, SystemExit), repr(done.exception)
    code = done.exit_code if isinstance(done, Result) else done.returncode
    assert (code, done.stdout) == (2, ""), (code, done.stdout, done.stderr)
    lines = done.stderr.splitlines()
    assert after_notes or len(lines) == 1, done.stderr
    [line] = [line for line in lines if line.startswith("error: ")]
    for part in parts:
        assert str(part) in line, line
    return line


def checked(kind: type[T], value: object) -> T:
    """Return `value`, which must be an instance of `kind`."""
    assert isinstance(value, kind), repr(value)
    return value


# Files


LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:77aa\nsize 5120\n"


def edit_line(path: Path, line: int, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the object on `line`, counted from 1, of a JSON-lines file in place."""
    rows = read_lines(path)
    change(rows[line - 1])
    write_lines(path, rows)


def write_lines(path: Path, rows: Iterable[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read_lines(path: Path | str) -> list[Any]:
    """The values of a JSON-lines file; its last line must be whole."""
    *lines, rest = Path(path).read_text(encoding="utf-8").split("\n")
    assert rest == "", f"{path} ends inside a line"
    return [json.loads(line) for line in lines]


def read_json(path: Path | str) -> Any:
    return json.loads(Path(path).read_text(encoding="utf-8"))


def strings_in(value: Any) -> Iterator[str]:
    """Every text in a value, keys of objects included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from (key, *strings_in(inner))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from strings_in(inner)


PROMISED = ("manifest.json", "rows.jsonl", "summary.json", "curve.csv")


def assert_equal_runs(one: Path, other: Path, names: Sequence[str] = PROMISED) -> None:
    for name in names:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


def rows_of(run: Path | str) -> list[dict[str, Any]]:
    """The rows of a run folder."""
    return read_lines(Path(run, "rows.jsonl"))


def write_release(
    root: Path,
    rows: Sequence[tuple[str, Sequence[str], int]],
    *,
    size: int | None = None,
    own: dict[str, list[str]] | None = None,
    ids: Sequence[str] | None = None,
) -> Path:
    """Write a task 3 release with rows `(query, texts, position of the gold)`; return `root`.

    The split is `dev`, the folder `task3/d<size>`, by default the number of distractors of row 0;
    `own` gives the memories of a session's task 1.
    """
    folder = root / "dev" / "task3" / f"d{size or max(len(rows[0][1]) - 1, 1)}"
    inputs, references = [], []
    for number, (query, texts, gold) in enumerate(rows):
        name = f"q{number}"
        candidates = [
            {"memory_id": ids[i] if ids else f"m{i}", "value": text, "label": "Preferences/Food"}
            for i, text in enumerate(texts)
        ]
        head = {"benchmark_id": name, "task": "task3", "session_id": name}
        given = {"candidate_memories": candidates, "query": query}
        inputs.append({**head, "stratum": "secret", "input": given})
        chosen = candidates[gold]
        answer = {"selected_memory_id": chosen["memory_id"], "selected_memory": chosen}
        references.append({**head, "gold": answer})
    write_lines(folder / "model_input.jsonl", inputs)
    write_lines(folder / "reference_output.jsonl", references)
    if own:
        items = [
            {"session_id": session, "gold": {"memory_items": [{"value": text} for text in texts]}}
            for session, texts in own.items()
        ]
        write_lines(root / "dev" / "task1" / "reference_output.jsonl", items)
    return root


# Runs in this process


def swept(
    retrievers: Sequence[str | Configuration], data: Path | None = None, **given: Any
) -> Outcome:
    """What a sweep in this process comes to; its arguments are those of `sweep_config`."""
    from task3.sweep_run import run_sweep

    return run_sweep(sweep_config(retrievers, data, **given))


def sweep_config(
    retrievers: Sequence[str | Configuration], data: Path | None = None, **given: Any
) -> SweepConfig:
    """A `SweepConfig` of flat arguments, named like the fields of the options it holds.

    Retrievers and `settings` are those of --retriever and --set. `on_existing` sets the flags of
    `RunOptions`; without `store` there is none.
    """
    made = [one for one in retrievers if isinstance(one, Configuration)]

    def some(*names: str) -> dict[str, Any]:
        return {name: given.pop(name) for name in names if name in given}

    on_existing = given.pop("on_existing", "refuse")
    run = RunOptions(
        resume=on_existing == "resume",
        overwrite=on_existing == "overwrite",
        **some("out", "retry_failed", "keep_going"),
    )
    settings = [f"{one.label}.{key}={value}" for one in made for key, value in one.settings.items()]
    chosen = RetrieverOptions(
        tuple(one if isinstance(one, str) else f"{one.label}={one.name}" for one in retrievers),
        (*settings, *given.pop("settings", ())),
        store=str(given.pop("store", None) or "none"),
        **some("max_memory"),
    )
    return SweepConfig(
        chosen,
        DataOptions(data, **some("split", "limit")),
        PoolOptions(**some("pools", "pool_seeds", "distractors")),
        run=run,
        **given,
    )


class Items(ItemExperiment):
    """An experiment over named pieces of work."""

    name = "items"

    def __init__(self, works: Mapping[str, Callable[[], Done]], in_flight: int = 8) -> None:
        self.works, self.in_flight = works, in_flight

    def fingerprint(self) -> dict[str, Any]:
        return {}

    def items(self) -> Mapping[str, Callable[[], Done]]:
        return self.works

    def figures(self, folder: RunFolder) -> dict[str, Any]:
        return {}

    def cost(self, tokens_in: int, tokens_out: int) -> None:
        return None

    def plans(self) -> dict[str, Plan]:
        return {}
