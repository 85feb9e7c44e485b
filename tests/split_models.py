"""A small model as a zip archive that is split over packages, as those of all-mpnet-base-v2."""

import hashlib
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

from indexes.packaged_models import ArchivePart, SplitModel

FILES = {"config.json": b"{}", "1_Pooling/config.json": b"[]", "model.safetensors": b"x" * 3000}
# What an archive must not bring with it.
STRAYS = {
    "tiny/desktop.ini": b"stray",
    "../above": b"stray",
    "tiny/../../../beside": b"stray",
    "/recallbed-stray": b"stray",
}


def install_parts(
    place: Path, count: int = 3, files: Mapping[str, bytes] = FILES, inside: str = "tiny"
) -> SplitModel:
    """Write packages with the parts of the model "tiny" into `place`, which must be on sys.path."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in STRAYS.items():
            archive.writestr(name, content)
        for name, content in files.items():
            archive.writestr(f"{inside}/{name}", content)
    whole = stream.getvalue()
    size = -(-len(whole) // count)
    parts = [
        ArchivePart(f"tiny-part-{number}==0.0.1", f"tiny-part_{number}", f"input/tiny.zip.{number}")
        for number in range(1, count + 1)
    ]
    for number, part in enumerate(parts):
        package = place / part.package
        (package / part.file).parent.mkdir(parents=True)
        (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
        (package / part.file).write_bytes(whole[number * size : (number + 1) * size])
    return SplitModel(
        name="tiny",
        hub="invented/tiny",
        parts=parts,
        weights="model.safetensors",
        digests={name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()},
        megabytes=1,
    )
