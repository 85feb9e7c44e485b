"""The retrievers of a finished run, built again from what its fingerprint records of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from indexes.model_folder import model_hash
from recallbed.chat_models import ChatModel, ChatOptions, Chats
from recallbed.errors import UserError
from recallbed.harness.failures import cause_of
from recallbed.harness.fingerprint import difference
from retrievers.base import Retriever, RunContext
from retrievers.registry import RETRIEVERS, GivenInstance, describe_retriever, leg_finder

Entry = Mapping[str, Any]
"""`label`, `name` and `settings` of a retriever, as a fingerprint has them."""


def rebuild(
    entries: Sequence[Entry],
    label: str,
    run: RunContext,
    *,
    allow_code: bool = False,
    models: Sequence[Path] = (),
) -> Retriever:
    """Return the retriever of a label, with the settings that the run had.

    A fingerprint has the name of a local model's folder without its path. The folder is looked for
    in the working folder and in `models`; only one with the recorded weights is taken.

    Raise UserError if it cannot be built here: its class or model is missing, it is a class of the
    user's and `allow_code` is not given, or what is built has other settings or other code.
    """
    by_label = {entry["label"]: entry for entry in entries}
    try:
        needed = {one["label"]: one for one in _with_legs(by_label, by_label[label])}
        given = [_configured(one, allow_code, models) for one in needed.values()]
        found = leg_finder(given, run)(label)
        configuration = next(one for one in given if one.label == label)
        built = dict(describe_retriever(configuration, found))
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{label}: its recorded settings cannot be read ({error!r})") from None
    except (UserError, MemoryError):
        raise
    except Exception as error:
        raise UserError(f"{label}: cannot be built ({cause_of(error)})") from error
    was, now = (
        {key: _plain(one[key]) for key in one.keys() - {"label", "name", "fitted_on"}}
        for one in (by_label[label], built)
    )
    if found_other := difference(was, now):
        raise UserError(f"{label}: is not what the run had ({found_other})")
    return found


def _plain(value: Any) -> Any:
    """JSON in which 60 and 60.0 are the same, as they are for a constructor."""
    if isinstance(value, Mapping):
        return {key: _plain(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


class RecordedChats:
    """The chat models of a run by name, with the address and options that it had.

    `options` are for the rest, such as the reply cache.
    """

    def __init__(self, entries: Sequence[Entry], options: ChatOptions) -> None:
        self._options = options
        self._recorded = {
            name: settings
            for entry in entries
            for name, settings in _chat_models(entry.get("settings"))
        }
        self._built: dict[str, Chats] = {}

    def __call__(self, name: str) -> ChatModel:
        """Return the model. Raise UserError as `Chats` does."""
        if name not in self._built:
            settings, mine = self._recorded.get(name, {}), self._options
            if settings.get("address"):
                mine = replace(mine, base_url=settings["address"])
            if settings.get("extra_body"):
                mine = replace(mine, extra_body=json.dumps(settings["extra_body"]))
            if "temperature" in settings:
                value = settings["temperature"]
                mine = replace(mine, temperature="none" if value is None else str(value))
            self._built[name] = Chats(mine)
        return self._built[name](name)

    def close(self) -> None:
        """Close all models."""
        for chats in self._built.values():
            chats.close()


def _with_legs(by_label: Mapping[str, Entry], entry: Entry) -> Iterator[Entry]:
    """The entry of a retriever and those of its legs and first stages, once the run's own."""
    yield entry
    settings = entry["settings"]
    legs = [*settings.get("legs", ()), *filter(None, [settings.get("first_stage")])]
    for leg in legs:
        if isinstance(leg, Mapping):
            known = by_label.get(leg["label"], leg)
            yield from _with_legs(by_label, known)


def _configured(entry: Entry, allow_code: bool, models: Sequence[Path]) -> GivenInstance:
    """The configuration of an instance, which the run builds again with its store and legs."""
    name = entry.get("name") or entry["class"]
    if ":" in name and not allow_code and not name.startswith("retrievers."):
        raise UserError(
            f"{entry['label']}: is of the class `{name}`. Pass --allow-code to run its code"
        )
    cls = RETRIEVERS.find(name)
    arguments = dict(cls.arguments_of(entry["settings"]))
    if (folder := _local_model(entry["settings"], models)) is not None:
        arguments["model"] = str(folder)
    instance = cls(**arguments)
    return GivenInstance(entry["label"], name, {}, instance=instance)


def _local_model(settings: Mapping[str, Any], places: Sequence[Path]) -> Path | None:
    """The folder in one of the places that has the recorded name and weights of a model."""
    name, weights = settings.get("model"), settings.get("weights")
    if not isinstance(name, str) or not isinstance(weights, str) or Path(name).name != name:
        return None
    folders = [folder for place in places if (folder := place / name).is_dir()]
    return next((folder for folder in folders if model_hash(folder) == weights), None)


def _chat_models(settings: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The recorded settings of each chat model, by the name that a user types."""
    if isinstance(settings, Mapping):
        model = settings.get("model")
        if isinstance(model, Mapping) and isinstance(model.get("model"), str):
            yield chat_name(model), model
        for value in settings.values():
            yield from _chat_models(value)
    elif isinstance(settings, list):
        for value in settings:
            yield from _chat_models(value)


def chat_name(settings: Mapping[str, Any]) -> str:
    """Return the name of a chat model as a user types it, from its recorded settings."""
    kind = "openai" if "address" in settings else "local"
    return f"{kind}:{settings['model']}"
