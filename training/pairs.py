"""Pairs of a query and its memory as a contrastive trainer takes them: by number, with negatives.

A batch holds each text once, sorted by length and cut into parts, which saves most of the padding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from indexes.encoder import Role
from indexes.sentence_encoder import token_counts
from training.negatives import Floats, Mask, Negatives, hard_negatives

if TYPE_CHECKING:
    from training.examples import TrainingData

Numbers = NDArray[np.int64]
PART = 32
"""Texts that are padded to the same length."""


@dataclass(frozen=True, slots=True)
class TextPairs:
    """Training pairs: `query[i]` of `queries` and `gold[i]` of `memories` belong together.

    `memories` are distinct and begin with the bank, of which there are `bank`. `allowed` gives the
    mask, (len(numbers), memories), of memories that may be negatives of the pairs of these numbers.
    """

    queries: tuple[str, ...]
    memories: tuple[str, ...]
    query: Numbers
    gold: Numbers
    bank: int
    allowed: Callable[[Numbers], Mask]

    @classmethod
    def of(
        cls, data: TrainingData, encode: Callable[[Sequence[str]], Floats] | None = None
    ) -> TextPairs:
        """Return the pairs of all examples, in their order.

        `encode` gives the base encoder's unit vectors of memories, by which paraphrases of a gold
        are not allowed as its negatives; None to tell them by their text alone.
        """
        memories = list(dict.fromkeys([*data.bank, *(one.memory for one in data.examples)]))
        queries = list(dict.fromkeys(one.query for one in data.examples))
        memory_place = {text: i for i, text in enumerate(memories)}
        query_place = {text: i for i, text in enumerate(queries)}
        vectors = None if encode is None else encode(memories)
        return cls(
            tuple(queries),
            tuple(memories),
            np.array([query_place[one.query] for one in data.examples], np.int64),
            np.array([memory_place[one.memory] for one in data.examples], np.int64),
            len(dict.fromkeys(data.bank)),
            Negatives(data.examples, memories, data.own, vectors).allowed,
        )

    def __len__(self) -> int:
        return len(self.query)


@dataclass(slots=True)
class MinedNegatives:
    """For each pair of `train`, the best memories of the bank by the model that are not barred.

    `found` has shape (pairs, depth), padded with -1; it is replaced at the start of an epoch.
    """

    pairs: TextPairs
    train: Numbers
    per_pair: int
    depth: int
    seed: int
    epoch: int = -1
    found: Numbers = field(default_factory=lambda: np.empty((0, 0), np.int64))

    def mine(self, epoch: int, queries: Floats, memories: Floats) -> None:
        """Mine from unit vectors of all queries, (queries, width), and of all memories."""
        pairs, bank = self.pairs, memories[: self.pairs.bank]
        found = np.full((len(pairs), min(self.depth, len(bank))), -1, np.int64)
        for start in range(0, len(self.train), 256):
            some = self.train[start : start + 256]
            scores = queries[pairs.query[some]] @ bank.T
            allowed = pairs.allowed(some)[:, : pairs.bank]
            found[some] = hard_negatives(scores, allowed, found.shape[1])
        self.found, self.epoch = found, epoch

    def of(self, pair: int) -> list[int]:
        """Draw negatives of a pair, distinct; the same for the same seed, epoch and pair."""
        if not len(self.found):
            return []
        usable = list(dict.fromkeys(n for n in self.found[pair].tolist() if n >= 0))
        rng = np.random.default_rng((self.seed, self.epoch, pair))
        places = rng.permutation(len(usable))[: self.per_pair]
        return [usable[i] for i in places]


class PairBatches:
    """Makes the batch of some pairs: the collator of the trainer.

    `prompts` are put before queries and memories. A batch holds the model's inputs as
    `part<n>_input_ids` and so on, and as `label` where the embeddings of queries and documents are
    among those of all parts, the place of each query's gold among the documents, and the mask of
    documents that are neither.
    """

    valid_label_columns = ("label",)

    def __init__(
        self, model: Any, pairs: TextPairs, negatives: MinedNegatives, prompts: dict[Role, str]
    ) -> None:
        self._model, self._pairs, self._negatives, self._prompts = model, pairs, negatives, prompts
        self._counts: dict[Role, Numbers] = {
            "query": token_counts(model.tokenizer, pairs.queries),
            "memory": token_counts(model.tokenizer, pairs.memories),
        }

    def __call__(self, rows: Sequence[dict[str, int]]) -> dict[str, Any]:
        """Return the batch of the pairs whose numbers are the rows' `label`."""
        import torch

        pairs = self._pairs
        chosen = np.array([row["label"] for row in rows], np.int64)
        asked = list(dict.fromkeys(pairs.query[chosen].tolist()))
        golds = pairs.gold[chosen].tolist()
        drawn = [number for pair in chosen.tolist() for number in self._negatives.of(pair)]
        documents = list(dict.fromkeys([*golds, *drawn]))
        barred = ~pairs.allowed(chosen)[:, documents]
        gold = np.array([documents.index(number) for number in golds], np.int64)
        barred[np.arange(len(chosen)), gold] = False
        batch, place = self._parts(asked, documents)
        query = [place["query", number] for number in pairs.query[chosen].tolist()]
        batch["label"] = {
            "query": torch.tensor(query),
            "document": torch.tensor([place["memory", number] for number in documents]),
            "gold": torch.from_numpy(gold),
            "barred": torch.from_numpy(barred),
        }
        return batch

    def _parts(
        self, queries: Sequence[int], memories: Sequence[int]
    ) -> tuple[dict[str, Any], dict[tuple[Role, int], int]]:
        """The inputs of the texts in parts, and the place of each text among all of them."""
        texts: list[tuple[Role, int]] = [("query", n) for n in queries]
        texts += [("memory", n) for n in memories]
        apart = self._prompts["query"] != self._prompts["memory"]
        order = sorted(texts, key=lambda t: (apart and t[0], -self._counts[t[0]][t[1]], t))
        batch: dict[str, Any] = {}
        start, number = 0, 0
        while start < len(order):
            role = order[start][0]
            part = order[start : start + PART]
            if apart:
                part = [text for text in part if text[0] == role]
            read = [self._text(*text) for text in part]
            inputs = self._model.preprocess(read, prompt=self._prompts[role] or None)
            batch |= {f"part{number:04d}_{key}": value for key, value in inputs.items()}
            start, number = start + len(part), number + 1
        return batch, {text: i for i, text in enumerate(order)}

    def _text(self, role: Role, number: int) -> str:
        return self._pairs.queries[number] if role == "query" else self._pairs.memories[number]


def by_length(model: Any, texts: Sequence[str]) -> list[str]:
    """Return the distinct texts with the longest first; equally long ones are sorted."""
    distinct = sorted(set(texts))
    counts = token_counts(model.tokenizer, distinct)
    return [distinct[i] for i in np.argsort(-counts, kind="stable")]
