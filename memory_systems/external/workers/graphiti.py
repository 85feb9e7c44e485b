"""Worker of Graphiti on an embedded Kuzu database: its memories are the facts on the edges."""

import asyncio
import os
import warnings
from collections.abc import Coroutine
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from serve import repeat_ids, serve

# Read when Graphiti is imported. One call at a time, so that two runs ask the same.
os.environ.update(GRAPHITI_TELEMETRY_ENABLED="false", SEMAPHORE_LIMIT="1", EMBEDDING_DIM="384")
warnings.simplefilter("ignore")
repeat_ids("")

GROUP = "user"  # a folder holds one user
LOADED = datetime(2000, 1, 1, tzinfo=UTC)  # before all dialogues, which may contradict
LOOP = asyncio.new_event_loop()


def wait(work: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of an asynchronous call."""
    return LOOP.run_until_complete(work)


class GraphitiWorker:
    """The operations of the protocol over `graphiti_core.Graphiti`."""

    graph: Any = None

    def open(
        self, folder: str, user: str, base_url: str, api_key: str, settings: dict[str, Any]
    ) -> None:
        from graphiti_core import Graphiti
        from graphiti_core.cross_encoder.client import CrossEncoderClient
        from graphiti_core.driver.driver import GraphProvider
        from graphiti_core.driver.kuzu_driver import KuzuDriver
        from graphiti_core.embedder.openai import OpenAIEmbedder, OpenAIEmbedderConfig
        from graphiti_core.graph_queries import get_fulltext_indices
        from graphiti_core.llm_client.config import LLMConfig
        from graphiti_core.llm_client.openai_generic_client import OpenAIGenericClient

        class NoReranker(CrossEncoderClient):  # type: ignore[misc]
            """The search used here fuses ranks; the default one would ask a server."""

            async def rank(self, query: str, passages: list[str]) -> list[tuple[str, float]]:
                return [(passage, 1.0) for passage in passages]

        server = {"api_key": api_key, "base_url": base_url}
        path = os.path.join(folder, "graph")
        is_new = not os.path.exists(path)
        self.driver = KuzuDriver(db=path)
        self.driver._database = GROUP  # Graphiti reads it, and this driver does not set it
        chat = LLMConfig(**server, model="chat", small_model="chat", temperature=0.0)
        embedder = OpenAIEmbedderConfig(**server, embedding_model="embedder", embedding_dim=384)
        self.graph = Graphiti(
            graph_driver=self.driver,
            llm_client=OpenAIGenericClient(chat),
            embedder=OpenAIEmbedder(embedder),
            cross_encoder=NoReranker(),
        )
        if is_new:
            for query in get_fulltext_indices(GraphProvider.KUZU):  # Graphiti makes none for Kuzu
                wait(self.driver.execute_query(query))

    def load(self, items: list[dict[str, Any]]) -> dict[str, Any]:
        """Store each text as a fact about the user, an edge from the user's node to itself."""
        from graphiti_core.edges import EntityEdge
        from graphiti_core.nodes import EntityNode

        repeat_ids(repr((items, self.list())))
        embedder = self.graph.embedder
        nodes = wait(EntityNode.get_by_group_ids(self.driver, [GROUP]))
        node = next((one for one in nodes if one.name == "user"), None)
        if node is None:
            node = EntityNode(name="user", group_id=GROUP, labels=["Entity"], created_at=LOADED)
            wait(node.generate_name_embedding(embedder))
            wait(node.save(self.driver))
        ids = []
        for item in items:
            edge = EntityEdge(
                source_node_uuid=node.uuid,
                target_node_uuid=node.uuid,
                group_id=GROUP,
                name="RELATES_TO",
                fact=item["text"],
                created_at=datetime.now(UTC),
                valid_at=LOADED,
                reference_time=LOADED,
            )
            wait(edge.generate_embedding(embedder))
            wait(edge.save(self.driver))
            ids.append(edge.uuid)
        return {"ids": ids}

    def ingest(self, turns: list[dict[str, Any]], time: str) -> None:
        from graphiti_core.nodes import EpisodeType

        repeat_ids(repr((time, turns, self.list())))
        episode = self.graph.add_episode(
            name=f"dialogue {time}",
            episode_body="\n".join(f"{turn['role']}: {turn['text']}" for turn in turns),
            source=EpisodeType.message,
            source_description="dialogue",
            reference_time=datetime.fromisoformat(time),
            group_id=GROUP,
        )
        wait(episode)

    def list(self) -> dict[str, Any]:
        edges = [edge for edge in self._edges() if is_current(edge)]
        edges.sort(key=lambda edge: (edge.created_at, edge.fact))
        return {"memories": [{"id": edge.uuid, "text": edge.fact} for edge in edges]}

    def search(self, query: str, k: int) -> dict[str, Any]:
        from graphiti_core.search.search_config_recipes import EDGE_HYBRID_SEARCH_RRF

        passed = sum(not is_current(edge) for edge in self._edges())
        config = EDGE_HYBRID_SEARCH_RRF.model_copy(deep=True)
        config.limit = k + passed
        config.edge_config.sim_min_score = -1.0  # by default 0.6, for embeddings of OpenAI
        found = wait(self.graph.search_(query, config, [GROUP])).edges
        current = [edge for edge in found if is_current(edge)][:k]
        return {
            "hits": [
                {"id": edge.uuid, "text": edge.fact, "score": 1 / rank}
                for rank, edge in enumerate(current, start=1)
            ]
        }

    def close(self) -> None:
        if self.graph is not None:
            wait(self.graph.close())
            self.driver.client.close()
            self.driver.db.close()
            self.graph = self.driver = None

    def _edges(self) -> Any:
        from graphiti_core.edges import EntityEdge
        from graphiti_core.errors import GroupsEdgesNotFoundError

        try:
            return wait(EntityEdge.get_by_group_ids(self.driver, [GROUP]))
        except GroupsEdgesNotFoundError:
            return []


def is_current(edge: Any) -> bool:
    """Return whether no later dialogue contradicts a fact. One that was past when told is kept."""
    ended, told = edge.invalid_at, edge.reference_time
    return ended is None or (told is not None and ended <= told)


serve(GraphitiWorker(), system="graphiti", version=version("graphiti-core"))
