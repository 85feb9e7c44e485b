"""Worker of A-Mem (a-mem): one note for each turn of a dialogue, in Chroma in the folder.

The package imports torch's libraries, litellm and nltk for models and servers that are not used
here. Stand-ins take their places: the embedder asks the gateway, the others do nothing.
"""

import os
from importlib.metadata import version
from typing import Any

from serve import GatewayEncoder, repeat_ids, serve, stand_in

os.environ["ANONYMIZED_TELEMETRY"] = "False"
repeat_ids("")


stand_in("sentence_transformers", SentenceTransformer=GatewayEncoder)
stand_in("transformers", AutoModel=None, AutoTokenizer=None)
stand_in("sklearn")
stand_in("sklearn.metrics")
stand_in("sklearn.metrics.pairwise", cosine_similarity=None)
stand_in("nltk")
stand_in("nltk.tokenize", word_tokenize=None)
stand_in("litellm", completion=None)


class AMemWorker:
    """The operations of the protocol over `AgenticMemorySystem`."""

    memory: Any = None

    def open(
        self, folder: str, user: str, base_url: str, api_key: str, settings: dict[str, Any]
    ) -> None:
        from agentic_memory.memory_system import AgenticMemorySystem
        from openai import OpenAI

        os.environ["OPENAI_BASE_URL"] = base_url  # the package has no setting for it
        GatewayEncoder.client = OpenAI(base_url=base_url, api_key=api_key)
        self.memory = AgenticMemorySystem(
            model_name="embedder",
            llm_backend="openai",
            llm_model="chat",
            api_key=api_key,
            storage_path=os.path.join(folder, "chroma"),
        )

    def load(self, items: list[dict[str, Any]]) -> dict[str, Any]:
        """Store notes without keywords, context or tags, which a model would have to write."""
        from agentic_memory.memory_system import MemoryNote

        ids = []
        for item in items:
            note = MemoryNote(item["text"], id=self._next_id(), timestamp="202501010000")
            data = self.memory._memory_note_to_metadata(note)
            self.memory.retriever.add_document(note.content, data, note.id)
            ids.append(note.id)
        return {"ids": ids}

    def ingest(self, turns: list[dict[str, Any]], time: str) -> None:
        repeat_ids(repr((time, turns, self.list())))
        stamp = "".join(filter(str.isdigit, time))[:12]
        for turn in turns:
            # Its prompts name notes by their ids, which are random by default.
            text = f"{turn['role']}: {turn['text']}"
            self.memory.add_note(text, time=stamp, id=self._next_id())

    def list(self) -> dict[str, Any]:
        return {"memories": [{"id": key, "text": text} for key, text in self._notes().items()]}

    def search(self, query: str, k: int) -> dict[str, Any]:
        notes = self._notes()
        found = self.memory.search(query, k) if notes else []
        return {
            "hits": [
                {"id": one["id"], "text": notes[one["id"]], "score": -one["score"]} for one in found
            ]
        }

    def close(self) -> None:
        if self.memory is not None:
            from chromadb.api.shared_system_client import SharedSystemClient

            self.memory.retriever.client._system.stop()
            SharedSystemClient.clear_system_cache()  # else the next store at this path is this one
            self.memory = None

    def _notes(self) -> dict[str, str]:
        """The texts by id, oldest first."""
        data = self.memory.retriever.collection.get(include=["metadatas"])["metadatas"]
        texts = {str(one["id"]): str(one["content"]) for one in data}
        return dict(sorted(texts.items(), key=lambda note: int(note[0][1:])))

    def _next_id(self) -> str:
        return f"m{max([int(key[1:]) for key in self._notes()], default=0) + 1}"


serve(AMemWorker(), system="a-mem", version=version("a-mem"))
