"""Pools as files give them: repeats, leaks by id, Git LFS pointers, odd characters."""

import inspect
import pickle
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pytest
from typer.testing import Result

from analysis.runs import read_run
from recallbed.corpus import Memory
from recallbed.corpus.dataset import Dataset, load_dataset
from recallbed.corpus.options import STRATEGIES, Strategy
from retrievers.base import Retriever, RunContext
from task3.sweep import app
from task3.sweep_run import Outcome
from tests import kit
from tests.kit import LFS, WriteRelease, one_line_error, read_lines, swept, write_lines
from tests.kit import edit_line as edit

INPUT, REFERENCE = "model_input.jsonl", "reference_output.jsonl"
THREE = [
    ("which drink in the evening", ["sips mint tea", "mends clocks", "keeps two hens"], 0),
    ("what to fix next", ["rows at dawn", "mends clocks", "bakes rye bread"], 1),
    ("who needs feeding", ["plays the oboe", "collects stamps", "keeps two hens"], 2),
]


def track(root: Path, size: int = 2) -> Path:
    return root / "dev" / "task3" / f"d{size}"


@pytest.fixture
def three(write_release: WriteRelease) -> Path:
    return write_release(THREE)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "run"


def command(root: Path, out: Path, *more: str, code: int | None = None) -> Result:
    """The sweep as a user types it."""
    arguments = ["--retriever", "overlap", "--data", str(root), "--out", str(out)]
    return kit.run(app, *arguments, *(more or ("--distractors", "2")), code=code)


def assert_refused(root: Path, out: Path, *words: str, more: Sequence[str] = ()) -> None:
    """One line, exit code 2, and no run that could be taken for a score."""
    one_line_error(command(root, out, *more), *words)
    assert not out.exists()


def run(
    root: Path | None,
    out: Path,
    *names: str,
    sizes: tuple[int, ...] = (2,),
    pools: Strategy = "released",
    **more: Any,
) -> Outcome:
    return swept(names, root, distractors=sizes, pools=pools, out=out, **more)


def figures(outcome: Outcome, label: str) -> Mapping[str, Any]:
    return next(cell for cell in outcome.summary["cells"] if cell["retriever"] == label)


# An empty pool


@pytest.mark.parametrize("value", [[], None, {}, "missing"])
def test_an_empty_pool_is_refused_at_load_naming_its_record(
    three: Path, out: Path, value: Any
) -> None:
    def empty(row: dict[str, Any]) -> None:
        row["benchmark_id"] = "record-77"
        row["input"]["candidate_memories"] = value
        if value == "missing":
            del row["input"]["candidate_memories"]

    edit(track(three) / INPUT, 2, empty)
    named = "record-77" if value == [] else "candidate_memories"
    assert_refused(three, out, f"{INPUT}:2: ", named)


# A stored id is local to a session


def test_repeated_ids_leave_every_candidate_in(write_release: WriteRelease, tmp_path: Path) -> None:
    rows = [("what needs winding", ["rows", "sings", "bakes", "swims", "needs winding daily"], 4)]
    root = write_release(rows, ids=["m1", "m1", "m2", "m2", "m3"])
    row = load_dataset(root, "dev").smallest.rows[0]
    assert len(row.candidates) == 5
    assert row.memory_ids == ("m1", "m1", "m2", "m2", "m3")

    outcome = run(root, tmp_path / "run", "overlap", "constant", sizes=(4,), ks=(1, 2, 10))
    for kept in read_run(outcome.path).rows:
        assert sorted(position for position, _ in kept.top) == [0, 1, 2, 3, 4]
    assert figures(outcome, "overlap")["recall"]["1"]["mean"] == 1
    # Keyed by id, the three that remain would give 2/3.
    assert figures(outcome, "constant")["recall"]["2"]["mean"] == pytest.approx(2 / 5)
    assert figures(outcome, "constant")["recall"]["10"]["trivial"]


def test_recall_at_ten_is_not_one_where_few_ids_are_distinct(
    flawed_sample: Path, tmp_path: Path
) -> None:
    # 101 candidates, 5 ids: anything keyed by id would find every gold among ten.
    data = load_dataset(flawed_sample, "dev")
    assert max(len(set(row.memory_ids)) for row in data.smallest.rows) <= 10
    outcome = run(flawed_sample, tmp_path / "run", "constant", sizes=(100,))
    assert figures(outcome, "constant")["recall"]["10"]["mean"] == pytest.approx(10 / 101, 1e-4)


def test_repeated_ids_are_counted_in_the_run(write_release: WriteRelease, tmp_path: Path) -> None:
    root = write_release(THREE, ids=["m1", "m1", "m2"])
    outcome = run(root, tmp_path / "run", "constant")
    assert read_run(outcome.path).manifest["pools_with_repeated_ids"] == 3


def test_the_user_is_warned_of_repeated_ids(write_release: WriteRelease, tmp_path: Path) -> None:
    def warned(*ids: str) -> bool:
        result = command(write_release(THREE, ids=ids), tmp_path / "".join(ids), code=0)
        shown = " ".join(result.output.split())
        return bool(re.search(r"repeat.{0,40}\bids?\b|\bids?\b.{0,40}repeat", shown))

    assert not warned("m1", "m2", "m3")
    assert warned("m1", "m1", "m3")


# What is stored gives the gold away, and reaches no retriever


def recall_of_ids(data: Dataset, k: int) -> float:
    """Ranks by "rarest id, then smallest number" and reads not a word."""
    hits = []
    for row in data.smallest.rows:
        count = Counter(row.memory_ids)
        keys = [(count[name], int(name[1:])) for name in row.memory_ids]
        assert row.gold is not None
        hits.append(sum(key < keys[row.gold] for key in keys) < k)
    return float(np.mean(hits))


def test_ids_alone_find_the_gold_of_the_flawed_sample(flawed_sample: Path) -> None:
    # It repeats the release's flaw, so that the test below guards against a real leak.
    data = load_dataset(flawed_sample, "dev")
    assert recall_of_ids(data, 1) > 0.6
    assert recall_of_ids(data, 5) == 1.0


def test_ids_alone_find_the_gold_of_the_release(alpsbench: Path) -> None:
    data = load_dataset(alpsbench, "dev")
    for row in data.smallest.rows:
        assert row.gold is not None
        assert row.memory_ids.count(row.memory_ids[row.gold]) == 1
    assert recall_of_ids(data, 1) > 0.99
    assert recall_of_ids(data, 5) == 1.0


class IdSeeker(Retriever):
    """Ranks by the stored id wherever it finds one, and else has nothing to go by."""

    def score(self, query: str, pool: Sequence[Memory]) -> list[float]:
        names = ("memory_id", "id", "_id", "name", "position", "gold", "metadata", "stratum")
        found = [next((getattr(m, n) for n in names if hasattr(m, n)), None) for m in pool]
        found = [getattr(m, "__dict__", None) or f for m, f in zip(pool, found, strict=True)]
        count = Counter(map(repr, found))
        return [-count[repr(value)] for value in found]


@pytest.mark.parametrize("pools", STRATEGIES)
def test_an_id_only_retriever_scores_chance(
    pools: Strategy, flawed_sample: Path, tmp_path: Path
) -> None:
    seeker = f"{__name__}:IdSeeker"
    outcome = run(flawed_sample, tmp_path / "run", seeker, sizes=(100,), pools=pools)
    cell = figures(outcome, "IdSeeker")
    assert cell["scored"] == cell["all_tied"] == 164
    for k in (1, 5, 10):
        assert cell["recall"][str(k)]["mean"] == pytest.approx(k / 101, abs=1e-6)


class Spy(Retriever):
    """Keeps everything that it is ever given."""

    contexts: ClassVar[list[RunContext]] = []
    prepared: ClassVar[list[tuple[Any, Any]]] = []
    scored: ClassVar[list[tuple[Any, Any]]] = []
    batches: ClassVar[list[tuple[Any, Any]]] = []
    independent: ClassVar[bool] = False

    @classmethod
    def from_run(cls, settings: Mapping[str, Any], run: RunContext) -> Self:
        cls.contexts.append(run)
        return cls(**settings)

    @property
    def pool_independent(self) -> bool:
        return self.independent

    def prepare(self, queries: Sequence[str], memories: Sequence[Memory]) -> None:
        self.prepared.append((queries, memories))

    def score(self, query: str, pool: Sequence[Memory]) -> list[int]:
        self.scored.append((query, pool))
        return [len(memory.text) for memory in pool]


class BatchSpy(Spy):
    def score_batch(self, queries: Sequence[str], pools: Sequence[Sequence[Memory]]) -> list[Any]:
        self.batches.append((queries, pools))
        return [[len(memory.text) for memory in pool] for pool in pools]


class IndependentSpy(Spy):
    independent = True


class IndependentBatchSpy(BatchSpy, IndependentSpy):
    pass


def write_marked_release(root: Path) -> tuple[set[str], set[str], set[str]]:
    """A release in which all that must stay hidden holds `zq`.

    Returns the queries, the texts and the labels, all that may be seen.
    """
    queries = {f"which chore comes on day {i}" for i in range(6)}
    texts = [f"does chore {i} in the house" for i in range(40)]
    labels = ["Plans/Schedule", "Possessions/House"]
    rng = random.Random(5)
    rows: dict[str, list[dict[str, Any]]] = {"in3": [], "ref3": [], "in1": [], "ref1": []}
    for i, query in enumerate(sorted(queries)):
        names = ("benchmark_id", "session_id", "canonical_id", "stratum")
        head = {name: f"zq{name.partition('_')[0]}{i}" for name in names} | {"task": "zqtask"}
        pool = [
            {
                "memory_id": f"zqid{rng.randrange(4)}",
                "value": text,
                "label": labels[j % 2],
                "evidence": {"text": "zqevidence", "session_id": f"zqsession{i}"},
                "is_gold": "zqgold",
            }
            for j, text in enumerate(rng.sample(texts, 9))
        ]
        gold = {**pool[i], "memory_id": f"zqid{i}", "reasoning": "zqreason"}
        hidden = {"metadata": {"gold": "zqmeta", "session_id": f"zqsession{i}"}}
        body = {"query": query, "candidate_memories": pool, "dialogue": [{"text": "zqdialogue"}]}
        rows["in3"].append(
            {**head, "input": {**body, **hidden}, "audit_context": {"conversation": "zqaudit"}}
        )
        selected = {"selected_memory_id": f"zqid{i}", "selected_memory": gold}
        rows["ref3"].append({**head, "gold": selected})
        rows["in1"].append({**head, "input": {"sessions": [{"turns": ["zqturn"]}]}})
        own = [gold, {**gold, "value": "zqown memory"}]
        rows["ref1"].append({**head, "gold": {"memory_items": own}})
    for name, number in (("task3/d8", 3), ("task1", 1)):
        write_lines(root / "dev" / name / INPUT, rows[f"in{number}"])
        write_lines(root / "dev" / name / REFERENCE, rows[f"ref{number}"])
    return queries, set(texts), set(labels)


@pytest.mark.parametrize("pools", STRATEGIES)
@pytest.mark.parametrize("spy", [Spy, BatchSpy, IndependentSpy, IndependentBatchSpy])
def test_nothing_stored_reaches_a_retriever(
    spy: type[Spy], pools: Strategy, tmp_path: Path
) -> None:
    queries, texts, labels = write_marked_release(tmp_path / "release")
    # The marks are real: the files are full of them, and the loader needs some of them.
    loaded = load_dataset(tmp_path / "release", "dev")
    assert "zqid" in repr(loaded.smallest.rows)
    for kept in (Spy.contexts, Spy.prepared, Spy.scored, Spy.batches):
        kept.clear()

    sizes = (8,) if pools == "released" else (3, 8, 12)
    name = f"{__name__}:{spy.__name__}"
    outcome = run(tmp_path / "release", tmp_path / "run", name, sizes=sizes, pools=pools)
    rows = read_run(outcome.path).rows
    assert len(rows) == 6 * len(sizes)
    assert all(row.error is None for row in rows)

    # Every way in was used, so that what follows says something.
    (prepared_queries, prepared_memories), *more = Spy.prepared
    (context,) = Spy.contexts
    pairs = list(Spy.scored)
    for batch_queries, batch_pools in Spy.batches:
        pairs += zip(batch_queries, batch_pools, strict=True)
    assert not more
    assert bool(Spy.batches) == issubclass(spy, BatchSpy)
    assert bool(Spy.scored) != issubclass(spy, BatchSpy)
    # Five queries are scored again, alone and in a batch, to see that nothing is kept of others.
    again = 5 * (4 if issubclass(spy, BatchSpy) else 2)
    assert len(pairs) == again + (6 if spy.independent else 6 * len(sizes))

    assert {query for query, _ in pairs} == set(prepared_queries) == queries
    seen = [*prepared_memories, *context.bank, *(m for _, pool in pairs for m in pool)]
    for query in (*prepared_queries, *(query for query, _ in pairs)):
        assert type(query) is str
    for memory in seen:
        assert type(memory) is Memory
        assert [field.name for field in fields(memory)] == ["text", "label"]
        assert not hasattr(memory, "__dict__")
        assert type(memory.text) is str
        assert memory.text in texts
        assert type(memory.label) is str
        assert memory.label in labels
    for pool in (prepared_memories, *(pool for _, pool in pairs)):
        assert type(pool) in (list, tuple)
    # Whatever hangs on these objects in ways not thought of above would be pickled with them.
    # What gives a run's legs is a function, and knows what is bound in it.
    assert context.leg is not None
    named = inspect.getclosurevars(context.leg).nonlocals
    assert set(named) == {"by_label", "configuration", "leg"}
    bound = inspect.getclosurevars(named["leg"]).nonlocals
    assert set(bound) == {"by_label", "built", "leg_of", "path", "run"}
    known = [bound["by_label"], named["configuration"], bound["path"]]
    known.append(replace(bound["run"], leg=None))
    contexts = [replace(context, leg=None), known, list(bound["built"])]
    everything = (contexts, Spy.prepared, Spy.scored, Spy.batches)
    assert b"zq" not in pickle.dumps(everything, protocol=5)
    assert b"zq" in pickle.dumps(loaded.smallest.rows, protocol=5)


def test_what_is_prepared_is_in_an_order_that_knows_no_gold(tmp_path: Path) -> None:
    write_marked_release(tmp_path / "release")
    Spy.prepared.clear()
    run(tmp_path / "release", tmp_path / "run", f"{__name__}:Spy", sizes=(8,), pools="nested")
    ((queries, memories),) = Spy.prepared
    assert list(queries) == sorted(set(queries))
    assert [memory.text for memory in memories] == sorted(memory.text for memory in memories)
    assert len(set(memories)) == len(memories)


class First(Retriever):
    """Ranks by position: the earlier the better. It may know no more than chance."""

    def score(self, query: str, pool: Sequence[Memory]) -> list[int]:
        return [-i for i in range(len(pool))]


class Last(Retriever):
    """The later the better."""

    def score(self, query: str, pool: Sequence[Memory]) -> list[int]:
        return list(range(len(pool)))


class FirstOfUnion(First):
    """Told to be pool independent, it is given a union of the query's pools."""

    pool_independent = True  # type: ignore[assignment]


class LastOfUnion(Last):
    pool_independent = True  # type: ignore[assignment]


@pytest.mark.parametrize("pools", STRATEGIES)
@pytest.mark.parametrize("name", ["First", "Last", "FirstOfUnion", "LastOfUnion"])
def test_the_position_of_the_gold_says_nothing(
    write_release: WriteRelease, tmp_path: Path, name: str, pools: Strategy
) -> None:
    # Common distractors and golds that stand in one pool only, much as in the release. No word
    # tells them apart, so that an order by text is as good as any.
    rng = random.Random(11)
    common = [f"text {rng.getrandbits(40):010x}" for _ in range(300)]
    rows = []
    for i in range(200):
        pool = rng.sample(common, 20)
        place = rng.randrange(21)
        pool.insert(place, f"text {rng.getrandbits(40):010x}")
        rows.append((f"query {i}", pool, place))
    root = write_release(rows)
    ranker = f"{__name__}:{name}"
    outcome = run(root, tmp_path / "run", ranker, sizes=(20,), pools=pools, ks=(1, 5))
    recall = figures(outcome, name)["recall"]
    # Chance is 1/21 and 5/21; four standard deviations of a mean over 200 queries are added.
    for k in (1, 5):
        chance = k / 21
        assert recall[str(k)]["mean"] < chance + 4 * (chance * (1 - chance) / 200) ** 0.5


# A Git LFS pointer, or nothing at all, where the data should be


@pytest.mark.parametrize("name", [INPUT, REFERENCE])
@pytest.mark.parametrize("packed", [False, True], ids=["jsonl", "jsonl.gz"])
def test_an_lfs_pointer_is_called_one(three: Path, out: Path, name: str, packed: bool) -> None:
    path = track(three) / name
    if packed:
        path.unlink()
        path = path.with_name(name + ".gz")
    path.write_bytes(LFS.encode())
    assert_refused(three, out, f"{path}:1: ", "Git LFS pointer", "git lfs pull")


def test_a_pointer_with_windows_line_ends_is_one_too(three: Path, out: Path) -> None:
    (track(three) / INPUT).write_bytes(b"\xef\xbb\xbf" + LFS.replace("\n", "\r\n").encode())
    assert_refused(three, out, "Git LFS pointer")


@pytest.mark.usefixtures("three")
def test_a_pointer_for_the_larger_pools_is_found_before_anything_is_scored(
    write_release: WriteRelease, out: Path
) -> None:
    root = write_release([(query, [*pool, "owns a sledge"], at) for query, pool, at in THREE])
    (track(root, 3) / INPUT).write_text(LFS, encoding="utf-8")
    words = ("--pools", "released", "--distractors", "2,3")
    assert_refused(root, out, f"{track(root, 3) / INPUT}:1: ", "Git LFS pointer", more=words)


@pytest.mark.parametrize("name", [INPUT, REFERENCE])
@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf\r\n"])
def test_an_empty_file_is_an_error_not_a_score_of_nothing(
    three: Path, out: Path, name: str, content: bytes
) -> None:
    (track(three) / name).write_bytes(content)
    assert_refused(three, out, str(track(three) / name), "empty")


# The same id twice, the same text twice


@pytest.mark.parametrize("name", [INPUT, REFERENCE])
def test_a_benchmark_id_given_twice_names_both_lines(three: Path, out: Path, name: str) -> None:
    edit(track(three) / name, 3, lambda row: row.update(benchmark_id="q0"))
    assert_refused(three, out, f"{track(three) / name}:3: ", "`q0`", "line 1")


def test_a_whole_row_given_twice_is_refused_as_well(three: Path, out: Path) -> None:
    for name in (INPUT, REFERENCE):
        rows = read_lines(track(three) / name)
        write_lines(track(three) / name, [*rows, rows[1]])
    assert_refused(three, out, ":4: ", "`q1`", "line 2")


def test_two_queries_of_one_session_are_two_rows(three: Path, out: Path) -> None:
    for line in (1, 2):
        edit(track(three) / INPUT, line, lambda row: row.update(session_id="shared"))
    outcome = run(three, out, "constant")
    assert [row.query for row in read_run(outcome.path).rows] == ["q0", "q1", "q2"]


TWICE = ["tea at dusk", "winds the clock", "tea at dusk", "mint tea"]


def test_a_text_twice_in_a_released_pool_is_a_tie(write_release: WriteRelease, out: Path) -> None:
    root = write_release([("tea at dusk please", TWICE, 3), ("mint", TWICE, 3)])
    outcome = run(root, out, "overlap", sizes=(3,), ks=(1,))
    found = [tie for row in read_run(outcome.path).rows for tie in row.ties]
    assert found == [(2, 1), (0, 1)]


def test_a_repeated_text_counts_once_in_a_nested_pool(
    write_release: WriteRelease, tmp_path: Path
) -> None:
    root = write_release([("tea at dusk please", TWICE, 3)], size=3)
    outcome = run(root, tmp_path / "run", "overlap", sizes=(2,), pools="nested", ks=(1,))
    assert [tie for row in read_run(outcome.path).rows for tie in row.ties] == [(1, 1)]
    words = ("2 distinct distractors", "3 asked for")
    assert_refused(root, tmp_path / "more", *words, more=("--distractors", "3"))


# Text that cannot be encoded


def write_raw(root: Path, query: str, text: str, *, size: int = 1, name: str = "q0") -> None:
    """One row in which `query`, `text` (the gold) and `name` are JSON strings as given."""
    candidates = f'{{"memory_id": "m1", "value": {text}, "label": {text}}}'
    others = [f'{{"memory_id": "m{i}", "value": "other {i}"}}' for i in range(2, size + 2)]
    pool = ", ".join([candidates, *others])
    head = f'"benchmark_id": "{name}", "session_id": "{name}"'
    folder = track(root, size)
    folder.mkdir(parents=True, exist_ok=True)
    body = f'{{"query": {query}, "candidate_memories": [{pool}]}}'
    (folder / INPUT).write_text(f'{{{head}, "input": {body}}}\n', encoding="utf-8")
    gold = f'{{"selected_memory": {{"value": {text}}}}}'
    (folder / REFERENCE).write_text(f'{{{head}, "gold": {gold}}}\n', encoding="utf-8")


@pytest.mark.parametrize(
    ("escaped", "repaired", "what"),
    [
        (r'"a \ud83d b"', "a \ufffd b", "lone surrogate"),
        (r'"a \udc4d b"', "a \ufffd b", "lone surrogate"),
        (r'"a \u0000 b"', "a \ufffd b", "NUL"),
        (r'"\udc4d\ud83d"', "\ufffd\ufffd", "lone surrogate"),
        (r'"a \ud83d\udc4d b"', "a \U0001f44d b", None),
    ],
)
def test_unusable_characters_are_replaced_and_counted_and_the_run_ends(
    tmp_path: Path, escaped: str, repaired: str, what: str | None
) -> None:
    root = tmp_path / "release"
    write_raw(root, escaped, escaped, name="q" + escaped.strip('"').replace(" ", ""))
    data = load_dataset(root, "dev")
    row = data.smallest.rows[0]
    assert row.query == repaired
    assert row.candidates[0] == Memory(repaired, repaired)
    assert row.gold == 0
    places = 3 + 3  # query, text, label, the id and the gold of the reference, the id once more
    each = repaired.count("\ufffd")
    assert dict(data.smallest.repairs) == ({what: (places + 1) * each} if what else {})

    outcome = run(root, tmp_path / "run", "bm25", "overlap", "random", sizes=(1,), ks=(1,))
    assert outcome.summary["repaired"] == dict(data.smallest.repairs)
    assert all(cell["scored"] == 1 for cell in outcome.summary["cells"])
    assert read_run(outcome.path).rows[0].query == "q" + repaired.replace(" ", "")


def test_the_user_sees_what_was_repaired(tmp_path: Path) -> None:
    write_raw(tmp_path / "release", '"tea"', r'"a \ud83d b"')
    result = command(tmp_path / "release", tmp_path / "run", "--distractors", "1", code=0)
    assert "lone surrogate x 3" in result.output


def test_repairs_are_counted_in_the_pools_that_are_measured(tmp_path: Path) -> None:
    # Sizes read besides the smallest are data too.
    root = tmp_path / "release"
    write_raw(root, '"tea"', '"plain"', size=1)
    write_raw(root, '"tea"', '"plain"', size=2)
    path = track(root, 2) / INPUT
    path.write_text(path.read_text("utf-8").replace("other 3", r"other \ud83d"), "utf-8")
    outcome = run(root, tmp_path / "run", "constant", sizes=(2,), ks=(1,))
    assert outcome.summary["repaired"] == {"lone surrogate": 1}


def test_own_memories_are_repaired_too_and_so_still_recognised(tmp_path: Path) -> None:
    root = tmp_path / "release"
    write_raw(root, '"tea"', r'"gold \ud83d"')
    items = r'[{"value": "gold \ud83d"}, {"value": "mine \u0000"}]'
    path = root / "dev" / "task1" / REFERENCE
    path.parent.mkdir(parents=True)
    path.write_text(f'{{"session_id": "q0", "gold": {{"memory_items": {items}}}}}\n', "utf-8")
    assert load_dataset(root, "dev").own == {"q0": {"gold \ufffd", "mine \ufffd"}}
