"""What a run leaves on disk, who may go on with it, and who may not."""

import json
import os
import platform
import re
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from analysis.rows import is_sweep_row
from recallbed.corpus import Memory
from recallbed.errors import UserError
from recallbed.harness.files import write_atomically, written_whole
from recallbed.harness.fingerprint import canonical, difference, short_hash
from recallbed.harness.run_folder import encode_kept, encode_row, open_run, read_manifest
from retrievers import Retriever, RetrieverError
from task3.sweep import app
from task3.sweep_run import Outcome
from tests.kit import (
    HANG,
    PROMISED,
    Forked,
    WriteRelease,
    assert_equal_runs,
    one_line_error,
    read_json,
    rows_of,
    run,
    strings_in,
    swept,
)

KEYS = [
    *("query", "retriever", "distractors", "pool", "gold", "above", "tied", "top"),
    *("calls", "tokens_in", "tokens_out", "repairs", "error", "check"),
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
    labels = [f"r{i}={name}" for i, name in enumerate(names)]
    return swept(labels, root, out=out, **{"distractors": (5, 12), "ks": (1, 5), **options})


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


def test_a_row_holds_the_rank_of_its_gold(release: Path, tmp_path: Path) -> None:
    sweep(release, tmp_path / "run", "overlap", pools="released", distractors=(5,))
    for number, row in enumerate(rows_of(tmp_path / "run")):
        assert row["gold"] == number % 6
        scores = dict(row["top"])
        assert len(scores) == 6
        assert row["above"] == sum(s > scores[row["gold"]] for s in scores.values())
        assert row["tied"] == sum(s == scores[row["gold"]] for s in scores.values())


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
    assert_equal_runs(tmp_path / "run", Path("run"), PROMISED[:3])


def test_times_are_in_timings_alone(release: Path, tmp_path: Path) -> None:
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


def test_a_finished_run_resumed_is_the_same_run(release: Path, tmp_path: Path) -> None:
    names = ("manifest.json", "rows.jsonl", "summary.json")
    sweep(release, tmp_path / "run", "overlap", "random")
    before = [(tmp_path / "run" / name).read_bytes() for name in names]
    sweep(release, tmp_path / "run", "overlap", "random", on_existing="resume")
    assert [(tmp_path / "run" / name).read_bytes() for name in names] == before


def test_overwrite_replaces_the_run_and_leaves_other_files_alone(
    release: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    sweep(release, out, "overlap")
    (out / "notes.txt").write_text("mine")
    (out / "kept").mkdir()
    (out / "kept" / "rows.jsonl").write_text("mine too")
    (out / ".hidden").write_text("mine as well")
    (out / "curve.csv").write_text("of the old run")
    sweep(release, out, "constant", on_existing="overwrite", seed=3)
    assert read_manifest(out)["fingerprint"]["retrievers"][0]["name"] == "constant"
    assert len(rows_of(out)) == 14
    assert (out / "notes.txt").read_text() == "mine"
    assert (out / "kept" / "rows.jsonl").read_text() == "mine too"
    assert (out / ".hidden").read_text() == "mine as well"
    assert not (out / "curve.csv").exists()


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


def edited(line: bytes, without: str = "check", **changes: Any) -> bytes:
    """A kept row with other values and a check that is right for them."""
    row = {**json.loads(line), **changes}
    return encode_kept({k: v for k, v in row.items() if k not in ("check", without)}).rstrip()


NOT_THE_ROW = r"rows\.jsonl:5: not the row that belongs here"
DAMAGES: dict[str, tuple[Callable[[list[bytes]], list[bytes]], str]] = {
    **{
        f"{key} {value}": (lambda rows, new={key: value}: [edited(rows[0], **new)], NOT_THE_ROW)
        for key, value in (("query", "q9"), ("retriever", "x"), ("distractors", 7), ("pool", "0"))
    },
    **{
        f"not a row: {line!r}": (lambda rows, line=line: [line], r"rows\.jsonl:5: not a row")
        for line in (b"{", b"", b"[]", b"\xff\xfe", b"null")
    },
    **{
        f"without {key}": (lambda rows, key=key: [edited(rows[0], key)], r"rows\.jsonl:5: ")
        for key in ("above", "error", "calls")
    },
    "swapped": (lambda rows: [rows[1], rows[0]], NOT_THE_ROW),
    "more rows than planned": (lambda rows: [*rows, *rows], r"rows\.jsonl:\d+: not the row that b"),
}
"""What stands in place of the fifth row and those after it, and the error of the resumed run."""


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_row_is_refused_with_its_line(release: Path, tmp_path: Path, damage: str) -> None:
    sweep(release, tmp_path / "run", "overlap")
    path = tmp_path / "run" / "rows.jsonl"
    lines = path.read_bytes().splitlines()
    change, words = DAMAGES[damage]
    changed = change(lines[4:])
    path.write_bytes(b"\n".join([*lines[:4], *changed, *lines[4 + len(changed) :]]) + b"\n")
    with pytest.raises(UserError, match=words):
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


@pytest.mark.parametrize("out", ["file", "file/run", "n" * 300, "/proc/no_such_place/run"])
def test_an_impossible_out_is_one_clear_error(release: Path, tmp_path: Path, out: str) -> None:
    (tmp_path / "file").write_text("mine")
    if out.startswith("/proc") and not Path("/proc").is_dir():
        pytest.skip("no /proc here")
    with pytest.raises(UserError, match=r"cannot be written \(.+\)\. Choose another --out"):
        sweep(release, tmp_path / out, "overlap")
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


# Resuming with other settings or code, and two runs in one folder


OWN = """
from retrievers import Retriever

class Same(Retriever):
    '''Shared words, each worth `weight`.'''

    def __init__(self, weight: float = 1.0):
        self.weight = weight

    def score(self, query, pool):
        words = set(query.split())
        return [self.weight * len(words & set(memory.text.split())) for memory in pool]
"""


@pytest.fixture
def place(write_release: WriteRelease, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a release of eight queries and two modules, each with a `Same`."""
    texts = [[f"topic a{i * j % 8} note {i}.{j}" for j in range(5)] for i in range(8)]
    write_release([(f"topic a{i}", texts[i], i % 5) for i in range(8)])
    (tmp_path / "first_own.py").write_text(OWN)
    (tmp_path / "other_own.py").write_text(OWN.replace("len(words &", "-len(words &"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("first_own", "other_own"):  # as an earlier test imported it from another folder
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


BASE = {"retriever": "own=first_own:Same", "data": "release", "distractors": "4,9", "k": "1,3"}


def command(out: str | None, *flags: str, **changes: str) -> Result:
    options = {**BASE, **changes}
    words = [w for key, value in options.items() for w in ("--" + key.replace("_", "-"), value)]
    words += ["--out", out] if out else []
    return run(app, *words, *flags)


def stop_half_way(place: Path) -> bytes:
    """A run in `place/run` as a kill leaves it; gives back the rows of the unbroken run."""
    assert command("run").exit_code == 0
    rows = (place / "run" / "rows.jsonl").read_bytes()
    (place / "run" / "rows.jsonl").write_bytes(rows[: len(rows) // 2])
    for name in ("summary.json", "curve.csv", "curve.png"):
        (place / "run" / name).unlink()
    return rows


def differing_field(done: Result) -> str:
    """The field that a refusal names; what the two runs hold there stands in brackets after it."""
    line = one_line_error(done)
    found = re.search(r"they differ in (.+?) \(", line)
    assert found, line
    return found[1]


def change_data(place: Path) -> None:
    path = place / "release" / "dev" / "task3" / "d4" / "model_input.jsonl"
    path.write_text(path.read_text().replace("note 3.2", "note 3.two"))


def change_code(place: Path) -> None:
    path = place / "first_own.py"
    path.write_text(path.read_text().replace("self.weight * len", "2 * len"))


# What is changed, the options of the resuming sweep, and the words the named field must hold.
CHANGES: dict[str, tuple[Callable[[Path], None] | None, dict[str, str], list[str]]] = {
    "another retriever": (None, {"retriever": "own=overlap"}, ["retrievers"]),
    "another label": (None, {"retriever": "else=first_own:Same"}, ["retrievers"]),
    "a setting": (None, {"set": "own.weight=2.5"}, ["retrievers", "settings.weight"]),
    "code of the user's class": (change_code, {}, ["retrievers", "code"]),
    "a line of the data": (change_data, {}, ["data"]),
    "the seed": (None, {"seed": "1"}, ["seed"]),
    "the pool seeds": (None, {"pool_seeds": "0,1"}, ["pools.seeds"]),
    "the sizes": (None, {"distractors": "4,10"}, ["pools.distractors"]),
    "fewer queries": (None, {"limit": "5"}, ["data.queries"]),
    "how pools are made": (None, {"pools": "as-released"}, ["pools.strategy"]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_resume_under_other_settings_is_refused_naming_the_field(
    place: Path, change: str
) -> None:
    stop_half_way(place)
    kept = (place / "run" / "rows.jsonl").read_bytes()
    alter, options, words = CHANGES[change]
    if alter:
        alter(place)
    field = differing_field(command("run", "--resume", **options))
    for word in words:
        assert word in field
    assert (place / "run" / "rows.jsonl").read_bytes() == kept
    assert not (place / "run" / "summary.json").exists(), "a refusal writes no score"


def test_changed_code_of_an_inherited_class_is_seen_too(place: Path) -> None:
    (place / "other_own.py").write_text(
        "from first_own import Same\n\nclass Heir(Same):\n    pass\n"
    )
    assert command("run", retriever="own=other_own:Heir").exit_code == 0
    change_code(place)
    field = differing_field(command("run", "--resume", retriever="own=other_own:Heir"))
    assert "code" in field


def test_what_cannot_change_a_row_does_not_refuse_a_resume(place: Path) -> None:
    rows = stop_half_way(place)
    (place / "release").rename(place / "moved")
    assert command("run", "--resume", data="moved", k="2,4").exit_code == 0
    assert (place / "run" / "rows.jsonl").read_bytes() == rows


def test_a_second_benchmark_never_overwrites_the_first(place: Path) -> None:
    assert command("run", distractors="4").exit_code == 0
    before = {p.name: p.read_bytes() for p in (place / "run").iterdir()}
    for flags in ((), ("--resume",), ("--retry-failed",)):
        done = command("run", *flags, "--json", distractors="9")
        assert "pools.distractors" in differing_field(done)
    assert {p.name: p.read_bytes() for p in (place / "run").iterdir()} == before


def test_two_sizes_and_two_classes_of_one_name_are_four_results(place: Path) -> None:
    summaries = []
    for module in ("first_own", "other_own"):
        for size in ("4", "9"):
            done = command(None, "--json", retriever=f"{module}:Same", distractors=size)
            assert done.exit_code == 0, done.stderr
            summaries.append(json.loads(done.stdout))
    runs = sorted((place / "runs").iterdir())
    assert len(runs) == 4
    assert all(folder.name.startswith("Same-") for folder in runs)
    kept = [read_json(folder / "summary.json") for folder in runs]
    for summary in summaries:
        assert kept.count(summary) == 1


def test_two_classes_of_one_name_need_two_labels_in_one_sweep(place: Path) -> None:
    done = command("run", "--retriever", "other_own:Same", retriever="first_own:Same")
    one_line_error(done, "`Same` is used twice")
    assert not (place / "run").exists()
    done = command("run", "--retriever", "other=other_own:Same", retriever="first_own:Same")
    assert done.exit_code == 0, done.stderr
    cells = read_json(place / "run" / "summary.json")["cells"]
    named = [(cell["retriever"], cell["distractors"]) for cell in cells]
    assert named == [("Same", 4), ("Same", 9), ("other", 4), ("other", 9)]
    recalls = [cell["recall"]["1"]["mean"] for cell in cells]
    assert recalls[0] != recalls[2], "each label is scored by its own class"


def test_a_run_that_exists_is_not_touched_without_a_flag(place: Path) -> None:
    assert command("run").exit_code == 0
    before = {p.name: p.read_bytes() for p in (place / "run").iterdir()}
    line = one_line_error(command("run"))
    assert re.search(r"already holds this run.*--resume.*--overwrite", line)
    assert {p.name: p.read_bytes() for p in (place / "run").iterdir()} == before
