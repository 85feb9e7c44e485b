"""Names that commands import until they hold `ChatOptions` themselves."""

from recallbed.chat_models.session import ChatOptions
from recallbed.harness.options import flatten as chat_options

__all__ = ["DEFAULT_CHAT", "ChatOptions", "chat_options"]

DEFAULT_CHAT = ChatOptions()
