"""Worker of MemoryOS (memoryos-pro): memories are the user's knowledge entries in JSON files.

The package loads MiniLM with sentence-transformers. Here a stand-in asks the gateway for the
embeddings, so that neither torch nor the weights are installed.
"""

import concurrent.futures
import hashlib
import sys
from collections import Counter
from importlib.metadata import version
from typing import Any

from serve import GatewayEncoder, OneThread, pairs, repeat_ids, serve, stand_in

USER = "user"  # a folder holds one user
FIRST = "2025-01-01 00:00:00"
MOST = 1_000_000  # by default the oldest of more than 100 entries is dropped
repeat_ids("")


stand_in("sentence_transformers", SentenceTransformer=GatewayEncoder)
setattr(concurrent.futures, "ThreadPoolExecutor", OneThread)  # noqa: B010


class MemoryOSWorker:
    """The operations of the protocol over `memoryos.Memoryos`."""

    memory: Any = None
    time = FIRST

    def open(
        self, folder: str, user: str, base_url: str, api_key: str, settings: dict[str, Any]
    ) -> None:
        from memoryos import Memoryos, utils
        from openai import OpenAI

        # The clock decides what is hot; every module holds the function under its own name.
        for name, module in list(sys.modules.items()):
            if name.startswith("memoryos.") and hasattr(module, "get_timestamp"):
                setattr(module, "get_timestamp", lambda: self.time)  # noqa: B010
        GatewayEncoder.client = OpenAI(base_url=base_url, api_key=api_key)
        utils.clear_embedding_cache()
        self.memory = Memoryos(
            USER,
            api_key,
            folder,
            openai_base_url=base_url,
            llm_model="chat",
            long_term_knowledge_capacity=MOST,
        )
        self.time = max([entry["timestamp"] for entry in self._entries()], default=FIRST)

    def load(self, items: list[dict[str, Any]]) -> dict[str, Any]:
        before = len(self._entries())
        for item in items:
            self.memory.user_long_term_memory.add_user_knowledge(item["text"])
        return {"ids": [memory["id"] for memory in self._memories()[before:]]}

    def ingest(self, turns: list[dict[str, Any]], time: str) -> None:
        repeat_ids(repr((time, turns, self.list())))
        self.time = time[:19].replace("T", " ")
        for said, replied in pairs(turns):
            self.memory.add_memory(said, replied, self.time)
        self._process_all()

    def list(self) -> dict[str, Any]:
        profile = self.memory.user_long_term_memory.get_raw_user_profile(USER)
        known = profile and profile.lower() != "none"
        return {"memories": self._memories(), "context": [profile] if known else []}

    def search(self, query: str, k: int) -> dict[str, Any]:
        found = self.memory.retriever.retrieve_context(query, USER, top_k_knowledge=k)
        ids = {id(entry): one for entry, one in zip(self._entries(), self._memories(), strict=True)}
        entries = found["retrieved_user_knowledge"]
        hits = [
            {**ids[id(entry)], "score": 1 / rank} for rank, entry in enumerate(entries, start=1)
        ]
        pages = [
            f"User: {page['user_input']}\nAssistant: {page['agent_response']}"
            for page in found["retrieved_pages"]
        ]
        about = [entry["knowledge"] for entry in found["retrieved_assistant_knowledge"]]
        return {"hits": hits, "context": pages + about}

    def close(self) -> None:
        if self.memory is not None:
            self.memory.client.shutdown()
            self.memory = None

    def _entries(self) -> Any:
        return self.memory.user_long_term_memory.get_user_knowledge()

    def _memories(self) -> Any:
        """The entries, oldest first. They have no ids: text and number among equals make one."""
        seen: Counter[str] = Counter()
        found = []
        for entry in self._entries():
            text = entry["knowledge"]
            seen[text] += 1
            digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
            found.append({"id": f"{digest}-{seen[text]}", "text": text.removeprefix("- ")})
        return found

    def _process_all(self) -> None:
        """Do now what MemoryOS would do when ten more pairs came and a topic was hot."""
        short, middle = self.memory.short_term_memory, self.memory.mid_term_memory
        most, short.max_capacity = short.max_capacity, 1
        self.memory.updater.process_short_term_to_mid_term()
        short.max_capacity = most
        for name, session in list(middle.sessions.items()):
            if any(not page.get("analyzed") for page in session["details"]):
                middle.heap = [(-1.0, name)]  # only the hottest is analysed
                self.memory.force_mid_term_analysis()
        middle.rebuild_heap()


serve(MemoryOSWorker(), system="memoryos", version=version("memoryos-pro"))
