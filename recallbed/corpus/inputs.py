"""What a track asks: the rows of its model_input, without the references."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Generic

from recallbed.corpus.jsonl import Fields, find_jsonl, new_digest, read_jsonl
from recallbed.corpus.layout import sample_root, split_folder
from recallbed.corpus.stream import R, Track, stream
from recallbed.errors import DataError


@dataclass(frozen=True, slots=True)
class Inputs(Generic[R]):
    """The rows of one track in file order, by benchmark_id.

    `sha256` covers the bytes of the whole file, whatever the limit, and those of the references
    if they were asked for; `repaired` counts what was repaired while reading.
    """

    track: str
    split: str
    sample: bool
    rows: Mapping[str, R]
    sha256: str
    repaired: Mapping[str, int]

    def fingerprint(self) -> dict[str, Any]:
        """The field `data` of a run's fingerprint."""
        return {
            "sample": self.sample,
            "split": self.split,
            "track": self.track,
            "sha256": self.sha256,
            "rows": len(self.rows),
        }


def read_inputs(
    root: Path | None,
    split: str,
    track: Track[R],
    limit: int | None = None,
    *,
    with_gold: bool = False,
) -> Inputs[R]:
    """The rows of `track`, the first `limit` of them; `root` None is the embedded sample.

    References aren't opened unless they are asked for. Raises DataError for a faulty file, for a
    benchmark_id that appears twice, and if `with_gold` finds no references.
    """
    folder = split_folder(root or sample_root(), split)
    place = folder / track.name
    path = find_jsonl(place, "model_input")
    if path is None:
        raise DataError(
            f"no model_input.jsonl of {track.name} here",
            place,
            todo="Give --data the folder above the splits of a release",
        )
    repairs: Counter[str] = Counter()
    rows: dict[str, R] = {}
    if with_gold:
        if find_jsonl(place, "reference_output") is None:
            raise DataError("no reference_output.jsonl here, and gold is needed", place)
        digests = new_digest(), new_digest()
        rows = {r.benchmark_id: r for r in stream(folder, track, repairs, digests=digests)}
        sha256 = "".join(digest.hexdigest()[:32] for digest in digests)
    else:
        digest = new_digest()
        for line, value in read_jsonl(path, repairs, digest):
            fields = Fields(path, line, repairs)
            row = track.read(value, fields)
            if row.benchmark_id in rows:
                raise fields.fault(f"benchmark_id `{row.benchmark_id}` appears twice")
            rows[row.benchmark_id] = row
        sha256 = digest.hexdigest()
    return Inputs(
        track=track.name,
        split=split,
        sample=root is None or root.resolve() == sample_root().resolve(),
        rows=dict(islice(rows.items(), limit)),
        sha256=sha256,
        repaired=dict(sorted(repairs.items())),
    )
