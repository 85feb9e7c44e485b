"""The card of trained weights: what they were learned from, how, and with what result."""

from __future__ import annotations

import platform
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from recallbed.corpus.sessions import session_digest
from recallbed.harness.files import write_atomically
from recallbed.harness.fingerprint import canonical, code_identity, versions
from retrievers.trained import CARD_FILE

FORMAT = 1
ALPSBENCH: Mapping[str, str] = {
    "license": "ODC-BY 1.0",
    "attribution": "AlpsBench (arXiv:2603.26680), made from WildChat conversations (ODC-BY)",
}
LICENSES: Mapping[str, str] = {
    "all-MiniLM-L6-v2": "Apache-2.0",
    "all-mpnet-base-v2": "Apache-2.0",
    "use": "Apache-2.0",
}
_SAMPLE: Mapping[str, str] = {
    "license": "MIT",
    "attribution": "The embedded sample of recallbed, which is not AlpsBench data",
}
_OWN: Mapping[str, str] = {"license": "unknown", "attribution": "A file of the user's own"}


@dataclass(frozen=True)
class BaseModel:
    """A model that training started from; `weights` is the hash of its files."""

    name: str
    weights: str
    license: str = "unknown"


@dataclass(frozen=True)
class Card:
    """Provenance of trained weights. It holds digests, and no text of the data.

    `command` is the command line without paths, `settings` all that training depended on, `figures`
    the cross-validated figures, None if there was no cross-validation. `sessions` are digests
    (`session_digest`) of the names of the `number_of_sessions` sessions, sorted.
    """

    name: str
    command: str
    seed: int
    settings: Mapping[str, Any]
    data: Mapping[str, Any]
    sessions: Sequence[str]
    number_of_sessions: int
    base: Sequence[BaseModel]
    figures: Mapping[str, Any] | None = None
    versions: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        name: str,
        command: str,
        seed: int,
        settings: Mapping[str, Any],
        provenance: Mapping[str, Any],
        sessions: Sequence[str],
        base: Sequence[BaseModel],
        libraries: Sequence[str] = ("numpy",),
        figures: Mapping[str, Any] | None = None,
        aliases: Mapping[str, Collection[str]] | None = None,
    ) -> Card:
        """Return the card of a training on these sessions, named as `session_key` does.

        `aliases` (`TrainingData.aliases`) are other names of sessions, which are listed too.
        """
        rights = {"AlpsBench": ALPSBENCH, "embedded sample": _SAMPLE}
        data = {**provenance, **rights.get(provenance["data"], _OWN)}
        distinct = set(sessions)
        names = {name for one in distinct for name in (one, *(aliases or {}).get(one, ()))}
        digests = sorted(map(session_digest, names))
        code = {f"recallbed {key}": value for key, value in code_identity().items()}
        return cls(
            *(name, command, seed, settings, data, digests, len(distinct), base, figures),
            {**versions(libraries), "machine": platform.machine(), **code},
        )

    def to_json(self) -> dict[str, Any]:
        """Return the content of training_card.json."""
        return {"format": FORMAT, **asdict(self)}


def write_card(folder: Path, card: Card) -> None:
    """Write training_card.json, and README.md for people, into the folder of a model."""
    write_atomically(folder / CARD_FILE, canonical(card.to_json()) + "\n")
    write_atomically(folder / "README.md", card_text(card))


def card_text(card: Card) -> str:
    """Return the card as Markdown."""
    data = card.data
    lines = [f"# {card.name}", "", f"Trained by `{card.command}`, seed {card.seed}.", ""]
    counts = ", ".join(f"{n} {kind}" for kind, n in data.get("examples", {}).items())
    split = f", split `{data['split']}`" if data.get("split") else ""
    lines += ["## Data", "", f"- {data['data']}{split}: {card.number_of_sessions} sessions"]
    lines += [f"- Examples: {counts}"] if counts else []
    lines += [f"- Licence: {data['license']}. {data['attribution']}"]
    lines += [f"- SHA-256 of {track}: `{value}`" for track, value in data["sha256"].items()]
    lines += ["", "## Base models", ""]
    lines += [f"- {one.name}, weights `{one.weights}`, licence {one.license}" for one in card.base]
    lines += ["", "## Settings", ""]
    lines += [f"- {key}: {_plain(value)}" for key, value in card.settings.items()]
    lines += ["", "## Versions", ""]
    lines += [f"- {key}: {value}" for key, value in card.versions.items()]
    lines += ["", "## Recall on sessions that were not trained on", "", *_figures(card)]
    return "\n".join(lines) + "\n"


def _plain(value: Any) -> str:
    """A setting as a person reads it: lists with commas, of objects their values."""
    if isinstance(value, Mapping):
        return " ".join(map(_plain, value.values()))
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    return "none" if value is None else str(value)


def _figures(card: Card) -> list[str]:
    if card.figures is None:
        return ["Not measured. `--folds 5` does."]
    found = card.figures
    sizes = [str(size) for size in found["distractors"]]
    lines = [
        f"{found['folds']}-fold cross-validation by session, {found['queries']} queries,"
        f" {found['strategy']} pools, seeds {', '.join(map(str, found['pool_seeds']))}.",
        "",
        "| retriever | metric | " + " | ".join(sizes) + " |",
        "|---" * (len(sizes) + 2) + "|",
    ]
    for label, metrics in found["retrievers"].items():
        for metric, by_size in sorted(metrics.items(), key=lambda one: int(one[0].split("@")[1])):
            values = " | ".join(f"{by_size[size]['mean']:.3f}" for size in sizes)
            lines.append(f"| {label} | {metric} | {values} |")
    return lines


def license_of(model: str, folder: Path) -> str:
    """Return the licence of a base model: known by name, or from the front matter of its README."""
    if model in LICENSES:
        return LICENSES[model]
    try:
        text = (folder / "README.md").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return "unknown"
    front = re.match(r"---\n(.*?)\n---", text, re.DOTALL)
    found = re.search(r"^license: *(\S+)", front[1], re.MULTILINE) if front else None
    return found[1] if found else "unknown"
