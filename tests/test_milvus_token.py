"""The token of a Milvus server is sent only to an address that the user gave."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from indexes import search
from indexes.base import IndexingError, NotAnIndex, open_index
from indexes.files import write_index
from indexes.milvus import Milvus

pytest.importorskip("pymilvus")
import grpc

from tests.kit import run

TOKEN = "root:sesame-0123"
WIDTH = 16


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILVUS_TOKEN", TOKEN)


@contextmanager
def listening() -> Iterator[tuple[str, list[str]]]:
    """A server's address and every header that it was sent. It answers nothing."""
    headers: list[str] = []

    class Handler(grpc.GenericRpcHandler):
        def service(self, details: Any) -> None:
            headers.extend(f"{name}: {value}" for name, value in details.invocation_metadata)

    server = grpc.server(ThreadPoolExecutor(2), handlers=[Handler()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"http://127.0.0.1:{port}", headers
    finally:
        server.stop(None).wait()


def saved(path: Path, address: Any, **more: Any) -> Path:
    """A file that leads to a collection, as another person may have written it."""
    settings = {"address": address, "collection": "c", "structure": "HNSW", "effort": 512, **more}
    header = {"width": WIDTH, "model": "m", "metric": "inner product", "count": 0}
    write_index(path, "milvus", {**header, "settings": settings}, {}, ("pymilvus",))
    return path


def sent(headers: list[str]) -> bool:
    """Whether the token came, as pymilvus encodes it; the server was asked in any case."""
    assert headers
    return any(header.startswith("authorization:") for header in headers)


def test_a_token_goes_to_the_address_that_the_user_gave(tmp_path: Path) -> None:
    with listening() as (address, headers):
        with pytest.raises(IndexingError) as caught:
            len(Milvus(WIDTH, address=address, timeout=2))
        assert sent(headers)
        assert "sesame" not in str(caught.value)
    with listening() as (address, headers):
        with pytest.raises(IndexingError):
            open_index(saved(tmp_path / "index", address), address)
        assert sent(headers)


@pytest.mark.parametrize("given", [None, "http://127.0.0.1:9"])
def test_a_token_does_not_go_to_an_address_from_a_file(given: str | None, tmp_path: Path) -> None:
    with listening() as (address, headers):
        with pytest.raises(IndexingError, match="MILVUS_TOKEN was not sent") as caught:
            open_index(saved(tmp_path / "index", address, send_token=True), given)
        assert not sent(headers)
        assert "\n" not in str(caught.value)


def test_a_search_asks_for_the_address_again(tmp_path: Path) -> None:
    (tmp_path / "store.json").write_text('{"kind": "milvus", "count": 0, "model": "m"}')
    for more, comes in (([], False), (["--address"], True)):
        with listening() as (address, headers):
            saved(tmp_path / "index", address)
            words = [str(tmp_path), "tea", *more, *([address] if more else [])]
            result = run(search.app, *words)
            assert (result.exit_code, result.stderr.count("\n")) == (2, 1), result.stderr
            assert sent(headers) is comes
            assert ("was not sent" in result.stderr) is not comes


@pytest.mark.parametrize(
    "address",
    [
        "http://root:sesame@127.0.0.1:9",
        "http://127.0.0.1:9?token=sesame",
        "http://127.0.0.1:9/root:sesame-0123",
        "http://127.0.0.1:9/root%3Asesame-0123",
    ],
)
def test_an_address_with_a_token_in_it_is_refused(address: str, tmp_path: Path) -> None:
    path = saved(tmp_path / "index", address)
    for make in (lambda: Milvus(WIDTH, address=address), lambda: open_index(path)):
        with pytest.raises(IndexingError, match="MILVUS_TOKEN") as caught:
            make()
        assert "sesame" not in str(caught.value)


@pytest.mark.parametrize("address", [None, 7, ["http://127.0.0.1:9"]])
def test_a_header_of_another_shape_is_one_line(address: Any, tmp_path: Path) -> None:
    with pytest.raises((NotAnIndex, IndexingError)) as caught:
        open_index(saved(tmp_path / "index", address))
    assert "\n" not in str(caught.value)
