"""Training of adapters: vectors of the texts, maps, the folder of a model, cross-validation."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recallbed.corpus.material import Material
from recallbed.corpus.sessions import session_key
from recallbed.errors import UserError
from recallbed.harness.fingerprint import difference
from recallbed.harness.progress import progress
from retrievers.adapted import Adapted, Adapter, WeightedEncoder, concatenated, query_trusts
from retrievers.base import Retriever, RunContext
from retrievers.dense import Dense
from retrievers.trained import read_card
from training.adapter_fit import AdapterRecipe, Pairs, best_steps, low_rank, mean_maps
from training.card import LICENSES, BaseModel, Card, write_card
from training.examples import Kind, TrainingData
from training.folds import fold_name, fold_of, train_sessions, write_folds
from training.measure import (
    BASELINE,
    BASELINE_MODEL,
    held_out_figures,
    measure,
    write_figures,
)
from training.negatives import Negatives
from training.options import shown_model, whole_folder

Floats = NDArray[np.float32]
EncoderWeights = tuple[tuple[str, float], ...]
DEFAULT_ENCODERS: EncoderWeights = (("all-mpnet-base-v2", 1.0), ("use", 0.6))
BEST_KINDS: tuple[Kind, ...] = ("query",)
"""Questions of task 4 besides lower recall by about 0.01 in cross-validation on AlpsBench."""
_INNER_FOLDS = 5


@dataclass(frozen=True)
class AdapterConfig:
    """Which encoders, by name and weight, which kinds of examples, and how the maps are trained.

    The part of a query that an encoder cannot read well is scaled down by its legibility, not below
    `least_trust`. With `early_stopping` the number of steps, at most `recipe.steps`, is that with
    the best ranks on one fold of the training sessions; the maps are then trained on all of them.
    """

    encoders: EncoderWeights = DEFAULT_ENCODERS
    recipe: AdapterRecipe = AdapterRecipe()
    early_stopping: bool = False
    seed: int = 0
    kinds: tuple[Kind, ...] = BEST_KINDS
    least_trust: float = 0.05

    def to_json(self) -> dict[str, Any]:
        """Return all that training depends on, the data apart."""
        return {
            "encoders": [
                {"model": shown_model(name), "weight": weight} for name, weight in self.encoders
            ],
            **asdict(self.recipe),
            "early_stopping": self.early_stopping,
            "kinds": list(self.kinds),
            "least_trust": self.least_trust,
        }


class AdapterTraining:
    """Adapters over the vectors of `data`'s texts, for any part of its sessions.

    Texts are encoded once, on first use; vectors in the run's store are not made again.
    """

    def __init__(
        self, config: AdapterConfig, data: TrainingData, run: RunContext, command: str
    ) -> None:
        self.config, self.run, self.command = config, run, command
        self.data = data.of_kinds(config.kinds)
        self.all_data = data
        """Examples of all kinds, by which sessions are grouped into folds."""
        self.legs = [Dense.from_run({"model": name}, run) for name, _ in config.encoders]

    def train(
        self,
        sessions: Collection[str],
        folder: Path,
        figures: Mapping[str, Any] | None = None,
    ) -> None:
        """Train on the examples of these sessions; write the model and its card into `folder`.

        Raises UserError if they have no examples.
        """
        used = frozenset(sessions)
        examples = self.data.examples
        numbers = np.array([i for i, one in enumerate(examples) if one.session in used], np.int64)
        if not len(numbers):
            raise UserError("no example belongs to the sessions to be trained on")
        config, pairs = self.config, self._pairs.only(numbers)
        recipe = config.recipe
        if config.early_stopping:
            recipe = replace(recipe, steps=self._steps(numbers))
        maps = mean_maps(pairs, recipe, config.seed)
        query, memory = (low_rank(matrix, recipe.rank) for matrix in (maps.query, maps.memory))
        Adapter(self._encoders, query, memory, config.least_trust).save(folder)
        write_card(folder, self.card(used, recipe.steps, figures))

    def card(
        self,
        sessions: Collection[str],
        steps: int | None = None,
        figures: Mapping[str, Any] | None = None,
    ) -> Card:
        """Return the card of a training on the examples of these sessions."""
        part, config = self.data.of_sessions(sessions), self.config
        base = [
            BaseModel(shown_model(one.model), one.weights, LICENSES.get(one.model, "unknown"))
            for one in self._encoders
        ]
        return Card.of(
            "adapted",
            self.command,
            config.seed,
            {**config.to_json(), "steps": steps or config.recipe.steps},
            part.provenance,
            part.sessions,
            base,
            self.libraries,
            figures,
            self.data.aliases,
        )

    def identity(self) -> dict[str, Any]:
        """Return what tells one training from another: settings, seed and data."""
        sha256 = self.data.provenance["sha256"]
        found = {"settings": self.config.to_json(), "seed": self.config.seed, "sha256": sha256}
        return {**found, "examples": self.data.provenance["examples"]}

    @property
    def libraries(self) -> tuple[str, ...]:
        """Distributions whose version can change the result."""
        return tuple(sorted({"numpy", *(name for leg in self.legs for name in leg.libraries)}))

    @cached_property
    def _encoders(self) -> tuple[WeightedEncoder, ...]:
        widths = [part.shape[1] for part in self._memory_parts]
        return tuple(
            WeightedEncoder(_found_again(name), weight, leg.settings()["weights"], width)
            for (name, weight), leg, width in zip(
                self.config.encoders, self.legs, widths, strict=True
            )
        )

    @cached_property
    def _memories(self) -> list[str]:
        return sorted({*self.data.bank, *(one.memory for one in self.data.examples)})

    @cached_property
    def _memory_parts(self) -> list[Floats]:
        return [leg.vectors(self._memories, "memory") for leg in self.legs]

    @cached_property
    def _pairs(self) -> Pairs:
        examples, weights = self.data.examples, [weight for _, weight in self.config.encoders]
        queries = sorted({one.query for one in examples})
        parts = [leg.vectors(queries, "query") for leg in self.legs]
        trusts = query_trusts(queries, self.legs, self.config.least_trust)
        texts = concatenated(parts, weights, trusts)
        place = {query: i for i, query in enumerate(queries)}
        negatives = Negatives(examples, self._memories, self.data.own, self._memory_parts[0])
        return Pairs(
            texts[[place[one.query] for one in examples]],
            negatives.golds,
            concatenated(self._memory_parts, weights),
            negatives.allowed,
        )

    def _steps(self, numbers: NDArray[np.int64]) -> int:
        """The number of steps with the best ranks on retrieval queries of a fold held out."""
        examples = [self.data.examples[i] for i in numbers]
        folds = fold_of(examples, _INNER_FOLDS, self.config.seed)
        kinds = {one.kind for one in examples}
        tested = "query" if "query" in kinds else min(kinds)
        inside = np.array([folds[one.session] == 0 for one in examples])
        test = inside & np.array([one.kind == tested for one in examples])
        steps, _ = best_steps(
            self._pairs.only(numbers[~inside]),
            self._pairs.only(numbers[test]),
            self.config.recipe,
            self.config.seed,
        )
        return steps


def cross_validate(
    training: AdapterTraining, material: Material, folder: Path, k: int, resume: bool = False
) -> dict[str, Any]:
    """Train a model for each fold into `folder`, measure each on its fold; return the figures.

    Writes folds.json, for the retriever `folds`, and crossvalidation.json. With `resume`, a fold
    whose model is there is not trained again. Raises UserError if it is another training.
    """
    config = training.config
    folds = fold_of(training.all_data.examples, k, config.seed)
    with progress("training", k) as advance:
        for fold in range(k):
            sessions = train_sessions(folds, fold)
            place = folder / fold_name(fold)
            if not (resume and _is_finished(training, sessions, place)):
                with whole_folder(place, resume) as draft:
                    training.train(sessions, draft)
            advance(1)
    rows = [i for i, row in enumerate(material.pools.rows) if session_key(row) in folds]
    of_row = {i: folds[session_key(material.pools.rows[i])] for i in rows}
    queries = {material.pools.rows[i].query: fold for i, fold in of_row.items()}
    write_folds(folder, "adapted", "model", queries)
    models = [
        Adapted.from_run({"model": str(folder / fold_name(fold))}, training.run)
        for fold in range(k)
    ]
    frozen = {
        _label(name): Dense.from_run({"model": name}, training.run) for name in _names(config)
    }
    found = measure(
        material,
        {
            **{label: partial(_same, leg) for label, leg in frozen.items()},
            "adapted": lambda row: models[of_row[row]],
        },
        rows=rows,
    )
    figures = held_out_figures(found, material, BASELINE, k, config.seed)
    figures |= {"training": training.identity()}
    write_figures(folder, figures)
    return figures


def _found_again(model: str) -> str:
    """The model as adapter.json names it, which may be read from another working folder."""
    return str(Path(model).resolve()) if Path(model).is_dir() else model


def _names(config: AdapterConfig) -> list[str]:
    """The encoders measured as they are, the baseline first."""
    return list(dict.fromkeys([BASELINE_MODEL, *(name for name, _ in config.encoders)]))


def _label(model: str) -> str:
    return BASELINE if model == BASELINE_MODEL else Path(model).name


def _same(retriever: Retriever, row: int) -> Retriever:
    return retriever


def _is_finished(training: AdapterTraining, sessions: Collection[str], place: Path) -> bool:
    """Whether `place` holds the model of this training. Raises UserError for another one's."""
    card = read_card(place) if place.is_dir() else None
    if card is None:
        return False
    was = {name: card.get(name) for name in ("settings", "seed", "sessions")}
    now = training.card(sessions).to_json()
    now = {name: now[name] for name in was}
    if training.config.early_stopping:  # which is found by training
        for one in (was, now):
            one["settings"] = {k: v for k, v in (one["settings"] or {}).items() if k != "steps"}
    if changed := difference(was, now):
        raise UserError(f"{place}: is of another training ({changed}). Pass --overwrite")
    return True
