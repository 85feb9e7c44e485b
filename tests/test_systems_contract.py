"""The contract of external systems, kept by those that are installed, over a real gateway.

The model is a scripted server that `OpenAIModel` asks, the embedder is MiniLM.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import ClassVar

import pytest

from memory_systems import SystemContext
from memory_systems.external.catalogue import EXTERNAL, ExternalSpec
from memory_systems.external.environments import installed
from memory_systems.external.installed import InstalledSystem
from memory_systems.external.testing import ExternalSystemContract
from recallbed.chat_models.base import ChatModel
from recallbed.chat_models.openai_model import OpenAIModel
from tests.scripted_server import scripted_server
from tests.system_replies import answer

pytestmark = [pytest.mark.slow, pytest.mark.systems]


class Contract(ExternalSystemContract):
    __test__ = False
    spec: ClassVar[ExternalSpec]
    model: ClassVar[ChatModel]
    stack: ClassVar[ExitStack]

    @classmethod
    def setup_class(cls) -> None:
        if installed(cls.spec) is None:
            name = cls.spec.name
            pytest.skip(f"{name} is not installed: python -m memory_systems.install {name}")
        super().setup_class()
        cls.stack = ExitStack()
        server = cls.stack.enter_context(scripted_server(answer))
        cls.model = OpenAIModel("scripted", base_url=server.url)
        cls.system = type("System", (InstalledSystem,), {"spec": cls.spec})

    @classmethod
    def teardown_class(cls) -> None:
        super().teardown_class()
        cls.stack.close()

    def make(self, context: SystemContext) -> InstalledSystem:
        made: InstalledSystem = self.system(context)
        return made

    def chat(self) -> ChatModel:
        return self.model


for _spec in EXTERNAL.values():
    _name = f"Test{_spec.name.title().replace('-', '')}"
    globals()[_name] = type(_name, (Contract,), {"spec": _spec, "__test__": True})
