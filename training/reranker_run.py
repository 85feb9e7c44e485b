"""What `training.reranker` does: fits one model, or one per fold and measures them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.metrics import Recall, above_tied, ranked
from recallbed.corpus.material import Material
from recallbed.corpus.sessions import session_key
from recallbed.errors import UserError
from recallbed.harness.configurations import Configuration
from recallbed.harness.progress import progress
from retrievers.base import NotScored, Retriever, RetrieverError, RunContext, Scored
from retrievers.features import feature_names
from retrievers.learned import Learned
from retrievers.learned_model import write_learned
from retrievers.registry import build_retriever
from training.base_models import base_models
from training.card import Card, write_card
from training.examples import TrainingData
from training.folds import fold_name, fold_of, write_folds
from training.measure import BASELINE, KS, HeldOut, held_out_figures, measure, write_figures
from training.model_legs import model_legs
from training.pool_results import PoolAt, PoolResults
from training.reranker_fit import CombinationFit, FitSettings, Fitted
from training.reranker_options import CombinationOptions
from training.teacher import TaughtShares

INNER_FOLDS = 3
LEARNED, SUM = "learned", "sum"
Floats = NDArray[np.float64]


class RerankerTraining:
    """Combinations fitted on the rows of some material, written into the folder `out`."""

    def __init__(
        self,
        options: CombinationOptions,
        configurations: Sequence[Configuration],
        data: TrainingData,
        material: Material,
        out: Path,
    ) -> None:
        self.options, self.data, self.material, self.out = options, data, material, out
        self.legs = model_legs(configurations, options.trained, None if options.folds else out)
        self.command = " ".join(
            ["python -m training.reranker"]
            + [f"--retriever {one.label}={one.name}" for one in configurations]
            + options.command_words()
        )
        labels = [one.label for one in configurations]
        if taken := {LEARNED, SUM} & set(labels):
            raise UserError(
                f"--retriever {min(taken)}: the label is that of a result. Give another"
            )
        self.settings = FitSettings(
            options.candidates,
            tuple(feature_names(labels, options.features)),
            options.combination,
            seed=options.seed,
            teacher_weight=options.teacher_weight,
        )
        self.provenance = data.of_kinds(["query"]).provenance
        self.sessions = [session_key(row) for row in material.pools.rows]

    def use(self, scored: PoolResults, teacher: TaughtShares | None) -> None:
        """Take the results of the legs, and what a teacher says of some of the pools."""
        self.scored = scored
        self.fit = CombinationFit(scored, self.legs, self.settings, self._inner_folds(), teacher)

    def _inner_folds(self) -> list[int]:
        """The inner fold of each row; all 0 if there are too few sessions."""
        try:
            folds = fold_of(self.data.examples, INNER_FOLDS, self.options.seed + 1)
        except UserError:
            return [0] * len(self.sessions)
        return [folds[session] for session in self.sessions]

    def train(self, figures: Mapping[str, Any] | None = None) -> list[str]:
        """Fit one model on all rows, with `figures` for its card; return lines on it."""
        rows = range(len(self.sessions))
        fitted = self.fit.fit(rows)
        self._write(self.out, fitted, rows, figures)
        return [_line("all sessions", fitted)]

    def cross_validate(
        self, k: int, baseline: Retriever | None = None
    ) -> tuple[list[str], dict[str, Any]]:
        """Fit a model for each fold and measure it on the fold; return lines and figures.

        All are compared with `baseline`, called minilm; by default with the leg of this label, else
        with the first leg.
        """
        folds = fold_of(self.data.examples, k, self.options.seed)
        of_row = [folds[session] for session in self.sessions]
        recalls = _Recalls(self.material, self.scored)
        lines = []
        with progress("folds", k) as advance:
            for fold in range(k):
                train = [i for i, other in enumerate(of_row) if other != fold]
                held = [i for i, other in enumerate(of_row) if other == fold]
                fitted = self.fit.fit(train)
                folder = self.out / fold_name(fold)
                folder.mkdir()
                self._write(folder, fitted, train)
                recalls.add(folder, self.options.seed, held)
                lines.append(_line(fold_name(fold), fitted))
                advance(1)
        labels = list(self.scored.legs)
        found = recalls.held_out(labels)
        if baseline is not None and BASELINE not in labels:
            found = _with(found, baseline, self.material)
        compared = BASELINE if BASELINE in found.recalls else labels[0]
        figures = held_out_figures(found, self.material, compared, k, self.options.seed)
        write_figures(self.out, figures)
        queries = {
            row.query: fold for row, fold in zip(self.material.pools.rows, of_row, strict=True)
        }
        write_folds(self.out, LEARNED, "model", queries)
        return lines, figures

    def _write(
        self,
        folder: Path,
        fitted: Fitted,
        rows: Sequence[int],
        figures: Mapping[str, Any] | None = None,
    ) -> None:
        write_learned(folder, fitted.model)
        settings = {
            "candidates": self.settings.depth,
            "order": fitted.chosen,
            **({"recall@1 on inner folds": inner} if (inner := dict(fitted.inner_recall)) else {}),
            "weights": dict(zip(fitted.model.labels, fitted.model.weights, strict=True)),
            "features": list(fitted.model.features),
            "distractors": list(self.fit.sizes),
            "pool seeds": list(self.material.seeds),
        }
        if self.options.teacher:
            settings["weight of the teacher"] = self.options.teacher_weight
        legs = self.scored.legs.values()
        libraries = {"numpy", "scipy", "scikit-learn", *(n for one in legs for n in one.libraries)}
        base = list(dict.fromkeys(model for one in legs for model in base_models(one)))
        card = Card.of(
            *(LEARNED, self.command, self.options.seed, settings, self.provenance),
            [self.sessions[i] for i in rows],
            base,
            sorted(libraries),
            figures,
            self.data.aliases,
        )
        write_card(folder, card)


class _Recalls:
    """Recalls of the models of folds, of their sums alone, and of the legs, by row."""

    def __init__(self, material: Material, scored: PoolResults) -> None:
        self.material, self.scored = material, scored
        self.values: dict[str, dict[tuple[int, int], Floats]] = {}

    def add(self, folder: Path, seed: int, rows: Sequence[int]) -> None:
        """Add the model in a folder, for these rows."""
        learned = Learned(str(folder))
        learned.seed = seed
        learned.use_legs(self.scored.legs)
        wanted = set(rows)
        for at, results in self.scored.results.items():
            if at[2] not in wanted:
                continue
            query, memories = self.scored.query(at), self.scored.memories(at)
            self._add(LEARNED, at, learned.combine(query, memories, results))
            self._add(SUM, at, learned.first_stage.fuse(query, results))
            for label, result in zip(self.scored.legs, results, strict=True):
                self._add(label, at, result)

    def _add(self, label: str, at: PoolAt, result: Scored | NotScored | RetrieverError) -> None:
        size, _, row = at
        values = self.values.setdefault(
            label,
            {
                (s, k): np.zeros(len(self.material.pools.rows))
                for s in self.material.sizes
                for k in KS
            },
        )
        share = 1 / len(self.material.seeds)
        golds = self.scored.golds(at)
        for k in KS:
            value = float("nan")
            if isinstance(result, Scored):
                scores = ranked(result.scores, len(self.scored.memories(at)))
                value = Recall(k).value([above_tied(scores, gold) for gold in golds])
            values[size, k][row] += share * value

    def held_out(self, labels: Sequence[str]) -> HeldOut:
        """Return the recalls of the rows that no leg failed on."""
        rows = self.material.pools.rows
        order = [*labels, SUM, LEARNED]
        every = [values for label in order for values in self.values[label].values()]
        kept = np.flatnonzero(~np.any(np.isnan(every), axis=0))
        if not len(kept):
            raise UserError("no query could be scored by all retrievers")
        return HeldOut(
            {
                label: {key: values[kept] for key, values in self.values[label].items()}
                for label in order
            },
            [rows[i].session_id for i in kept],
            [rows[i].benchmark_id for i in kept],
            len(rows) - len(kept),
        )


def baseline(run: RunContext) -> Retriever | None:
    """Return the retriever that all are compared with; None if its packages are not installed."""
    try:
        return build_retriever(Configuration(BASELINE, BASELINE, {}), run)
    except UserError:
        return None


def _with(found: HeldOut, baseline: Retriever, material: Material) -> HeldOut:
    """The same with the recalls of a baseline, on the queries that both could score."""
    other = measure(material, {BASELINE: lambda row: baseline})
    both = sorted(set(found.queries) & set(other.queries))
    at, of_other = (
        [{query: i for i, query in enumerate(one.queries)}[query] for query in both]
        for one in (found, other)
    )
    recalls = {
        BASELINE: {key: values[of_other] for key, values in other.recalls[BASELINE].items()},
        **{
            label: {key: values[at] for key, values in one.items()}
            for label, one in found.recalls.items()
        },
    }
    sessions = [found.sessions[i] for i in at]
    return HeldOut(recalls, sessions, both, found.failed + len(found.queries) - len(both))


def _line(name: str, fitted: Fitted) -> str:
    pairs = zip(fitted.model.labels, fitted.model.weights, strict=True)
    weights = ", ".join(f"{label} {weight:.3f}" for label, weight in pairs)
    return f"{name}: weights {weights}; order: {fitted.chosen}"
