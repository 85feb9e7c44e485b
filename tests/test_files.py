"""Writing whole or not at all: drafts that are nobody's, links laid at their names, full disks."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from analysis.export import export_trec
from recallbed.errors import UserError
from recallbed.harness.files import drafted_folder, file_name, write_atomically, written_whole
from tests.test_damage import small_sweep

KILLED = """
import os, signal, sys
from pathlib import Path
from analysis.export import export_trec
from recallbed.harness.configurations import Configuration
from recallbed.errors import UserError
from recallbed.harness.files import drafted_folder, written_whole
path = Path(sys.argv[1])
with written_whole(path) as stream, drafted_folder(path.with_name("folder")) as folder:
    stream.write(b"half")
    (folder / "part").write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_next_save_removes_the_drafts_of_a_killed_one(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    path.write_text("old")
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)])
    assert done.returncode == -signal.SIGKILL
    assert len(names(tmp_path)) == 3
    assert path.read_text() == "old"
    write_atomically(path, "new")
    assert [name for name in names(tmp_path) if "kept" in name] == ["kept.json"]
    with drafted_folder(tmp_path / "folder") as draft:
        assert names(tmp_path) == sorted([draft.name, "kept.json"])
    assert names(tmp_path) == ["kept.json"]


def test_a_draft_of_the_version_before_is_removed_too(tmp_path: Path) -> None:
    (tmp_path / ".kept.json.4711.tmp").write_text("half")
    write_atomically(tmp_path / "kept.json", "new")
    assert names(tmp_path) == ["kept.json"]


def test_a_save_leaves_the_drafts_of_living_ones_and_other_files(tmp_path: Path) -> None:
    path = tmp_path / "a"
    others = [".a.b.0a.tmp", ".a.tmp", "a.0a.tmp", ".a.notes.tmp", ".b.0a.tmp"]
    for name in others:
        (tmp_path / name).write_text("mine")
    with written_whole(path) as one:
        one.write(b"one")
        with written_whole(path) as other:
            other.write(b"other")
        assert path.read_bytes() == b"other"
    assert path.read_bytes() == b"one"
    assert names(tmp_path) == sorted(["a", *others])


def test_threads_that_write_one_file_never_end_in_an_error(tmp_path: Path) -> None:
    errors: list[BaseException] = []

    def write(content: bytes) -> None:
        try:
            for _ in range(50):
                write_atomically(tmp_path / "a", content)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(bytes([48 + i]) * 9000,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(set((tmp_path / "a").read_bytes())) == 1
    assert names(tmp_path) == ["a"]


def test_a_link_laid_at_a_drafts_name_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, inside = tmp_path / "precious", tmp_path / "elsewhere"
    target.write_text("precious")
    inside.mkdir()
    # Every name that a draft had before, and the first two that it may have now.
    tokens = iter(["0badcafe", "1badcafe", "2badcafe", "3badcafe"])
    monkeypatch.setattr("recallbed.harness.files.secrets.token_hex", lambda n: next(tokens))
    monkeypatch.setattr(
        "recallbed.harness.files._remove_drafts", lambda path: None
    )  # laid after that
    for token in ("0badcafe", str(os.getpid())):
        (tmp_path / f".kept.{token}.tmp").symlink_to(target)
    (tmp_path / ".folder.2badcafe.tmp").symlink_to(inside)
    write_atomically(tmp_path / "kept", "new")
    with drafted_folder(tmp_path / "folder") as draft:
        (draft / "part").write_text("new")
    assert target.read_text() == "precious"
    assert names(inside) == []
    assert (tmp_path / "kept").read_text() == "new"
    assert not (tmp_path / "kept").is_symlink()


def test_links_at_the_names_of_drafts_are_removed_and_their_targets_kept(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.mkdir()
    (target / "file").write_text("precious")
    (tmp_path / ".kept.0a.tmp").symlink_to(target)
    write_atomically(tmp_path / "kept", "new")
    assert names(tmp_path) == ["kept", "precious"]
    assert (target / "file").read_text() == "precious"


def test_a_new_file_has_the_permissions_of_any_other(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    write_atomically(tmp_path / "ours", "")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("bm25", "bm25"),
        ("../../x", "-..-x"),
        ("/etc/passwd", "-etc-passwd"),
        ("..", "-"),
        ("", "-"),
        ("a\\b\n[c]", "a-b--c-"),
        ("openai:m/n", "openai-m-n"),
        ("grün", "gr-n"),
    ],
)
def test_a_derived_name_is_one_part_of_a_path(text: str, name: str) -> None:
    assert file_name(text) == name


@pytest.mark.parametrize("label", ["../../outside", "/{place}/outside", "a/b", "..", "a\nb", ""])
def test_a_manifest_with_a_label_that_is_a_path_is_refused(tmp_path: Path, label: str) -> None:
    label = label.replace("/{place}", str(tmp_path))
    out, deep = tmp_path / "run", tmp_path / "in" / "exported"
    small_sweep(out, limit=2, keep_scores=True)
    manifest = json.loads((out / "manifest.json").read_text())
    manifest["fingerprint"]["retrievers"][0]["label"] = label
    (out / "manifest.json").write_text(json.dumps(manifest))
    for name in ("rows.jsonl", "scores.jsonl"):  # without checks, as an older version wrote them
        lines = [json.loads(line) for line in (out / name).read_text().splitlines()]
        for line in lines:
            line["retriever"] = label
            del line["check"]
        (out / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError, match=r"manifest\.json: .* is not a label") as caught:
        export_trec(out, None, deep)
    assert "\n" not in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_file_that_cannot_be_written_is_named_and_not_its_draft() -> None:
    with pytest.raises(OSError, match=r"'/proc/no\.txt'"):
        write_atomically(Path("/proc/no.txt"), "")
