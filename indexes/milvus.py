"""A vector database behind the contract of an index: Milvus, embedded or a cluster.

The same code serves a file of Milvus Lite and the address of a server. It is the way past one
machine: docs/scale.md says when, how, and what a cluster of which size holds.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from typing_extensions import override

from indexes.base import (
    Hits,
    Ids,
    MutableIndex,
    Vectors,
    as_ids,
    as_k,
    as_vectors,
    check_texts,
    in_order,
    refuse_filled,
)
from indexes.errors import IndexingError, NotAnIndex, RepeatedId, ServerUnavailable, UnknownId
from indexes.files import read_header, write_index
from indexes.groups import digests
from indexes.tokens import MultilingualTokens
from recallbed.harness.secret import Secret

Structure = Literal["FLAT", "IVF_FLAT", "HNSW"]
MOST_HITS = 16_384
"""The largest k that Milvus takes."""
LONGEST_TEXT = 65_535
"""Bytes of a text that a VARCHAR field holds."""
_BATCH, _BATCH_BYTES = 2_000, 16 * 2**20
"""Rows and bytes that one message carries at most; a server takes 64 MB."""
_BUILD = {"FLAT": {}, "IVF_FLAT": {"nlist": 1024}, "HNSW": {"M": 32, "efConstruction": 100}}
_FIELDS = {"vector": "IP", "sparse": "BM25"}
_SAVED = ("address", "collection", "structure", "effort")
_AWAY = (
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
    """A collection of vectors, each with a text if one is given, in Milvus.

    `address` is a file name ending in .db (Milvus Lite, of one process at a time) or a server's
    `http://host:port`; a token comes from $MILVUS_TOKEN, is written nowhere, and with
    `send_token=False` is not sent. `structure` is what
    Milvus searches vectors by; `effort` its ef or nprobe. Texts are searched by Milvus's own BM25
    over the house's tokens.

    Memories with one vector and one text are one row, the node, with the id of the first; the
    others' ids are rows of a second collection, NAME_repeats, made when it is needed. Otherwise
    copies of a vector would cut a graph apart. A node whose own id is removed while others have it
    is marked there by the id -1 - node. A collection of an earlier version has a row for each id.

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
                "an address with a password or a token in it would be written down. Put"
                " user:password, or a token, into $MILVUS_TOKEN"
            )
        self.width, self.model, self.collection = width, model, collection
        self.structure, self.effort, self.timeout = structure, effort, timeout
        self.tokens = MultilingualTokens()
        self._known = False
        self._keyed = True  # whether the collection has keys to find a node by
        self._repeats = False  # whether there is a second collection

    # --- the connection

    def _call(self, ask: Callable[[Any], Any]) -> Any:
        """Ask the server; connect anew, once, where the connection was lost."""
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
                if not any(words in str(error) for words in _AWAY):
                    raise IndexingError(
                        f"{self.address}: Milvus says: {self._brief(error)}"
                    ) from None
                _clients.pop(self._place, None)
                self._known = False
                if last:
                    hint = _doubt(Path(self.address)) if self._local else ""
                    raise ServerUnavailable(
                        f"{self.address}: Milvus can't be reached{hint}: {self._brief(error)}"
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
                    f"{self.address}: can't be opened ({self._brief(error)})"
                ) from None
        return _clients[self._place]

    def _brief(self, error: Exception) -> str:
        """What an error says, without the token, and why that may not have been sent."""
        words = " ".join(str(getattr(error, "message", None) or error).split())
        brief = _token().masked(words)[:200]
        if self._local or self._send_token or not _token().value:
            return brief
        return (
            f"{brief}. $MILVUS_TOKEN was not sent, since a file names this address. If it is yours,"
            " give it with --address"
        )

    def close(self) -> None:
        """Give the file, or the connection, free; the next call opens it again."""
        client = _clients.pop(self._place, None)
        if client is None:
            return
        client.close()
        if self._local:  # a client leaves its engine, and the lock on the file, behind
            from milvus_lite.server_manager import server_manager_instance

            server_manager_instance.release_server(self.address)

    def _there(self) -> bool:
        """Whether the collection exists; it is made by the first `add`."""
        if not self._known:
            self._known = bool(self._call(lambda c: c.has_collection(self.collection)))
            if self._known:
                self._call(self._check_width)
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
        schema.add_field(
            "terms",
            kinds.VARCHAR,
            max_length=LONGEST_TEXT,
            enable_analyzer=True,
            analyzer_params={"tokenizer": "standard"},
        )
        schema.add_field("sparse", kinds.SPARSE_FLOAT_VECTOR)
        bm25 = pymilvus.Function("bm25", pymilvus.FunctionType.BM25, ["terms"], ["sparse"])
        schema.add_function(bm25)
        indexes = client.prepare_index_params()
        indexes.add_index(
            "vector", index_type=self.structure, metric_type="IP", params=_BUILD[self.structure]
        )
        indexes.add_index(
            "sparse",
            index_type="SPARSE_INVERTED_INDEX",
            metric_type="BM25",
            params={"bm25_k1": 1.5, "bm25_b": 0.75},
        )
        client.create_collection(
            self.collection, schema=schema, index_params=indexes, consistency_level="Strong"
        )
        self._known = self._keyed = True
        self._repeats = False

    # --- contents

    def __len__(self) -> int:
        if not self._there():
            return 0
        nodes = self._count(self.collection, "id >= 0")
        if not self._repeats:
            return nodes
        others, marked = (self._count(self._others, f"id {sign} 0") for sign in (">=", "<"))
        return nodes + others - marked

    def _count(self, collection: str, which: str) -> int:
        found = self._call(partial(_query, collection, which, ["count(*)"], None))
        return int(found[0]["count(*)"])

    @override
    def build(self, ids: ArrayLike, items: Vectors) -> None:
        refuse_filled(self)
        self.add(ids, items)

    def add(self, ids: ArrayLike, items: Vectors, texts: Sequence[str] | None = None) -> None:
        """Take up more vectors, and their texts for `search_text` and `search_hybrid`.

        What can be checked is checked before anything is sent. Rows go in several messages; where
        the server fails between two, those before are taken back, as far as it still answers.
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
        held = self._held(given)
        if held:
            raise RepeatedId(f"id {min(held)} is in the index already. Remove it first")
        if not self._there():
            self._call(self._make)
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
                sent += [row["id"] for row in rows]  # before: an answer may get lost
                # Upserting, a message that is sent again after a lost answer changes nothing.
                self._call(partial(_upsert, self.collection, rows))
            repeats = {int(i): node for i, node in zip(given, nodes, strict=True) if i != node}
            sent += repeats
            self._mark(repeats)
            back = [-1 - int(i) for i, node in zip(given, nodes, strict=True) if i == node]
            if self._repeats:  # a node whose own id comes back
                self._delete(self._others, back)
        except BaseException:
            if sent:
                self._delete(self.collection, sent)
                if self._repeats:
                    self._delete(self._others, sent)
            raise

    def _nodes(self, given: Ids, keys: Sequence[str]) -> tuple[list[int], set[int]]:
        """The node of each id, and which nodes are there already."""
        if not self._keyed:
            return [int(i) for i in given], set()
        known: dict[str, int] = {}
        for part in _parts(sorted(set(keys)), _BATCH):
            which = f"key in {json.dumps(part)}"
            rows = self._call(partial(_query, self.collection, which, ["id", "key"], None))
            known |= {row["key"]: int(row["id"]) for row in rows}
        there = set(known.values())
        taken = self._rows_of(self.collection, given.tolist()) if self._repeats else {}
        for number, key in zip(given.tolist(), keys, strict=True):
            # The id of a node that others still have can't be that of a new one.
            free = number not in taken
            known.setdefault(key, number if free else -2 - secrets.randbelow(2**62))
        return [known[key] for key in keys], there

    def _mark(self, nodes: Mapping[int, int]) -> None:
        """Write ids behind their nodes, or marks of nodes without their own id."""
        if nodes and not self._repeats:
            self._call(self._make_others)
        for part in _parts(list(nodes), _BATCH):
            rows = [{"id": i, "node": nodes[i], "unused": [0.0, 0.0]} for i in part]
            self._call(partial(_upsert, self._others, rows))

    @override
    def remove(self, ids: ArrayLike) -> None:
        given = as_ids(ids, np.size(ids))
        unknown = set(given.tolist()) - self._held(given)
        if unknown:
            raise UnknownId(f"id {min(unknown)} is not in the index")
        self._forget(given.tolist())

    def _forget(self, ids: list[int]) -> None:
        if not self._repeats:
            self._delete(self.collection, ids)
            return
        behind = self._rows_of(self._others, ids)
        own = [i for i in ids if i not in behind]
        self._mark({-1 - node: node for node in own})
        self._delete(self._others, list(behind))
        touched = sorted({*own, *(int(row["node"]) for row in behind.values())})
        left = {node for node, found in self._behind(touched, 1).items() if found}
        marked = self._rows_of(self._others, [-1 - node for node in touched])
        empty = [n for n in touched if n not in left and (n < 0 or -1 - n in marked)]
        self._delete(self.collection, empty)
        self._delete(self._others, [-1 - node for node in empty])

    def _behind(self, nodes: Sequence[int], most: int) -> dict[int, list[int]]:
        """Ids behind each node, its own left out; all, or at least `most` of them."""
        found: dict[int, list[int]] = {node: [] for node in nodes}
        for part in _parts(nodes, _BATCH):
            which = f"id >= 0 and node in {part}"
            rows = self._call(partial(_query, self._others, which, ["id", "node"], MOST_HITS))
            if len(rows) == MOST_HITS:  # maybe not all
                rows = []
                for node in part:
                    which = f"id >= 0 and node == {node}"
                    ask = partial(_query, self._others, which, ["id", "node"], most)
                    rows += self._call(ask)
            for row in rows:
                found[int(row["node"])].append(int(row["id"]))
        return found

    def _delete(self, collection: str, ids: Sequence[int]) -> None:
        for part in _parts(ids, _BATCH):
            self._call(partial(_delete, collection, part))

    def _rows_of(
        self, collection: str, ids: Sequence[int], fields: Sequence[str] = ("id",)
    ) -> dict[int, Any]:
        """The rows of those of `ids` that a collection holds, by id."""
        asked = ["id", "node"] if collection == self._others else list(fields)
        found: dict[int, Any] = {}
        for part in _parts(ids, _BATCH):
            rows = self._call(partial(_get, collection, part, asked))
            found |= {int(row["id"]): row for row in rows}
        return found

    def _held(self, ids: Ids) -> set[int]:
        """Which of `ids` the collection holds."""
        if not self._there():
            return set()
        found = set(self._rows_of(self.collection, ids.tolist()))
        if self._repeats:
            found -= {-1 - i for i in self._rows_of(self._others, [-1 - i for i in found])}
            found |= set(self._rows_of(self._others, ids.tolist()))
        return found

    def held(self, ids: ArrayLike) -> set[int]:
        """Which of `ids` the collection holds, for a copy that goes on where it stopped."""
        return self._held(as_ids(ids, np.size(ids)))

    def rows(self, ids: Sequence[int]) -> dict[int, tuple[str, Vectors]]:
        """Text and vector, (width,), of those of `ids` that are there."""
        held = self._held(np.asarray(ids, np.int64)) if len(ids) else set()
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
        """The best `k` texts for each query by BM25; only those that share a term with it."""
        check_texts(queries)
        terms = [self._terms(query) for query in queries]
        found = iter(self._search("sparse", [words for words in terms if words], k))
        nothing = Hits(np.empty(0, np.int64), np.empty(0, np.float32))
        return [next(found) if words else nothing for words in terms]

    def search_hybrid(
        self,
        vectors: Vectors,
        texts: Sequence[str],
        k: int,
        rrf_k: int = 60,
        weights: tuple[float, float] | None = None,
    ) -> list[Hits]:
        """The best `k` of vector and text search together, fused by Milvus.

        By reciprocal ranks, or, with `weights` from 0 to 1 of the vector's and the text's score,
        by the weighted sum of both, each mapped into 0 to 1 by Milvus (an arctangent).
        """
        pymilvus = _pymilvus()
        if weights is not None and not all(0 <= weight <= 1 for weight in weights):
            raise IndexingError(f"weights {weights}: each must be from 0 to 1")
        ranker = (
            pymilvus.RRFRanker(rrf_k)
            if weights is None
            else pymilvus.WeightedRanker(*weights, norm_score=True)
        )
        asked = as_vectors(vectors, self.width, "query vector", self.model)
        check_texts(texts)
        if len(asked) != len(texts):
            raise IndexingError(f"{len(asked)} query vectors for {len(texts)} texts")
        wanted = self._most(k)
        if not wanted:
            return [Hits(np.empty(0, np.int64), np.empty(0, np.float32)) for _ in asked]
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
            [rows] = self._call(partial(_hybrid, self.collection, requests, more))
            found += self._ids_of([_hits(rows, wanted)], wanted)
        return found

    def _search(self, field: str, asked: Any, k: int) -> list[Hits]:
        wanted = self._most(k)
        if not wanted:
            return [Hits(np.empty(0, np.int64), np.empty(0, np.float32)) for _ in asked]
        found: list[Hits] = []
        for part in _parts(asked, max(1, 200_000 // wanted)):
            more = {"limit": wanted, "search_params": self._parameters(field, wanted)}
            rows = self._call(partial(_search, self.collection, field, part, more))
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
            raise IndexingError(f"k {k}: Milvus gives {MOST_HITS} hits at most")
        return int(k) if self._there() else 0

    def _parameters(self, field: str, k: int) -> dict[str, Any]:
        effort = {"HNSW": {"ef": max(self.effort, k)}, "IVF_FLAT": {"nprobe": self.effort}}
        chosen = effort.get(self.structure, {}) if field == "vector" else {}
        return {"metric_type": _FIELDS[field], "params": chosen}

    def _terms(self, text: str) -> str:
        """The house's tokens, spelt so that Milvus's standard tokenizer leaves each whole."""
        tokens = self.tokens(text)
        return " ".join(
            token if token.isascii() and token.isalnum() else f"u{token.encode().hex()}"
            for token in tokens.content or tokens.every
        )

    # --- as a file

    @override
    def save(self, path: Path) -> None:
        self._there()
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
        """The collection that `path` leads to. See `open_index` for `address`."""
        header = read_header(path)
        if header["kind"] != cls.kind:
            raise NotAnIndex(f"{path}: an index of kind {header['kind']}, not {cls.kind}")
        try:
            settings = {name: header["settings"][name] for name in _SAVED}
            named = settings["address"]
            if not (isinstance(named, str) and isinstance(settings["collection"], str)):
                raise TypeError("address and collection must be texts")
            if "://" not in named and not Path(named).is_absolute():
                settings["address"] = str(path.parent / named)
            index = cls(header["width"], header["model"], **settings, send_token=named == address)
        except (KeyError, TypeError) as error:
            raise NotAnIndex(f"{path}: its header is not one of this index ({error})") from None
        if not index._there():
            raise NotAnIndex(
                f"{path}: there is no collection `{index.collection}` at {index.address}"
            )
        return index


# What is asked of a client, as functions that can be asked again after a lost connection.


def _upsert(collection: str, rows: list[dict[str, Any]], client: Any) -> Any:
    return client.upsert(collection, rows)


def _delete(collection: str, ids: list[int], client: Any) -> Any:
    return client.delete(collection, ids=ids)


def _get(collection: str, ids: list[int], fields: list[str], client: Any) -> Any:
    return client.get(collection, ids=ids, output_fields=fields)


def _query(collection: str, which: str, fields: list[str], limit: int | None, client: Any) -> Any:
    more = {} if limit is None else {"limit": limit}
    return client.query(collection, filter=which, output_fields=fields, **more)


def _key(vector: Vectors, text: str) -> str:
    """What tells a node from others: a digest of vector and text."""
    [digest] = digests(vector[None])
    return hashlib.blake2b(
        bytes(digest).ljust(16, b"\0") + text.encode(), digest_size=16
    ).hexdigest()


def _search(collection: str, field: str, asked: Any, more: dict[str, Any], client: Any) -> Any:
    return client.search(collection, data=asked, anns_field=field, output_fields=["id"], **more)


def _hybrid(collection: str, requests: list[Any], more: dict[str, Any], client: Any) -> Any:
    return client.hybrid_search(collection, requests, **more)


def _size(number: int, text: str, words: str) -> int:
    """The bytes of a text and its terms. Raises IndexingError where Milvus can't hold them."""
    try:
        sizes = len(text.encode()), len(words.encode())
    except UnicodeEncodeError:
        raise IndexingError(f"text {number} holds half a character (a lone surrogate)") from None
    if max(sizes) > LONGEST_TEXT:
        raise IndexingError(
            f"text {number} takes {max(sizes)} bytes, and Milvus holds {LONGEST_TEXT}. Shorten it"
        )
    return sum(sizes)


def _messages(sizes: Sequence[int]) -> Iterator[range]:
    """Rows of these sizes in bytes, cut into messages."""
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
    # Milvus Lite gives BM25 as a negative distance, a server as a score.
    return in_order(ids, np.abs(scores) if lexical else scores, k)


def _check_place(path: Path) -> None:
    """Raises IndexingError or NotAnIndex where Milvus Lite can't keep its folder at `path`."""
    if path.suffix != ".db":
        raise IndexingError(f"{path}: a file of Milvus Lite must end in .db")
    if path.is_file():
        with path.open("rb") as stream:
            if stream.read(23) == b"version https://git-lfs":
                raise NotAnIndex(f"{path}: this is a Git LFS pointer. Fetch it with git lfs")


def _doubt(path: Path) -> str:
    """Why Milvus Lite may not open `path`."""
    if path.is_file():  # version 2 kept a file, version 3 keeps a folder
        return " (or is it no database of this version of Milvus Lite?)"
    return " (or is another process using it?)"
