"""The trainer of sentence-transformers for masked contrastive learning; imports torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.util import cos_sim
from transformers import PrinterCallback, TrainerCallback
from typing_extensions import override

if TYPE_CHECKING:
    from training.encoder_training import EncoderTraining, Recipe
    from training.pairs import Numbers, PairBatches


class MaskedRankingLoss(MultipleNegativesRankingLoss):
    """Cross-entropy of each query's gold among the documents of the batch that are not barred.

    The InfoNCE loss (van den Oord et al. 2018) with cosines times `scale` as logits. A text that
    is in the batch twice is one document, and a near-duplicate of the gold is none.
    """

    @override
    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Any) -> torch.Tensor:
        made = torch.cat([self.model(part)["sentence_embedding"] for part in sentence_features])
        logits = cos_sim(made[labels["query"]], made[labels["document"]]) * self.scale
        logits = logits.masked_fill(labels["barred"], -torch.inf)
        return torch.nn.functional.cross_entropy(logits, labels["gold"])


class SeededBatches(DefaultBatchSampler):
    """Batches of all rows in an order that depends on the seed and the epoch alone."""

    @override
    def __iter__(self) -> Iterator[list[int]]:
        size = len(self.sampler)  # type: ignore[arg-type]
        order = np.random.default_rng((self.seed, self.epoch)).permutation(size).tolist()
        yield from (order[i : i + self.batch_size] for i in range(0, size, self.batch_size))


class RankingTrainer(SentenceTransformerTrainer):
    """A trainer whose checkpoints hold no text of the data."""

    def follow(self, training: EncoderTraining, advance: Callable[[int], None]) -> None:
        """Let `training` mine, measure and keep its progress; `advance` is called per step."""
        self.losses = training.losses
        self.add_callback(_Follow(training, advance))

    @override
    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Add none: its cards show texts of the training data."""

    @override
    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        self.model.save_pretrained(str(output_dir), create_model_card=False)

    @override
    def training_step(self, *args: Any, **named: Any) -> torch.Tensor:
        loss = super().training_step(*args, **named)
        self.losses.append(float(loss))
        return loss


class _Follow(TrainerCallback):
    def __init__(self, training: EncoderTraining, advance: Callable[[int], None]) -> None:
        self.training, self.advance = training, advance

    @override
    def on_epoch_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self.training.begin_epoch(state.global_step)

    @override
    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self.advance(1)
        step, every = state.global_step, self.training.recipe.checkpoint_every
        if every and step % every == 0 and step % self.training.steps:
            control.should_save = True

    @override
    def on_epoch_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        control.should_training_stop = self.training.end_epoch(state.global_step)
        control.should_save = True

    @override
    def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self.training.save_progress(state.global_step)


def ranking_trainer(
    model: Any,
    recipe: Recipe,
    train: Numbers,
    batches: PairBatches,
    folder: Path,
    seed: int,
    warm_up: int,
) -> RankingTrainer:
    """Return the trainer of `model` on the pairs numbered `train`, with checkpoints in `folder`."""
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        num_train_epochs=recipe.epochs,
        per_device_train_batch_size=recipe.batch_size,
        learning_rate=recipe.learning_rate,
        weight_decay=recipe.weight_decay,
        warmup_steps=warm_up,
        lr_scheduler_type="linear",
        seed=seed,
        use_cpu=model.device.type == "cpu",
        batch_sampler=SeededBatches,
        save_strategy="no",  # the callback says when
        save_total_limit=2,
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    trainer = RankingTrainer(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_dict({"label": train.tolist()}),
        loss=MaskedRankingLoss(model, scale=1 / recipe.loss_temperature),
        data_collator=cast(Any, batches),
    )
    trainer.remove_callback(PrinterCallback)
    return trainer
