"""Environments of external systems: where they are, how they are made, what is in them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from memory_systems.external.catalogue import ExternalSpec
from recallbed.errors import UserError
from recallbed.harness.files import write_atomically
from recallbed.harness.progress import progress

MANIFEST = "installed.json"
_SHOWN = 300
_LINES_KEPT = 200

# Run by the Python of the environment: the version of each distribution, and a hash over the names
# and contents of its files. What differs between two installs of the same files is left out.
_INVENTORY = """
import hashlib, importlib.metadata, json
found = {}
for one in importlib.metadata.distributions():
    name, digest = one.metadata["Name"], hashlib.sha256()
    for file in sorted(map(str, one.files or ())):
        place = one.locate_file(file)
        if not file.startswith("..") and ".dist-info/" not in file and place.suffix != ".pyc":
            digest.update(file.encode() + b"\\0" + hashlib.sha256(place.read_bytes()).digest())
    if name.lower() not in ("pip", "setuptools"):
        found[name] = [one.version, digest.hexdigest()]
print(json.dumps(found, sort_keys=True))
"""


@dataclass(frozen=True, slots=True)
class Environment:
    """An installed system. `checksum` is a sha256 over its packages and its source.

    `seconds` is how long the installation took.
    """

    folder: str
    version: str
    packages: Mapping[str, str]
    checksum: str
    megabytes: int
    seconds: float

    @property
    def python(self) -> Path:
        """The interpreter that runs the worker."""
        return Path(self.folder) / "bin" / "python"

    @property
    def source(self) -> Path:
        """The copy of the source; missing for a system that is a package."""
        return Path(self.folder) / "source"


def environments_folder() -> Path:
    """Return $RECALLBED_SYSTEMS, else recallbed/systems in the user's cache folder."""
    if named := os.environ.get("RECALLBED_SYSTEMS"):
        return Path(named).expanduser().absolute()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return cache / "recallbed" / "systems"


def installed(spec: ExternalSpec) -> Environment | None:
    """Return the environment of `spec`, None if it is missing, incomplete or of other pins.

    Systems with the same pins share one.
    """
    folder = _folder(spec)
    try:
        found = json.loads((folder / MANIFEST).read_text("utf-8"))
        if found.pop("pins") != _pins_hash(spec):
            return None
        environment = Environment(str(folder), **found)
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return environment if environment.python.exists() else None


def environment_of(spec: ExternalSpec) -> Environment:
    """Return the environment of `spec`. Raise UserError, with the command, if it is missing."""
    found = installed(spec)
    if found is None:
        source = " --source FOLDER" if spec.source else ""
        raise UserError(
            f"the memory system {spec.name} is not installed in {_folder(spec)}."
            f" Run: python -m memory_systems.install {spec.name}{source}"
        )
    return found


def install(
    spec: ExternalSpec,
    python: Path | None = None,
    source: Path | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> Environment:
    """Make the environment of `spec` anew; until it is complete, the system is not installed.

    `source` is a clone of `spec.source` that holds its commit. Raise UserError if the Python does
    not fit, or if the source or a package is missing.
    """
    from filelock import FileLock

    base = python_for(spec, python)
    _check_source(spec, source)
    folder = _folder(spec)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        started = time.monotonic()
        # An environment cannot be renamed, so it is made in its place; the manifest comes last.
        shutil.rmtree(folder, ignore_errors=True)
        report(f"{spec.name}: making an environment in {folder}")
        _output([str(base), "-m", "venv", str(folder)], f"{base} cannot make an environment")
        made = Environment(str(folder), spec.version, {}, "", 0, 0.0)
        if spec.source and source:
            _copy_source(spec.source.commit, source, made.source)
        pins = folder / "pins.txt"
        pins.write_text("\n".join(spec.requirements) + "\n", "utf-8")
        report(f"{spec.name}: installing {len(spec.requirements)} packages")
        words = ["-u", "-m", "pip", "install", "--disable-pip-version-check", "--no-deps", "-r"]
        with progress(spec.name, len(spec.requirements)) as advance:
            _output(
                [str(made.python), *words, str(pins)],
                f"{spec.name} cannot be installed",
                lambda line: advance(int(line.startswith("Collecting "))),
            )
        listed = _output(
            [str(made.python), "-I", "-c", _INVENTORY], f"{spec.name}: its packages are damaged"
        )
        made = Environment(
            str(folder),
            spec.version,
            {name: version for name, (version, _) in json.loads(listed).items()},
            hashlib.sha256((listed + _source_hash(made.source)).encode()).hexdigest(),
            round(_size(folder) / 10**6),
            round(time.monotonic() - started, 1),
        )
        kept = {key: value for key, value in asdict(made).items() if key != "folder"}
        write_atomically(
            folder / MANIFEST, json.dumps({"pins": _pins_hash(spec), **kept}, indent=1)
        )
    return made


def python_for(spec: ExternalSpec, named: Path | None) -> Path:
    """Return a Python that `spec` runs on: `named`, this one, or one on the PATH."""
    least = ".".join(map(str, spec.python))
    if named is not None:
        if _version_of(named) < spec.python:
            raise UserError(f"--python {named}: {spec.name} needs Python {least} or newer")
        return named
    if sys.version_info[:2] >= spec.python:
        return Path(sys.executable)
    major, first = spec.python
    for minor in range(first, first + 4):
        found = shutil.which(f"python{major}.{minor}")
        if found and _runs(Path(found)):
            return Path(found)
    raise UserError(
        f"{spec.name} needs Python {least} or newer, and none is on the PATH. Pass --python PATH"
    )


def _runs(python: Path) -> bool:
    try:
        _version_of(python)
    except UserError:  # a shim on the PATH whose version is not installed
        return False
    return True


def _version_of(python: Path) -> tuple[int, int]:
    asked = "import sys; print(*sys.version_info[:2])"
    found = _output([str(python), "-c", asked], f"--python {python}: cannot be run").split()
    if len(found) != 2 or not all(map(str.isdigit, found)):
        raise UserError(f"--python {python}: is not a Python interpreter")
    return int(found[0]), int(found[1])


def _check_source(spec: ExternalSpec, source: Path | None) -> None:
    if spec.source is None:
        if source is not None:
            raise UserError(f"--source {source}: {spec.name} is installed from packages only")
        return
    wanted = f"a clone of {spec.source.repository} with commit {spec.source.commit}"
    if source is None:
        raise UserError(f"{spec.name} is run from its source. Pass --source FOLDER, {wanted}")
    _output(["git", "-C", str(source), "rev-parse", "--git-dir"], f"--source {source}: no clone")
    commit = f"{spec.source.commit}^{{commit}}"
    _output(
        ["git", "-C", str(source), "rev-parse", "--quiet", "--verify", commit],
        f"--source {source}: is not {wanted}",
    )


def _copy_source(commit: str, clone: Path, target: Path) -> None:
    """Copy the files of a commit, whatever is checked out in the clone."""
    packed = target.with_suffix(".zip")
    _output(
        ["git", "-C", str(clone), "archive", "-o", str(packed), commit],
        f"--source {clone}: cannot be read",
    )
    with zipfile.ZipFile(packed) as archive:
        archive.extractall(target)
    packed.unlink()


def _source_hash(folder: Path) -> str:
    """Return a hash over names and contents; "" without a source."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and not file.is_symlink())
    digest = hashlib.sha256()
    for file in files:
        name = file.relative_to(folder).as_posix()
        digest.update(f"{name}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest() if files else ""


def _output(
    command: Sequence[str], fault: str, seen: Callable[[str], None] = lambda line: None
) -> str:
    """Return what the command wrote; each line is passed to `seen`.

    Raise UserError with `fault` and the last error that it reported, if any.
    """
    # Variables that point Python elsewhere would install into another environment.
    outside = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    lines: deque[str] = deque(maxlen=_LINES_KEPT)
    try:
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=outside,
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line)
                seen(line)
    except OSError as error:
        raise UserError(f"{fault} ({error.strerror})") from None
    if process.returncode:
        told = [line.strip() for line in lines if line.strip()]
        errors = [line for line in told if line.startswith(("ERROR", "fatal"))] or told
        none = any("(from versions: none)" in line for line in told)
        if none and any("connection broken" in line for line in told):  # pip's error misleads
            errors = ["the package registry cannot be reached"]
        raise UserError(f"{fault} ({errors[-1][:_SHOWN]})" if errors else fault)
    return "".join(lines)


def _folder(spec: ExternalSpec) -> Path:
    return environments_folder() / Path(spec.pins).stem


def _pins_hash(spec: ExternalSpec) -> str:
    commit = [spec.source.commit] if spec.source else []
    return hashlib.sha256("\n".join([*spec.requirements, *commit]).encode()).hexdigest()


def _size(folder: Path) -> int:
    """Return the bytes of all files; links are not followed."""
    return sum(file.lstat().st_size for file in folder.rglob("*") if not file.is_dir())
