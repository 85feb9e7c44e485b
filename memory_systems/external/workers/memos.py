"""Worker of MemOS: its general text memory, with a local Qdrant store in the folder."""

import os
from datetime import datetime
from importlib.metadata import version
from typing import Any

from serve import repeat_ids, serve

# Read when MemOS is imported: the folder of its logs, no .env file of the user, and no retry of an
# embedding that takes more than five seconds.
os.environ.update(MEMOS_BASE_PATH=os.environ["HOME"], PYTHON_DOTENV_DISABLED="1")
os.environ["MOS_EMBEDDER_TIMEOUT"] = "600"
repeat_ids("")


class MemOSWorker:
    """The operations of the protocol over `GeneralTextMemory`."""

    memory: Any = None

    def open(
        self, folder: str, user: str, base_url: str, api_key: str, settings: dict[str, Any]
    ) -> None:
        from memos.configs.memory import MemoryConfigFactory
        from memos.memories.factory import MemoryFactory

        chat = {
            "model_name_or_path": "chat",
            "api_key": api_key,
            "api_base": base_url,
            "temperature": 0.0,
            "max_tokens": 4096,
            "remove_think_prefix": True,
        }
        embedder = {
            "provider": "openai",
            "api_key": api_key,
            "base_url": base_url,
            "model_name_or_path": "embedder",
        }
        store = {
            "collection_name": "m",
            "distance_metric": "cosine",
            "vector_dimension": 384,
            "path": os.path.join(folder, "qdrant"),
        }
        config = {
            "extractor_llm": {"backend": "openai", "config": chat},
            "embedder": {"backend": "universal_api", "config": embedder},
            "vector_db": {"backend": "qdrant", "config": store},
        }
        self.memory = MemoryFactory.from_config(
            MemoryConfigFactory(backend="general_text", config=config)
        )

    def load(self, items: list[dict[str, Any]]) -> dict[str, Any]:
        from memos.memories.textual.item import TextualMemoryItem

        repeat_ids(repr((items, self.list())))
        stored = [
            TextualMemoryItem(
                memory=item["text"],
                metadata={"source": "conversation", "updated_at": datetime.now().isoformat()},
            )
            for item in items
        ]
        self.memory.add(stored)
        return {"ids": [item.id for item in stored]}

    def ingest(self, turns: list[dict[str, Any]], time: str) -> None:
        repeat_ids(repr((time, turns, self.list())))
        messages = [{"role": turn["role"], "content": turn["text"]} for turn in turns]
        if found := self.memory.extract(messages):
            self.memory.add(found)

    def list(self) -> dict[str, Any]:
        items = self.memory.get_all()
        items.sort(key=lambda item: (item.metadata.updated_at, item.memory))
        return {"memories": [{"id": item.id, "text": item.memory} for item in items]}

    def search(self, query: str, k: int) -> dict[str, Any]:
        found = self.memory.search(query, top_k=k)
        return {
            "hits": [
                {"id": item.id, "text": item.memory, "score": 1 / rank}
                for rank, item in enumerate(found, start=1)
            ]
        }

    def close(self) -> None:
        if self.memory is not None:
            self.memory.vector_db.client.close()
            self.memory = None


serve(MemOSWorker(), system="memos", version=version("MemoryOS"))
