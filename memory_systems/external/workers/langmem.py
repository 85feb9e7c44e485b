"""Worker of LangMem: its store manager over a store in memory, which the folder holds as JSON."""

import json
import os
import uuid
from importlib.metadata import version
from typing import Any

from serve import repeat_ids, serve

ALL = 1_000_000
SPACE = ("memories", "user")  # a folder holds one user
repeat_ids("")
os.environ["LANGSMITH_TRACING"] = "false"


class LangMemWorker:
    """The operations of the protocol over langmem's store manager."""

    store: Any = None

    def open(
        self, folder: str, user: str, base_url: str, api_key: str, settings: dict[str, Any]
    ) -> None:
        from langchain_openai import ChatOpenAI
        from langgraph.store.memory import InMemoryStore
        from langmem import create_memory_store_manager
        from openai import OpenAI

        client = OpenAI(base_url=base_url, api_key=api_key)

        def embed(texts: Any) -> list[list[float]]:
            given = client.embeddings.create(
                model="embedder", input=list(texts), encoding_format="float"
            )
            return [one.embedding for one in given.data]

        self.store = InMemoryStore(
            index={"dims": 384, "embed": embed, "fields": ["content.content"]}
        )
        self.manager = create_memory_store_manager(
            ChatOpenAI(model="chat", base_url=base_url, api_key=api_key, temperature=0),
            namespace=SPACE,
            store=self.store,
            enable_inserts=True,
            enable_deletes=True,
        )
        self.file = os.path.join(folder, "memories.json")
        if os.path.exists(self.file):
            with open(self.file, encoding="utf-8") as stream:
                for key, value in json.load(stream):
                    self.store.put(SPACE, key, value)

    def load(self, items: list[dict[str, Any]]) -> dict[str, Any]:
        repeat_ids(repr((items, self.list())))
        ids = [str(uuid.uuid4()) for _ in items]
        for key, item in zip(ids, items, strict=True):
            value = {"kind": "Memory", "content": {"content": item["text"]}}
            self.store.put(SPACE, key, value)
        return {"ids": ids}

    def ingest(self, turns: list[dict[str, Any]], time: str) -> None:
        repeat_ids(repr((time, turns, self.list())))
        messages = [{"role": turn["role"], "content": turn["text"]} for turn in turns]
        # One thing after the other, so that two runs store in the same order.
        self.manager.invoke({"messages": messages}, config={"max_concurrency": 1})

    def list(self) -> dict[str, Any]:
        return {"memories": [{"id": item.key, "text": memory_text(item)} for item in self._items()]}

    def search(self, query: str, k: int) -> dict[str, Any]:
        found = self.store.search(SPACE, query=query, limit=k)
        hits = [{"id": item.key, "text": memory_text(item), "score": item.score} for item in found]
        return {"hits": hits}

    def close(self) -> None:
        if self.store is not None:
            with open(self.file, "w", encoding="utf-8") as stream:
                json.dump([(item.key, item.value) for item in self._items()], stream)
            self.store = None

    def _items(self) -> Any:
        """All memories, oldest first."""
        return self.store.search(SPACE, limit=ALL)


def memory_text(item: Any) -> str:
    """The text of a memory: its `content`, unless a schema of another form is used."""
    content = item.value["content"]
    return str(content["content"]) if "content" in content else json.dumps(content)


serve(LangMemWorker(), system="langmem", version=version("langmem"))
