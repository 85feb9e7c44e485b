"""Worker of A-Mem as its authors published it: one note for each turn of a dialogue.

The source is beside the environment's packages; its `memory_layer_robust` is run, which keeps all
in memory. The folder holds the notes as JSON, and the vectors by which they are found.
"""

import ast
import json
import os
import sys
from typing import Any

from serve import GatewayEncoder, serve, stand_in

COMMIT = "0c8039f2"
DAY = "202501010000"
NOTES, VECTORS = "notes.json", "vectors.npy"


def cosine_similarity(these: Any, those: Any) -> Any:
    """Return the cosine of each row of `these` with each of `those`."""
    import numpy

    first, second = (
        rows / numpy.maximum(numpy.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        for rows in (numpy.asarray(these), numpy.asarray(those))
    )
    return first @ second.T


# Of these packages only the embedder and the similarity are used here.
stand_in("sentence_transformers", SentenceTransformer=GatewayEncoder)
stand_in("sklearn")
stand_in("sklearn.metrics")
stand_in("sklearn.metrics.pairwise", cosine_similarity=cosine_similarity)
stand_in("transformers", AutoModel=None, AutoTokenizer=None)
stand_in("nltk")
stand_in("nltk.tokenize", word_tokenize=None)
stand_in("rank_bm25", BM25Okapi=None)
stand_in("litellm", completion=None)
stand_in("requests")
vars(ast).setdefault("Str", str)  # imported, not used, and not in Python 3.14
sys.path.append(os.path.join(sys.prefix, "source"))


class AMemPaperWorker:
    """The operations of the protocol over `RobustAgenticMemorySystem`."""

    memory: Any = None

    def open(
        self, folder: str, user: str, base_url: str, api_key: str, settings: dict[str, Any]
    ) -> None:
        import memory_layer_robust as source
        import numpy
        from openai import OpenAI

        # A call that failed is not repeated: the gateway has done so.
        asks = source.RobustOpenAIController.get_completion
        source.RobustOpenAIController.get_completion = getattr(asks, "__wrapped__", asks)
        os.environ["OPENAI_BASE_URL"] = base_url  # there is no setting for it
        GatewayEncoder.client = OpenAI(base_url=base_url, api_key=api_key)
        self.note = source.RobustMemoryNote
        self.folder = folder
        self.memory = source.RobustAgenticMemorySystem(
            model_name="embedder", llm_backend="openai", llm_model="chat", api_key=api_key
        )
        if os.path.exists(os.path.join(folder, NOTES)):
            with open(os.path.join(folder, NOTES), encoding="utf-8") as file:
                kept = json.load(file)
            for fields in kept["notes"]:
                note = self.note(fields["content"])
                vars(note).update(fields)
                self.memory.memories[note.id] = note
            self.memory.evo_cnt = kept["evolutions"]
            self.memory.retriever.corpus = kept["corpus"]
            if kept["corpus"]:
                self.memory.retriever.embeddings = numpy.load(os.path.join(folder, VECTORS))

    def load(self, items: list[dict[str, Any]]) -> dict[str, Any]:
        """Store notes without keywords, context or tags, which a model would have to write."""
        ids = []
        for item in items:
            note = self.note(item["text"], id=self._next_id(), timestamp=DAY)
            self.memory.memories[note.id] = note
            self.memory.retriever.add_documents(
                [f"content:{note.content} context:{note.context} keywords:  tags: "]
            )
            ids.append(note.id)
        return {"ids": ids}

    def ingest(self, turns: list[dict[str, Any]], time: str) -> None:
        stamp = "".join(filter(str.isdigit, time))[:12]
        for turn in turns:
            text = f"{turn['role']}: {turn['text']}"
            self.memory.add_note(text, time=stamp, id=self._next_id())

    def list(self) -> dict[str, Any]:
        notes = self.memory.memories.values()
        return {"memories": [{"id": note.id, "text": note.content} for note in notes]}

    def search(self, query: str, k: int) -> dict[str, Any]:
        """The notes that are found, and those that they are linked to as context."""
        notes = list(self.memory.memories.values())
        places = [int(place) for place in self.memory.find_related_memories(query, k)[1]]
        linked = {
            place: notes[place].content
            for found in places
            for place in notes[found].links
            if place not in places and 0 <= place < len(notes)
        }
        return {
            "hits": [
                {"id": notes[place].id, "text": notes[place].content, "score": 1 / rank}
                for rank, place in enumerate(places, start=1)
            ],
            "context": list(linked.values()),
        }

    def close(self) -> None:
        if self.memory is None:
            return
        import numpy

        kept = {
            "notes": [vars(note) for note in self.memory.memories.values()],
            "evolutions": self.memory.evo_cnt,
            "corpus": self.memory.retriever.corpus,
        }
        with open(os.path.join(self.folder, NOTES), "w", encoding="utf-8") as file:
            json.dump(kept, file)
        if kept["corpus"]:
            numpy.save(os.path.join(self.folder, VECTORS), self.memory.retriever.embeddings)
        self.memory = None

    def _next_id(self) -> str:
        return f"m{len(self.memory.memories) + 1}"  # no note is ever removed


serve(AMemPaperWorker(), system="a-mem-paper", version=COMMIT)
