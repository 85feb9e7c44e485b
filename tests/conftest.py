import os
import stat
import tarfile
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests import kit
from tests.kit import ROOT, WriteRelease

os.environ["HF_HUB_OFFLINE"] = "1"
# No test depends on how fast the machine is.
settings.register_profile("any speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any speed")
if "PYTEST_XDIST_WORKER" not in os.environ:  # workers share what the process above them made
    # Never the user's own store; commands that the tests start share one.
    _cache = tempfile.TemporaryDirectory(prefix="recallbed-tests-")
    os.environ["RECALLBED_STORE"] = f"{_cache.name}/embeddings.sqlite"
    os.environ["RECALLBED_REPLIES"] = f"{_cache.name}/replies.sqlite"

# The longest first: else the last of them runs alone at the end, next to an idle worker.
LONGEST = """
    systems_contract docs published systems chat_local install exchange chat_options
    chat_passthrough rerank_faults fuzz_exchange bm25 encoder older_runs
    index_commands rerank_sweep milvus
    indexes minilm task1_run resume chat_limits task1_score fuzz faiss_retriever
    embedding_store task4 curves workers tokens wheel tracks run_folder rerank_models rerank
    task2_run users_code contract frontier damage validate hybrid
""".split()  # noqa: SIM905


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {f"test_{name}": number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


@pytest.fixture(scope="session")
def alpsbench() -> Path:
    """The real data: $ALPSBENCH_DATA, else the copy that lies beside a checkout."""
    named = os.environ.get("ALPSBENCH_DATA")
    root = Path(named) if named else ROOT.parent / "shared" / "alpsbench" / "benchmark_data"
    if not (root / "dev" / "task3" / "d100").is_dir():
        pytest.skip(f"no AlpsBench data at {root}; set ALPSBENCH_DATA")
    return root


@pytest.fixture(scope="session")
def flawed_sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded sample of earlier versions, in which stored ids and fields name the gold."""
    folder = tmp_path_factory.mktemp("flawed")
    with tarfile.open(ROOT / "tests" / "fixtures" / "older_runs" / "sample.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "sample"


@pytest.fixture
def write_release(tmp_path: Path) -> WriteRelease:
    """Write a small release into the test's folder: `kit.write_release` with its root given."""
    return partial(kit.write_release, tmp_path / "release")


@pytest.fixture(scope="session", autouse=True)
def _no_waiting_for_the_disk() -> Iterator[None]:
    """Do not wait until files written in this process reach the disk: no test cuts the power."""
    fsync = os.fsync

    def only_special(file: int) -> None:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            fsync(file)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", only_special)
        yield


@pytest.fixture(scope="session")
def quick_milvus() -> Iterator[None]:
    """Have pymilvus ask every 10 ms, not every 0.5 s, whether an index is built."""
    handler = pytest.importorskip("pymilvus.client.grpc_handler")
    clock = SimpleNamespace(**vars(time))
    clock.sleep = lambda seconds: time.sleep(min(seconds, 0.01))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(handler, "time", clock)
        yield


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every figure that is saved, as matplotlib holds it; the file is written all the same."""
    from matplotlib.figure import Figure

    figures: list[Any] = []
    save = Figure.savefig

    def spy(self: Figure, *args: Any, **options: Any) -> None:
        figures.append(self)
        save(self, *args, **options)

    monkeypatch.setattr(Figure, "savefig", spy)
    return figures
