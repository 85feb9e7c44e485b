"""Small models of random weights, saved as transformers saves them: real parts, no download."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SIZES: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64}
SIZES |= {"num_hidden_layers": 2, "num_attention_heads": 2}
MARKS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] + ' : ' + m['content'] + ' ' }}{% endfor %}"
    "{% if add_generation_prompt %}assistant :{% endif %}"
)


def words_of(texts: Sequence[str]) -> list[str]:
    """The words of some texts, for a vocabulary."""
    return sorted({word for text in texts for word in text.split()})


def save_tokenizer(folder: Path, words: Sequence[str], limit: int) -> int:
    """A tokenizer that knows whole words, and pairs as BERT does. Gives the vocabulary's size."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    numbers = {word: i for i, word in enumerate(dict.fromkeys((*MARKS, *words)))}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=limit,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        eos_token="[SEP]",
        chat_template=TEMPLATE,
    ).save_pretrained(folder)
    return len(numbers)


def save_bert(
    folder: Path,
    words: Sequence[str],
    *,
    kind: str = "BertForSequenceClassification",
    limit: int = 48,
    outputs: int = 1,
) -> Path:
    """A BERT of `kind` that reads `limit` tokens; of the default kind it is a cross-encoder."""
    import torch
    import transformers

    size = save_tokenizer(folder, words, limit)
    torch.manual_seed(3)
    config = transformers.BertConfig(
        vocab_size=size,
        max_position_embeddings=limit,
        num_labels=outputs,
        initializer_range=0.5,
        **SIZES,
    )
    model: Any = getattr(transformers, kind)(config)
    model.save_pretrained(folder)
    return folder


def save_llama(folder: Path, words: Sequence[str], *, limit: int = 256) -> Path:
    """A language model that reads `limit` tokens, with a chat template."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    size = save_tokenizer(folder, words, limit)
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=size, max_position_embeddings=limit, initializer_range=0.3, **SIZES
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def save_static(folder: Path, vectors: Mapping[str, Sequence[float]], **settings: Any) -> Path:
    """A static sentence-transformers model: a text is the mean of its words' vectors.

    A word that is not among `vectors` has a vector of zeros. `settings`, such as `prompts`, go to
    SentenceTransformer.
    """
    from sentence_transformers import SentenceTransformer

    SentenceTransformer(modules=[static(vectors)], device="cpu", **settings).save(str(folder))
    return folder


def static(vectors: Mapping[str, Sequence[float]]) -> Any:
    """The module of a static model."""
    import numpy as np
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer, models, pre_tokenizers

    numbers = {word: i for i, word in enumerate(["[UNK]", *vectors])}
    words = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    rows = list(vectors.values())
    weights = np.array([[0.0] * len(rows[0]), *rows], np.float32)
    return StaticEmbedding(words, embedding_weights=weights)
