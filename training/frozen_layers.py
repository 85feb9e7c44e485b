"""The lowest layers of a text encoder, frozen, and their output remembered for each input.

Layers that do not change give the same output in every epoch. It is computed once per input, so
that a step of training and an epoch's encoding of all memories run the upper layers only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from recallbed.errors import UserError

# Where a model of transformers keeps its layers, by `config.model_type`. Other models may do more
# between two layers than pass a hidden state on.
_LAYERS = {
    "bert": "encoder",
    "camembert": "encoder",
    "distilbert": "transformer",
    "mpnet": "encoder",
    "roberta": "encoder",
    "xlm-roberta": "encoder",
}
REMEMBERED = 2 << 30
"""Bytes of hidden states that are kept. Inputs beyond it are computed each time."""


class FrozenLayers:
    """The embeddings and the lowest `count` layers of a sentence-transformers model, frozen.

    Only the layers above are trained, and what is behind them, not what all layers share.
    While it is in force, the model gives the same vectors as before, but for dropout: frozen layers
    have none. The parameters keep their names and places, so that the model can be saved. Raises
    UserError for a model that has fewer layers, or that cannot be frozen.
    """

    def __init__(self, model: Any, count: int, remembered: int = REMEMBERED) -> None:
        self._room = remembered
        self._known: dict[bytes, Any] = {}
        self._filling = False
        self._as_tuple = False
        self._inner = getattr(model[0], "auto_model", None) if count else None
        if not count:
            return
        kind = getattr(getattr(self._inner, "config", None), "model_type", "unknown")
        tokenizer = model.tokenizer
        if kind not in _LAYERS or getattr(tokenizer, "padding_side", "") != "right":
            raise UserError(
                f"--freeze-layers {count}: layers of a model of type {kind} cannot be frozen."
                " Use --freeze-layers 0"
            )
        layers = getattr(self._inner, _LAYERS[kind]).layer
        if count >= len(layers):
            raise UserError(
                f"--freeze-layers {count}: the model has {len(layers)} layers, and one must be left"
                " to be trained"
            )
        self._pad = tokenizer.pad_token_id
        assert self._inner is not None
        self._frozen = [self._inner.embeddings, *layers[:count]]
        above = {id(p) for layer in layers[count:] for p in layer.parameters()}
        # Such as the position bias of MPNet, which the frozen layers read too.
        self._still = [
            p for p in self._inner.parameters() if p.requires_grad and id(p) not in above
        ]
        self._embed = self._inner.embeddings.forward
        self._inner.embeddings.forward = self._embeddings
        for i, layer in enumerate(layers):
            layer.forward = self._layer(layer.forward, frozen=i < count)
        for parameter in self._still:
            parameter.requires_grad_(False)

    def release(self) -> None:
        """Let the model compute all its layers again; their parameters can be trained again."""
        if self._inner is None:
            return
        layers = getattr(self._inner, _LAYERS[self._inner.config.model_type]).layer
        for part in (self._inner.embeddings, *layers):
            del part.forward
        for parameter in self._still:
            parameter.requires_grad_(True)
        self._known.clear()
        self._inner = None

    def remember(self, ids: Any) -> None:
        """Keep the frozen layers' output for rows of token ids, (n, length), while there is room.

        Which rows are kept and computed together decides the last bits of a vector: a run that is
        to be repeated calls this with the same rows in the same order.
        """
        if self._inner is None:
            return
        rows = [row for row in self._rows(ids) if row.numpy().tobytes() not in self._known]
        if not rows or self._room <= 0:
            return
        for row, state in zip(rows, self._computed(rows), strict=True):
            kept = state.clone()
            self._room -= kept.numel() * kept.element_size()
            self._known[row.numpy().tobytes()] = kept

    def _rows(self, ids: Any) -> list[Any]:
        """The token ids of each row up to the last that is not padding."""
        width = ids.shape[1]
        behind = (ids != self._pad).flip(1).int().argmax(dim=1).tolist()
        return [row[: width - n] for row, n in zip(ids.cpu(), behind, strict=True)]

    def _embeddings(self, *args: Any, **named: Any) -> Any:
        """In place of the embeddings: the hidden states behind the last frozen layer."""
        if self._filling:
            return self._embed(*args, **named)
        from torch.nn.utils.rnn import pad_sequence

        ids = named["input_ids"] if "input_ids" in named else args[0]
        rows = self._rows(ids)
        keys = [row.numpy().tobytes() for row in rows]
        missing = {key: row for key, row in zip(keys, rows, strict=True) if key not in self._known}
        made = dict(zip(missing, self._computed(list(missing.values())), strict=True))
        states = [made[key] if key in made else self._known[key] for key in keys]
        padded = pad_sequence(
            [*states, states[0].new_zeros(ids.shape[1], states[0].shape[1])], True
        )
        return padded[:-1]

    def _layer(self, forward: Any, *, frozen: bool) -> Any:
        """In place of the `forward` of a layer, which passes on what it is not to compute."""

        def passed(hidden_states: Any, *args: Any, **named: Any) -> Any:
            if frozen is not self._filling:
                return (hidden_states,) if self._as_tuple else hidden_states
            made = forward(hidden_states, *args, **named)
            self._as_tuple = isinstance(made, tuple)
            return made

        return passed

    def _computed(self, rows: Sequence[Any]) -> list[Any]:
        """The frozen layers' output for rows of token ids, each (length, width)."""
        if not rows:
            return []
        import torch
        from torch.nn.utils.rnn import pad_sequence

        assert self._inner is not None
        device = next(self._inner.parameters()).device
        ids = pad_sequence(list(rows), True, self._pad).to(device)
        lengths = torch.tensor([len(row) for row in rows], device=device)
        mask = (torch.arange(ids.shape[1], device=device) < lengths[:, None]).long()
        with torch.no_grad(), self._fill():
            states = self._inner(input_ids=ids, attention_mask=mask)[0]
        return [state[: len(row)] for state, row in zip(states, rows, strict=True)]

    @contextmanager
    def _fill(self) -> Iterator[None]:
        """Compute the frozen layers only, without dropout."""
        assert self._inner is not None
        training = [part.training for part in self._frozen]
        self._filling = True
        for part in self._frozen:
            part.eval()
        try:
            yield
        finally:
            self._filling = False
            for part, mode in zip(self._frozen, training, strict=True):
                part.train(mode)
