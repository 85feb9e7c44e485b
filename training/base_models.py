"""The models with weights of their own that a retriever stands on, for the card of a training."""

from __future__ import annotations

from retrievers.adapted import Adapted
from retrievers.base import Retriever
from retrievers.dense import Dense
from retrievers.folds import Folds
from retrievers.hybrid import Hybrid
from retrievers.learned import Learned
from retrievers.rerank.base import Reranker
from retrievers.trained import read_card
from training.card import BaseModel, license_of
from training.options import shown_model


def base_models(retriever: Retriever) -> list[BaseModel]:
    """Return them in order, each once. A trained model stands on those of its card."""
    return list(dict.fromkeys(_below(retriever)))


def _below(retriever: Retriever) -> list[BaseModel]:
    if isinstance(retriever, Folds):
        return _below(retriever.models[0])
    if isinstance(retriever, Adapted | Learned):
        folder = retriever.folder
    elif isinstance(retriever, Dense):
        folder = retriever.encoder.folder
    elif isinstance(retriever, Hybrid):
        return [one for leg in retriever.legs for one in _below(leg)]
    elif isinstance(retriever, Reranker):
        return _below(retriever.first_stage)
    else:
        return []
    card = read_card(folder)
    if card is not None:
        return [BaseModel(**one) for one in card["base"]]
    if not isinstance(retriever, Dense):
        return []
    name = shown_model(retriever.encoder.name)
    return [BaseModel(name, str(retriever.settings()["weights"]), license_of(name, folder))]
