"""A finished run as TREC files, pools or predictions: `python -m analysis.export`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

from analysis.item_predictions import OfficialRow, filled, is_item_run, official_rows
from analysis.kept_scores import scores_in, scores_line
from analysis.official import prediction_row
from analysis.ranked_pools import material_of
from analysis.rows import TOP, SweepRow
from analysis.runs import Run, read_run
from analysis.trec import documents, qrel_lines, run_lines
from recallbed.corpus.material import Material
from recallbed.corpus.options import Data
from recallbed.corpus.pools import Pool
from recallbed.corpus.records import Task3Row
from recallbed.errors import UserError
from recallbed.harness.app import App
from recallbed.harness.files import file_name, write_atomically
from recallbed.harness.run_folder import ROWS, SCORES, encode_row
from recallbed.harness.terminal import note, say

app = App()


def _ignore(line: str) -> None:
    """Default of `tell`."""


class _Cell(NamedTuple):
    label: str
    size: int
    seed: int


def export_trec(
    path: Path, data: Path | None, out: Path, tell: Callable[[str], None] = _ignore
) -> list[Path]:
    """Write `LABEL.d<N>.run` and `d<N>.qrels` for every label and size of the run in `path`.

    With several pool seeds the names contain `.s<seed>`. A failed row has no line in a run file.
    Without kept scores a run file holds the best TOP memories of each pool, and `tell` gets one
    line about it. Raise UserError if the run was made on other data.
    """
    run = read_run(path)
    material = material_of(run, data)
    lines: dict[Path, list[str]] = {}
    for cell, row, pool, scores in _scored(run, material):
        names = documents(material.pools.texts(pool))
        stem = _stem(material, cell.size, cell.seed)
        mine = lines.setdefault(out / f"{file_name(cell.label)}.{stem}.run", [])
        if scores is not None:
            mine += run_lines(row.benchmark_id, names, scores, cell.label)
        if cell.label == run.labels[0]:
            golds = qrel_lines(row.benchmark_id, names, pool.golds)
            lines.setdefault(out / f"{stem}.qrels", []).extend(golds)
    if not (path / SCORES).exists():
        tell(
            f"{path} has no scores.jsonl: a .run file holds the best {TOP} memories of each pool,"
            " with scores of 7 digits. Deeper measures need a sweep with --keep-scores"
        )
    return _write(
        out, {file: "".join(f"{line}\n" for line in text) for file, text in lines.items()}
    )


def export_pools(
    path: Path, data: Path | None, out: Path, tell: Callable[[str], None] = _ignore
) -> list[Path]:
    """Write `d<N>.pools.jsonl`, the pools of the run in `path`, in the format of own memories.

    The id of each memory is its document number in a TREC run. Further fields are kept.
    """
    material = material_of(read_run(path), data)
    files = {}
    for (size, seed), pools in material.pools.pools.items():
        rows = zip(material.pools.rows, pools, strict=True)
        lines = [json.dumps(_own_row(material, *pair), ensure_ascii=False) for pair in rows]
        name = f"{_stem(material, size, seed)}.pools.jsonl"
        files[out / name] = "".join(f"{line}\n" for line in lines)
    return _write(out, files)


def _own_row(material: Material, row: Task3Row, pool: Pool) -> dict[str, Any]:
    memories = material.pools.texts(pool)
    return {
        "id": row.benchmark_id,
        "session": row.session_id,
        "query": row.query,
        "memories": [
            {"id": name, "text": memory.text} | ({"label": memory.label} if memory.label else {})
            for name, memory in zip(documents(memories), memories, strict=True)
        ],
        "gold": list(pool.golds),
        **row.fields,
    }


def export_predictions(
    path: Path,
    data: Path | None,
    out: Path,
    tell: Callable[[str], None] = _ignore,
    *,
    fill_failed: bool = False,
) -> list[Path]:
    """Write the official rows of a run, one file per track, of a sweep per label and size.

    A failed row is left out, or with `fill_failed` is a `filled_row`; without, `tell` gets one line
    with their number. Ties of a sweep are broken as in `task3.predict` with the run's seed. Without
    kept scores, if all TOP memories of a row tie, more may tie with them: such a row has failed.
    Raise UserError for a sweep on pools that are not released, whose memories have no stored id.
    """
    if is_item_run(path):
        found = {
            out / f"{track.replace('/', '.')}.predictions.jsonl": (track, rows)
            for track, rows in official_rows(path).items()
        }
    else:
        found = _official_sweep(path, data, out, tell)
    failed = sum(row is None for _, rows in found.values() for _, row in rows)
    if failed and not fill_failed:
        total = sum(len(rows) for _, rows in found.values())
        tell(
            f"{failed} of {total} rows failed and are left out: the official scorer refuses such"
            " files. Pass --fill-failed to write rows for them"
        )
    return _write(
        out,
        {
            file: b"".join(map(encode_row, filled(track, rows, fill_failed=fill_failed)))
            for file, (track, rows) in found.items()
        },
    )


def _official_sweep(
    path: Path, data: Path | None, out: Path, tell: Callable[[str], None]
) -> dict[Path, tuple[str, list[OfficialRow]]]:
    run = read_run(path)
    if run.manifest["fingerprint"]["pools"]["strategy"] != "released":
        raise UserError(f"{path}: predictions name stored ids, so they need --pools released")
    material = material_of(run, data)
    by_id = {
        size: {row.benchmark_id: row for row in file.rows}
        for size, file in material.data.released.items()
    }
    files: dict[Path, tuple[str, list[OfficialRow]]] = {}
    cut = 0
    for cell, row, _, scores in _scored(run, material):
        file = out / f"{file_name(cell.label)}.d{cell.size}.predictions.jsonl"
        official = None
        if scores is not None and _cut_tie(scores):
            cut += 1
        elif scores is not None:
            given = by_id[cell.size][row.benchmark_id]
            seed = run.manifest["fingerprint"]["seed"]
            official = prediction_row(cell.label, given, scores, seed)[0]
        rows = files.setdefault(file, (f"task3/d{cell.size}", []))[1]
        rows.append((row.benchmark_id, official))
    if cut:
        tell(
            f"{path} has no scores.jsonl, and in {cut} rows all of the best {TOP} memories tie: no"
            " prediction for these. They need a sweep with --keep-scores"
        )
    return files


def _scored(
    run: Run, material: Material
) -> Iterator[tuple[_Cell, Task3Row, Pool, NDArray[np.float32] | None]]:
    """Yield every row of a run with its pool and its scores, None if it failed.

    Without kept scores: those of the row's `top`, and -inf for all other memories.
    """
    path = run.path / SCORES
    if not path.exists():
        if "kept" in run.manifest["fingerprint"]:
            raise UserError(f"{path}: is missing. Run the sweep again with --overwrite")
        for number, (row, cell, given, pool) in enumerate(_cells(run, material), 1):
            of = given.benchmark_id, cell.label, cell.size
            expected = SweepRow.failed(of, material.pools.texts(pool), pool.golds, "")
            if _pool_of(row) != _pool_of(expected):
                raise UserError(
                    f"{run.path / ROWS}:{number}: not the row of its pool."
                    " Start the sweep again with --overwrite"
                )
            yield cell, given, pool, None if row.error is not None else _top(row, len(pool))
        return
    with path.open("rb") as stream:
        for number, (row, cell, given, pool) in enumerate(_cells(run, material), 1):
            memories = material.pools.texts(pool)
            kept = scores_line(stream.readline())
            scores = None if row.error is not None else scores_in(kept, len(pool))
            of = given.benchmark_id, cell.label, cell.size
            # Made again from its scores, a row is what the sweep made: neither file is damaged.
            if scores is None:
                again = SweepRow.failed(of, memories, pool.golds, row.error or "")
            else:
                again = SweepRow.scored(of, memories, pool.golds, scores)
            found = tuple(kept.get(k) for k in ("query", "retriever", "distractors", "pool"))
            if found != _pool_of(row)[:4] or (*_pool_of(row), row.ties, row.top) != (
                *_pool_of(again),
                again.ties,
                again.top,
            ):
                raise UserError(
                    f"{path}:{number}: not the scores of its row."
                    " Start the sweep again with --overwrite"
                )
            yield cell, given, pool, scores
        if stream.read(1):
            raise UserError(
                f"{path}: has more lines than the run has rows."
                " Start the sweep again with --overwrite"
            )


def _pool_of(row: SweepRow) -> tuple[Any, ...]:
    return row.query, row.retriever, row.distractors, row.pool, row.golds


def _cells(run: Run, material: Material) -> Iterator[tuple[SweepRow, _Cell, Task3Row, Pool]]:
    """Yield every row of a finished run with its query and pool."""
    plan = [(*key, i) for key in material.pools.pools for i in range(len(material.pools.rows))]
    if len(run.rows) != len(plan) * len(run.labels):
        raise UserError(
            f"{run.path}: has {len(run.rows)} of {len(plan) * len(run.labels)} rows."
            " Finish it with --resume"
        )
    for number, row in enumerate(run.rows):
        cell = _Cell(run.labels[number // len(plan)], *plan[number % len(plan)][:2])
        query = plan[number % len(plan)][2]
        yield row, cell, material.pools.rows[query], material.pools.pools[cell[1:]][query]


def _top(row: SweepRow, size: int) -> NDArray[np.float32]:
    scores = np.full(size, -np.inf, np.float32)
    for position, score in row.top:
        scores[position] = score
    return scores


def _cut_tie(scores: NDArray[np.float32]) -> bool:
    """Whether memories outside `top` may share the best score."""
    known = scores[np.isfinite(scores)]
    return len(known) < len(scores) and bool((known == known.max()).all())


def _stem(material: Material, size: int, seed: int) -> str:
    return f"d{size}" + (f".s{seed}" if len(material.seeds) > 1 else "")


def _write(out: Path, files: dict[Path, Any]) -> list[Path]:
    out.mkdir(parents=True, exist_ok=True)
    for file, content in files.items():
        write_atomically(file, content)
    return list(files)


@app.command(
    examples=(
        "recallbed export runs/a --out trec",
        "recallbed export runs/a --what predictions --fill-failed --out official",
    )
)
def export(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="Run folder of a sweep; for predictions also of tasks 1 to 4."
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder to write to.")],
    what: Annotated[
        Literal["trec", "pools", "predictions"],
        typer.Option(help="TREC runs and qrels; pools for other systems; or official rows."),
    ] = "trec",
    data: Data = None,
    fill_failed: Annotated[
        bool,
        typer.Option(
            help="Write a row for each failed one, which the official scorer needs and our own"
            " count as missing."
        ),
    ] = False,
) -> None:
    """Write a run as files that other tools read.

    Existing files are replaced. --data names the data of the sweep. A run without --keep-scores
    has the best ten memories of each pool only. Predictions of task 4 are a file per ability.
    """
    if what == "predictions":
        say(*export_predictions(run, data, out, note, fill_failed=fill_failed))
        return
    if fill_failed:
        raise UserError("--fill-failed goes with --what predictions")
    say(*{"trec": export_trec, "pools": export_pools}[what](run, data, out, note))


if __name__ == "__main__":
    app()
