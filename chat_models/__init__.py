"""Who answers a prompt: OpenAI-compatible client, local model, reply cache, usage."""

from chat_models.base import (
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
from chat_models.budget import Budget
from chat_models.cache import ReplyCache, choose_cache
from chat_models.choose import chat_model
from chat_models.dry_run import DryRun, Plan
from chat_models.fence import Fence, fence_for, harmless, one_line
from chat_models.prices import Price, Prices, read_prices
from chat_models.prompt_file import PromptFile
from chat_models.session import ChatOptions, Chats, open_chats

__all__ = [
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
    "Plan",
    "Price",
    "Prices",
    "PromptFile",
    "Reply",
    "ReplyCache",
    "Request",
    "Rung",
    "TokenScorer",
    "Usage",
    "chat_model",
    "choose_cache",
    "fence_for",
    "harmless",
    "one_line",
    "open_chats",
    "read_prices",
]
