"""Folders of models: where one is found, what identifies it, what its files say. Loads no model."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from indexes.packaged_models import PACKAGED_MODELS
from recallbed.errors import UserError

Role = Literal["query", "memory"]
MODEL_FILES = (".safetensors", ".bin", ".json", ".txt", ".model")
_UNUSED = ["onnx/*", "openvino/*", "*.onnx", "*.h5", "*.msgpack", "*.ot"]

# The names of a model's prompts by role; the first that is not empty is used.
_PROMPT_NAMES: Mapping[Role, tuple[str, ...]] = {
    "query": ("query",),
    "memory": ("document", "passage", "corpus"),
}


class Asymmetry(NamedTuple):
    """How a model encodes queries and memories differently.

    `prompts` is the text before each; `routed` is whether the model has a network for each.
    """

    prompts: Mapping[Role, str]
    routed: bool


def asymmetry(folder: Path) -> Asymmetry:
    """Read the prompts of the model in `folder`, without loading it.

    A query gets the prompt `query`, a memory the first of `document`, `passage` and `corpus`; if
    there is none, the prompt that `default_prompt_name` names. Raises UserError for a file that
    cannot be read.
    """
    config = _json(folder / "config_sentence_transformers.json", {})
    modules = _json(folder / "modules.json", [])
    try:
        known: dict[str, Any] = config.get("prompts") or {}
        default = known.get(config.get("default_prompt_name")) or ""
        prompts: dict[Role, str] = {
            role: next((known[name] for name in names if known.get(name)), default)
            for role, names in _PROMPT_NAMES.items()
        }
        if not all(isinstance(prompt, str) for prompt in prompts.values()):
            raise TypeError
        routed = any(m["type"].rpartition(".")[2] in ("Router", "Asym") for m in modules)
    except (AttributeError, KeyError, TypeError):
        raise UserError(
            f"{folder}: config_sentence_transformers.json or modules.json has an unknown form"
        ) from None
    return Asymmetry(prompts, routed)


def _json(path: Path, default: Any) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return default
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: cannot be read ({error})") from None


def resolve_model(name: str) -> Path:
    """Return the folder of the model `name`: a folder, a packaged model, or a hub snapshot.

    The network is used only for a hub name that is not in the local cache, and never if
    HF_HUB_OFFLINE is set. Raises UserError with the places searched.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    looked, advice = [str(folder)], "install recallbed[dense]"
    if (packaged := PACKAGED_MODELS.get(name)) is not None:
        if (found := packaged.folder()) is not None:
            return found
        looked.append(packaged.packages)
        name, advice = packaged.hub, f"run: {packaged.command}"
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise UserError(f"no model folder {folder}")
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.constants import HF_HUB_CACHE
    except ImportError:
        raise UserError(
            "dense retrieval needs more packages. Run: pip install 'recallbed[dense]'"
        ) from None
    try:
        try:
            return Path(snapshot_download(name, local_files_only=True))
        except (OSError, ValueError):
            if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
                raise
            return Path(snapshot_download(name, ignore_patterns=_UNUSED))
    except Exception as error:
        looked += [str(HF_HUB_CACHE), f"the hub ({type(error).__name__})"]
        raise UserError(
            f"no model `{name}` (looked in {'; '.join(looked)})."
            f" Give a folder, a hub name, or {advice}"
        ) from None


def model_hash(folder: Path, suffixes: Collection[str] = MODEL_FILES) -> str:
    """Return 16 hex digits of a hash of weights, tokenizer and settings in a model folder.

    These are the files with one of the `suffixes`.
    """
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.suffix in suffixes and p.is_file()):
        if path.parent.name in ("onnx", "openvino"):
            continue
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
        state = path.stat()
        times = state.st_mtime_ns, state.st_ctime_ns
        # Weights take long to read; a small file could change twice within a tick of the clock.
        digest_of = _digest if state.st_size > 1 << 20 else _digest.__wrapped__
        digest.update(digest_of(path, state.st_ino, state.st_size, *times))
    return digest.hexdigest()[:16]


@lru_cache(maxsize=100)
def _digest(path: Path, *state: int) -> bytes:
    """The SHA-256 of a file. `state` changes whenever the file does."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").digest()
