"""Results of other systems as a run folder: `python -m analysis.import FILE...`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer

from analysis.curves import draw_run
from analysis.rows import SweepRow, is_sweep_row
from analysis.summary import SweepSummary, summarise, write_summary
from analysis.tables import print_table
from analysis.trec import read_run_file, scores_of
from recallbed.corpus.jsonl import new_digest
from recallbed.corpus.material import Material, gather
from recallbed.corpus.options import DataOptions, PoolOptions
from recallbed.corpus.pools import Pool
from recallbed.corpus.predictions import Prediction, Selection, meant_ids, read_selections
from recallbed.corpus.records import Memory, Task3Row
from recallbed.errors import DataError, UserError
from recallbed.harness.app import App
from recallbed.harness.configurations import parse_configurations
from recallbed.harness.fingerprint import code_identity, versions
from recallbed.harness.options import Seed, numbers
from recallbed.harness.run_folder import open_run
from recallbed.harness.run_options import OnExisting, Overwrite

app = App()


@dataclass(frozen=True, slots=True)
class Imported:
    """The files of one system, by pool size, each a TREC run or official predictions."""

    label: str
    kind: str
    files: Mapping[int, Path]
    seed: int = 0


def import_run(
    system: Imported, material: Material, out: Path, ks: Sequence[int], on_existing: OnExisting
) -> SweepSummary:
    """Write a run folder with a row for every query and size; gives back its summary.

    A query that a file does not answer is a failed row with its cause, never a score. Raise
    DataError for a faulty file, one that names unknown queries or other pools, and UserError
    if no query is answered or `out` cannot be opened.
    """
    reader = _Trec if system.kind == "trec" else _Predictions
    rows: list[SweepRow] = []
    notes: Counter[str] = Counter()
    hashes: dict[str, str] = {}
    for size in material.sizes:
        pools = material.pools.pools[size, material.seeds[0]]
        file = reader(system.files[size], material, size)
        hashes[f"d{size}"] = file.sha256
        for query, pool in zip(material.pools.rows, pools, strict=True):
            memories = material.pools.texts(pool)
            of = (query.benchmark_id, system.label, size)
            found = file.scores(query, pool, memories)
            if isinstance(found, str):
                rows.append(SweepRow.failed(of, memories, pool.golds, found))
            else:
                scores, unreturned = found
                notes["unreturned_memories"] += unreturned
                notes["of_memories"] += len(memories)
                rows.append(SweepRow.scored(of, memories, pool.golds, scores))
    if not any(row.error is None for row in rows):
        raise UserError(f"{system.label}: no query is answered ({rows[0].error})")
    with open_run(out, _fingerprint(system, material, hashes), on_existing, is_sweep_row) as folder:
        folder.manifest.update(material.facts())
        folder.manifest["notes"][system.label] = dict(notes)
        folder.write_manifest()
        folder.rewrite([row.to_json() for row in rows])
        folder.time(retriever=system.label, phase="prepare", seconds=0.0)
        summary = summarise(folder.manifest, rows, ks)
        write_summary(out, summary)
    return summary


def _fingerprint(system: Imported, material: Material, files: Mapping[str, str]) -> dict[str, Any]:
    return {
        **material.fingerprint(),
        "retrievers": [
            {"label": system.label, "name": f"imported {system.kind}", "settings": dict(files)}
        ],
        "code": code_identity(),
        "libraries": versions(["numpy"]),
        "seed": system.seed,
    }


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
                    path=path,
                    line=line,
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
        for prediction in found.predictions:
            if prediction.benchmark_id not in self.rows:
                raise DataError(
                    f"`{prediction.benchmark_id}` is not a query of the data",
                    path=path,
                    line=prediction.line,
                )
            self.given.setdefault(prediction.benchmark_id, []).append(prediction)

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
    """`["100=a.run", "300=b.run"]` as files by size; a bare file name where there is one size.

    Raises UserError for a size without a file, or a file without a size.
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
    parse_configurations([f"{label}=imported"], [])  # says what a label may look like
    material = gather(
        *(data.data, data.split, pools.pools, pools.distractors),
        *((pools.pool_seed,), data.limit),
    )
    system = Imported(label, kind, by_size(files, material.sizes), seed)
    ks = ks or ((1, 5, 10) if kind == "trec" else (1,))
    summary = import_run(system, material, out, ks, "overwrite" if overwrite else "refuse")
    draw_run(out, ks)
    print_table(out, summary)


if __name__ == "__main__":
    app()
