"""600 damaged files of one's own, of other systems and of kept scores: refused, or read in full.

As in `test_fuzz`, each input damages one file in one way. A reader may raise DataError or UserError
with one line; where it raises nothing, nothing that stood in the file is left out of the figures.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest

from analysis.export import export_trec
from analysis.importing import Imported, import_run
from analysis.metrics import above_tied
from analysis.trec import documents
from recallbed.corpus import DataError
from recallbed.corpus.custom import load_custom
from recallbed.corpus.material import gather
from recallbed.corpus.validate import validate
from recallbed.errors import UserError
from recallbed.harness.run_options import RunOptions
from tests.kit import swept, write_lines
from tests.test_fuzz import (
    DEPTH,
    Damage,
    assert_one_line,
    bits_flipped,
    bytes_inserted,
    fuzz,
    lines_moved,
    lines_of,
    truncated,
)

INPUTS = {"own": 240, "trec": 200, "scores": 160}
Kinds = Mapping[str, Callable[[bytes, Damage], bytes]]
# Put in the place of a column.
WORDS = (
    *("nan", "-inf", "1e999", "1e39", "-0", "1e-46", "0x1p3", "1_0", "١", "", "\x00", "\xa0"),
    *("9" * 400, "0-00000000", "q1", "%", "%ff", "%20", "\ufeffq1", "version"),
)


def on_columns(raw: bytes, d: Damage, damage: Callable[[list[str], Damage], None]) -> bytes:
    lines = raw.decode().split("\n")[:-1]
    columns = lines[d.where % len(lines)].split(" ")
    damage(columns, d)
    lines[d.where % len(lines)] = " ".join(columns)
    return "".join(f"{line}\n" for line in lines).encode()


def swap(columns: list[str], d: Damage) -> None:
    one, other = d.other % len(columns), d.many % len(columns)
    columns[one], columns[other] = columns[other], columns[one]


def change(columns: list[str], d: Damage) -> None:
    columns[d.other % len(columns)] = WORDS[d.many % len(WORDS)]


def drop(columns: list[str], d: Damage) -> None:
    del columns[d.other % len(columns)]


def add(columns: list[str], d: Damage) -> None:
    columns.insert(d.other % len(columns), WORDS[d.many % len(WORDS)])


TREC_KINDS: Kinds = {
    "truncated": truncated,
    "bits flipped": bits_flipped,
    "bytes inserted": bytes_inserted,
    "lines moved": lines_moved,
    "columns swapped": partial(on_columns, damage=swap),
    "types changed": partial(on_columns, damage=change),
    "column dropped": partial(on_columns, damage=drop),
    "column added": partial(on_columns, damage=add),
}


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Six queries, two of them with two golds, one with none, with pools of 4 to 6."""
    rows: list[dict[str, Any]] = [
        {
            "id": f"q{i}",
            "session": f"user {i // 2}",
            "query": f"topic {i} colour",
            "memories": [f"topic {i * j % 5} note {j}" for j in range(3 + i % 3)]
            + [{"text": f"colour {i}", "label": "Hues"}],
            "gold": [[0, 2], 1, []][i % 3],
        }
        for i in range(5)
    ]
    write_lines(tmp_path / "my.jsonl", [*rows, {**rows[1], "id": "q5", "gold": [0]}])
    return tmp_path / "my.jsonl"


def sweep(data: Path, out: Path, *names: str, **options: Any) -> dict[str, Any]:
    given = {"ks": (1, 2), "keep_scores": True, **options}
    return dict(swept(names, data, out=out, **given).summary)


# A user's own file


def test_a_file_of_ones_own(own: Path, tmp_path: Path) -> None:
    assert len(load_custom(own).file.rows) == 5

    def check(path: Path, damage: Damage) -> str:
        report = validate(path)
        assert all(fault.startswith(str(path)) and "\n" not in fault for fault in report.faults)
        [track] = report.tracks
        try:
            custom = load_custom(path)
        except DataError as error:
            assert_one_line(error, path)
            # The validator finds what the sweep refuses, bar a file without any gold.
            assert report.fault_count or track.with_gold == 0
            return "refused"
        assert report.fault_count == 0
        rows = custom.file.rows
        assert len(rows) + len(custom.abstentions) == track.rows == lines_of(path) > 0
        assert len(rows) == track.with_gold > 0
        for row in rows:
            assert row.gold_memories
            assert all(0 <= gold < len(row.candidates) for gold in row.golds)
            json.dumps([row.query, [m.text for m in row.candidates]], ensure_ascii=False).encode()
        if damage.where % 4 == 0:
            [cell] = sweep(path, tmp_path / "run", "overlap", on_existing="overwrite")["cells"]
            assert cell["attempted"] == cell["scored"] == len(rows)
            json.dumps(cell, allow_nan=False)
        return "read"

    fuzz(INPUTS["own"], [own], check)


@pytest.mark.parametrize("depth", [900, 1_100, DEPTH, 200_000])
@pytest.mark.parametrize("field", ["memories", "gold", "id", "session", "query"])
def test_any_depth_of_nesting_is_a_data_error(own: Path, field: str, depth: int) -> None:
    row = json.loads(own.read_text().split("\n")[0]) | {field: "SLOT"}
    text = json.dumps(row).replace('"SLOT"', "[" * depth + "]" * depth)
    own.write_text(text + "\n" + own.read_text())
    with pytest.raises(DataError, match=r"my\.jsonl:1: "):
        load_custom(own)


# A run of another system


def test_a_trec_run(own: Path, tmp_path: Path) -> None:
    sweep(own, tmp_path / "run", "random")
    export_trec(tmp_path / "run", own, tmp_path / "exported")
    path = tmp_path / "exported" / "random.d4.run"
    material, out = gather(own), tmp_path / "back"
    pools = dict(zip(material.pools.rows, material.pools.pools[4, 0], strict=True))
    assert len(path.read_text().splitlines()) == sum(map(len, pools.values()))

    def expected(text: str) -> dict[str, tuple[list[int], list[int]]]:
        """Above and tied of the golds, for each query that the file names."""
        found: dict[str, dict[str, float]] = {}
        for line in text.split("\n"):
            if line.strip():
                query, _, name, _, score, _ = line.split()
                found.setdefault(unquote(query), {})[name] = float(score)
        ranks = {}
        for row, pool in pools.items():
            if row.benchmark_id in found:
                mine = found[row.benchmark_id]
                names = documents(material.pools.texts(pool))
                assert set(mine) <= set(names)
                last = min(mine.values()) - 1e6
                scores = np.array([mine.get(name, last) for name in names], np.float32)
                pairs = [above_tied(scores, gold) for gold in pool.golds]
                ranks[row.benchmark_id] = [a for a, _ in pairs], [t for _, t in pairs]
        assert set(ranks) == set(found)
        return ranks

    def check(_: Path, damage: Damage) -> str:
        shutil.rmtree(out, ignore_errors=True)
        try:
            system = Imported("t", "trec", {4: path})
            summary = import_run(
                system, material, (1, 2), RunOptions(out, keep_going=True)
            ).to_json()
        except (DataError, UserError) as error:
            assert_one_line(error, path)
            assert not out.exists()
            return "refused"
        ranks = expected(path.read_bytes().decode("utf-8-sig"))
        [cell] = summary["cells"]
        assert cell["attempted"] == 5
        assert cell["scored"] == len(ranks) > 0
        json.dumps(summary, allow_nan=False)
        for row in map(json.loads, (out / "rows.jsonl").read_text("utf-8").splitlines()):
            assert (row["error"] is None) == (row["query"] in ranks)
            if row["error"] is None:
                above, tied = (
                    row[key] if isinstance(row[key], list) else [row[key]]
                    for key in ("above", "tied")
                )
                assert (above, tied) == ranks[row["query"]]
        return "read"

    fuzz(INPUTS["trec"], [path], check, TREC_KINDS)


# Kept scores


def test_kept_scores(own: Path, tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "exported"
    sweep(own, run, "overlap", "random")
    clean = {file.name: file.read_text() for file in export_trec(run, own, tmp_path / "clean")}

    def names_in(text: str) -> list[tuple[str, str]]:
        return sorted((line.split()[0], line.split()[2]) for line in text.splitlines())

    def check(path: Path, damage: Damage) -> str:
        shutil.rmtree(out, ignore_errors=True)
        try:
            files = export_trec(run, own, out)
        except UserError as error:
            assert_one_line(error, run)
            assert not out.exists()
            if path.name == "scores.jsonl":
                resumed(damage)
            return "refused"
        found = {file.name: file.read_text() for file in files}
        assert found.keys() == clean.keys()
        assert found["d4.qrels"] == clean["d4.qrels"]
        for name, text in found.items():
            assert names_in(text) == names_in(clean[name])
        return "read"

    def resumed(damage: Damage) -> None:
        """Going on with damaged scores never ends in a traceback, or with other rows."""
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(run, copy)
        try:
            sweep(own, copy, "overlap", "random", on_existing="resume")
        except UserError as error:
            assert_one_line(error, copy)
        assert (copy / "rows.jsonl").read_bytes() == (run / "rows.jsonl").read_bytes()

    fuzz(INPUTS["scores"], [run / "scores.jsonl"] * 2 + [run / "rows.jsonl"], check)


def test_the_inputs_are_600() -> None:
    assert sum(INPUTS.values()) == 600
