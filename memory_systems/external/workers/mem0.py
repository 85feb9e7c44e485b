"""Worker of Mem0 (mem0ai 1.x and 2.x): Qdrant, SQLite and, with a graph, Kuzu in the folder."""

import concurrent.futures
import importlib.metadata
import os
from collections.abc import Callable
from datetime import datetime
from types import SimpleNamespace
from typing import Any

from serve import OneThread, repeat_ids, serve

USER = "user"  # a folder holds one user; the name is in prompts
ALL = 1_000_000  # Mem0 lists 100 or 20 memories by default
VERSION = importlib.metadata.version("mem0ai")
OLDER = VERSION.startswith("1.")

# Both are read when Mem0 is imported.
os.environ["MEM0_TELEMETRY"] = "False"
os.environ["MEM0_DIR"] = os.path.join(os.environ["HOME"], "mem0")
repeat_ids("")


def dated_prompts() -> Callable[[str], None]:
    """Return a function that sets the date in the prompts of the installed version.

    Mem0 1.x writes today's date into them when it is imported, 2.x at each call.
    """
    import mem0.configs.prompts as prompts
    import mem0.memory.utils as utils

    today = datetime.now().strftime("%Y-%m-%d")
    dated = [
        (module, name, text)
        for module in (prompts, utils)
        for name, text in vars(module).items()
        if isinstance(text, str) and f"date is {today}" in text
    ]
    resolve = getattr(prompts, "_resolve_dates", None)

    def set_date(day: str) -> None:
        for module, name, text in dated:
            setattr(module, name, text.replace(today, day))
        if resolve:
            prompts._resolve_dates = lambda current=None, seen=None: resolve(current or day, seen)

    return set_date


def work_in_order() -> None:
    """Let Mem0 fill its vector store and its graph one after the other, so that runs are equal."""
    import mem0.memory.main as main

    futures = SimpleNamespace(**vars(concurrent.futures))
    futures.ThreadPoolExecutor = OneThread
    main.concurrent = SimpleNamespace(futures=futures)


class Mem0Worker:
    """The operations of the protocol over `mem0.Memory`."""

    memory: Any = None

    def open(
        self, folder: str, user: str, base_url: str, api_key: str, settings: dict[str, Any]
    ) -> None:
        from mem0 import Memory

        self.close()
        server = {"api_key": api_key, "openai_base_url": base_url}
        store = {"path": os.path.join(folder, "qdrant"), "on_disk": True}
        config: dict[str, Any] = {
            "llm": {
                "provider": "openai",
                "config": {**server, "model": "chat", "temperature": 0.0, "max_tokens": 4096},
            },
            "embedder": {
                "provider": "openai",
                "config": {**server, "model": "embedder", "embedding_dims": 384},
            },
            "vector_store": {
                "provider": "qdrant",
                "config": {**store, "collection_name": "m", "embedding_model_dims": 384},
            },
            "history_db_path": os.path.join(folder, "history.db"),
        }
        if settings.get("graph"):
            graph = {"db": os.path.join(folder, "graph")}
            config["graph_store"] = {"provider": settings["graph"], "config": graph}
        self.memory = Memory.from_config(config)

    def load(self, items: list[dict[str, Any]]) -> dict[str, Any]:
        # With a graph each item would take three calls of the model, whatever `infer` says.
        graph = getattr(self.memory, "enable_graph", False)
        self.memory.enable_graph = False
        repeat_ids(repr((items, self.list())))
        try:
            return {"ids": [self._put(item["text"]) for item in items]}
        finally:
            self.memory.enable_graph = graph

    def _put(self, text: str) -> str:
        message = [{"role": "user", "content": text}]
        done = self.memory.add(message, user_id=USER, infer=False)
        return str(done["results"][0]["id"])

    def ingest(self, turns: list[dict[str, Any]], time: str) -> None:
        set_date(time[:10])
        repeat_ids(repr((time, turns, self.list())))
        messages = [{"role": turn["role"], "content": turn["text"]} for turn in turns]
        self.memory.add(messages, user_id=USER)

    def list(self) -> dict[str, Any]:
        found = (
            self.memory.get_all(user_id=USER, limit=ALL)
            if OLDER
            else self.memory.get_all(filters={"user_id": USER}, top_k=ALL)
        )
        rows = sorted(found["results"], key=lambda row: (row["created_at"], row["memory"]))
        memories = [{"id": row["id"], "text": row["memory"]} for row in rows]
        return {"memories": memories, "context": sorted(_relations(found, "target"))}

    def search(self, query: str, k: int) -> dict[str, Any]:
        user = {"user_id": USER}
        found = (
            self.memory.search(query, **user, limit=k)
            if OLDER
            else self.memory.search(query, filters=user, top_k=k, threshold=0.0)
        )
        hits = [
            {"id": row["id"], "text": row["memory"], "score": row["score"]}
            for row in found["results"]
        ]
        return {"hits": hits, "context": sorted(_relations(found, "destination"))}

    def close(self) -> None:
        if self.memory is not None:
            self.memory.close()
            self.memory.vector_store.client.close()
            self.memory = None


def _relations(found: dict[str, Any], end: str) -> list[str]:
    """The relations of a graph as lines of text."""
    return [
        f"{edge['source']} -- {edge['relationship']} -- {edge[end]}"
        for edge in found.get("relations", [])
    ]


work_in_order()
set_date = dated_prompts()
serve(Mem0Worker(), system="mem0", version=VERSION)
