"""Worker of EverMemOS (everos): memories are its atomic facts, in Markdown with an index of it.

Its server's application runs in this process and is asked without a socket.
"""

import asyncio
import importlib
import os
import re
import sys
from datetime import datetime
from importlib.metadata import version
from typing import Any

from serve import repeat_ids, serve, tokenizer_files

USER = "user"  # a folder holds one user; the name is in prompts
FIRST = "2025-01-01T00:00:00+00:00"
DIMENSION = 384
MOST = 1_000_000
MOST_MESSAGES, MOST_HITS = 500, 100  # in one request
DAY = "86400"  # seconds: the run limits the time of an operation
BACKGROUND = ("extract_atomic_facts", "trigger_profile_clustering", "extract_user_profile")

# All are read when EverMemOS is imported or opened.
os.environ.update(
    EVEROS_MEMORIZE__MODE="chat",
    EVEROS_MEMORIZE__SESSION_LOCK_TIMEOUT_SECONDS=DAY,
    EVEROS_LLM__MODEL="chat",
    EVEROS_LLM__TIMEOUT_SECONDS=DAY,
    EVEROS_EMBEDDING__MODEL="embedder",
    EVEROS_EMBEDDING__DIM=str(DIMENSION),
    EVEROS_EMBEDDING__TIMEOUT_SECONDS=DAY,
    # One thing after the other, so that two runs ask in the same order.
    EVEROS_EMBEDDING__MAX_CONCURRENT="1",
    EVEROS_OME_MAX_CONCURRENT_RUNS="1",
    # The worker fills the index itself, instead of a thread that looks for changes.
    EVEROS_DISABLE_CASCADE="1",
    TIKTOKEN_CACHE_DIR=tokenizer_files(),
)
repeat_ids("")


class EverMemOSWorker:
    """The operations of the protocol over the application of everos."""

    lifespan: Any = None

    def __init__(self) -> None:
        import jieba
        from everos.infra.persistence.index import _provenance, episode_repo

        importlib.import_module("everos.entrypoints.api.app")  # and all that it imports
        jieba.dt.tmp_dir = os.environ["HOME"]
        self.runner = asyncio.Runner()
        self.unset = [
            (module, name)
            for key, module in list(sys.modules.items())
            if key.startswith("everos.")
            for name, value in vars(module).items()
            if value is None and name.startswith("_") and not name.startswith("__")
        ]
        find = episode_repo.find_by_owner_entries

        async def dimension() -> int:
            # Asked at every start, with a time limit that a model which is being loaded exceeds.
            return DIMENSION

        async def find_indexed(*args: Any, **settings: Any) -> Any:
            # A profile is made of the indexed episodes; whether the newest is, was a race.
            await self._fill_index()
            return await find(*args, **settings)

        _provenance.probe_embedding_dimension = dimension
        episode_repo.find_by_owner_entries = find_indexed

    def open(
        self, folder: str, user: str, base_url: str, api_key: str, settings: dict[str, Any]
    ) -> None:
        os.environ["EVEROS_ROOT"] = folder
        for part in ("LLM", "EMBEDDING"):
            os.environ[f"EVEROS_{part}__BASE_URL"] = base_url
            os.environ[f"EVEROS_{part}__API_KEY"] = api_key
        self.runner.run(self._open())

    async def _open(self) -> None:
        import httpx
        from everos.component.tokenizer import build_tokenizer
        from everos.core.persistence import MemoryRoot
        from everos.entrypoints.api.app import create_app
        from everos.memory.cascade.orchestrator import CascadeConfig, CascadeOrchestrator

        self.root = MemoryRoot.resolve()
        self.root.ensure()
        # The same request would have the same reply.
        settings = "".join(f"[strategies.{name}]\nmax_retries = 0\n" for name in BACKGROUND)
        self.root.ome_config.write_text(settings)
        app = create_app()
        self.lifespan = app.router.lifespan_context(app)
        await self.lifespan.__aenter__()
        self.index = CascadeOrchestrator(
            memory_root=self.root,
            tokenizer=build_tokenizer(),
            config=CascadeConfig(worker_handler_concurrency=1),
        )
        # Upkeep of large tables, at times of the clock.
        setattr(self.index._worker, "_schedule_optimize", lambda kind: None)  # noqa: B010
        self.client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=app), base_url="http://everos", timeout=None
        )

    def load(self, items: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "ids": self.runner.run(self._load([without_headings(item["text"]) for item in items]))
        }

    async def _load(self, texts: list[str]) -> list[str]:
        """Write each text as an episode with one fact: its search starts from episodes."""
        from everos.infra.persistence.markdown import AtomicFactWriter, EpisodeWriter

        about = {"owner_id": USER, "session_id": "loaded", "timestamp": FIRST}
        episodes = [
            (
                {**about, "parent_type": "memcell", "parent_id": "", "sender_ids": [USER]},
                {"Subject": text, "Summary": text, "Content": text},
            )
            for text in texts
        ]
        parents = await EpisodeWriter(self.root).append_entries(USER, episodes)
        facts = [
            ({**about, "parent_type": "episode", "parent_id": parent.format()}, {"Fact": text})
            for parent, text in zip(parents, texts, strict=True)
        ]
        written = await AtomicFactWriter(self.root).append_entries(USER, facts)
        await self._fill_index()
        return [f"{USER}_{fact.format()}" for fact in written]

    def ingest(self, turns: list[dict[str, Any]], time: str) -> None:
        repeat_ids(repr((time, turns, self.list())))
        start = int(datetime.fromisoformat(time).timestamp() * 1000)
        messages = [
            {
                "sender_id": USER if turn["role"] == "user" else turn["role"],
                "role": turn["role"],
                "timestamp": start + 1000 * number,
                "content": turn["text"],
            }
            for number, turn in enumerate(turns)
        ]
        self.runner.run(self._ingest(time[:10], messages))

    async def _ingest(self, session: str, messages: list[dict[str, Any]]) -> None:
        from everos.infra.ome.records import RunStatus
        from everos.service.memorize import _get_engine

        for first in range(0, len(messages), MOST_MESSAGES):
            part = messages[first : first + MOST_MESSAGES]
            await self._ask("add", session_id=session, messages=part, defer_extraction=True)
        await self._ask("flush", session_id=session)
        engine = _get_engine()
        await engine.wait_idle(timeout=float(DAY))
        for name in BACKGROUND:
            for run in await engine.list_runs(name, status=RunStatus.DEAD_LETTER):
                raise RuntimeError(f"{name}: {run.error}")
        await self._fill_index()

    def list(self) -> dict[str, Any]:
        return self.runner.run(self._list())

    async def _list(self) -> dict[str, Any]:
        from everos.infra.persistence.index import atomic_fact_repo, eq

        rows = await atomic_fact_repo.find_where(
            eq("owner_id", USER), limit=MOST, skip_vectors=True
        )
        rows.sort(key=lambda row: row.entry_id)
        profiles = (await self._ask("get", user_id=USER, memory_type="profile"))["profiles"]
        return {
            "memories": [{"id": row.id, "text": row.fact} for row in rows],
            "context": [
                f"{one.get('category') or one.get('trait')}: {one.get('description')}"
                for profile in profiles
                for part in ("explicit_info", "implicit_traits")
                for one in profile["profile_data"][part]
            ],
        }

    def search(self, query: str, k: int) -> dict[str, Any]:
        return self.runner.run(self._search(query, k))

    async def _search(self, query: str, k: int) -> dict[str, Any]:
        """Return the facts of its hybrid search; episodes that rank above their facts are context.

        Of an episode it finds three facts at most.
        """
        data = await self._ask("search", user_id=USER, query=query, top_k=MOST_HITS)
        facts = [fact for episode in data["episodes"] for fact in episode["atomic_facts"]]
        facts.sort(key=lambda fact: (-fact["score"], fact["id"]))
        return {
            "hits": [
                {"id": fact["id"], "text": fact["content"], "score": fact["score"]}
                for fact in facts[:k]
            ],
            "context": [one["episode"] for one in data["episodes"] if not one["atomic_facts"]][:k],
        }

    def close(self) -> None:
        if self.lifespan is not None:
            self.runner.run(self._close())
            self.lifespan = None

    async def _close(self) -> None:
        """Stop the application, and forget the parts of it that its modules keep."""
        from everos.config import load_settings

        await self.client.aclose()
        await self.lifespan.__aexit__(None, None, None)
        load_settings.cache_clear()
        for module, name in self.unset:
            setattr(module, name, None)

    async def _fill_index(self) -> None:
        """Bring what is new in the Markdown into the index."""
        await self.index._scanner.scan_once()
        while await self.index._worker.drain_once():
            pass
        queue = await self.index.queue_summary()
        if queue.failed_retryable or queue.failed_permanent:
            raise RuntimeError("a file cannot be indexed")

    async def _ask(self, operation: str, **body: Any) -> Any:
        reply = await self.client.post(f"/api/v2/memory/{operation}", json=body)
        if reply.is_error:
            raise RuntimeError(f"{operation}: {reply.text}")
        return reply.json()["data"]


def without_headings(text: str) -> str:
    """Return the text with a space where its Markdown is read as a title or an entry's end."""
    return re.sub(r"^(?=###\s)|(?<=<!--)(?= /entry:)", " ", text, flags=re.MULTILINE)


serve(EverMemOSWorker(), system="evermemos", version=version("everos"))
