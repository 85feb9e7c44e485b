"""memory/: the registry, the systems that ask no model to remember, search, and answers."""

from collections.abc import Iterator
from typing import Any

import pytest

from chat_models import ChatModel, chat_model
from memory import MemorySystem, SystemContext, build_system
from memory.testing import MemorySystemContract
from tests.perfect_assistant import perfect
from tests.scripted_server import ScriptedServer, scripted_server

OURS = ["full-dialogue", "gold-memory", "mem0", "none", "turns"]


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    with scripted_server(perfect) as running:
        yield running


def chat_at(server: ScriptedServer, **options: Any) -> ChatModel:
    return chat_model("openai:scripted", base_url=server.url, first_wait=0.01, **options)


@pytest.mark.parametrize("name", OURS)
class TestEverySystem(MemorySystemContract):
    @pytest.fixture(autouse=True)
    def _with(self, name: str, server: ScriptedServer) -> Iterator[None]:
        self.name, self.keeps_loaded, self.model = name, name != "none", chat_at(server)
        yield
        self.model.close()

    def chat(self) -> ChatModel:
        return self.model

    def make(self, context: SystemContext) -> MemorySystem:
        return build_system(self.name, {}, context)
