"""Damage to what is kept on disk: refused or made again, never silently another result."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis.exporting import export_trec
from analysis.runs import read_run
from harness.checksums import check_of, seal, unseal
from harness.configurations import Configuration
from harness.errors import UserError
from harness.item_run import Done, is_item_row, run_items
from harness.run_folder import open_run, read_rows
from task3.config import SweepConfig
from task3.run import run_sweep


def flips(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """Every way of changing one bit."""
    for place in range(len(raw)):
        for bit in range(8):
            yield place, raw[:place] + bytes([raw[place] ^ 1 << bit]) + raw[place + 1 :]


def refused(read: Callable[[], Any]) -> str | None:
    """The line of the refusal; None if what is read is returned. Anything else raised is raised."""
    said = None
    try:
        read()
    except UserError as error:
        said = str(error)
    assert said is None or "\n" not in said
    return said


def small_sweep(out: Path, **options: Any) -> Path:
    """A run over the sample: one retriever, one size, three queries."""
    given: dict[str, Any] = {"distractors": (5,), "ks": (1,), "limit": 3, **options}
    run_sweep(SweepConfig((Configuration("overlap", "overlap", {}),), out=out, **given))
    return out


def test_every_flipped_bit_of_rows_is_refused(tmp_path: Path) -> None:
    run = small_sweep(tmp_path / "run")
    path = run / "rows.jsonl"
    raw = path.read_bytes()
    for place, damaged in flips(raw):
        path.write_bytes(damaged)
        said = refused(lambda: read_run(run))
        assert said is not None, (place, damaged[place])
        assert f"{path}:" in said
    path.write_bytes(raw)
    assert len(read_run(run).rows) == 3


def test_a_damaged_row_is_refused_by_a_resumed_run_with_its_line(tmp_path: Path) -> None:
    run = small_sweep(tmp_path / "run")
    path = run / "rows.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    changed = lines[1].replace(b'"calls": 0', b'"calls": 8')
    assert changed != lines[1]
    path.write_bytes(lines[0] + changed + lines[2])
    with pytest.raises(UserError, match=r"rows\.jsonl:2: the row is damaged.*--resume"):
        small_sweep(run, on_existing="resume")
    assert path.read_bytes() == lines[0] + changed + lines[2]
    path.write_bytes(lines[0])  # what the message says to do
    small_sweep(run, on_existing="resume")
    assert path.read_bytes() == b"".join(lines)


def test_every_flipped_bit_of_the_rows_of_items_is_refused(tmp_path: Path) -> None:
    with open_run(tmp_path / "run", {}, "refuse", sound=is_item_row) as folder:
        done = Done({"text": "grün", "score": 0.5}, calls=1, tokens_in=20, tokens_out=3)
        run_items(folder, {"a": lambda: done, "b": lambda: Done(error="timeout")}, label="items")
    path = tmp_path / "run" / "rows.jsonl"
    for place, damaged in flips(path.read_bytes()):
        path.write_bytes(damaged)
        assert refused(lambda: read_rows(path, is_item_row)), (place, damaged[place])


def test_every_flipped_bit_of_a_line_of_scores_is_refused(tmp_path: Path) -> None:
    run = small_sweep(tmp_path / "run", keep_scores=True, limit=2)
    path = run / "scores.jsonl"
    raw = path.read_bytes()
    lines = raw.splitlines(keepends=True)
    kept = unseal(lines[0])[0]
    for place, damaged in flips(lines[0].rstrip(b"\n")):
        try:
            value, agrees = unseal(damaged)
        except ValueError:
            continue
        # Only the name of the check itself may have been changed unseen.
        assert not agrees or {key: value[key] for key in kept} == kept, place
    path.write_bytes(lines[0].replace(b'"scores": [', b'"scores": [ ') + lines[1])
    with pytest.raises(UserError, match=r"scores\.jsonl:1"):
        export_trec(run, None, tmp_path / "exported")


def test_a_row_cut_short_is_no_damage(tmp_path: Path) -> None:
    run = small_sweep(tmp_path / "run")
    path = run / "rows.jsonl"
    raw = path.read_bytes()
    whole = raw[:-1].rindex(b"\n") + 1
    for end in range(whole, len(raw)):
        path.write_bytes(raw[:end])
        assert len(read_run(run).rows) == 2
    small_sweep(run, on_existing="resume")
    assert path.read_bytes() == raw


def test_rows_of_the_version_before_have_no_check_and_are_read(tmp_path: Path) -> None:
    run = small_sweep(tmp_path / "run")
    path = run / "rows.jsonl"
    now = read_run(run).rows
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in now), "utf-8")
    assert b"check" not in path.read_bytes()
    assert read_run(run).rows == now
    resumed = small_sweep(run, on_existing="resume")
    assert read_run(resumed).rows == now


def test_the_check_is_the_last_key_and_the_crc_of_the_rest() -> None:
    line = seal(b'{"a": 1}\n')
    assert line == b'{"a": 1, "check": "fba18e97"}\n'
    assert unseal(line) == ({"a": 1}, True)
    assert unseal(line.replace(b"1,", b"2,")) == ({"a": 2}, False)
    assert unseal(b'{"a": 1}') == ({"a": 1}, True)


def test_a_check_depends_on_values_their_types_and_their_order() -> None:
    assert check_of("é", 1) == check_of("é".encode(), 1)
    kinds: list[tuple[Any, ...]] = [("1",), (1,), (1.0,), (None,), ("None",), ("", "1"), ("1", "")]
    assert len({check_of(*values) for values in kinds}) == len(kinds)
    assert check_of("\ud800") == check_of("\ud800".encode("utf-8", "surrogatepass"))
