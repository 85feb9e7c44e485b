"""MiniLM in a sweep: limits, batches, devices, precision, offline loading, workers, cosine."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexes.model_folder import resolve_model
from indexes.sentence_encoder import SentenceEncoder
from recallbed.corpus.dataset import load_dataset
from recallbed.corpus.pools import build_pools
from recallbed.corpus.records import Memory
from recallbed.errors import UserError
from recallbed.harness.configurations import Configuration
from retrievers import Retriever
from retrievers.dense import MiniLM
from task3.pool_scoring import PoolKey, Scorer, run_tasks
from task3.sweep_run import Outcome, run_sweep
from tests.kit import ROOT, WriteRelease, read_json, rows_of, sweep_config
from tests.test_encoder import hub_cache

NAME = "all-MiniLM-L6-v2"
ROWS = [
    ("What shall I bring to the picnic?", ["Loves lemon cake", "Rents a flat", "Owns a van"], 0),
    ("推荐一项周末活动", ["住在三楼", "周末喜欢划船", "有一个妹妹"], 1),
    ("Où partir en vacances ?", ["Collectionne les timbres", "Peur de l'avion", "A deux fils"], 1),
]


def sweep(
    out: Path,
    data: Path | None = None,
    retriever: str = "minilm",
    *,
    settings: dict[str, str] | None = None,
    sizes: Sequence[int] = (2,),
    **more: Any,
) -> Outcome:
    configuration = Configuration("m", retriever, {"device": "cpu", **(settings or {})})
    return run_sweep(sweep_config((configuration,), data=data, distractors=sizes, out=out, **more))


def fingerprint_of(outcome: Outcome) -> Any:
    return read_json(outcome.path / "manifest.json")["fingerprint"]


# --- the limit of 256 tokens


def test_the_limit_in_force_is_recorded(write_release: WriteRelease, tmp_path: Path) -> None:
    release = write_release([("words?", ["word " * 300, "a cat"], 0)])
    default = sweep(tmp_path / "a", release, sizes=(1,))
    longer = sweep(tmp_path / "b", release, "dense", settings={"max_tokens": "512"}, sizes=(1,))
    limits = [
        fingerprint_of(outcome)["retrievers"][0]["settings"]["max_tokens"]
        for outcome in (default, longer)
    ]
    assert limits == [256, 512]
    assert default.summary["notes"]["m"]["truncated_memories"] == 1
    assert longer.summary["notes"]["m"]["truncated_memories"] == 0


def test_texts_that_differ_past_the_limit_are_tied(
    write_release: WriteRelease, tmp_path: Path
) -> None:
    same = "word " * 260
    release = write_release(
        [("Which one mentions a parrot?", [same + "a parrot", same + "a canoe"], 0)]
    )
    outcome = sweep(tmp_path / "run", release, sizes=(1,))
    [row] = rows_of(outcome.path)
    assert (row["above"], row["tied"]) == (0, 2)
    [cell] = outcome.summary["cells"]
    assert cell["recall"]["1"]["mean"] == 0.5
    notes = outcome.summary["notes"]["m"]
    assert (notes["truncated_memories"], notes["of_memories"]) == (2, 2)


def test_a_chinese_query_costs_a_piece_a_character(
    write_release: WriteRelease, tmp_path: Path
) -> None:
    release = write_release(
        [("周" * 254, ["a", "b"], 0), ("周" * 255, ["a", "b"], 0), ("tea", ["a", "b"], 0)]
    )
    notes = sweep(tmp_path / "run", release, sizes=(1,)).summary["notes"]["m"]
    assert (notes["truncated_queries"], notes["of_queries"]) == (1, 3)
    assert (notes["truncated_memories"], notes["of_memories"]) == (0, 2)


# --- batches


def test_batch_size_changes_no_rank_and_no_metric(tmp_path: Path) -> None:
    outcomes = [
        sweep(tmp_path / size, None, settings={"batch_size": size}, sizes=(5, 10), limit=3)
        for size in ("1", "7", "64")
    ]
    first = rows_of(outcomes[0].path)
    for outcome in outcomes[1:]:
        assert outcome.summary["cells"] == outcomes[0].summary["cells"]
        for row, other in zip(rows_of(outcome.path), first, strict=True):
            places, scores = zip(*row.pop("top"), strict=True)
            other = dict(other)
            other_places, other_scores = zip(*other.pop("top"), strict=True)
            for one in (row, other):  # the check of a row covers its scores to the last digit
                one.pop("check", None)
            assert row == other
            assert places == other_places
            assert np.allclose(scores, other_scores, rtol=0, atol=1e-5)


def test_equal_texts_in_other_batches_get_equal_scores() -> None:
    # One of the twins would be encoded with long texts, the other alone, in a batch each.
    pool = [Memory("Loves lemon cake"), *(Memory(f"long {i} " * 60) for i in range(9))]
    pool.append(Memory("Loves lemon cake", label="other"))
    minilm = MiniLM(device="cpu", batch_size=3)
    scores = minilm.score("cake", pool)
    assert scores[0] == scores[-1]
    assert np.float32(scores[0]) == np.float32(scores[-1])


# --- devices


def test_device_dtype_and_versions_are_recorded(
    write_release: WriteRelease, tmp_path: Path
) -> None:
    fingerprint = fingerprint_of(sweep(tmp_path / "run", write_release(ROWS)))
    settings = fingerprint["retrievers"][0]["settings"]
    assert (settings["device"], settings["dtype"]) == ("cpu", "float32")
    for library in ("torch", "sentence-transformers", "transformers", "tokenizers", "numpy"):
        assert fingerprint["libraries"][library][0].isdigit()


def test_auto_is_recorded_as_the_device_it_came_to_be() -> None:
    import torch

    expected = "cuda" if torch.cuda.is_available() else "cpu"
    assert MiniLM(device="auto").settings()["device"] == expected


def test_a_run_from_another_device_is_not_resumed(
    write_release: WriteRelease, tmp_path: Path
) -> None:
    release = write_release(ROWS)
    path = sweep(tmp_path / "run", release).path / "manifest.json"
    manifest = read_json(path)
    assert manifest["fingerprint"]["retrievers"][0]["settings"]["device"] == "cpu"
    manifest["fingerprint"]["retrievers"][0]["settings"]["device"] = "cuda"
    path.write_text(json.dumps(manifest), encoding="utf-8")
    rows = (tmp_path / "run" / "rows.jsonl").read_bytes()
    with pytest.raises(UserError, match=r"differ in .*\bdevice\b.*cuda.*cpu"):
        sweep(tmp_path / "run", release, on_existing="resume")
    assert (tmp_path / "run" / "rows.jsonl").read_bytes() == rows


# --- precision


class NearlyEqual(Retriever):
    """Two cosines that are one number in bfloat16."""

    def score(self, query: str, pool: Sequence[Memory]) -> Any:
        return [0.8021 if memory.text == "Loves lemon cake" else 0.8012 for memory in pool]


def test_scores_are_compared_in_float32(write_release: WriteRelease, tmp_path: Path) -> None:
    config = sweep_config(
        (Configuration("m", "tests.test_minilm:NearlyEqual", {}),),
        data=write_release(ROWS[:1]),
        distractors=(2,),
        out=tmp_path / "run",
    )
    [row] = rows_of(run_sweep(config).path)
    assert (row["above"], row["tied"]) == (0, 1)


def test_vectors_and_scores_are_not_rounded_to_half_precision() -> None:
    import torch

    minilm = MiniLM(device="cpu")
    vectors, _ = minilm.encoder.encode(ROWS[0][1])
    half = torch.tensor(vectors).to(torch.bfloat16).to(torch.float32).numpy()
    assert (half != vectors).mean() > 0.9
    assert minilm.score("picnic", [Memory("Loves lemon cake")]).dtype == np.float64


# --- no network


# Reports what each name gives, and every address it asks for; all of them are refused.
OFFLINE = """\
import json, sys
tried = []
def watch(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"):
        tried.append(event)
        raise OSError("the network is off")
sys.addaudithook(watch)
from indexes.sentence_encoder import SentenceEncoder
from recallbed.errors import UserError
found = []
for name in sys.argv[1:]:
    tried.clear()
    try:
        encoder = SentenceEncoder(name, device="cpu")
        vectors, cut = encoder.encode(["Loves lemon cake"])
        found.append({"weights": encoder.settings()["weights"], "vector": vectors[0].tolist()})
    except UserError as error:
        found.append({"error": str(error)})
    found[-1]["tried"] = list(tried)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Packaged name, folder path, cached hub name, absent hub name: with the network off.

    HF_HUB_OFFLINE is not set, so nothing but the program itself keeps it from asking.
    """
    home = tmp_path_factory.mktemp("hf")
    hub_cache(home / "hub", "invented/minilm-copy")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "TRANSFORMERS_"))}
    names = [NAME, str(resolve_model(NAME)), "invented/minilm-copy", "invented/absent"]
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE, *names],
        env={**kept, "HF_HOME": str(home), "HF_HUB_CACHE": str(home / "hub")},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("number", [0, 1, 2], ids=["packaged", "folder", "cached hub name"])
def test_a_model_that_is_there_is_loaded_without_a_connection(
    offline: list[dict[str, Any]], number: int
) -> None:
    assert "error" not in offline[number]
    assert offline[number]["tried"] == []


def test_packaged_name_folder_and_hub_name_are_one_model(offline: list[dict[str, Any]]) -> None:
    assert offline[0]["weights"] == offline[1]["weights"] == offline[2]["weights"]
    assert offline[0]["vector"] == offline[1]["vector"] == offline[2]["vector"]
    assert len(offline[0]["vector"]) == 384


def test_a_model_that_is_nowhere_is_one_error_naming_the_places_searched(
    offline: list[dict[str, Any]],
) -> None:
    assert offline[3]["tried"]  # which also shows that the watch above does see connections
    assert "invented/absent" in offline[3]["error"]
    assert "hub" in offline[3]["error"]
    assert "\n" not in offline[3]["error"]


# --- workers (faults and scripts without a main guard: tests/test_workers.py)


def test_a_worker_loads_the_model_itself_where_it_must(write_release: WriteRelease) -> None:
    """A copy that wasn't prepared encodes in the worker: torch starts anew in a spawned child."""
    pools = build_pools(load_dataset(write_release(ROWS), "dev"), "nested", (2,), (0,))
    scorer = Scorer("m", MiniLM(device="cpu"), pools)
    tasks = [[PoolKey(2, 0, query)] for query in range(3)]
    expected = [[one.finished.row for one in task] for task in run_tasks(scorer, tasks, 1)]
    fresh = Scorer("m", MiniLM(device="cpu"), pools)
    assert [[one.finished.row for one in task] for task in run_tasks(fresh, tasks, 2)] == expected


def test_workers_with_a_model_on_cuda(write_release: WriteRelease, tmp_path: Path) -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA here")
    release = write_release([(f"{query} {i}", *rest) for i in range(12) for query, *rest in ROWS])
    alone = sweep(tmp_path / "1", release, settings={"device": "cuda"}, sizes=(2, 5))
    two = sweep(tmp_path / "2", release, settings={"device": "cuda"}, sizes=(2, 5), workers=2)
    assert (two.path / "rows.jsonl").read_bytes() == (alone.path / "rows.jsonl").read_bytes()


# --- cosine, not dot product


def test_no_cosine_is_above_one() -> None:
    texts = [text for _, texts, _ in ROWS for text in texts]
    minilm = MiniLM(device="cpu")
    for text in texts:
        scores = minilm.score(text, [Memory(t) for t in texts])
        assert texts[scores.argmax()] == text
        assert scores.max() <= 1 + 1e-5


def test_a_model_that_does_not_normalise_is_measured_by_cosine(tmp_path: Path) -> None:
    """MiniLM ends in a Normalize layer; a model without one gives vectors of any length."""
    from sentence_transformers import SentenceTransformer

    whole = SentenceTransformer(str(resolve_model(NAME)), device="cpu", local_files_only=True)
    bare = SentenceTransformer(modules=[whole[0], whole[1]], device="cpu")
    bare.save(str(tmp_path))
    text = "Loves lemon cake"
    assert abs(np.linalg.norm(bare.encode(text)) - 1) > 0.1
    vectors, _ = SentenceEncoder(str(tmp_path), "cpu").encode([text, "Owns a van"])
    assert np.allclose(
        vectors, SentenceEncoder(NAME, "cpu").encode([text, "Owns a van"])[0], atol=1e-5
    )
