"""What a run leaves on disk, who may go on with it, and who may not."""

import json
import os
import platform
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from analysis.rows import is_sweep_row
from recallbed.corpus import Memory
from recallbed.errors import UserError
from recallbed.harness.configurations import Configuration
from recallbed.harness.files import write_atomically, written_whole
from recallbed.harness.fingerprint import canonical, difference, short_hash
from recallbed.harness.run_folder import encode_kept, encode_row, open_run, read_manifest
from retrievers import Retriever, RetrieverError
from task3.sweep_run import Outcome, run_sweep
from tests.kit import HANG, Forked, WriteRelease, rows_of, sweep_config

KEYS = [
    "query",
    "retriever",
    "distractors",
    "pool",
    "gold",
    "above",
    "tied",
    "top",
    "calls",
    "tokens_in",
    "tokens_out",
    "repairs",
    "error",
    "check",
]
SLOW = """
import time
from pathlib import Path
from retrievers import Retriever

class Slow(Retriever):
    def score(self, query, pool):
        while not Path('go on').exists():
            time.sleep(0.01)
        words = set(query.split())
        return [len(words & set(memory.text.split())) for memory in pool]
"""


class FailsOnThree(Retriever):
    """Cannot score `topic 3`."""

    def score(self, query: str, pool: Sequence[Memory]) -> list[float]:
        if query.endswith("3"):
            raise RetrieverError("three")
        return [float(len(memory.text)) for memory in pool]


@pytest.fixture
def release(write_release: WriteRelease) -> Path:
    return write_release(
        [
            (f"topic {i}", [f"topic {i} note {'x' * j} of {i}" for j in range(6)], i % 6)
            for i in range(7)
        ]
    )


def sweep(root: Path, out: Path, *names: str, **options: Any) -> Outcome:
    configurations = tuple(Configuration(f"r{i}", name, {}) for i, name in enumerate(names))
    given: dict[str, Any] = {"distractors": (5, 12), "ks": (1, 5), **options}
    return run_sweep(sweep_config(configurations, root, out=out, **given))


def strings_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from strings_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings_in(inner)
    elif isinstance(value, str):
        yield value


def test_rows_have_exactly_the_designed_keys(release: Path, tmp_path: Path) -> None:
    sweep(release, tmp_path / "run", "overlap", f"{__name__}:FailsOnThree")
    rows = rows_of(tmp_path / "run")
    assert len(rows) == 2 * 2 * 7
    assert all(list(row) == KEYS for row in rows)  # failed rows included


def test_rows_come_by_label_then_size_then_query(release: Path, tmp_path: Path) -> None:
    # `constant` scores a union of pools at once and `overlap` pool by pool; rows don't show it.
    sweep(release, tmp_path / "run", "constant", "overlap")
    order = [(r["retriever"], r["distractors"], r["query"]) for r in rows_of(tmp_path / "run")]
    assert order == [(f"r{i}", n, f"q{q}") for i in range(2) for n in (5, 12) for q in range(7)]


def test_a_row_says_where_its_gold_stood(release: Path, tmp_path: Path) -> None:
    sweep(release, tmp_path / "run", "overlap", pools="released", distractors=(5,))
    for number, row in enumerate(rows_of(tmp_path / "run")):
        assert row["gold"] == number % 6
        scores = dict(row["top"])
        assert len(scores) == 6
        assert row["above"] == sum(s > scores[row["gold"]] for s in scores.values())
        assert row["tied"] == sum(s == scores[row["gold"]] for s in scores.values())


def test_top_is_the_first_ten_positions_by_score_then_position(
    release: Path, tmp_path: Path
) -> None:
    sweep(release, tmp_path / "run", "random", distractors=(12,))
    for row in rows_of(tmp_path / "run"):
        assert len(row["top"]) == 10
        assert row["top"] == sorted(row["top"], key=lambda entry: (-entry[1], entry[0]))


def test_a_failed_row_has_a_cause_and_no_figures(release: Path, tmp_path: Path) -> None:
    sweep(release, tmp_path / "run", f"{__name__}:FailsOnThree")
    failed = [row for row in rows_of(tmp_path / "run") if row["error"] is not None]
    assert [(row["query"], row["distractors"]) for row in failed] == [("q3", 5), ("q3", 12)]
    for row in failed:
        assert (row["error"], row["above"], row["tied"], row["top"]) == ("three", None, None, [])


def test_the_pool_hash_does_not_depend_on_the_order_of_a_pool(
    write_release: WriteRelease, tmp_path: Path
) -> None:
    texts = [f"note {i}" for i in range(5)]
    hashes = []
    for order in (texts, texts[::-1]):
        root = write_release([("query", order, order.index("note 2"))])
        sweep(root, tmp_path / order[0][-1], "constant", pools="released", distractors=(4,))
        hashes.append(rows_of(tmp_path / order[0][-1])[0]["pool"])
    assert hashes[0] == hashes[1]
    root = write_release([("query", [*texts[:4], "another"], 2)])
    sweep(root, tmp_path / "other", "constant", pools="released", distractors=(4,))
    assert rows_of(tmp_path / "other")[0]["pool"] != hashes[0]


def test_row_bytes_keep_key_order_and_refuse_nan() -> None:
    assert encode_row({"b": "茶", "a": 1}) == '{"b": "茶", "a": 1}\n'.encode()
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode_row({"a": float("nan")})


def test_the_manifest_holds_no_path_no_host_and_no_time(release: Path, tmp_path: Path) -> None:
    sweep(release, tmp_path / "run", "bm25", "overlap", f"{__name__}:FailsOnThree")
    value = json.loads((tmp_path / "run" / "manifest.json").read_text("utf-8"))
    for text in strings_in(value):
        assert str(tmp_path) not in text
        assert not text.startswith(("/", "~"))
        assert str(Path.home()) not in text or str(Path.home()) == "/"
        assert text != platform.node()
        assert not re.search(r"20\d\d-\d\d-\d\d|\d\d:\d\d", text), f"a date or time: {text}"


def test_the_manifest_holds_what_can_change_a_row(release: Path, tmp_path: Path) -> None:
    sweep(release, tmp_path / "run", "bm25", seed=5)
    found = read_manifest(tmp_path / "run")["fingerprint"]
    assert set(found) == {"data", "pools", "retrievers", "code", "libraries", "seed"}
    assert found["seed"] == 5
    assert found["pools"]["strategy"] == "nested"
    assert found["pools"]["distractors"] == [5, 12]
    assert {"python", "numpy", "nltk"} <= set(found["libraries"])
    assert "variant" in json.dumps(found["retrievers"])


def test_a_run_elsewhere_is_equal_bytes(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep(release, tmp_path / "run", "bm25", "random")
    moved = tmp_path / "far" / "away"
    shutil.copytree(release, moved)
    monkeypatch.chdir(tmp_path / "far")
    sweep(Path("away"), Path("run"), "bm25", "random")
    for name in ("manifest.json", "rows.jsonl", "summary.json"):
        assert (tmp_path / "run" / name).read_bytes() == Path("run", name).read_bytes()


def test_times_stand_in_timings_alone(release: Path, tmp_path: Path) -> None:
    sweep(release, tmp_path / "run", "overlap")
    for name in ("manifest.json", "rows.jsonl", "summary.json"):
        assert "seconds" not in (tmp_path / "run" / name).read_text("utf-8")
    lines = (tmp_path / "run" / "timings.jsonl").read_text("utf-8").splitlines()
    assert len(lines) == 1 + 14  # the preparation, and every row
    assert all(json.loads(line)["seconds"] >= 0 for line in lines)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"a": 1, "b": {"c": 2}}, {"b": {"c": 2}, "a": 1}, None),
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, "b (that run: 2, this run: 3)"),
        ({"b": {"c": [1, 2]}}, {"b": {"c": [1, 3]}}, "b.c"),
        ({"a": 1}, {}, "a (only that run has it)"),
        ({"b": {}}, {"b": {"c": 1}}, "b.c (only this run has it)"),
        ({"a": 0}, {"a": False}, "a (that run: 0, this run: false)"),
        ({"a": None}, {"a": 1}, "a (that run: null, this run: 1)"),
    ],
)
def test_a_difference_names_its_field(old: Any, new: Any, expected: str | None) -> None:
    found = difference(old, new)
    assert found == expected if expected is None else str(found).startswith(expected)


def test_a_difference_inside_a_list_of_retrievers_is_named() -> None:
    def one(k1: float) -> dict[str, Any]:
        settings = {"a_long_setting": "x" * 80, "k1": k1}
        return {"retrievers": [{"label": "bm25", "name": "bm25", "settings": settings}]}

    found = difference(one(1.2), one(1.5))
    assert found is not None
    assert "k1" in found.partition(" (")[0]


def test_hashes_depend_on_values_not_on_key_order() -> None:
    assert short_hash({"a": 1, "b": [1, 2]}) == short_hash({"b": [1, 2], "a": 1})
    assert short_hash({"a": [1, 2]}) != short_hash({"a": [2, 1]})
    with pytest.raises(ValueError, match="JSON"):
        canonical({"a": float("nan")})


def test_an_interrupted_write_leaves_the_old_content(tmp_path: Path) -> None:
    target = tmp_path / "summary.json"
    write_atomically(target, "old")
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match=r"."):
        write_atomically(tmp_path / "taken", "new")  # a folder cannot be replaced by a file
    with pytest.raises(TypeError), written_whole(target) as stream:
        stream.write("text, not bytes")  # type: ignore[arg-type]
    assert target.read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["summary.json", "taken"]


def test_a_run_that_exists_is_not_touched_without_a_word(release: Path, tmp_path: Path) -> None:
    sweep(release, tmp_path / "run", "overlap")
    before = (tmp_path / "run" / "rows.jsonl").read_bytes()
    with pytest.raises(UserError, match=r"already holds this run.*--resume.*--overwrite"):
        sweep(release, tmp_path / "run", "overlap")
    assert (tmp_path / "run" / "rows.jsonl").read_bytes() == before


def test_a_finished_run_resumed_is_the_same_run(release: Path, tmp_path: Path) -> None:
    names = ("manifest.json", "rows.jsonl", "summary.json")
    sweep(release, tmp_path / "run", "overlap", "random")
    before = [(tmp_path / "run" / name).read_bytes() for name in names]
    sweep(release, tmp_path / "run", "overlap", "random", on_existing="resume")
    assert [(tmp_path / "run" / name).read_bytes() for name in names] == before


def test_overwrite_replaces_the_run_and_leaves_strangers_alone(
    release: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    sweep(release, run, "overlap")
    (run / "notes.txt").write_text("mine")
    (run / "kept").mkdir()
    (run / "kept" / "rows.jsonl").write_text("mine too")
    (run / ".hidden").write_text("mine as well")
    sweep(release, run, "constant", on_existing="overwrite", seed=3)
    assert read_manifest(run)["fingerprint"]["retrievers"][0]["name"] == "constant"
    assert len(rows_of(run)) == 14
    assert (run / "notes.txt").read_text() == "mine"
    assert (run / "kept" / "rows.jsonl").read_text() == "mine too"
    assert (run / ".hidden").read_text() == "mine as well"


def test_overwrite_keeps_no_stale_curve(release: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    sweep(release, run, "overlap")
    (run / "curve.csv").write_text("of the old run")
    sweep(release, run, "constant", on_existing="overwrite")
    assert not (run / "curve.csv").exists()


@pytest.mark.parametrize("on_existing", ["refuse", "resume", "overwrite"])
def test_a_folder_of_other_files_is_never_taken(
    release: Path, tmp_path: Path, on_existing: str
) -> None:
    out = tmp_path / "papers"
    out.mkdir()
    (out / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match="isn't a run"):
        sweep(release, out, "overlap", on_existing=on_existing)
    assert [p.name for p in out.iterdir() if p.name[0] != "."] == ["thesis.tex"]


@pytest.mark.parametrize("on_existing", ["refuse", "resume", "overwrite"])
def test_rows_without_a_manifest_are_never_taken(
    release: Path, tmp_path: Path, on_existing: str
) -> None:
    sweep(release, tmp_path / "run", "overlap")
    before = (tmp_path / "run" / "rows.jsonl").read_bytes()
    (tmp_path / "run" / "manifest.json").unlink()
    with pytest.raises(UserError, match=r"no manifest\.json"):
        sweep(release, tmp_path / "run", "overlap", on_existing=on_existing)
    assert (tmp_path / "run" / "rows.jsonl").read_bytes() == before


@pytest.mark.parametrize("text", ["", "{", "[]", '{"fingerprint": 1}', "\x00\x00"])
def test_a_broken_manifest_is_named(release: Path, tmp_path: Path, text: str) -> None:
    sweep(release, tmp_path / "run", "overlap")
    (tmp_path / "run" / "manifest.json").write_text(text)
    with pytest.raises(UserError, match=r"manifest\.json"):
        sweep(release, tmp_path / "run", "overlap", on_existing="resume")


def edited(line: bytes, **changes: Any) -> bytes:
    row = {**json.loads(line), **changes}
    del row["check"]
    return encode_kept(row).rstrip(b"\n")


@pytest.mark.parametrize(
    "changes", [{"query": "q9"}, {"retriever": "x"}, {"distractors": 7}, {"pool": "0" * 16}]
)
def test_an_edited_row_is_refused_with_its_line(
    release: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    sweep(release, tmp_path / "run", "overlap")
    path = tmp_path / "run" / "rows.jsonl"
    lines = path.read_bytes().splitlines()
    lines[4] = edited(lines[4], **changes)
    path.write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(UserError, match=r"rows\.jsonl:5: not the row that belongs here"):
        sweep(release, tmp_path / "run", "overlap", on_existing="resume")


def test_swapped_rows_are_refused(release: Path, tmp_path: Path) -> None:
    sweep(release, tmp_path / "run", "overlap")
    path = tmp_path / "run" / "rows.jsonl"
    lines = path.read_bytes().splitlines()
    lines[2], lines[3] = lines[3], lines[2]
    path.write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(UserError, match=r"rows\.jsonl:3: not the row"):
        sweep(release, tmp_path / "run", "overlap", on_existing="resume")


@pytest.mark.parametrize("line", [b"{", b"", b"[]", b"\xff\xfe", b"null"])
def test_a_broken_line_in_the_middle_is_refused_not_redone(
    release: Path, tmp_path: Path, line: bytes
) -> None:
    sweep(release, tmp_path / "run", "overlap")
    path = tmp_path / "run" / "rows.jsonl"
    lines = path.read_bytes().splitlines()
    lines[4] = line
    path.write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(UserError, match=r"rows\.jsonl:5: not a row"):
        sweep(release, tmp_path / "run", "overlap", on_existing="resume")


@pytest.mark.parametrize("key", ["above", "error", "calls"])
def test_a_row_that_lacks_a_key_is_refused_with_its_line(
    release: Path, tmp_path: Path, key: str
) -> None:
    sweep(release, tmp_path / "run", "overlap")
    path = tmp_path / "run" / "rows.jsonl"
    lines = path.read_bytes().splitlines()
    row = json.loads(lines[4])
    del row[key], row["check"]
    lines[4] = encode_kept(row).rstrip(b"\n")
    path.write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(UserError, match=r"rows\.jsonl:5: "):
        sweep(release, tmp_path / "run", "overlap", on_existing="resume")


def test_more_rows_than_the_plan_are_refused(release: Path, tmp_path: Path) -> None:
    sweep(release, tmp_path / "run", "overlap")
    path = tmp_path / "run" / "rows.jsonl"
    path.write_bytes(path.read_bytes() * 2)
    with pytest.raises(UserError, match=r"rows\.jsonl:\d+: not the row that belongs here"):
        sweep(release, tmp_path / "run", "overlap", on_existing="resume")


def test_the_folder_is_free_again_after_an_error(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError, match="inside"),
        open_run(tmp_path / "run", {"seed": 0}, "refuse", is_sweep_row),
    ):
        raise RuntimeError("inside")
    with open_run(tmp_path / "run", {"seed": 0}, "resume", is_sweep_row) as folder:
        assert folder.rows == []


def test_two_processes_in_one_folder(release: Path, tmp_path: Path) -> None:
    (tmp_path / "slow_one.py").write_text(SLOW)
    words = ["--retriever", "slow_one:Slow", "--data", str(release), "--distractors", "5,12"]
    first = Forked("task3.sweep", *words, "--out", "run", cwd=tmp_path)
    try:
        manifest = tmp_path / "run" / "manifest.json"
        deadline = time.monotonic() + HANG
        while not manifest.exists() and time.monotonic() < deadline:
            assert first.poll() is None, first.done(None).stderr
            time.sleep(0.01)
        for flag in ("resume", "overwrite", "refuse"):
            with pytest.raises(UserError, match="another process is writing this run"):
                sweep(release, tmp_path / "run", "overlap", on_existing=flag)
        (tmp_path / "go on").touch()
        first.done()
    finally:
        first.kill()
    assert len(rows_of(tmp_path / "run")) == 14  # the first run came to no harm


IMPOSSIBLE = ["a file", "below a file", "a name too long", "below /proc"]


@pytest.mark.parametrize("where", IMPOSSIBLE)
def test_an_impossible_out_is_one_clear_error(release: Path, tmp_path: Path, where: str) -> None:
    (tmp_path / "file").write_text("mine")
    out = {
        "a file": tmp_path / "file",
        "below a file": tmp_path / "file" / "run",
        "a name too long": tmp_path / ("n" * 300),
        "below /proc": Path("/proc/no_such_place/run"),
    }[where]
    if where == "below /proc" and not Path("/proc").is_dir():
        pytest.skip("no /proc here")
    with pytest.raises(UserError, match=r"cannot be written \(.+\)\. Choose another --out"):
        sweep(release, out, "overlap")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_without_write_permission_is_one_clear_error(
    release: Path, tmp_path: Path
) -> None:
    shut = tmp_path / "shut"
    shut.mkdir(mode=0o555)
    if os.access(shut, os.W_OK):
        pytest.skip("permissions do not bind this user")
    for out in (shut, shut / "run"):
        with pytest.raises(UserError, match="cannot be written"):
            sweep(release, out, "overlap")
