"""Results of other systems as a run folder: `python -m analysis.import FILE...`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
from typing_extensions import override

from analysis.curves import draw_run
from analysis.rows import SweepRow, is_sweep_row
from analysis.summary import SweepSummary, summarise
from analysis.tables import print_table
from analysis.trec import read_run_file, scores_of
from recallbed.corpus.jsonl import new_digest
from recallbed.corpus.material import Material, gather
from recallbed.corpus.options import DataOptions, PoolOptions
from recallbed.corpus.pools import Pool
from recallbed.corpus.predictions import (
    NameLookup,
    Prediction,
    Selection,
    meant_ids,
    read_selections,
)
from recallbed.corpus.records import Memory, Task3Row
from recallbed.errors import DataError, UserError
from recallbed.harness.app import App
from recallbed.harness.configurations import parse_configurations
from recallbed.harness.experiment import Experiment, Finished, execute
from recallbed.harness.options import Seed, numbers
from recallbed.harness.run_folder import RunFolder
from recallbed.harness.run_options import Overwrite, RunOptions

app = App()


@dataclass(frozen=True, slots=True)
class Imported:
    """The files of one system, by pool size, each a TREC run or official predictions."""

    label: str
    kind: str
    files: Mapping[int, Path]
    seed: int = 0


class _Import(Experiment[int, SweepSummary]):
    """The rows of another system, all read before the run; keys are their positions.

    A query that a file does not answer is a failed row with its cause, never a score. Raise
    DataError for a faulty file, one that names unknown queries or other pools, and UserError if
    no query is answered.
    """

    libraries = ("numpy",)

    def __init__(self, system: Imported, material: Material, ks: Sequence[int]) -> None:
        self.system, self.material, self.ks = system, material, ks
        self.name, self.seed = system.label, system.seed
        self.rows: list[SweepRow] = []
        self.notes: Counter[str] = Counter()
        self.hashes: dict[str, str] = {}
        for size in material.sizes:
            self._read(size)
        if not any(row.error is None for row in self.rows):
            raise UserError(f"{system.label}: no query is answered ({self.rows[0].error})")

    def _read(self, size: int) -> None:
        label, material = self.system.label, self.material
        reader = _Trec if self.system.kind == "trec" else _Predictions
        file = reader(self.system.files[size], material, size)
        self.hashes[f"d{size}"] = file.sha256
        pools = material.pools.pools[size, material.seeds[0]]
        for query, pool in zip(material.pools.rows, pools, strict=True):
            memories = material.pools.texts(pool)
            of = (query.benchmark_id, label, size)
            found = file.scores(query, pool, memories)
            if isinstance(found, str):
                self.rows.append(SweepRow.failed(of, memories, pool.golds, found))
            else:
                scores, unreturned = found
                self.notes["unreturned_memories"] += unreturned
                self.notes["of_memories"] += len(memories)
                self.rows.append(SweepRow.scored(of, memories, pool.golds, scores))

    @override
    def fingerprint(self) -> Mapping[str, Any]:
        kind = f"imported {self.system.kind}"
        described = {"label": self.system.label, "name": kind, "settings": dict(self.hashes)}
        return {**self.material.fingerprint(), "retrievers": [described]}

    @override
    def keys(self) -> Sequence[int]:
        return range(len(self.rows))

    @override
    def is_row(self, row: Any) -> bool:
        return is_sweep_row(row)

    @override
    def is_row_of(self, row: Mapping[str, Any], key: int) -> bool:
        return row == self.rows[key].to_json()

    @override
    def part(self, key: int) -> str:
        return self.system.label

    @override
    @contextmanager
    def opened(self, folder: RunFolder) -> Iterator[None]:
        folder.manifest.update(self.material.facts())
        folder.manifest["notes"][self.system.label] = dict(self.notes)
        folder.time(retriever=self.system.label, phase="prepare", seconds=0.0)
        yield

    @override
    def produce(self, keys: Sequence[int]) -> Iterator[Sequence[Finished]]:
        yield [Finished(self.rows[key].to_json(), 0.0) for key in keys]

    @override
    def summarise(self, folder: RunFolder) -> SweepSummary:
        return summarise(folder.manifest, self.rows, self.ks)


def import_run(
    system: Imported, material: Material, ks: Sequence[int], run: RunOptions
) -> SweepSummary:
    """Write a run folder with a row for every query and size; raise as `_Import` and `execute`."""
    return execute(_Import(system, material, ks), run).report


Found = tuple[Any, int] | str
"""Scores (len(pool),) float32 and the number of memories without one; or the cause of failure."""


class _Trec:
    def __init__(self, path: Path, material: Material, size: int) -> None:
        digest = new_digest()
        self.path, self.rankings = path, read_run_file(path, digest)
        self.sha256 = str(digest.hexdigest())[:16]
        known = {row.benchmark_id for row in material.pools.rows}
        for query, ranking in self.rankings.items():
            if query not in known:
                line = min(line for _, line in ranking.values())
                raise DataError(
                    f"`{query}` is not a query of the data",
                    path,
                    line,
                    todo="Pass the --data, --split and --limit that it was made on",
                )

    def scores(self, query: Task3Row, pool: Pool, memories: Sequence[Memory]) -> Found:
        ranking = self.rankings.get(query.benchmark_id)
        if not ranking:
            return "not in the file"
        return scores_of(self.path, query.benchmark_id, ranking, memories)


class _Predictions:
    """One memory per query: it scores 1 and all others 0, so only recall@1 is of use."""

    def __init__(self, path: Path, material: Material, size: int) -> None:
        if material.strategy != "released":
            raise UserError(f"{path}: predictions name stored ids, so they need --pools released")
        self.rows = {row.benchmark_id: row for row in material.data.released[size].rows}
        self.given: dict[str, list[Prediction[Selection]]] = {}
        found = read_selections(path)
        self.sha256 = found.sha256
        lookup = NameLookup(self.rows)
        for prediction in found.predictions:
            name = lookup.find(prediction.benchmark_id)
            if name is None:
                raise DataError(
                    f"`{prediction.benchmark_id}` is not a query of the data", path, prediction.line
                )
            self.given.setdefault(name, []).append(prediction)

    def scores(self, query: Task3Row, pool: Pool, memories: Sequence[Memory]) -> Found:
        given = self.given.get(query.benchmark_id, [])
        if len(given) != 1:
            return "several predictions" if given else "not in the file"
        selection = given[0].value
        if selection is None or not selection.selected:
            return "selects nothing"
        ids = self.rows[query.benchmark_id].memory_ids
        meant = meant_ids(selection.selected, ids)
        scores = np.array([memory_id in meant for memory_id in ids], np.float32)
        return (scores, len(ids) - 1) if scores.any() else "selected id not in the pool"


def by_size(words: Sequence[str], sizes: Sequence[int]) -> dict[int, Path]:
    """`["100=a.run", "300=b.run"]` as files by size; a file name alone if there is one size.

    Raise UserError for a size without a file, or a file without a size.
    """
    if len(words) == len(sizes) == 1 and not re.match(r"\d+=", words[0]):
        return {sizes[0]: Path(words[0])}
    by_name = {str(size): size for size in sizes}
    files: dict[int, Path] = {}
    for word in words:
        number, equals, name = word.partition("=")
        size = by_name.get(number, 0)
        if not (equals and name and size):
            raise UserError(
                f"{word}: write SIZE=FILE, SIZE being one of {', '.join(map(str, sizes))}"
            )
        if size in files:
            raise UserError(f"{word}: there are two files for {size} distractors")
        files[size] = Path(name)
    missing = [size for size in sizes if size not in files]
    if missing:
        raise UserError(f"no file for {missing[0]} distractors. Give {missing[0]}=FILE")
    return files


@app.command(
    examples=(
        "recallbed import other.run --label other --distractors 100 --out runs/other",
        "recallbed import 9=a.run 99=b.run --label b --distractors 9,99 --out runs/b",
    )
)
def command(
    files: Annotated[
        tuple[str, ...],
        typer.Argument(metavar="[SIZE=]FILE...", help="One file per pool size."),
    ],
    label: Annotated[
        str, typer.Option(metavar="LABEL", help="Label of the imported system in rows and tables.")
    ],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Run folder to write.")],
    *,
    kind: Annotated[
        Literal["trec", "predictions"], typer.Option("--format", help="Format of the files.")
    ] = "trec",
    data: DataOptions,
    pools: PoolOptions,
    ks: Annotated[
        tuple[int, ...] | None,
        typer.Option(
            "--k", metavar="N,...", help="Depths of recall@k; some commands take one only."
        ),
        numbers(),
    ] = None,
    seed: Seed = 0,
    overwrite: Overwrite = False,
) -> None:
    """Import TREC runs or official predictions as a run.

    Documents of a TREC run are named as `recallbed export --what pools` names them. The default
    of --k is 1,5,10, and 1 for predictions.
    """
    parse_configurations([f"{label}=imported"], [])  # checks the label
    material = gather(
        *(data.data, data.split, pools.pools, pools.distractors),
        *((pools.pool_seed,), data.limit),
    )
    system = Imported(label, kind, by_size(files, material.sizes), seed)
    ks = ks or ((1, 5, 10) if kind == "trec" else (1,))
    # Failures are the file's answers: those of its first queries stop nothing.
    run = RunOptions(out, overwrite=overwrite, keep_going=True)
    summary = import_run(system, material, ks, run)
    draw_run(out, ks)
    print_table(out, summary)


if __name__ == "__main__":
    app()
