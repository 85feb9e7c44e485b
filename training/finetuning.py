"""The loaded encoder of a fine-tuning, its trainings by part and seed, and their folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from indexes.compact import tensors_hash, whole_model_folder, write_compact
from indexes.model_folder import Role, asymmetry, model_hash, resolve_model
from indexes.sentence_encoder import load_model
from recallbed.errors import UserError
from recallbed.harness.progress import progress
from retrievers.trained import trained_sessions
from training.card import BaseModel, Card, license_of, write_card
from training.encoder_training import (
    WEIGHTS,
    EncoderTraining,
    EpochResult,
    encoded,
    load_trained,
    trained_parameters,
)
from training.examples import TrainingData
from training.finetune_options import FinetuneConfig, model_label
from training.folds import fold_of
from training.frozen_layers import FrozenLayers
from training.negatives import Floats
from training.pairs import TextPairs, by_length

LIBRARIES = (
    *("accelerate", "datasets", "numpy", "safetensors", "sentence-transformers", "tokenizers"),
    *("torch", "transformers"),
)


@dataclass(frozen=True, slots=True)
class Part:
    """One model to be made, and the sessions that it is trained on."""

    name: str
    sessions: frozenset[str]


class Finetuning:
    """The loaded model, whose trained layers are set back before each training."""

    def __init__(
        self,
        config: FinetuneConfig,
        data: TrainingData,
        work: Path,
        figures: Mapping[str, Any] | None,
    ) -> None:
        self.config, self.data, self.work, self.figures = config, data, work, figures
        encoder = config.encoder
        base = resolve_model(encoder.base_model)
        found = asymmetry(whole_model_folder(base))
        if found.routed:
            raise UserError(
                f"{encoder.base_model}: its networks per role cannot be fine-tuned together"
            )
        self.prompts: dict[Role, str] = dict(found.prompts)
        self.base, self.weights = base, model_hash(base)
        self.model = load_model("SentenceTransformer", base, encoder.device)
        self.limit = self.model.max_seq_length
        self._truncate()
        self.tensors = tensors_hash(self.model.state_dict())
        self.frozen = FrozenLayers(self.model, encoder.freeze_layers)
        self.initial = {n: p.detach().clone() for n, p in trained_parameters(self.model).items()}
        for role in ("query", "memory"):
            self._remember(role)
        self.vectors: dict[Role, Floats] = {}
        self.pairs = TextPairs.of(data, self._base_vectors)
        self.vectors["query"] = self._encoded(self.pairs.queries, "query")

    def _truncate(self) -> None:
        most = self.config.encoder.max_length
        self.model.max_seq_length = min(most, self.limit or most)

    def _remember(self, role: Role) -> None:
        """Run the frozen layers over all texts, the same in an interrupted and a resumed run."""
        if not self.config.encoder.freeze_layers:
            return
        texts = [one.query if role == "query" else one.memory for one in self.data.examples]
        texts += self.data.bank if role == "memory" else ()
        order = by_length(self.model, texts)
        with progress(f"frozen layers, {role}", len(order)) as advance:
            for start in range(0, len(order), 64):
                some = order[start : start + 64]
                inputs = self.model.preprocess(some, prompt=self.prompts[role] or None)
                self.frozen.remember(inputs["input_ids"])
                advance(len(some))

    def _base_vectors(self, memories: Sequence[str]) -> Floats:
        self.vectors["memory"] = self._encoded(memories, "memory")
        return self.vectors["memory"]

    def _encoded(self, texts: Sequence[str], role: Role) -> Floats:
        with progress(f"encoding by the base model, {role}", len(texts)) as advance:
            return encoded(self.model, texts, self.prompts[role], advance)

    def train(self, part: Part, seed: int) -> list[EpochResult]:
        """Train the model of a part with a seed; its result is in the folder of checkpoints."""
        load_trained(self.model, self.initial)
        train, held = self._split(part)
        label = f"{part.name}, seed {seed}"
        return EncoderTraining(
            *(self.model, self.pairs, train, held, self.config.recipe, self.prompts),
            *(self._place(part, seed), seed, label, self.vectors),
        ).run()

    def _place(self, part: Part, seed: int) -> Path:
        return self.work / f"{part.name}-seed-{seed}"

    def _split(self, part: Part) -> tuple[Any, Any]:
        """The numbers of the pairs of a part: those to be trained on, and those held out."""
        examples = self.data.examples
        inside = np.array([one.session in part.sessions for one in examples])
        held = np.zeros(len(examples), np.bool_)
        if self.config.encoder.hold_out:
            some = [one for one in examples if one.session in part.sessions]
            folds = fold_of(some, self.config.encoder.hold_out, self.config.options.seed)
            held = np.array([folds.get(one.session) == 0 for one in examples])
        return np.flatnonzero(inside & ~held), np.flatnonzero(inside & held)

    def write(
        self,
        part: Part,
        folder: Path,
        epochs: Mapping[tuple[str, int], Sequence[EpochResult]],
    ) -> dict[str, float]:
        """Write the model of a part, the mean over seeds, with its card.

        Return the share of the change that a compact model keeps, by the part's name.
        """
        import torch
        from safetensors.torch import load_file

        config, options, encoder = self.config, self.config.options, self.config.encoder
        seeds = range(options.seed, options.seed + encoder.seeds)
        found = [load_file(self._place(part, seed) / WEIGHTS) for seed in seeds]
        mean = {
            name: torch.stack([one[name].double() for one in found]).mean(0).to(value.dtype)
            for name, value in self.initial.items()
        }
        kept: dict[str, float] = {}
        if not encoder.compact:
            load_trained(self.model, mean)
            self.model.max_seq_length = self.limit
            self.model.save_pretrained(str(folder), create_model_card=False)
            self._truncate()
        else:
            local = Path(encoder.base_model).expanduser().is_dir()
            found_as = str(self.base.resolve()) if local else encoder.base_model
            kept[part.name] = write_compact(
                folder, found_as, self.tensors, self.initial, mean, encoder.rank
            )
        name = model_label(encoder.base_model)
        base = BaseModel(name, self.weights, license_of(name, self.base))
        trained_for = {
            f"epochs of seed {seed}": [
                {"loss": round(one.loss, 4), "held out": _rounded(one.held_out)}
                for one in epochs[part.name, seed]
            ]
            for seed in seeds
        }
        named = replace(encoder, base_model=base.name)
        command = options.command_line("training.finetune", named, config.recipe)
        card = Card.of(
            "finetuned",
            command,
            options.seed,
            {**config.settings(), **trained_for},
            self.data.provenance,
            sorted(part.sessions),
            [base],
            LIBRARIES,
            self.figures,
            self.data.aliases,
        )
        # What the base was trained on, the result was too.
        digests = sorted({*card.sessions, *trained_sessions([self.base])})
        write_card(folder, replace(card, sessions=digests))
        return kept


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
