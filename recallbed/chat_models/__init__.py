"""Who answers a prompt: OpenAI-compatible client, local model, reply cache, usage."""

from recallbed.chat_models.base import (
    BudgetReached,
    Cause,
    ChatModel,
    Failure,
    LogProbability,
    Message,
    Reply,
    Request,
    Rung,
    TokenScorer,
    Usage,
)
from recallbed.chat_models.budget import Budget, Price, Prices, read_prices
from recallbed.chat_models.cache import ReplyCache, choose_cache
from recallbed.chat_models.dry_run import DryRun
from recallbed.chat_models.passthrough import AssistantMessage, Passthrough, ToolCall
from recallbed.chat_models.prompts import Fence, PromptFile, fence_for, harmless, harmless_line
from recallbed.chat_models.session import ChatOptions, Chats, chat_model, open_chats
from recallbed.harness.plan import Plan

__all__ = [
    "AssistantMessage",
    "Budget",
    "BudgetReached",
    "Cause",
    "ChatModel",
    "ChatOptions",
    "Chats",
    "DryRun",
    "Failure",
    "Fence",
    "LogProbability",
    "Message",
    "Passthrough",
    "Plan",
    "Price",
    "Prices",
    "PromptFile",
    "Reply",
    "ReplyCache",
    "Request",
    "Rung",
    "TokenScorer",
    "ToolCall",
    "Usage",
    "chat_model",
    "choose_cache",
    "fence_for",
    "harmless",
    "harmless_line",
    "open_chats",
    "read_prices",
]
