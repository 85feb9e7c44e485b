"""Worker of LightMem: memories are facts, with a local Qdrant store in the folder.

Its source is next to the environment's packages. Of transformers it asks for the types of two
tokenizers, for which stand-ins are enough; the gateway makes the embeddings.
"""

import concurrent.futures
import os
import sys
from datetime import datetime, timedelta
from typing import Any

from serve import OneThread, pairs, repeat_ids, serve, stand_in, tokenizer_files

COMMIT = "8fc9a917"
FIRST = datetime(2025, 1, 1)
SIMILAR = 0.8  # from which a later memory may change an earlier one, as its README has it

os.environ["TIKTOKEN_CACHE_DIR"] = tokenizer_files()
repeat_ids("")
stand_in("transformers")
stand_in("transformers.tokenization_utils", PreTrainedTokenizer=type("Slow", (), {}))
stand_in("transformers.tokenization_utils_fast", PreTrainedTokenizerFast=type("Fast", (), {}))
setattr(concurrent.futures, "ThreadPoolExecutor", OneThread)  # noqa: B010
sys.path.append(os.path.join(sys.prefix, "source", "src"))


class LightMemWorker:
    """The operations of the protocol over `lightmem.memory.lightmem.LightMemory`."""

    memory: Any = None

    def open(
        self, folder: str, user: str, base_url: str, api_key: str, settings: dict[str, Any]
    ) -> None:
        from lightmem.memory.lightmem import LightMemory

        server = {"api_key": api_key, "openai_base_url": base_url}
        store = {"path": os.path.join(folder, "qdrant"), "on_disk": True}
        self.memory = LightMemory.from_config(
            {
                # Both need the weights of LLMLingua-2.
                "pre_compress": False,
                "topic_segment": False,
                "memory_manager": {
                    "model_name": "openai",
                    "configs": {**server, "model": "chat", "max_tokens": 4096},
                },
                "index_strategy": "embedding",
                "text_embedder": {
                    "model_name": "openai",
                    "configs": {**server, "model": "embedder", "embedding_dims": 384},
                },
                "embedding_retriever": {
                    "model_name": "qdrant",
                    "configs": {**store, "collection_name": "m", "embedding_model_dims": 384},
                },
                "update": "offline",
            }
        )

    def load(self, items: list[dict[str, Any]]) -> dict[str, Any]:
        from lightmem.memory.utils import MemoryEntry

        repeat_ids(repr((items, self.list())))
        entries = []
        for number, item in enumerate(items):
            time = FIRST + timedelta(milliseconds=number)
            entries.append(
                MemoryEntry(
                    memory=item["text"],
                    time_stamp=time.isoformat(timespec="milliseconds"),
                    float_time_stamp=time.timestamp(),
                    weekday=time.strftime("%a"),
                )
            )
        self.memory.offline_update(entries)
        return {"ids": [entry.id for entry in entries]}

    def ingest(self, turns: list[dict[str, Any]], time: str) -> None:
        import lightmem.memory.lightmem as source

        repeat_ids(repr((time, turns, self.list())))
        # The count of topics, which prompts name, is of the process and not of the store.
        topics = [entry["payload"]["topic_id"] for entry in self._entries()]
        source.GLOBAL_TOPIC_IDX = 1 + max((one for one in topics if one is not None), default=-1)
        stamp = datetime.fromisoformat(time).strftime("%Y/%m/%d (%a) %H:%M")
        found = pairs(turns)
        for number, pair in enumerate(found, start=1):
            messages = [
                {"role": role, "content": text, "time_stamp": stamp}
                for role, text in zip(("user", "assistant"), pair, strict=True)
            ]
            last = number == len(found)
            self.memory.add_memory(messages, force_segment=last, force_extract=last)
        self.memory.construct_update_queue_all_entries()
        self.memory.offline_update_all_entries(score_threshold=SIMILAR)

    def list(self) -> dict[str, Any]:
        return {
            "memories": [
                {"id": entry["id"], "text": entry["payload"]["memory"]} for entry in self._entries()
            ]
        }

    def search(self, query: str, k: int) -> dict[str, Any]:
        vector = self.memory.text_embedder.embed(query)
        found = self.memory.embedding_retriever.search(vector, limit=k, return_full=True)
        return {
            "hits": [
                {"id": hit["id"], "text": hit["payload"]["memory"], "score": hit["score"]}
                for hit in found
            ]
        }

    def close(self) -> None:
        if self.memory is not None:
            self.memory.embedding_retriever.client.close()
            self.memory = None

    def _entries(self) -> Any:
        """The entries, oldest first."""
        found = self.memory.embedding_retriever.get_all(with_vectors=False)
        return sorted(
            found, key=lambda entry: (entry["payload"]["time_stamp"], entry["payload"]["memory"])
        )


serve(LightMemWorker(), system="lightmem", version=COMMIT)
