"""2,000 damaged files: no traceback, and never nothing where there was something.

The files are cuts of the embedded sample and what the commands write from them. Each input damages
one file in one way. Reading it may raise DataError or UserError and nothing else; where it raises
nothing, every line of the file must have become a row.
"""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis.runs import read_run
from recallbed.corpus import DataError, sample_root
from recallbed.corpus.predictions import read_selections
from recallbed.corpus.tracks import load_task3
from recallbed.corpus.validate import app as validator
from recallbed.errors import UserError
from task3.predict import app as predictor
from task3.score import score_choices
from task3.sweep import app as sweeper
from tests import kit
from tests.kit import read_lines, write_lines
from tests.test_tracks import INPUT, REFERENCE, SAMPLE_TRACKS

INPUTS = {"loader": 600, "validator": 400, "run folder": 500, "predictions": 500}
DEPTH = 10_000
# Put in the place of a field, as they stand in a file.
VALUES = (
    *("null", "true", "0", "-1", "0.5", "1e999", "1" + "0" * 400, '""', '"x"', "[]", "{}"),
    *('[""]', '{"": ""}', "[[]]", r'"\ud83d"', r'"\u0000"', "NaN", "-Infinity", "[null]"),
)
BYTES = (b"\n", b"\r\n", b"\0", b"\xff", b"\xef\xbb\xbf", "\u2028".encode(), b'"', b"}", b"{")
SLOT = '"zz-slot"'


# Damage


@dataclass(frozen=True)
class Damage:
    """One way to spoil a file, and numbers that say where; they are taken modulo what is there."""

    kind: str
    file: int
    where: int
    other: int
    many: int


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) inside a JSON value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in inside:
        yield value, key
        if isinstance(inner, dict | list):
            yield from places(inner)


def documents(raw: bytes) -> list[str]:
    """The JSON documents of a file: its lines, or the whole of it where that is one."""
    text = raw.decode()
    try:
        json.loads(text)
    except ValueError:
        return text.rstrip("\n").split("\n")
    return [text.rstrip("\n")]


def change_document(
    raw: bytes, where: int, change: Callable[[Any, list[tuple[Any, Any]]], str]
) -> bytes:
    """The file with one of its documents changed; `change` gives what stands in for the slot."""
    found = documents(raw)
    number = where % len(found)
    value = json.loads(found[number])
    text = change(value, list(places(value)))
    found[number] = json.dumps(value, ensure_ascii=False).replace(SLOT, text)
    return ("\n".join(found) + "\n").encode()


def truncated(raw: bytes, d: Damage) -> bytes:
    return raw[: d.where % len(raw)]


def bits_flipped(raw: bytes, d: Damage) -> bytes:
    spoilt = bytearray(raw)
    for i in range(1 + d.many % 6):
        spoilt[(d.where + i * d.other) % len(raw)] ^= 1 << (d.other + i) % 8
    return bytes(spoilt)


def bytes_inserted(raw: bytes, d: Damage) -> bytes:
    at = d.where % (len(raw) + 1)
    return raw[:at] + BYTES[d.other % len(BYTES)] * (1 + d.many % 3) + raw[at:]


def fields_swapped(raw: bytes, d: Damage) -> bytes:
    def swap(_: Any, found: list[tuple[Any, Any]]) -> str:
        # Two neighbours in the object or list: swapping a field with its own parent makes a loop.
        box, key = found[d.other % len(found)]
        keys = list(box) if isinstance(box, dict) else list(range(len(box)))
        partner = keys[d.many % len(keys)]
        box[key], box[partner] = box[partner], box[key]
        return SLOT

    return change_document(raw, d.where, swap)


def field_changed(raw: bytes, d: Damage) -> bytes:
    def change(_: Any, found: list[tuple[Any, Any]]) -> str:
        box, key = found[d.other % len(found)]
        box[key] = SLOT.strip('"')
        return VALUES[d.many % len(VALUES)]

    return change_document(raw, d.where, change)


def field_dropped(raw: bytes, d: Damage) -> bytes:
    def drop(_: Any, found: list[tuple[Any, Any]]) -> str:
        box, key = found[d.other % len(found)]
        del box[key]
        return SLOT

    return change_document(raw, d.where, drop)


def field_renamed(raw: bytes, d: Damage) -> bytes:
    def rename(_: Any, found: list[tuple[Any, Any]]) -> str:
        box, key = found[d.other % len(found)]
        if isinstance(box, dict):
            box[SLOT.strip('"')] = box.pop(key)
        return (r'"\ud83d"', '""', json.dumps(f"{key} "))[d.many % 3]

    return change_document(raw, d.where, rename)


def nested_deep(raw: bytes, d: Damage) -> bytes:
    def nest(_: Any, found: list[tuple[Any, Any]]) -> str:
        box, key = found[d.other % len(found)]
        box[key] = SLOT.strip('"')
        start, end = (("[", "]"), ('{"a":', "}"))[d.many % 2]
        return start * DEPTH + "0" + end * DEPTH

    return change_document(raw, d.where, nest)


def lines_moved(raw: bytes, d: Damage) -> bytes:
    lines = raw.split(b"\n")[:-1]
    one, other = d.where % len(lines), d.other % len(lines)
    if d.many % 4 == 0:
        lines[one], lines[other] = lines[other], lines[one]
    elif d.many % 4 == 1:
        lines.insert(one, lines[other])
    elif d.many % 4 == 2:
        del lines[one]
    else:  # Two lines become one.
        lines[one : one + 2] = [b"".join(lines[one : one + 2])]
    return b"".join(line + b"\n" for line in lines)


KINDS: dict[str, Callable[[bytes, Damage], bytes]] = {
    "truncated": truncated,
    "bits flipped": bits_flipped,
    "bytes inserted": bytes_inserted,
    "fields swapped": fields_swapped,
    "types changed": field_changed,
    "field dropped": field_dropped,
    "field renamed": field_renamed,
    "nested 10,000 deep": nested_deep,
    "lines moved": lines_moved,
}
number = st.integers(0, 2**24)


def fuzz(
    inputs: int,
    files: list[Path],
    check: Callable[[Path, Damage], str],
    kinds: Mapping[str, Callable[[bytes, Damage], bytes]] = KINDS,
) -> None:
    """Damage one of `files` after another, each input alone, and have it checked.

    `check` reads what there is, asserts, and says how it ended: "read" or "refused".
    """
    clean = {path: path.read_bytes() for path in files}
    tried: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    each = settings(
        max_examples=-(-inputs // len(kinds)),
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )

    def one(damage: Damage) -> None:
        path = files[damage.file % len(files)]
        path.write_bytes(kinds[damage.kind](clean[path], damage))
        try:
            ends[check(path, damage)] += 1
            tried[damage.kind] += 1
        finally:
            path.write_bytes(clean[path])

    for kind in kinds:
        each(given(st.builds(Damage, st.just(kind), number, number, number, number))(one))()
    # All inputs were tried, of every kind, and there are plenty of either end.
    assert min(tried[kind] for kind in kinds) >= inputs / len(kinds)
    assert min(ends["read"], ends["refused"]) >= inputs / 50, ends


def lines_of(path: Path) -> int:
    """How many lines hold anything, a byte order mark aside."""
    lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return sum(1 for line in lines if line.strip())


def assert_one_line(error: Exception, place: Path) -> None:
    """The message is one line, and a file or folder at `place` stands first in it."""
    assert str(error).startswith(str(place))
    assert "\n" not in str(error)


# What is damaged


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cut of the sample: two rows of each track, six of task 3 with pools of five."""
    root = tmp_path_factory.mktemp("cut")
    for name in SAMPLE_TRACKS:
        given, references = (
            read_lines(sample_root() / "dev" / name / file)[: 6 if "task3" in name else 2]
            for file in (INPUT, REFERENCE)
        )
        if "task3" in name:
            for row, reference in zip(given, references, strict=True):
                gold = reference["gold"]["selected_memory"]["value"]
                pool = row["input"]["candidate_memories"]
                others = [memory for memory in pool if memory["value"] != gold]
                [chosen] = [memory for memory in pool if memory["value"] == gold]
                row["input"]["candidate_memories"] = [*others[:2], chosen, *others[2:4]]
            name = "task3/d4"
        write_lines(root / "dev" / name / INPUT, given)
        write_lines(root / "dev" / name / REFERENCE, references)
    return root


@pytest.fixture
def release(clean: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(clean, tmp_path / "release"))


def run_command(app: Any, *arguments: object) -> None:
    kit.run(app, *arguments, code=0)


@pytest.fixture(scope="module")
def finished_run(clean: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two retrievers over the cut, as the sweep leaves it."""
    out = tmp_path_factory.mktemp("runs") / "run"
    run_command(
        sweeper,
        *("--retriever", "overlap", "--retriever", "random", "--data", clean),
        *("--distractors", "2,4", "--k", "1,2", "--out", out),
    )
    return out


# The four readers


def test_the_loader_of_task_3(release: Path) -> None:
    place = release / "dev" / "task3" / "d4"

    def check(_path: Path, _: Damage) -> str:
        try:
            file = load_task3(release / "dev", 4)
        except DataError as error:
            assert_one_line(error, place)
            return "refused"
        assert len(file.rows) == lines_of(place / INPUT) > 0
        assert all(row.gold is not None and row.candidates for row in file.rows)
        return "read"

    fuzz(INPUTS["loader"], [place / INPUT, place / REFERENCE], check)


def test_the_validator(release: Path) -> None:
    files = sorted(release.rglob("*.jsonl"))
    assert len(files) == 16

    def check(path: Path, damage: Damage) -> str:
        result = kit.run(validator, release, "--json")
        assert result.exception is None or isinstance(result.exception, SystemExit)
        assert result.exit_code in (0, 2)
        report = json.loads(result.stdout)
        spoilt = str(path.parent.relative_to(release / "dev"))
        assert len(report["tracks"]) == 8
        for track in report["tracks"]:
            inputs = release / "dev" / track["track"] / INPUT
            if track["track"] != spoilt:
                assert track["faults"] == 0
            if track["faults"] == 0:
                assert track["rows"] == track["with_gold"] == lines_of(inputs) > 0
        assert result.exit_code == (2 if report["fault_count"] else 0)
        # A fault names a file of the track that was damaged, first thing.
        assert all(line.startswith(f"{path.parent}/") for line in report["faults"])
        if damage.where % 4 == 0:
            plain = kit.run(validator, release)
            assert plain.exit_code == result.exit_code
            assert plain.stdout.splitlines()[-1].endswith(f" {report['fault_count']} faults")
        return "refused" if report["fault_count"] else "read"

    fuzz(INPUTS["validator"], files, check)


def test_a_run_folder(finished_run: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(finished_run, tmp_path / "run"))
    assert len(read_run(path).rows) == 2 * 2 * 6

    def check(_path: Path, _: Damage) -> str:
        try:
            run = read_run(path)
            labels = run.labels
            summary = run.summary((1, 2))
        except UserError as error:
            assert_one_line(error, path)
            return "refused"
        # A last row without its line feed is one that a crash cut short, and is left out.
        assert len(run.rows) == (path / "rows.jsonl").read_bytes().count(b"\n") > 0
        assert labels
        assert sum(cell.attempted for cell in summary.cells) == len(run.rows)
        return "read"

    fuzz(INPUTS["run folder"], [path / "manifest.json", path / "rows.jsonl"], check)


def test_a_file_of_predictions(release: Path, tmp_path: Path) -> None:
    path = tmp_path / "predictions.jsonl"
    run_command(predictor, "--retriever", "overlap", "--data", release, "--out", path)
    assert score_choices(path, release, "dev", None).all.counts.answered == 6

    def check(_path: Path, _: Damage) -> str:
        try:
            found = read_selections(path)
            assert found.lines == lines_of(path) > 0
            scored = score_choices(path, release, "dev", None).to_json()
        except (DataError, UserError) as error:
            assert_one_line(error, path)
            return "refused"
        causes = Counter({k: tally["count"] for k, tally in scored["all"]["causes"].items()})
        assert causes.total() == scored["all"]["asked"] == 6
        # Every line is somewhere: with its query, or among the lines of none.
        others = sum(tally["count"] for tally in scored["lines_of_no_query"].values())
        used = sum(
            causes[k] for k in ("correct", "wrong", "not_in_pool", "null_or_empty", "faulty")
        )
        assert used + others <= found.lines
        assert causes["repeated"] > 0 or used + others == found.lines
        assert scored["all"]["answered"] > 0
        json.dumps(scored, allow_nan=False)
        return "read"

    fuzz(INPUTS["predictions"], [path], check)


def test_the_inputs_are_2_000() -> None:
    assert sum(INPUTS.values()) == 2000


# Depth, at every field and in every file: the C parser must not overflow, nor what comes after it.


@pytest.mark.parametrize("depth", [900, 1_100, DEPTH, 200_000])
def test_any_depth_of_nesting_in_a_run_is_a_user_error(
    finished_run: Path, tmp_path: Path, depth: int
) -> None:
    path = Path(shutil.copytree(finished_run, tmp_path / "run"))
    for file in ("rows.jsonl", "manifest.json"):
        raw = (path / file).read_bytes()
        (path / file).write_bytes(b"[" * depth + b"]" * depth + b"\n" + raw)
        with pytest.raises(UserError):
            read_run(path)
        (path / file).write_bytes(raw)


@pytest.mark.parametrize("depth", [900, 1_100, DEPTH, 200_000])
@pytest.mark.parametrize("file", [INPUT, REFERENCE])
def test_any_depth_of_nesting_in_data_is_a_data_error(release: Path, file: str, depth: int) -> None:
    path = release / "dev" / "task3" / "d4" / file
    path.write_bytes(b"[" * depth + b"]" * depth + b"\n" + path.read_bytes())
    with pytest.raises(DataError, match=f"{file}:1: "):
        load_task3(release / "dev", 4)
