"""A chat model as the one that retrieves: it chooses a memory of a pool and answers with it."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from analysis.statistics import Bootstrap
from memory_scoring.similarity import token_overlap
from recallbed.chat_models.base import ChatModel, Failure, Request, Usage
from recallbed.chat_models.dry_run import Plan
from recallbed.chat_models.session import Chats, open_chats
from recallbed.corpus.custom import is_custom
from recallbed.corpus.material import Material, gather
from recallbed.corpus.pools import Pool
from recallbed.corpus.records import Memory, Task3Row
from recallbed.errors import UserError
from recallbed.harness.failures import Failures
from recallbed.harness.files import file_name, write_atomically
from recallbed.harness.fingerprint import canonical, code_identity, short_hash, versions
from recallbed.harness.item_run import Done, is_item_row, run_items
from recallbed.harness.run_folder import PREDICTIONS, SUMMARY, encode_row, open_run
from retrievers.base import NotScored, Retriever, RetrieverError
from retrievers.registry import build_retrievers, describe_retriever
from retrievers.rerank.prompt_reranker import ShortlistPrompt
from task3.options import AnswerConfig
from task3.used_memory import USED_FROM

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


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where a finished run lies, and its summary (the content of summary.json)."""

    path: Path
    summary: Mapping[str, JSON]


class Answering:
    """The queries of one run with what is shown for each, ready to be put to the model."""

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
        self.label = asked.chosen if asked.retriever else None
        self.depth = config.depth or DEPTH
        self.retriever: Retriever | None = self.retrievers.get(self.label or "")
        self.chat = self._named(config.model)
        self._alone = threading.Lock()  # a retriever need not serve two threads at once
        self._prepared = False

    def _named(self, name: str) -> ChatModel:
        self.models[name] = self.chats(name)
        return self.models[name]

    def cost(self, tokens_in: int, tokens_out: int) -> float | None:
        """What the tokens cost; None without a price, or where a retriever asks a second model.

        Rows don't say whose their tokens are.
        """
        price = self.chats.prices.by_model.get(self.chat.name)
        if price is None or len(self.models) > 1:
            return None
        return round(price.of(tokens_in, tokens_out), 6)

    def items(self) -> dict[str, Callable[[], Done]]:
        """The work on each query by its benchmark_id, in the order of the file."""
        pools = self.material.pools
        [members] = pools.pools.values()
        return {
            row.benchmark_id: partial(self._answer, row, pool)
            for row, pool in zip(pools.rows, members, strict=True)
        }

    def fingerprint(self) -> dict[str, JSON]:
        """All that can change a row."""
        by_label = {one.label: one for one in self.configurations}
        libraries = {name for r in self.retrievers.values() for name in r.libraries}
        return {
            **self.material.fingerprint(),
            "answer": {
                "model": dict(self.chat.settings()),
                "prompt": load_prompt().identity,
                "max_tokens": self.config.max_tokens,
                "shown": {"label": self.label, "depth": self.depth}
                if self.retriever
                else "the whole pool",
            },
            "retrievers": [
                {"label": label, **describe_retriever(by_label[label], retriever)}
                for label, retriever in self.retrievers.items()
            ],
            "code": code_identity(),
            "libraries": versions(sorted({"numpy", *self.chat.libraries, *libraries})),
            "seed": self.config.seed,
        }

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
            label = self.label or ""
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

    A text that stands there under several ids is one memory, for which the smallest stands.
    """
    ids = [name for name, m in zip(row.memory_ids, row.candidates, strict=True) if m.text == text]
    return min(ids) if ids else "drawn:" + hashlib.sha256(text.encode()).hexdigest()[:12]


def _sizes(config: AnswerConfig) -> tuple[int, ...] | None:
    """One size: the given one, else 100; a file of the user's has its own."""
    size = config.pools.size
    own = config.data.data is not None and is_custom(config.data.data)
    return (size or 100,) if size or not own else None


def run_answers(config: AnswerConfig) -> Outcome:
    """Ask for every query, keep the rows, write predictions.jsonl and summary.json.

    Raises DataError for faulty data, BudgetReached, and UserError for faulty settings, for a
    folder that holds another run, and where not one query was answered.
    """
    with open_chats(config.chat) as chats:
        work = Answering(config, chats)
        fingerprint = work.fingerprint()
        path, on_existing = config.run.out, config.run.on_existing
        if path is None:
            name = file_name(config.model[-40:])
            path = Path("runs") / f"task3-answer-{name}-{short_hash(fingerprint)}"
            on_existing = "resume" if on_existing == "refuse" else on_existing
        with open_run(path, fingerprint, on_existing, is_item_row) as folder:
            folder.write_manifest()
            run_items(
                folder,
                work.items(),
                label=f"{config.model} at {work.material.sizes[0]}",
                in_flight=config.chat.in_flight,
                retry_failed=config.run.retry_failed,
                keep_going=config.run.keep_going,
            )
            rows = folder.rows
            write_atomically(path / PREDICTIONS, b"".join(map(encode_row, _official(rows))))
            summary = summarise(work, rows)
            write_atomically(path / SUMMARY, canonical(summary) + "\n")
    if not summary["answered"]:
        failures = Failures(row["error"] for row in rows)
        raise UserError(f"{path}: not one of {len(rows)} queries was answered ({failures})")
    return Outcome(path, summary)


def plan_answers(config: AnswerConfig) -> Mapping[str, Plan]:
    """By the models' names, what the run would send. Writes no run folder."""
    with open_chats(config.chat) as chats:
        for work in Answering(config, chats).items().values():
            work()
        return chats.plans()


def _official(rows: Sequence[Mapping[str, JSON]]) -> list[dict[str, JSON]]:
    keys = ("answer", "reason", "selected_memory_id")
    return [
        {"benchmark_id": row["item"], **{key: row["result"][key] for key in keys}}
        for row in rows
        if row["error"] is None
    ]


def summarise(work: Answering, rows: Sequence[Mapping[str, JSON]]) -> dict[str, JSON]:
    """Exact recall@1 of the memories chosen, the use of the gold by overlap, and what it took.

    Intervals are over sessions. Failed queries are counted by cause and in no share.
    """
    sessions = {row.benchmark_id: row.session_id for row in work.material.pools.rows}
    there = [row for row in rows if row["error"] is None]
    failures = Failures(row["error"] for row in rows)
    results = [row["result"] for row in there]
    clusters = [sessions[row["item"]] for row in there]
    bootstrap = Bootstrap(clusters, work.config.seed) if there else None

    def share(values: Sequence[bool]) -> dict[str, JSON] | None:
        if bootstrap is None:
            return None
        found = asdict(bootstrap.interval(np.array(values, float)))
        return {k: v if isinstance(v, str) else round(v, 6) for k, v in found.items()}

    totals = {key: sum(row[key] for row in rows) for key in ("calls", "tokens_in", "tokens_out")}
    return {
        "model": work.chat.name,
        "split": work.material.data.split,
        "pools": work.material.strategy,
        "distractors": work.material.sizes[0],
        "shown": {"label": work.label, "depth": work.depth} if work.retriever else "the whole pool",
        "attempted": len(rows),
        "answered": len(there),
        "failed": dict(sorted(failures.counts.items())),
        "reasons": dict(sorted(failures.reasons.items())),
        "gold_shown": share([one["gold_shown"] for one in results]),
        "recall_at_1": share([one["correct"] for one in results]),
        "used_by_overlap": share([one["overlap"] >= USED_FROM for one in results]),
        "named_no_memory": sum(one["selected_memory"] is None for one in results),
        "unknown_labels": sum(one["unknown_label"] for one in results),
        "repairs": dict(sum((Counter(one.get("repairs", {})) for one in results), Counter[str]())),
        **totals,
        "cost": work.cost(totals["tokens_in"], totals["tokens_out"]),
    }
