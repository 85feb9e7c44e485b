"""What texts become and where they live: tokens, encoder, term bags."""

from indexes.tokens import MultilingualTokens, PaperTokens, Tokenizer, Tokens

__all__ = ["MultilingualTokens", "PaperTokens", "Tokenizer", "Tokens"]
