"""Pools: laws of the three strategies, on releases made up by hypothesis and on the sample."""

import hashlib
import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recallbed.corpus import DataError, Memory, sample_root
from recallbed.corpus.dataset import Dataset, load_dataset
from recallbed.corpus.options import STRATEGIES, Strategy
from recallbed.corpus.pools import PoolSet, _drawn, build_pools, pool_hash
from tests.kit import WriteRelease, python, write_lines

VOCABULARY = tuple(f"{what} {i}" for i in range(12) for what in ("likes tea", "养猫", "шьёт"))
BUILT: tuple[Strategy, ...] = ("nested", "as-released")
laws = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@dataclass(frozen=True)
class Session:
    """What a made-up release says of one query: its pool in file order, its gold, its own."""

    name: str
    gold: str
    distractors: tuple[str, ...]
    gold_at: int
    own: frozenset[str]


@st.composite
def releases(draw: st.DrawFn) -> list[Session]:
    count = draw(st.integers(1, 5))
    golds = [f"gold of {i}" for i in range(count)]
    sessions = []
    for i, gold in enumerate(golds):
        # A gold may stand in the pools of others, and repeats are allowed, as in the release.
        others = st.sampled_from([*VOCABULARY, *(g for g in golds if g != gold)])
        distractors = tuple(draw(st.lists(others, min_size=2, max_size=9)))
        own = draw(st.frozensets(st.sampled_from(VOCABULARY), max_size=4))
        place = draw(st.integers(0, len(distractors)))
        sessions.append(Session(f"q{i}", gold, distractors, place, own | {gold}))
    return sessions


def load(sessions: Sequence[Session]) -> Dataset:
    """Write the sessions as files and load them again."""
    inputs, references, own = [], [], []
    for session in sessions:
        texts = list(session.distractors)
        texts.insert(session.gold_at, session.gold)
        head = {"benchmark_id": session.name, "session_id": "s" + session.name}
        pool = [{"memory_id": "m1", "value": text, "label": None} for text in texts]
        inputs.append(
            {**head, "input": {"query": f"query of {session.name}", "candidate_memories": pool}}
        )
        references.append({**head, "gold": {"selected_memory": {"value": session.gold}}})
        items = [{"value": text} for text in sorted(session.own)]
        own.append({**head, "gold": {"memory_items": items}})
    with tempfile.TemporaryDirectory() as folder:
        split = Path(folder) / "dev"
        write_lines(split / "task3" / "d2" / "model_input.jsonl", inputs)
        write_lines(split / "task3" / "d2" / "reference_output.jsonl", references)
        write_lines(split / "task1" / "reference_output.jsonl", own)
        return load_dataset(Path(folder), "dev")


def distinct_distractors(data: Dataset, session: Session) -> int:
    """How many a nested pool of this session can have at most."""
    base = set(session.distractors)
    return len(base | {m.text for m in data.bank if m.text not in session.own})


def fit(strategy: Strategy, sessions: list[Session]) -> list[Session]:
    """The sessions without what their strategy cannot be asked for.

    `as-released` draws nothing for a session that owns every distractor there is; `released` has
    pools of two distractors here.
    """
    if strategy == "as-released":
        return [replace(s, own=frozenset({s.gold})) for s in sessions]
    if strategy == "released":
        return [replace(s, distractors=s.distractors[:2], gold_at=s.gold_at % 3) for s in sessions]
    return sessions


def reach(data: Dataset, sessions: Sequence[Session]) -> int:
    return min(distinct_distractors(data, session) for session in sessions)


def texts(pools: PoolSet, size: int, seed: int = 0) -> dict[str, list[str]]:
    """The texts of each query's pool, in the order that a retriever sees."""
    return {
        row.benchmark_id: [memory.text for memory in pools.texts(pool)]
        for row, pool in zip(pools.rows, pools.pools[size, seed], strict=True)
    }


# nested


def shuffled_bank(data: Dataset, session: Session, seed: int, largest: int) -> list[str]:
    """The distractors as they were drawn at first: the whole bank, shuffled for every query."""
    rng = random.Random(f"nested:{seed}:{session.name}")

    def shuffle(items: list[str], first: int) -> None:
        for i in range(min(first, len(items) - 1)):
            j = i + int(rng.random() * (len(items) - i))
            items[i], items[j] = items[j], items[i]

    base = sorted(set(session.distractors) - {session.gold})
    taken = session.own | {session.gold} | set(base)
    shuffle(base, len(base))
    bank = [memory.text for memory in data.bank if memory.text not in taken]
    if largest > len(base):
        shuffle(bank, largest - len(base))
    return [*base, *bank[: max(largest - len(base), 0)]][:largest]


@laws
@given(releases(), st.integers(0, 9), st.data())
def test_nested_draws_are_those_of_a_shuffle_of_the_whole_bank(
    sessions: list[Session], seed: int, more: st.DataObject
) -> None:
    """Drawing without ordering the bank changes no pool, so no figure of any run."""
    data = load(sessions)
    largest = reach(data, sessions)
    sizes = sorted({more.draw(st.integers(1, largest)), largest})
    pools = build_pools(data, "nested", sizes, [seed])
    for size in sizes:
        for session, found in zip(sessions, texts(pools, size, seed).values(), strict=True):
            wanted = shuffled_bank(data, session, seed, largest)[:size]
            assert sorted(found) == sorted([session.gold, *wanted])


@given(st.integers(0, 60), st.integers(0, 70), st.integers(0, 1000))
def test_draws_are_the_first_places_of_a_fisher_yates_shuffle(
    total: int, count: int, seed: int
) -> None:
    rng, items = random.Random(seed), list(range(total))
    for i in range(min(count, total - 1)):
        j = i + int(rng.random() * (total - i))
        items[i], items[j] = items[j], items[i]
    assert _drawn(total, random.Random(seed), count) == items[:count]


@laws
@given(releases(), st.data())
def test_nested_pools_have_the_size_asked_for_distinct_texts_and_gold_once(
    sessions: list[Session], more: st.DataObject
) -> None:
    data = load(sessions)
    size = more.draw(st.integers(1, reach(data, sessions)))
    pools = build_pools(data, "nested", [size], [0])
    for session, pool in zip(sessions, pools.pools[size, 0], strict=True):
        found = [memory.text for memory in pools.texts(pool)]
        assert len(pool) == len(found) == len(set(found)) == size + 1
        assert found[pool.gold] == session.gold


@laws
@given(releases(), st.data())
def test_nested_smaller_pools_lie_in_larger_ones(
    sessions: list[Session], more: st.DataObject
) -> None:
    data = load(sessions)
    largest = reach(data, sessions)
    sizes = sorted(more.draw(st.sets(st.integers(1, largest), min_size=1, max_size=4)))
    pools = build_pools(data, "nested", sizes, [0])
    for small, large in pairwise(sizes):
        for name, inner in texts(pools, small).items():
            assert set(inner) < set(texts(pools, large)[name])


@laws
@given(releases())
def test_nested_pools_start_from_the_released_distractors(sessions: list[Session]) -> None:
    data = load(sessions)
    largest = reach(data, sessions)
    found = texts(build_pools(data, "nested", range(1, largest + 1), [0]), largest)
    for session in sessions:
        base = set(session.distractors)
        if len(base) <= largest:
            assert base < set(found[session.name])
        small = min(len(base), largest)
        inner = texts(build_pools(data, "nested", [small], [0]), small)[session.name]
        assert set(inner) <= base | {session.gold}


@laws
@given(releases())
def test_nested_draws_are_never_the_sessions_own_memories(sessions: list[Session]) -> None:
    data = load(sessions)
    largest = reach(data, sessions)
    found = texts(build_pools(data, "nested", [largest], [0]), largest)
    for session in sessions:
        drawn = set(found[session.name]) - set(session.distractors) - {session.gold}
        assert not drawn & session.own


@laws
@given(releases(), st.sampled_from(["one row", "all rows"]))
def test_nested_more_than_the_bank_holds_is_refused_at_the_row(
    sessions: list[Session], which: str
) -> None:
    data = load(sessions)
    most = [distinct_distractors(data, session) for session in sessions]
    size = min(most) + 1 if which == "one row" else max(most) + 1
    with pytest.raises(DataError) as caught:
        build_pools(data, "nested", [1, size], [0])
    first = next(i for i, available in enumerate(most) if available < size)
    assert caught.value.line == first + 1
    assert caught.value.path == data.smallest.path
    assert f"{most[first]} distinct distractors for `{sessions[first].name}`" in str(caught.value)
    assert f"the {size} asked for" in str(caught.value)


def test_own_memories_are_known_by_session_not_by_query(write_release: WriteRelease) -> None:
    rows = [("a", ["gold a", "x1", "x2"], 0), ("b", ["gold b", "y1", "y2"], 0)]
    data = load_dataset(write_release(rows, own={"q0": ["y1"], "q1": ["x2"]}), "dev")
    # Both queries come from the session that owns y1.
    data = replace(data, own={"s": frozenset({"y1"})})
    same = tuple(replace(row, session_id="s") for row in data.smallest.rows)
    data = replace(data, released={2: replace(data.smallest, rows=same)})
    found = texts(build_pools(data, "nested", [4], [0]), 4)
    assert "y1" not in found["q0"]
    # What the file itself put into the pool stays there.
    assert "y1" in found["q1"]


def test_nested_draws_are_uniform_over_the_bank(write_release: WriteRelease) -> None:
    rows = [("a", ["gold a", "kept"], 0), ("b", ["gold b", *(f"text {i}" for i in range(40))], 0)]
    data = load_dataset(write_release(rows), "dev")
    seeds = range(600)
    pools = build_pools(data, "nested", [11], seeds, limit=1)
    drawn = Counter(text for seed in seeds for text in texts(pools, 11, seed)["q0"])
    assert drawn.pop("gold a") == drawn.pop("kept") == 600
    # 10 of 41 (40 texts and the other query's gold): 146 times each, standard deviation 10.5.
    assert len(drawn) == 41
    assert all(abs(count - 600 * 10 / 41) < 5 * 10.5 for count in drawn.values())


# What a built pool does not depend on


@laws
@given(releases(), st.sampled_from(BUILT), st.data())
def test_a_pool_does_not_depend_on_other_sizes_seeds_or_limit(
    sessions: list[Session], strategy: Strategy, more: st.DataObject
) -> None:
    sessions = fit(strategy, sessions)
    data = load(sessions)
    largest = reach(data, sessions)
    size = more.draw(st.integers(1, largest))
    limit = more.draw(st.integers(1, len(sessions)))
    alone = build_pools(data, strategy, [size], [3])
    among = build_pools(data, strategy, sorted({1, size, largest}), [0, 3, 8], limit)
    assert len(among.rows) == limit
    mine, theirs = texts(alone, size, 3), texts(among, size, 3)
    assert theirs == {name: mine[name] for name in theirs}
    golds = [pool.gold for pool in alone.pools[size, 3][:limit]]
    assert [pool.gold for pool in among.pools[size, 3]] == golds


@laws
@given(releases(), st.sampled_from(BUILT), st.data())
def test_a_pool_does_not_depend_on_the_order_of_the_file(
    sessions: list[Session], strategy: Strategy, more: st.DataObject
) -> None:
    sessions = fit(strategy, sessions)
    data = load(sessions)
    shuffled = [
        replace(
            session,
            distractors=tuple(more.draw(st.permutations(session.distractors))),
            gold_at=more.draw(st.integers(0, len(session.distractors))),
        )
        for session in more.draw(st.permutations(sessions))
    ]
    # Sizes below the reach, where it matters which texts are drawn first.
    size = more.draw(st.integers(1, reach(data, sessions)))
    before = texts(build_pools(data, strategy, [size], [0]), size)
    after = texts(build_pools(load(shuffled), strategy, [size], [0]), size)
    assert before == after


@pytest.mark.parametrize("strategy", BUILT)
def test_limit_leaves_the_bank_whole(write_release: WriteRelease, strategy: Strategy) -> None:
    rows = [(f"query {i}", [f"gold {i}", f"text {i}"], 0) for i in range(30)]
    data = load_dataset(write_release(rows), "dev")
    # One row alone has one distractor, its pool draws on the others.
    found = texts(build_pools(data, strategy, [20], [0], limit=1), 20)
    assert len(found) == 1
    assert len(set(found["q0"])) > 10


@laws
@given(releases(), st.sampled_from(STRATEGIES), st.integers(0, 2**40))
def test_the_same_seed_gives_the_same_pools(
    sessions: list[Session], strategy: Strategy, seed: int
) -> None:
    data = load(fit(strategy, sessions))
    size = 2 if strategy == "released" else 1
    once, again = (build_pools(data, strategy, [size], [seed]) for _ in range(2))
    assert texts(once, size, seed) == texts(again, size, seed)


def test_pools_are_the_same_in_another_process_with_another_hash_seed() -> None:
    code = (
        "from recallbed.corpus import sample_root\n"
        "from recallbed.corpus.dataset import load_dataset\n"
        "from recallbed.corpus.pools import build_pools\n"
        "import hashlib\n"
        "data = load_dataset(sample_root(), 'dev')\n"
        "d = hashlib.sha256()\n"
        "for s in ('nested', 'as-released'):\n"
        "    p = build_pools(data, s, [300], [0, 1], 8)\n"
        "    for key, pools in p.pools.items():\n"
        "        for x in pools:\n"
        "            d.update(repr((key, x.gold, p.texts(x))).encode())\n"
        "print(d.hexdigest())"
    )
    found = {python("-c", code, PYTHONHASHSEED=seed).stdout for seed in ("1", "2")}
    assert len(found) == 1


# released


@laws
@given(releases())
def test_released_pools_are_the_candidates_as_the_file_gives_them(sessions: list[Session]) -> None:
    even = fit("released", sessions)
    pools = build_pools(load(even), "released", [2], [0])
    for session, pool in zip(even, pools.pools[2, 0], strict=True):
        expected = list(session.distractors)
        expected.insert(session.gold_at, session.gold)
        assert [memory.text for memory in pools.texts(pool)] == expected
        assert pool.gold == session.gold_at


def test_each_released_size_comes_from_its_own_file(write_release: WriteRelease) -> None:
    write_release([("a", ["gold", "one"], 0), ("b", ["two", "gold"], 1)])
    root = write_release([("a", ["three", "four", "gold"], 2), ("b", ["gold", "five", "six"], 0)])
    pools = build_pools(load_dataset(root, "dev", (1, 2)), "released", [1, 2], [0])
    assert texts(pools, 1) == {"q0": ["gold", "one"], "q1": ["two", "gold"]}
    assert texts(pools, 2) == {"q0": ["three", "four", "gold"], "q1": ["gold", "five", "six"]}
    assert [pool.gold for pool in pools.pools[2, 0]] == [2, 0]


# as-released


@laws
@given(releases(), st.integers(1, 60))
def test_as_released_holds_gold_once_and_nothing_of_the_session(
    sessions: list[Session], size: int
) -> None:
    data = load(sessions)
    weights = Counter(text for session in sessions for text in session.distractors)
    if any(not set(weights) - session.own for session in sessions):
        with pytest.raises(DataError, match="no distractor for"):
            build_pools(data, "as-released", [size], [0])
        return
    pools = build_pools(data, "as-released", [size], [0])
    for session, pool in zip(sessions, pools.pools[size, 0], strict=True):
        found = [memory.text for memory in pools.texts(pool)]
        assert len(found) == size + 1
        assert found[pool.gold] == session.gold
        assert found.count(session.gold) == 1
        # Only what stands as a distractor somewhere can be drawn.
        assert set(found) - {session.gold} <= set(weights) - session.own


@laws
@given(releases(), st.integers(1, 20), st.integers(1, 20))
def test_as_released_smaller_pools_lie_in_larger_ones(
    sessions: list[Session], small: int, more: int
) -> None:
    sessions = [replace(session, own=frozenset()) for session in sessions]
    sessions = [replace(s, distractors=(*s.distractors, "always")) for s in sessions]
    pools = build_pools(load(sessions), "as-released", [small, small + more], [0])
    for name, inner in texts(pools, small).items():
        assert Counter(inner) <= Counter(texts(pools, small + more)[name])


def test_as_released_draws_in_proportion_to_how_often_a_text_occurs(
    write_release: WriteRelease,
) -> None:
    rows = [
        ("a", ["gold a", "thrice", "thrice", "once"], 0),
        ("b", ["gold b", "thrice", "twice", "twice"], 0),
    ]
    data = load_dataset(write_release(rows), "dev")
    found = texts(build_pools(data, "as-released", [6000], [0]), 6000)["q0"]
    drawn = Counter(found)
    # More than the bank has texts: they repeat. A gold that is no one's distractor is not drawn.
    assert drawn.pop("gold a") == 1
    assert set(drawn) == {"thrice", "twice", "once"}
    for text, weight in (("thrice", 3), ("twice", 2), ("once", 1)):
        assert drawn[text] / 6000 == pytest.approx(weight / 6, abs=0.03)


# Where the gold stands


@pytest.mark.parametrize("strategy", BUILT)
def test_the_gold_stands_anywhere(strategy: Strategy) -> None:
    seeds = range(12)
    pools = build_pools(load_dataset(sample_root(), "dev"), strategy, [100], seeds)
    places = np.array([pool.gold for seed in seeds for pool in pools.pools[100, seed]])
    # 1,968 golds on 101 places: chi-square with 100 degrees of freedom, 161 is p = 0.0001.
    expected = len(places) / 101
    counts = np.bincount(places, minlength=101)
    assert ((counts - expected) ** 2 / expected).sum() < 161
    # And the place under one seed says nothing of the place under another.
    table = places.reshape(len(seeds), -1)
    assert abs(np.corrcoef(table[0], table[1])[0, 1]) < 0.3
    assert (table[0] == table[1]).mean() < 0.06


@pytest.mark.parametrize("first", [True, False])
def test_the_place_of_the_gold_in_the_file_does_not_show(
    write_release: WriteRelease, first: bool
) -> None:
    rows = []
    for i in range(60):
        pool = [f"text {i} {j}" for j in range(20)]
        pool.insert(0 if first else 20, f"gold {i}")
        rows.append((f"query {i}", pool, 0 if first else 20))
    data = load_dataset(write_release(rows), "dev")
    golds = [pool.gold for pool in build_pools(data, "nested", [20], [0]).pools[20, 0]]
    assert 7 < np.mean(golds) < 13
    assert len(set(golds)) > 12


def test_a_pool_is_in_the_same_order_inside_a_larger_one() -> None:
    # Growing a pool inserts and never reshuffles, so its order tells nothing of what was added.
    pools = build_pools(load_dataset(sample_root(), "dev"), "nested", [100, 300], [0], 20)
    for name, small in texts(pools, 100).items():
        kept = set(small)
        assert [text for text in texts(pools, 300)[name] if text in kept] == small


# The sizes of the design, on real files


def check_growth(data: Dataset, limit: int) -> None:
    sizes = [100, 300, 500, 700, 1000]
    pools = build_pools(data, "nested", sizes, [0], limit)
    for row in pools.rows:
        base = {memory.text for memory in row.candidates}
        inner: set[str] = set()
        for size in sizes:
            found = texts(pools, size)[row.benchmark_id]
            assert len(found) == len(set(found)) == size + 1
            assert inner < set(found)
            inner = set(found)
        assert base <= inner
        assert not (inner - base) & data.own[row.session_id]
    seeds = build_pools(data, "nested", [300], [0, 1], limit)
    assert texts(seeds, 300, 0) != texts(seeds, 300, 1)


def test_100_lies_in_300_lies_in_1000_on_the_sample() -> None:
    check_growth(load_dataset(sample_root(), "dev"), 40)


def test_100_lies_in_300_lies_in_1000_on_the_released_data(alpsbench: Path) -> None:
    check_growth(load_dataset(alpsbench, "dev"), 40)


# The hash of a pool

memories = st.lists(
    st.builds(Memory, st.text(st.characters(exclude_categories=["Cs"]), max_size=8)), max_size=8
)


@given(memories, st.data())
def test_pool_hash_is_free_of_order(pool: list[Memory], more: st.DataObject) -> None:
    assert pool_hash(more.draw(st.permutations(pool))) == pool_hash(pool)


@given(memories, memories)
def test_pool_hash_is_equal_for_equal_texts_only(one: list[Memory], two: list[Memory]) -> None:
    same = Counter(m.text for m in one) == Counter(m.text for m in two)
    assert (pool_hash(one) == pool_hash(two)) == same


def test_pool_hash_sees_where_one_text_ends_and_the_next_begins() -> None:
    assert pool_hash([Memory("ab"), Memory("c")]) != pool_hash([Memory("a"), Memory("bc")])
    assert pool_hash([Memory("a"), Memory("a")]) != pool_hash([Memory("a")])


def test_pool_hash_is_over_texts_alone_and_stays_what_it_is() -> None:
    pool = [Memory("绿茶", "Preferences/Food"), Memory("clock")]
    raw = b"\0\0\0\5clock" + b"\0\0\0\6" + "绿茶".encode()
    assert pool_hash(pool) == hashlib.sha256(raw).hexdigest()[:16]
    assert pool_hash([Memory(m.text) for m in pool]) == pool_hash(pool)


def test_a_release_read_back_is_what_was_written() -> None:
    # The helper of this file, checked once: what `load` writes is what the laws speak of.
    session = Session("q0", "gold", ("a", "b", "a"), 1, frozenset({"gold", "z"}))
    data = load([session])
    assert [m.text for m in data.smallest.rows[0].candidates] == ["a", "gold", "b", "a"]
    assert data.own == {"sq0": {"gold", "z"}}
