"""A chat model as the one that retrieves: it chooses a memory of a pool and answers with it."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
from pydantic import BaseModel
from typing_extensions import override

from analysis.statistics import Bootstrap
from memory_scoring.similarity import USED_FROM, token_overlap
from recallbed.chat_models.base import ChatModel, Failure, Request, Usage
from recallbed.chat_models.session import Chats, open_chats
from recallbed.corpus.custom import is_custom
from recallbed.corpus.material import Material, gather
from recallbed.corpus.pools import Pool
from recallbed.corpus.records import Memory, Task3Row
from recallbed.harness.experiment import Outcome, execute, plan
from recallbed.harness.failures import Failures
from recallbed.harness.files import write_atomically
from recallbed.harness.item_run import Done, ItemExperiment
from recallbed.harness.plan import Plan
from recallbed.harness.run_folder import PREDICTIONS, RunFolder, encode_row
from retrievers.base import NotScored, Retriever, RetrieverError
from retrievers.registry import build_retrievers, describe_retriever
from retrievers.rerank.prompt_reranker import ShortlistPrompt
from retrievers.unseen import only_unseen
from task3.options import AnswerConfig

PROMPT = "answer.v1"
DEPTH = 20


class Choice(BaseModel):
    """A model's reply; `selected_memory` is a label of the prompt, 0 or null for none."""

    answer: str
    reason: str
    selected_memory: int | None = None


def load_prompt() -> ShortlistPrompt:
    """The prompt in `prompts/`, a system part and a user part."""
    return ShortlistPrompt.load("task3", PROMPT)


def shuffled(query: str, texts: Sequence[str], seed: int) -> list[str]:
    """The distinct texts in an order that tells nothing: by a hash of seed, query and text."""
    start = hashlib.blake2b(f"{seed}\x00{query}\x00".encode(), digest_size=16, person=b"prompt")

    def key(text: str) -> tuple[bytes, str]:
        digest = start.copy()
        digest.update(text.encode())
        return digest.digest(), text

    return sorted(set(texts), key=key)


def ask(query: str, shown: Sequence[str], max_tokens: int) -> Request:
    """The request that shows `shown` under the labels 1, 2, … and asks for a `Choice`."""
    return Request(load_prompt().build(query, shown), Choice, max_tokens)


JSON = Any


class Answering(ItemExperiment):
    """Every query of the data, put to a chat model with a choice of the memories of its pool."""

    measured = "queries was answered"

    def __init__(self, config: AnswerConfig, chats: Chats) -> None:
        self.config, self.chats = config, chats
        self.material: Material = gather(
            config.data.data,
            config.data.split,
            config.pools.pools,
            _sizes(config),
            (config.pools.pool_seed,),
            config.data.limit,
        )
        self.models: dict[str, ChatModel] = {}
        asked = config.retrievers
        run = asked.context(config.seed, self.material.data.bank, self._named)
        self.configurations = asked.configurations if asked.retriever else ()
        self.retrievers = build_retrievers(self.configurations, run)
        self.chosen = asked.chosen if asked.retriever else None
        self.depth = config.depth or DEPTH
        self.retriever: Retriever | None = self.retrievers.get(self.chosen or "")
        if self.retriever is not None:
            used = [(self.chosen or "", self.retriever)]
            self.material = only_unseen(self.material, used, asked.unseen)
        self.chat = self._named(config.model)
        self._alone = threading.Lock()  # a retriever need not serve two threads at once
        self._prepared = False
        self.name = f"task3-answer-{config.model[-40:]}"
        self.in_flight, self.seed = config.chat.in_flight, config.seed
        libraries = {name for r in self.retrievers.values() for name in r.libraries}
        self.libraries = {"numpy", *self.chat.libraries, *libraries}

    @property
    @override
    def label(self) -> str:
        return f"{self.config.model} at {self.material.sizes[0]}"

    def _named(self, name: str) -> ChatModel:
        self.models[name] = self.chats(name)
        return self.models[name]

    @override
    def cost(self, tokens_in: int, tokens_out: int) -> float | None:
        """Rows do not say whose their tokens are: unknown if a retriever asks a second model."""
        price = self.chats.prices.by_model.get(self.chat.name)
        if price is None or len(self.models) > 1:
            return None
        return round(price.of(tokens_in, tokens_out), 6)

    @override
    def items(self) -> Mapping[str, Callable[[], Done]]:
        pools = self.material.pools
        [members] = pools.pools.values()
        return {
            row.benchmark_id: partial(self._answer, row, pool)
            for row, pool in zip(pools.rows, members, strict=True)
        }

    @override
    def plans(self) -> Mapping[str, Plan]:
        return self.chats.plans()

    @override
    def fingerprint(self) -> Mapping[str, JSON]:
        by_label = {one.label: one for one in self.configurations}
        return {
            **self.material.fingerprint(),
            "answer": {
                "model": dict(self.chat.settings()),
                "prompt": load_prompt().identity,
                "max_tokens": self.config.max_tokens,
                "shown": self._shown(),
            },
            "retrievers": [
                {"label": label, **describe_retriever(by_label[label], retriever)}
                for label, retriever in self.retrievers.items()
            ],
        }

    @override
    def figures(self, folder: RunFolder) -> Mapping[str, JSON]:
        """Exact recall@1 of the chosen memories, the use of the gold by overlap, failures by cause.

        Intervals are over sessions; failed queries are in no share.
        """
        rows = folder.rows
        lines = b"".join(map(encode_row, _official(rows)))
        write_atomically(folder.path / PREDICTIONS, lines)
        sessions = {row.benchmark_id: row.session_id for row in self.material.pools.rows}
        answered = [row for row in rows if row["error"] is None]
        failures = Failures(row["error"] for row in rows)
        results = [row["result"] for row in answered]
        clusters = [sessions[row["item"]] for row in answered]
        bootstrap = Bootstrap(clusters, self.config.seed) if answered else None

        def share(values: Sequence[bool]) -> dict[str, JSON] | None:
            if bootstrap is None:
                return None
            found = asdict(bootstrap.interval(np.array(values, float)))
            return {k: v if isinstance(v, str) else round(v, 6) for k, v in found.items()}

        repairs = sum((Counter(one.get("repairs", {})) for one in results), Counter[str]())
        return {
            "model": self.chat.name,
            "split": self.material.data.split,
            "pools": self.material.strategy,
            "distractors": self.material.sizes[0],
            "shown": self._shown(),
            "attempted": len(rows),
            "answered": len(answered),
            "failed": dict(sorted(failures.counts.items())),
            "reasons": dict(sorted(failures.reasons.items())),
            "gold_shown": share([one["gold_shown"] for one in results]),
            "recall_at_1": share([one["correct"] for one in results]),
            "used_by_overlap": share([one["overlap"] >= USED_FROM for one in results]),
            "named_no_memory": sum(one["selected_memory"] is None for one in results),
            "unknown_labels": sum(one["unknown_label"] for one in results),
            "repairs": dict(repairs),
        }

    def _shown(self) -> JSON:
        if self.retriever is None:
            return "the whole pool"
        return {"label": self.chosen, "depth": self.depth}

    def _answer(self, row: Task3Row, pool: Pool) -> Done:
        memories = self.material.pools.texts(pool)
        try:
            chosen, used = self._first_stage(row.query, memories)
        except RetrieverError as error:
            return Done(error=str(error.cause))
        shown = shuffled(row.query, chosen, self.config.seed)
        reply = self.chat.complete(ask(row.query, shown, self.config.max_tokens))
        counts = (used + reply.usage).counts
        if isinstance(reply, Failure):
            return Done(None, **counts, error=reply.error)
        assert isinstance(reply.parsed, Choice)
        golds = {memories[i].text for i in pool.golds}
        result = _result(row, golds, shown, reply.parsed)
        if reply.repairs:
            result["repairs"] = dict(reply.repairs)
        return Done(result, **counts, error=None)

    def _first_stage(self, query: str, pool: Sequence[Memory]) -> tuple[list[str], Usage]:
        """The texts to be shown, and what choosing them took."""
        texts = list(dict.fromkeys(memory.text for memory in pool))
        if self.retriever is None:
            return texts, Usage()
        with self._alone:
            self._prepare()
            [scored] = self.retriever.results([query], [pool])
        if isinstance(scored, NotScored):
            raise scored.error
        best: dict[str, float] = {}
        for memory, score in zip(pool, np.asarray(scored.scores), strict=True):
            best[memory.text] = max(best.get(memory.text, -np.inf), float(score))
        # Among equal scores the order of the prompt decides, which is a hash.
        order = sorted(shuffled(query, texts, self.config.seed), key=lambda text: -best[text])
        return order[: self.depth], scored.usage

    def _prepare(self) -> None:
        if self.retriever is not None and not self._prepared:
            pools = self.material.pools
            label = self.chosen or ""
            self.retriever.prepare_for(label, (row.query for row in pools.rows), pools.memories)
            self._prepared = True


def _result(
    row: Task3Row, golds: set[str], shown: Sequence[str], choice: Choice
) -> dict[str, JSON]:
    label = choice.selected_memory or 0
    text = shown[label - 1] if 1 <= label <= len(shown) else None
    return {
        "answer": choice.answer,
        "reason": choice.reason,
        "selected_memory_id": "" if text is None else _stored_id(row, text),
        "selected_memory": text,
        "unknown_label": text is None and label != 0,
        "correct": text in golds,
        "shown": len(shown),
        "gold_shown": not golds.isdisjoint(shown),
        "overlap": round(max(token_overlap(gold, choice.reason) for gold in golds), 6),
    }


def _stored_id(row: Task3Row, text: str) -> str:
    """The id in the query's own file; for a memory that was drawn into the pool a name of ours.

    A text that has several ids there is one memory, and gets the smallest of them.
    """
    ids = [name for name, m in zip(row.memory_ids, row.candidates, strict=True) if m.text == text]
    return min(ids) if ids else "drawn:" + hashlib.sha256(text.encode()).hexdigest()[:12]


def _sizes(config: AnswerConfig) -> tuple[int, ...] | None:
    """One size: the given one, else 100; a file of the user's has its own."""
    size = config.pools.size
    own = config.data.data is not None and is_custom(config.data.data)
    return (size or 100,) if size or not own else None


def run_answers(config: AnswerConfig) -> Outcome[Mapping[str, JSON]]:
    """Ask for every query; write predictions.jsonl besides rows and summary.

    Raises DataError for invalid data, BudgetReached, and as `execute`.
    """
    with open_chats(config.chat) as chats:
        return execute(Answering(config, chats), config.run)


def plan_answers(config: AnswerConfig) -> Mapping[str, Plan]:
    """Return what the run would send. Raises DataError for invalid data, and as `plan`."""
    with open_chats(config.chat) as chats:
        return plan(Answering(config, chats))


def _official(rows: Sequence[Mapping[str, JSON]]) -> list[dict[str, JSON]]:
    keys = ("answer", "reason", "selected_memory_id")
    return [
        {"benchmark_id": row["item"], **{key: row["result"][key] for key in keys}}
        for row in rows
        if row["error"] is None
    ]
