"""Milvus as an index: a file of Milvus Lite, or a server or cluster by its address.

See docs/scale.md for when to use it and for the size of a cluster.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from typing_extensions import override

from indexes.base import (
    Hits,
    Ids,
    IndexingError,
    MutableIndex,
    NotAnIndex,
    RepeatedId,
    ServerUnavailable,
    UnknownId,
    Vectors,
    as_ids,
    as_k,
    as_vectors,
    check_texts,
    in_order,
    no_hits,
)
from indexes.files import read_header, write_index
from indexes.groups import digests
from indexes.tokens import MultilingualTokens
from recallbed.harness.secret import Secret

Structure = Literal["FLAT", "IVF_FLAT", "HNSW"]
MOST_HITS = 16_384
"""The largest k that Milvus accepts."""
LONGEST_TEXT = 65_535
"""Bytes of a text that a VARCHAR field holds."""
_BATCH, _BATCH_BYTES = 2_000, 16 * 2**20
"""Maximum rows and bytes of a message; a server accepts 64 MB."""
_BUILD = {"FLAT": {}, "IVF_FLAT": {"nlist": 1024}, "HNSW": {"M": 32, "efConstruction": 100}}
_FIELDS = {"vector": "IP", "sparse": "BM25"}
_SAVED = ("address", "collection", "structure", "effort")
_UNAVAILABLE = (
    *("should create connection first", "Fail connecting", "illegal connection params"),
    *("server unavailable", "UNAVAILABLE", "Open local milvus failed", "closed channel"),
)

# One client per address and process: a file of Milvus Lite belongs to one connection. One that
# sends the token is another.
_clients: dict[tuple[str, bool], Any] = {}


def _token() -> Secret:
    return Secret(os.environ.get("MILVUS_TOKEN", ""))


def _pymilvus() -> Any:
    try:
        import pymilvus
    except ImportError:
        raise IndexingError(
            "this index needs pymilvus. Run: pip install 'recallbed[index]'"
        ) from None
    for library in ("pymilvus", "milvus_lite"):  # they log what they raise
        logging.getLogger(library).setLevel(logging.CRITICAL)
    return pymilvus


class Milvus(MutableIndex[Vectors]):
    """A collection of vectors in Milvus, each with an optional text.

    `address` is a file name ending in .db (Milvus Lite, one process at a time) or a server's
    `http://host:port`. A token is read from $MILVUS_TOKEN and never written; with
    `send_token=False` it is not sent. `structure` is Milvus's index type for vectors, `effort` its
    ef or nprobe. Texts are searched by Milvus's BM25 over our tokens.

    Memories with equal vector and text are one row, the node, with the id of the first; the ids of
    the others are rows of a second collection, NAME_repeats, created when needed. Otherwise copies
    of a vector would disconnect a graph. A node whose own id is removed while others use it is
    marked there by the id -1 - node. A collection of an earlier version has a row for each id.

    Raises ServerUnavailable if nothing answers. Milvus chooses among equal scores at position k, so
    `exact` is not promised even for FLAT.
    """

    kind = "milvus"
    exact = False

    def __init__(
        self,
        width: int,
        model: str | None = None,
        address: str = "milvus.db",
        collection: str = "memories",
        structure: Structure = "HNSW",
        effort: int = 512,
        timeout: float = 10.0,
        send_token: bool = True,
    ) -> None:
        if structure not in _BUILD:
            raise IndexingError(f"structure {structure}: choose one of {', '.join(_BUILD)}")
        self.address, self._send_token = address, send_token and "://" in address
        if not self._local and (set("@?#") & set(address) or _token().shows_in(address)):
            raise IndexingError(
                "an address must not contain a password or token, since it is saved. Put"
                " user:password, or a token, into $MILVUS_TOKEN"
            )
        self.width, self.model, self.collection = width, model, collection
        self.structure, self.effort, self.timeout = structure, effort, timeout
        self.tokens = MultilingualTokens()
        self._known = False
        self._keyed = True  # whether the collection has keys to find a node by
        self._repeats = False  # whether there is a second collection

    # --- the connection

    def _call(self, method: str, *values: Any, **options: Any) -> Any:
        """Call a method of the client; connect again, once, if the connection was lost."""
        return self._ask(lambda client: getattr(client, method)(*values, **options))

    def _ask(self, ask: Callable[[Any], Any]) -> Any:
        failure = _pymilvus().MilvusException
        for last in (False, True):
            try:
                return ask(self._client())
            except failure as error:
                if "'released'" in str(error) and not last:  # as after a restart of the engine
                    self._client().load_collection(self.collection)
                    if self._repeats:
                        self._client().load_collection(self._others)
                    continue
                if not any(words in str(error) for words in _UNAVAILABLE):
                    raise IndexingError(
                        f"{self.address}: Milvus reports: {self._brief(error)}"
                    ) from None
                _clients.pop(self._place, None)
                self._known = False
                if last:
                    hint = ""
                    if self._local:  # version 2 of Milvus Lite kept a file, version 3 a folder
                        old = Path(self.address).is_file()
                        other = "it a database of another version of Milvus Lite"
                        hint = f" (or is {other if old else 'another process using it'}?)"
                    raise ServerUnavailable(
                        f"{self.address}: Milvus cannot be reached{hint}: {self._brief(error)}"
                    ) from None
        raise AssertionError

    @property
    def _local(self) -> bool:
        return "://" not in self.address

    @property
    def _place(self) -> tuple[str, bool]:
        return self.address, self._send_token

    def _client(self) -> Any:
        if self._place not in _clients:
            if self._local:
                _check_place(Path(self.address))
            token = _token().value if self._send_token else ""
            try:
                _clients[self._place] = _pymilvus().MilvusClient(
                    self.address, token=token, timeout=self.timeout
                )
            except (OSError, RuntimeError, ValueError) as error:
                raise ServerUnavailable(
                    f"{self.address}: cannot be opened ({self._brief(error)})"
                ) from None
        return _clients[self._place]

    def _brief(self, error: Exception) -> str:
        """The message of an error without the token, and why the token may not have been sent."""
        line = " ".join(str(getattr(error, "message", None) or error).split())
        brief = _token().masked(line)[:200]
        if self._local or self._send_token or not _token().value:
            return brief
        return (
            f"{brief}. $MILVUS_TOKEN was not sent, because the address was read from a file. If you"
            " trust it, give it with --address"
        )

    def close(self) -> None:
        """Release the file or the connection; the next call opens it again."""
        client = _clients.pop(self._place, None)
        if client is None:
            return
        client.close()
        if self._local:  # a client leaves its engine, and the lock on the file, behind
            from milvus_lite.server_manager import server_manager_instance

            server_manager_instance.release_server(self.address)

    def _exists(self) -> bool:
        """Whether the collection exists; the first `add` creates it."""
        if not self._known:
            self._known = bool(self._call("has_collection", self.collection))
            if self._known:
                self._ask(self._check_width)
        return self._known

    def _check_width(self, client: Any) -> None:
        fields = client.describe_collection(self.collection)["fields"]
        [vector] = [f for f in fields if f["name"] == "vector"] or [{}]
        width = vector.get("params", {}).get("dim")
        if width != self.width:
            raise NotAnIndex(
                f"{self.address}: the collection `{self.collection}` holds vectors of width"
                f" {width}, not {self.width}. Give another collection"
            )
        client.load_collection(self.collection)
        self._keyed = any(field["name"] == "key" for field in fields)
        self._repeats = self._keyed and bool(client.has_collection(self._others))
        if self._repeats:
            client.load_collection(self._others)

    @property
    def _others(self) -> str:
        return f"{self.collection}_repeats"

    def _make_others(self, client: Any) -> None:
        kinds = _pymilvus().DataType
        schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("id", kinds.INT64, is_primary=True)
        schema.add_field("node", kinds.INT64)
        schema.add_field("unused", kinds.FLOAT_VECTOR, dim=2)  # Milvus wants a vector
        indexes = client.prepare_index_params()
        indexes.add_index("unused", index_type="FLAT", metric_type="IP")
        client.create_collection(
            self._others, schema=schema, index_params=indexes, consistency_level="Strong"
        )
        self._repeats = True

    def _make(self, client: Any) -> None:
        pymilvus = _pymilvus()
        kinds = pymilvus.DataType
        schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("id", kinds.INT64, is_primary=True)
        schema.add_field("vector", kinds.FLOAT_VECTOR, dim=self.width)
        schema.add_field("key", kinds.VARCHAR, max_length=32)
        schema.add_field("text", kinds.VARCHAR, max_length=LONGEST_TEXT)
        words = {"enable_analyzer": True, "analyzer_params": {"tokenizer": "standard"}}
        schema.add_field("terms", kinds.VARCHAR, max_length=LONGEST_TEXT, **words)
        schema.add_field("sparse", kinds.SPARSE_FLOAT_VECTOR)
        bm25 = pymilvus.Function("bm25", pymilvus.FunctionType.BM25, ["terms"], ["sparse"])
        schema.add_function(bm25)
        indexes = client.prepare_index_params()
        for field, structure, parameters in (
            ("vector", self.structure, _BUILD[self.structure]),
            ("sparse", "SPARSE_INVERTED_INDEX", {"bm25_k1": 1.5, "bm25_b": 0.75}),
        ):
            indexes.add_index(field, structure, metric_type=_FIELDS[field], params=parameters)
        client.create_collection(
            self.collection, schema=schema, index_params=indexes, consistency_level="Strong"
        )
        self._known = self._keyed = True
        self._repeats = False

    # --- contents

    def __len__(self) -> int:
        if not self._exists():
            return 0
        nodes = self._count(self.collection, "id >= 0")
        if not self._repeats:
            return nodes
        others, marked = (self._count(self._others, f"id {sign} 0") for sign in (">=", "<"))
        return nodes + others - marked

    def _count(self, collection: str, which: str) -> int:
        found = self._call("query", collection, filter=which, output_fields=["count(*)"])
        return int(found[0]["count(*)"])

    def add(self, ids: ArrayLike, items: Vectors, texts: Sequence[str] | None = None) -> None:
        """Add vectors, and their texts for `search_text` and `search_hybrid`.

        Everything is checked before anything is sent. Rows are sent in several messages; if the
        server fails between two, the earlier ones are deleted if it still answers.
        """
        vectors = as_vectors(items, self.width, model=self.model)
        given = as_ids(ids, len(vectors))
        kept = [""] * len(given) if texts is None else texts
        check_texts(kept)
        if len(kept) != len(given):
            raise IndexingError(f"{len(kept)} texts for {len(given)} ids")
        terms = [self._terms(text) for text in kept]
        sizes = [
            _size(i, text, words) for i, (text, words) in enumerate(zip(kept, terms, strict=True))
        ]
        if not len(given):
            return
        held = self.held(given)
        if held:
            raise RepeatedId(f"id {min(held)} is in the index already. Remove it first")
        if not self._exists():
            self._ask(self._make)
        keys = [_key(vector, text) for vector, text in zip(vectors, kept, strict=True)]
        nodes, there = self._nodes(given, keys)
        sent: list[int] = []
        try:
            first = {node: i for i, node in reversed(list(enumerate(nodes))) if node not in there}
            new = sorted(first.values())
            for part in _messages([4 * self.width + sizes[i] for i in new]):
                rows = [
                    {"id": nodes[i], "vector": vectors[i], "text": kept[i], "terms": terms[i]}
                    | ({"key": keys[i]} if self._keyed else {})
                    for i in (new[j] for j in part)
                ]
                sent += [row["id"] for row in rows]  # before: a reply may get lost
                # An upsert that is sent again after a lost reply changes nothing.
                self._call("upsert", self.collection, rows)
            repeats = {int(i): node for i, node in zip(given, nodes, strict=True) if i != node}
            sent += repeats
            self._mark(repeats)
            back = [-1 - int(i) for i, node in zip(given, nodes, strict=True) if i == node]
            if self._repeats:  # a node whose own id is added again
                self._delete(self._others, back)
        except BaseException:
            if sent:
                self._delete(self.collection, sent)
                if self._repeats:
                    self._delete(self._others, sent)
            raise

    def _nodes(self, given: Ids, keys: Sequence[str]) -> tuple[list[int], set[int]]:
        """The node of each id, and the nodes that already exist."""
        if not self._keyed:
            return [int(i) for i in given], set()
        known: dict[str, int] = {}
        for part in _parts(sorted(set(keys)), _BATCH):
            which = f"key in {json.dumps(part)}"
            rows = self._call("query", self.collection, filter=which, output_fields=["id", "key"])
            known |= {row["key"]: int(row["id"]) for row in rows}
        there = set(known.values())
        taken = self._rows_of(self.collection, given.tolist()) if self._repeats else {}
        for number, key in zip(given.tolist(), keys, strict=True):
            # A new node cannot have the id of a node that others still use.
            free = number not in taken
            known.setdefault(key, number if free else -2 - secrets.randbelow(2**62))
        return [known[key] for key in keys], there

    def _mark(self, nodes: Mapping[int, int]) -> None:
        """Store repeated ids with their nodes, or marks of nodes without their own id."""
        if nodes and not self._repeats:
            self._ask(self._make_others)
        for part in _parts(list(nodes), _BATCH):
            rows = [{"id": i, "node": nodes[i], "unused": [0.0, 0.0]} for i in part]
            self._call("upsert", self._others, rows)

    @override
    def remove(self, ids: ArrayLike) -> None:
        given = as_ids(ids, np.size(ids))
        unknown = set(given.tolist()) - self.held(given)
        if unknown:
            raise UnknownId(f"id {min(unknown)} is not in the index")
        gone = given.tolist()
        if not self._repeats:
            self._delete(self.collection, gone)
            return
        behind = self._rows_of(self._others, gone)
        own = [i for i in gone if i not in behind]
        self._mark({-1 - node: node for node in own})
        self._delete(self._others, list(behind))
        touched = sorted({*own, *(int(row["node"]) for row in behind.values())})
        left = {node for node, found in self._behind(touched, 1).items() if found}
        marked = self._rows_of(self._others, [-1 - node for node in touched])
        empty = [n for n in touched if n not in left and (n < 0 or -1 - n in marked)]
        self._delete(self.collection, empty)
        self._delete(self._others, [-1 - node for node in empty])

    def _behind(self, nodes: Sequence[int], most: int) -> dict[int, list[int]]:
        """Repeated ids of each node, without its own; all, or at least `most` of them."""
        found: dict[int, list[int]] = {node: [] for node in nodes}
        for part in _parts(nodes, _BATCH):
            rows = self._query_repeats(f"id >= 0 and node in {part}", MOST_HITS)
            if len(rows) == MOST_HITS:  # possibly not all
                each = [self._query_repeats(f"id >= 0 and node == {node}", most) for node in part]
                rows = sum(each, [])
            for row in rows:
                found[int(row["node"])].append(int(row["id"]))
        return found

    def _query_repeats(self, which: str, limit: int) -> list[Any]:
        fields = ["id", "node"]
        found = self._call("query", self._others, filter=which, output_fields=fields, limit=limit)
        return list(found)

    def _delete(self, collection: str, ids: Sequence[int]) -> None:
        for part in _parts(ids, _BATCH):
            self._call("delete", collection, ids=part)

    def _rows_of(
        self, collection: str, ids: Sequence[int], fields: Sequence[str] = ("id",)
    ) -> dict[int, Any]:
        """The rows of a collection with these ids, by id."""
        asked = ["id", "node"] if collection == self._others else list(fields)
        found: dict[int, Any] = {}
        for part in _parts(ids, _BATCH):
            rows = self._call("get", collection, ids=part, output_fields=asked)
            found |= {int(row["id"]): row for row in rows}
        return found

    def held(self, ids: ArrayLike) -> set[int]:
        """Return the subset of `ids` that the collection holds, so that a copy can be resumed."""
        asked = as_ids(ids, np.size(ids)).tolist()
        if not self._exists():
            return set()
        found = set(self._rows_of(self.collection, asked))
        if self._repeats:
            found -= {-1 - i for i in self._rows_of(self._others, [-1 - i for i in found])}
            found |= set(self._rows_of(self._others, asked))
        return found

    def rows(self, ids: Sequence[int]) -> dict[int, tuple[str, Vectors]]:
        """Return text and vector, (width,), of those of `ids` that the collection holds."""
        held = self.held(ids)
        node = {i: i for i in held}
        if self._repeats:
            behind = self._rows_of(self._others, sorted(held))
            node |= {i: int(row["node"]) for i, row in behind.items()}
        fields = ("id", "text", "vector")
        found = self._rows_of(self.collection, sorted(set(node.values())), fields)
        return {
            i: (found[n]["text"], np.asarray(found[n]["vector"], np.float32))
            for i, n in node.items()
        }

    # --- search

    @override
    def search(self, queries: Vectors, k: int) -> list[Hits]:
        asked = as_vectors(queries, self.width, "query vector", self.model)
        return self._search("vector", asked, k)

    def search_text(self, queries: Sequence[str], k: int) -> list[Hits]:
        """Return the best `k` texts for each query by BM25, of those that share a term with it."""
        check_texts(queries)
        terms = [self._terms(query) for query in queries]
        found = iter(self._search("sparse", [words for words in terms if words], k))
        return [next(found) if words else no_hits() for words in terms]

    def search_hybrid(
        self,
        vectors: Vectors,
        texts: Sequence[str],
        k: int,
        rrf_k: int = 60,
        weights: tuple[float, float] | None = None,
    ) -> list[Hits]:
        """Return the best `k` of vector and text search, fused by Milvus.

        By reciprocal ranks; with `weights` (vector, text) from 0 to 1, by the weighted sum of the
        scores, each mapped into 0 to 1 by Milvus (an arctangent).
        """
        pymilvus = _pymilvus()
        if weights is not None and not all(0 <= weight <= 1 for weight in weights):
            raise IndexingError(f"weights {weights}: each must be from 0 to 1")
        if weights is None:
            ranker = pymilvus.RRFRanker(rrf_k)
        else:
            ranker = pymilvus.WeightedRanker(*weights, norm_score=True)
        asked = as_vectors(vectors, self.width, "query vector", self.model)
        check_texts(texts)
        if len(asked) != len(texts):
            raise IndexingError(f"{len(asked)} query vectors for {len(texts)} texts")
        wanted = self._most(k)
        if not wanted:
            return [no_hits() for _ in asked]
        found, request = [], pymilvus.AnnSearchRequest
        for vector, text in zip(asked, texts, strict=True):
            words = self._terms(text)
            if not words:
                found += self.search(vector[None], k)
                continue
            requests = [
                request([vector], "vector", self._parameters("vector", wanted), wanted),
                request([words], "sparse", self._parameters("sparse", wanted), wanted),
            ]
            more = {"ranker": ranker, "limit": wanted, "output_fields": ["id"]}
            [rows] = self._call("hybrid_search", self.collection, requests, **more)
            found += self._ids_of([_hits(rows, wanted)], wanted)
        return found

    def _search(self, field: str, asked: Any, k: int) -> list[Hits]:
        wanted = self._most(k)
        if not wanted:
            return [no_hits() for _ in asked]
        found: list[Hits] = []
        for part in _parts(asked, max(1, 200_000 // wanted)):
            rows = self._call(
                "search",
                self.collection,
                data=part,
                anns_field=field,
                output_fields=["id"],
                limit=wanted,
                search_params=self._parameters(field, wanted),
            )
            nodes = [_hits(one, wanted, lexical=field == "sparse") for one in rows]
            found += self._ids_of(nodes, wanted)
        return found

    def _ids_of(self, found: Sequence[Hits], k: int) -> list[Hits]:
        """Hits by id, made of hits by node; at most `k` for each query."""
        if not self._repeats:
            return list(found)
        nodes = sorted({int(node) for hits in found for node in hits.ids})
        behind = self._behind(nodes, k)
        marks = self._rows_of(self._others, [-1 - node for node in nodes])
        for node in nodes:
            if node >= 0 and -1 - node not in marks:
                behind[node].append(node)
        return [
            in_order(
                np.array([i for node in hits.ids.tolist() for i in behind[node]], np.int64),
                np.repeat(hits.scores, [len(behind[node]) for node in hits.ids.tolist()]),
                k,
            )
            for hits in found
        ]

    def _most(self, k: int) -> int:
        if as_k(k) > MOST_HITS:
            raise IndexingError(f"k {k}: Milvus returns at most {MOST_HITS} hits")
        return int(k) if self._exists() else 0

    def _parameters(self, field: str, k: int) -> dict[str, Any]:
        effort = {"HNSW": {"ef": max(self.effort, k)}, "IVF_FLAT": {"nprobe": self.effort}}
        chosen = effort.get(self.structure, {}) if field == "vector" else {}
        return {"metric_type": _FIELDS[field], "params": chosen}

    def _terms(self, text: str) -> str:
        """Our tokens, spelled so that Milvus's standard tokenizer does not split them."""
        tokens = self.tokens(text)
        return " ".join(
            token if token.isascii() and token.isalnum() else f"u{token.encode().hex()}"
            for token in tokens.content or tokens.every
        )

    # --- as a file

    @override
    def save(self, path: Path) -> None:
        self._exists()
        address = self.address
        if self._local and Path(address).resolve().parent == path.resolve().parent:
            address = Path(address).name  # so that the folder may be moved as a whole
        header = {
            **{"width": self.width, "model": self.model, "metric": "inner product"},
            "count": len(self),
            "settings": {**{name: getattr(self, name) for name in _SAVED}, "address": address},
        }
        write_index(path, self.kind, header, {}, ("pymilvus",))

    @classmethod
    def load(cls, path: Path, address: str | None = None) -> Self:
        """Open the collection recorded in `path`. See `open_index` for `address`."""
        header = read_header(path)
        if header["kind"] != cls.kind:
            raise NotAnIndex(f"{path}: an index of kind {header['kind']}, not {cls.kind}")
        try:
            settings = {name: header["settings"][name] for name in _SAVED}
            named = settings["address"]
            if not (isinstance(named, str) and isinstance(settings["collection"], str)):
                raise TypeError("address and collection must be strings")
            if "://" not in named and not Path(named).is_absolute():
                settings["address"] = str(path.parent / named)
            index = cls(header["width"], header["model"], **settings, send_token=named == address)
        except (KeyError, TypeError) as error:
            raise NotAnIndex(f"{path}: not the header of a Milvus index ({error})") from None
        if not index._exists():
            raise NotAnIndex(f"{path}: no collection `{index.collection}` at {index.address}")
        return index


def _key(vector: Vectors, text: str) -> str:
    """The identity of a node: a digest of vector and text."""
    [digest] = digests(vector[None])
    return hashlib.blake2b(
        bytes(digest).ljust(16, b"\0") + text.encode(), digest_size=16
    ).hexdigest()


def _size(number: int, text: str, terms: str) -> int:
    """The bytes of a text and its terms. Raises IndexingError if Milvus cannot hold them."""
    try:
        sizes = len(text.encode()), len(terms.encode())
    except UnicodeEncodeError:
        raise IndexingError(f"text {number} contains a lone surrogate") from None
    if max(sizes) > LONGEST_TEXT:
        raise IndexingError(
            f"text {number} has {max(sizes)} bytes, and Milvus accepts {LONGEST_TEXT}. Shorten it"
        )
    return sum(sizes)


def _messages(sizes: Sequence[int]) -> Iterator[range]:
    """Split rows of these sizes in bytes into messages."""
    start, held = 0, 0
    for i, size in enumerate(sizes):
        if i > start and (held + size > _BATCH_BYTES or i - start == _BATCH):
            yield range(start, i)
            start, held = i, 0
        held += size
    if start < len(sizes):
        yield range(start, len(sizes))


def _parts(asked: Any, size: int) -> Iterator[Any]:
    for start in range(0, len(asked), size):
        yield list(asked[start : start + size])


def _hits(rows: Any, k: int, lexical: bool = False) -> Hits:
    ids = np.array([row["id"] for row in rows], np.int64)
    scores = np.array([row["distance"] for row in rows], np.float32)
    # Milvus Lite returns BM25 as a negative distance, a server as a score.
    return in_order(ids, np.abs(scores) if lexical else scores, k)


def _check_place(path: Path) -> None:
    """Raise IndexingError or NotAnIndex if Milvus Lite cannot keep its folder at `path`."""
    if path.suffix != ".db":
        raise IndexingError(f"{path}: a file of Milvus Lite must end in .db")
    if path.is_file():
        with path.open("rb") as stream:
            if stream.read(23) == b"version https://git-lfs":
                raise NotAnIndex(f"{path}: this is a Git LFS pointer. Fetch it with git lfs")
