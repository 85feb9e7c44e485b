"""Compact models: the difference of a fine-tuned model to its base, as products of thin matrices.

A folder with `compact.json` (the name of the base, a hash of its weights, the rank) and
`differences.safetensors`, a few megabytes instead of the whole model. Fine-tuning changes a matrix
by little more than a matrix of low rank (Hu et al. 2021, arXiv:2106.09685), so the truncated
singular value decomposition of the difference keeps most of it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from indexes.model_folder import resolve_model
from recallbed.errors import UserError
from recallbed.harness.files import write_atomically
from recallbed.harness.fingerprint import canonical

COMPACT_FILE, DIFFERENCES_FILE = "compact.json", "differences.safetensors"
_FORMAT = 1
_LEFT, _RIGHT, _WHOLE = ".left", ".right", ".whole"


@dataclass(frozen=True, slots=True)
class CompactModel:
    """What `compact.json` says: `base` as `resolve_model` takes it, `weights` as `tensors_hash`."""

    folder: Path
    base: str
    weights: str
    rank: int


def read_compact(folder: Path) -> CompactModel | None:
    """Return what the folder of a compact model says; None for another folder.

    Raises UserError for a file that cannot be read.
    """
    path = folder / COMPACT_FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["format"] != _FORMAT:
            raise ValueError(f"format {found['format']!r}, expected {_FORMAT}")
        base, weights, rank = found["base"], found["weights"], found["rank"]
        if not (isinstance(base, str) and isinstance(weights, str) and isinstance(rank, int)):
            raise ValueError("`base`, `weights` or `rank` has a wrong type")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"{path}: is no compact model ({error})") from None
    return CompactModel(folder, base, weights, rank)


def whole_model_folder(folder: Path) -> Path:
    """Return the folder with the tokenizer and the settings of a model: of a compact one its base.

    Raises UserError if the base cannot be found, or is a compact model itself.
    """
    compact = read_compact(folder)
    if compact is None:
        return folder
    try:
        base = resolve_model(compact.base)
    except UserError as error:
        raise UserError(f"{folder}: its base is missing: {error}") from None
    if (base / COMPACT_FILE).exists():
        raise UserError(f"{folder}: its base {compact.base} is a compact model itself")
    return base


def _plain(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Tensors without the prefix of sentence-transformers, which differs between its versions."""
    return {re.sub(r"^0\.(?:auto_model|model)\.", "", name): tensors[name] for name in tensors}


def tensors_hash(tensors: Mapping[str, Any]) -> str:
    """Return 16 hex digits of a hash of named tensors as float32: the same from any file format."""
    digest = hashlib.sha256()
    for name, value in sorted(_plain(tensors).items()):
        if value.is_floating_point():
            digest.update(f"{name} {tuple(value.shape)}\0".encode())
            digest.update(value.detach().float().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def write_compact(
    folder: Path,
    base: str,
    weights: str,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    rank: int,
) -> float:
    """Write the changed parameters of a model; return the share of the change that is kept.

    `before` and `after` hold the parameters of the base and of the model by name, `weights` the
    hash of all of the base (`tensors_hash`). The share is of the sum of squared differences.
    """
    import torch
    from safetensors.torch import save

    before, after, kept = _plain(before), _plain(after), {}
    squared = left_out = 0.0
    for name in sorted(after):
        change = after[name].detach().float().cpu() - before[name].detach().float().cpu()
        if not change.any():
            continue
        squared += float((change**2).sum())
        if change.dim() == 2 and rank * sum(change.shape) < change.numel():
            u, s, v = torch.linalg.svd(change, full_matrices=False)
            root = s[:rank].sqrt()  # shared by both sides, so that neither leaves float16's range
            left, right = u[:, :rank] * root, root[:, None] * v[:rank]
            kept[name + _LEFT], kept[name + _RIGHT] = _half(left), _half(right)
            change = change - kept[name + _LEFT].float() @ kept[name + _RIGHT].float()
        else:
            kept[name + _WHOLE] = _half(change)
            change = change - kept[name + _WHOLE].float()
        left_out += float((change**2).sum())
    content = {"format": _FORMAT, "base": base, "weights": weights, "rank": rank}
    write_atomically(folder / DIFFERENCES_FILE, save(kept))
    write_atomically(folder / COMPACT_FILE, canonical(content) + "\n")
    return 1.0 - left_out / squared if squared else 1.0


def _half(values: Any) -> Any:
    return values.half().contiguous()


def apply_compact(model: Any, compact: CompactModel) -> None:
    """Change the loaded base `model` to the fine-tuned one.

    Raises UserError if its weights are not those of the base, or a difference does not fit.
    """
    import torch
    from safetensors.torch import load_file

    if tensors_hash(model.state_dict()) != compact.weights:
        raise UserError(
            f"{compact.folder}: was made from another `{compact.base}` than the one found here"
        )
    path = compact.folder / DIFFERENCES_FILE
    try:
        kept = load_file(path)
        parameters = _plain(dict(model.named_parameters()))
        with torch.no_grad():
            for key in sorted(kept):
                name, _, part = key.rpartition(".")
                if part == _LEFT[1:]:
                    change = kept[key].float() @ kept[name + _RIGHT].float()
                elif part == _WHOLE[1:]:
                    change = kept[key].float()
                else:
                    continue
                parameters[name].add_(change.to(parameters[name].device))
    except Exception as error:
        line = " ".join(str(error).split())[:200]
        raise UserError(f"{path}: cannot be applied ({type(error).__name__}: {line})") from None
