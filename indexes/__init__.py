"""Tokens, encoder, embedding store and indexes of texts."""

import recallbed  # noqa: F401  (first: its guard against folders of the same names)
from indexes.tokens import MultilingualTokens, PaperTokens, TokenizedText, Tokenizer

__all__ = ["MultilingualTokens", "PaperTokens", "TokenizedText", "Tokenizer"]
