"""Worker of Mem0 (mem0ai 1.x and 2.x), with its vector store in the folder and no network.

Runs in the environment of the system, not in ours.
"""

import importlib.metadata
import os
from datetime import datetime
from typing import Any

from serve import serve

DATE = "2026-01-01"  # stands for today in prompts, so that a reply cache answers tomorrow too
ALL = 1_000_000  # Mem0 lists 100 or 20 memories by default
VERSION = importlib.metadata.version("mem0ai")
OLDER = VERSION.startswith("1.")

# Read when Mem0 is imported. Its home folder would be made in the user's.
os.environ["MEM0_TELEMETRY"] = "False"
os.environ.setdefault("MEM0_DIR", os.path.join(os.environ.get("HOME", "."), "mem0"))


def fix_dates() -> None:
    """Replace today's date in the prompts of the installed version."""
    import mem0.configs.prompts as prompts
    import mem0.memory.utils as utils

    today = datetime.now().strftime("%Y-%m-%d")
    for name, text in list(vars(prompts).items()):
        if isinstance(text, str) and today in text:
            for module in (prompts, utils):
                if hasattr(module, name):
                    setattr(module, name, text.replace(today, DATE))
    if hasattr(prompts, "_resolve_dates"):
        resolve = prompts._resolve_dates

        def fixed(current_date: Any = None, observation_date: Any = None) -> Any:
            return resolve(current_date or DATE, observation_date)

        prompts._resolve_dates = fixed


class Mem0Worker:
    """The operations of the protocol over `mem0.Memory`."""

    def __init__(self) -> None:
        self.memory: Any = None
        self.user = ""

    def open(
        self, folder: str, user: str, base_url: str, api_key: str, settings: dict[str, Any]
    ) -> dict[str, Any]:
        from mem0 import Memory

        self.close()
        self.user = user
        server = {"api_key": api_key, "openai_base_url": base_url}
        store = {"path": os.path.join(folder, "qdrant"), "on_disk": True}
        config: dict[str, Any] = {
            "llm": {
                "provider": "openai",
                "config": {**server, "model": "m", "temperature": 0.0, "max_tokens": 4096},
            },
            "embedder": {
                "provider": "openai",
                "config": {**server, "model": "e", "embedding_dims": 384},
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
        return {}

    def reset(self) -> dict[str, Any]:
        self.memory.delete_all(user_id=self.user)
        return {}

    def load(self, items: list[dict[str, Any]]) -> dict[str, Any]:
        # With a graph each item would take three calls of the model, whatever `infer` says.
        graph = getattr(self.memory, "enable_graph", False)
        self.memory.enable_graph = False
        try:
            return {"ids": [self._put(item["text"]) for item in items]}
        finally:
            self.memory.enable_graph = graph

    def _put(self, text: str) -> str:
        message = [{"role": "user", "content": text}]
        done = self.memory.add(message, user_id=self.user, infer=False)
        return str(done["results"][0]["id"])

    def ingest(self, turns: list[dict[str, Any]], time: str | None = None) -> dict[str, Any]:
        messages = [{"role": turn["role"], "content": turn["text"]} for turn in turns]
        self.memory.add(messages, user_id=self.user)
        return {}

    def list(self) -> dict[str, Any]:
        found = (
            self.memory.get_all(user_id=self.user, limit=ALL)
            if OLDER
            else self.memory.get_all(filters={"user_id": self.user}, top_k=ALL)
        )
        rows = sorted(found["results"], key=lambda row: (row["created_at"], row["memory"]))
        memories = [{"id": row["id"], "text": row["memory"]} for row in rows]
        return {"memories": memories, "context": sorted(_edges(found, "target"))}

    def search(self, query: str, k: int) -> dict[str, Any]:
        found = (
            self.memory.search(query, user_id=self.user, limit=k)
            if OLDER
            else self.memory.search(query, filters={"user_id": self.user}, top_k=k, threshold=0.0)
        )
        hits = [
            {"id": row["id"], "text": row["memory"], "score": row["score"]}
            for row in found["results"]
        ]
        return {"hits": hits, "context": sorted(_edges(found, "destination"))}

    def close(self) -> dict[str, Any]:
        if self.memory is not None:
            self.memory.close()
            self.memory.vector_store.client.close()
            self.memory = None
        return {}


def _edges(found: dict[str, Any], end: str) -> list[str]:
    """The relations of a graph as lines of text."""
    return [
        f"{edge['source']} -- {edge['relationship']} -- {edge.get(end) or edge['destination']}"
        for edge in found.get("relations", [])
    ]


fix_dates()
serve(Mem0Worker(), system="mem0", version=VERSION)
