"""Constrained generation of a local model by llguidance: only tokens that fit a JSON schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

JSON = Any


class Grammar:
    """Makes token masks for one tokenizer. `vocabulary` is the width of the model's output.

    Raise ValueError for a tokenizer that llguidance does not support.
    """

    def __init__(self, tokenizer: Any, vocabulary: int) -> None:
        import llguidance.hf

        try:
            self._tokenizer = llguidance.hf.from_tokenizer(tokenizer, n_vocab=vocabulary)
        except Exception as error:  # of any class, from its Rust code
            raise ValueError(str(error)) from error

    def holding_to(self, schema: Mapping[str, JSON], prompt: int) -> _Mask:
        """Return a logits processor for one reply after `prompt` tokens.

        Raise ValueError for an unsupported schema.
        """
        from llguidance import LLMatcher

        text = LLMatcher.grammar_from_json_schema(
            json.dumps(schema), defaults={"whitespace_flexible": False}
        )
        fault = LLMatcher.validate_grammar(text, self._tokenizer)
        if fault:
            raise ValueError(fault)
        return _Mask(LLMatcher(self._tokenizer, text), self._tokenizer.vocab_size, prompt)


class _Mask:
    """Sets the score of every token that cannot come next to minus infinity."""

    def __init__(self, matcher: Any, vocabulary: int, prompt: int) -> None:
        from llguidance.torch import allocate_token_bitmask

        self._matcher, self._prompt = matcher, prompt
        self._bits = allocate_token_bitmask(1, vocabulary)

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        from llguidance.torch import apply_token_bitmask_inplace, fill_next_token_bitmask

        written = input_ids[0, self._prompt :].tolist()
        if written:
            self._matcher.consume_tokens(written[-1:])
        fill_next_token_bitmask(self._matcher, self._bits, 0)
        apply_token_bitmask_inplace(scores, self._bits)
        return scores
