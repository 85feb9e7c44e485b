"""The files of a learned combination: `learned.json` and `weights.safetensors` in one folder.

learned.json: {"format": 1, "legs": [{"label": ..., "retriever": ..., "settings": {...}}, ...],
"depth": 20, "order": "linear" | "boosting" | "none", "features": [...], "trust": true}. Settings
are text as after --set; a value that starts with "./" is a path inside the folder.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from recallbed.errors import UserError
from recallbed.harness.configurations import Configuration, is_label
from recallbed.harness.files import write_atomically
from recallbed.harness.input_text import STRICT_JSON
from retrievers.candidate_order import ORDERS, CandidateOrder
from retrievers.features import feature_names

FORMAT = 1
MANIFEST, WEIGHTS = "learned.json", "weights.safetensors"
NO_ORDER = "none"
_INSIDE = "./"


@dataclass(frozen=True, slots=True)
class LearnedModel:
    """Legs with their weights in the sum, and the order of the best `depth`; None: that of the sum.

    `legs` holds a configuration for each leg, `weights` its weight from 0 on the scale of standard
    scores, `features` the names of the columns that `order` reads. With `trust` a leg's weight is
    multiplied by its trust in the query, as in `hybrid`.
    """

    legs: tuple[Configuration, ...]
    weights: tuple[float, ...]
    depth: int = 20
    features: tuple[str, ...] = ()
    order: CandidateOrder | None = None
    trust: bool = True

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the legs."""
        return tuple(leg.label for leg in self.legs)


def write_learned(folder: Path, model: LearnedModel) -> None:
    """Write the files of a model into an existing folder."""
    from safetensors.numpy import save

    arrays = {"legs": np.array(model.weights, np.float64)}
    if model.order is not None:
        # No order of bytes but that of the names: equal models are equal files.
        arrays |= {
            f"order.{name}": np.ascontiguousarray(array)
            for name, array in sorted(model.order.arrays().items())
        }
    described = {
        "format": FORMAT,
        "legs": [
            {"label": leg.label, "retriever": leg.name, "settings": dict(leg.settings)}
            for leg in model.legs
        ],
        "depth": model.depth,
        "order": NO_ORDER if model.order is None else model.order.kind,
        "features": list(model.features),
        "trust": model.trust,
    }
    write_atomically(folder / WEIGHTS, save(arrays))
    write_atomically(folder / MANIFEST, json.dumps(described, indent=1, ensure_ascii=False) + "\n")


def read_learned(folder: Path) -> LearnedModel:
    """Return the model in a folder, with paths inside it made whole.

    Raise UserError for a file that is missing or damaged, for a leg that is a class of the user's
    (whoever wrote the folder would choose the code that is run), and for a path that leaves the
    folder.
    """
    try:
        described: Any = STRICT_JSON.decode((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{folder / MANIFEST}: cannot be read ({error})") from None
    if not isinstance(described, dict) or described.get("format") != FORMAT:
        raise UserError(
            f"{folder / MANIFEST}: not a learned model of format {FORMAT}."
            " `python -m training.reranker` writes them"
        )
    try:
        return _model(folder, described, _arrays(folder))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{folder}: a damaged model ({error}). Train it again") from None


def _arrays(folder: Path) -> Mapping[str, Any]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        return load((folder / WEIGHTS).read_bytes())
    except (OSError, SafetensorError) as error:
        raise UserError(f"{folder / WEIGHTS}: cannot be read ({error})") from None


def _model(folder: Path, described: Mapping[str, Any], arrays: Mapping[str, Any]) -> LearnedModel:
    legs = tuple(_leg(folder, one) for one in described["legs"])
    labels = [leg.label for leg in legs]
    if not legs or len(set(labels)) < len(labels):
        raise ValueError("no legs, or two of one label")
    weights = tuple(float(w) for w in arrays["legs"])
    if len(weights) != len(legs) or not all(math.isfinite(w) and w >= 0 for w in weights):
        raise ValueError("its weights are not one number from 0 per leg")
    kind, features, depth = described["order"], tuple(described["features"]), described["depth"]
    known = feature_names(labels)
    if unknown := [name for name in features if name not in known]:
        raise ValueError(f"no feature {unknown[0]!r}")
    if not isinstance(depth, int) or depth < 2:
        raise ValueError(f"depth {depth!r}")
    order = None
    if kind != NO_ORDER:
        if kind not in ORDERS:
            raise ValueError(f"no order {kind!r}")
        own = {name.removeprefix("order."): array for name, array in arrays.items()}
        order = ORDERS[kind].of_arrays(own, len(features))
    return LearnedModel(legs, weights, depth, features, order, bool(described["trust"]))


def _leg(folder: Path, one: Mapping[str, Any]) -> Configuration:
    label, name = one["label"], one["retriever"]
    if not (isinstance(label, str) and is_label(label) and isinstance(name, str)):
        raise ValueError(f"a leg {label!r}")
    if ":" in name:
        raise UserError(f"{folder}: its leg `{label}` is the class `{name}`; legs are registered")
    settings = {key: _whole_path(folder, str(value)) for key, value in one["settings"].items()}
    return Configuration(label, name, settings)


def _whole_path(folder: Path, value: str) -> str:
    if not value.startswith(_INSIDE):
        return value
    path = (folder / value).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise UserError(f"{folder}: {value} is not inside the folder")
    return str(path)
