"""What trainers learn from: examples by session, folds that share nothing, allowed negatives."""

import json
from pathlib import Path

import numpy as np
import pytest

from recallbed.corpus.layout import sample_root
from recallbed.corpus.sessions import query_digest
from recallbed.errors import UserError
from tests.kit import python
from training.examples import TrainingData, TrainingExample, read_training_data
from training.folds import fold_of, train_sessions, write_folds
from training.negatives import allowed_negatives, hard_negatives


@pytest.fixture(scope="module")
def sample() -> TrainingData:
    return read_training_data()


def test_the_sample_has_every_kind_of_example(sample: TrainingData) -> None:
    counts = sample.provenance["examples"]
    assert counts["query"] == len(sample.rows) == 164
    assert counts["evidence"] > 100
    assert counts["utilization"] > 100
    assert sample.provenance["task4_rows_without_a_session"] == 0
    assert sample.provenance["data"] == "embedded sample"


def test_a_question_of_task_4_belongs_to_the_session_of_its_memory(sample: TrainingData) -> None:
    questions = [one for one in sample.examples if one.kind == "utilization"]
    assert all(one.memory in sample.own[one.session] for one in questions)
    assert sample.aliases["sample_ar_001"] == {"ability1_sample_ar_001"}


def test_a_row_of_task_4_without_its_session_is_left_out_and_counted(tmp_path: Path) -> None:
    split = tmp_path / "dev"
    for name in ("task1", "task3/d10", "task4_ability1"):
        (split / name).mkdir(parents=True)
    sizes = sorted(p.name for p in (sample_root() / "dev" / "task3").iterdir())
    for name, source in (
        ("task1", "task1"),
        ("task3/d10", f"task3/{sizes[0]}"),
        ("task4_ability1", "task4_ability1"),
    ):
        for file in ("model_input.jsonl", "reference_output.jsonl"):
            lines = (sample_root() / "dev" / source / file).read_text("utf-8").splitlines()
            if name == "task4_ability1":
                lines = [_foreign(lines[0]), *lines[1:]]
            (split / name / file).write_text("\n".join(lines) + "\n", "utf-8")
    found = read_training_data(tmp_path, "dev", ["utilization"])
    assert found.provenance["task4_rows_without_a_session"] == 1


def _foreign(line: str) -> str:
    """A row of task 4 that was made from no session of the split."""
    row = json.loads(line)
    if "gold" in row:
        for item in (*row["gold"]["extracted_memory"], row["gold"]["selected_memory"]):
            item["value"] = "Of another session"
    else:
        row["input"]["audit_context"]["conversation"] = [{"role": "user", "text": "Another"}]
    return json.dumps(row)


def test_only_dev_is_learned_from(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="dev alone"):
        read_training_data(tmp_path, "validation")


def test_a_users_file_has_one_example_for_each_gold(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    rows = [
        {
            "query": "tea?",
            "memories": ["Likes tea", "Has a dog", "Drinks green tea"],
            "gold": [0, 2],
        },
        {"query": "pet?", "memories": ["Has a dog", "Likes tea"], "gold": 0, "session": "s"},
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    found = read_training_data(file)
    assert [one.memory for one in found.examples] == ["Likes tea", "Drinks green tea", "Has a dog"]
    assert found.sessions == ("query: tea?", "s")
    assert found.bank == ("Drinks green tea", "Has a dog", "Likes tea")
    assert "mine" not in json.dumps(found.provenance)


def pairs(*triples: tuple[str, str, str]) -> list[TrainingExample]:
    return [TrainingExample(session, query, memory, "query") for session, query, memory in triples]


def test_sessions_that_share_a_text_are_in_one_fold() -> None:
    examples = pairs(
        ("a", "q1", "m1"),
        ("b", "Q1 ", "m2"),
        ("c", "q3", "M2"),
        ("d", "q4", "m4"),
        ("e", "q5", "m5"),
    )
    for seed in range(5):
        folds = fold_of(examples, 2, seed)
        assert folds["a"] == folds["b"] == folds["c"]
        assert set(folds.values()) == {0, 1}
        assert train_sessions(folds, folds["a"]).isdisjoint("abc")


def test_folds_depend_on_the_seed_and_not_on_the_order_or_the_process() -> None:
    examples = pairs(*((f"s{i}", f"q{i}", f"m{i}") for i in range(40)))
    folds = fold_of(examples, 4, 1)
    assert sorted(list(folds.values()).count(fold) for fold in range(4)) == [10] * 4
    assert fold_of(examples[::-1], 4, 1) == folds
    assert fold_of(examples, 4, 2) != folds
    code = (
        "from training.examples import TrainingExample as T; from training.folds import fold_of\n"
        "print(fold_of([T(f's{i}', f'q{i}', f'm{i}', 'query') for i in range(40)], 4, 1)"
        f" == {folds!r})"
    )
    assert python("-c", code, PYTHONHASHSEED="7").stdout == "True\n"


def test_too_few_groups_for_the_folds() -> None:
    examples = pairs(("a", "q", "m1"), ("b", "q", "m2"), ("c", "q3", "m3"))
    with pytest.raises(UserError, match="3 sessions make 2 groups"):
        fold_of(examples, 3)
    with pytest.raises(UserError, match="at least 2"):
        fold_of(examples, 1)


def test_folds_file_holds_digests_and_no_text(tmp_path: Path) -> None:
    write_folds(tmp_path, "adapted", "model", {"my question": 1, "other": 0}, {"x": 1})
    text = (tmp_path / "folds.json").read_text("utf-8")
    found = json.loads(text)
    assert "my question" not in text
    assert found["folds"] == ["fold-0", "fold-1"]
    assert found["fold_of"] == {query_digest("my question"): 1, query_digest("other"): 0}
    assert (found["retriever"], found["setting"], found["settings"]) == (
        "adapted",
        "model",
        {"x": 1},
    )


def test_what_may_be_the_gold_is_no_negative() -> None:
    memories = ["Likes tea", "likes  TEA", "Drinks tea daily", "Has a dog", "Has a cat"]
    vectors = np.array([[1, 0, 0], [1, 0, 0], [0.9, 0.436, 0], [0, 1, 0], [0, 0, 1]], np.float32)
    examples = pairs(
        ("s", "tea?", "Likes tea"), ("t", "pet?", "Has a dog"), ("u", "Pet?", "Has a cat")
    )
    own = {"t": frozenset({"Has a dog", "Likes tea"})}
    mask = allowed_negatives(examples, memories, own, vectors)
    assert mask.tolist() == [
        [False, False, False, True, True],
        [False, False, True, False, False],
        [True, True, True, False, False],
    ]
    loose = allowed_negatives(examples, memories, own)
    assert loose[0].tolist() == [False, False, True, True, True]


def test_hard_negatives_are_the_best_scored_allowed_ones() -> None:
    scores = np.array([[0.9, 0.8, 0.7, 0.6], [0.5, 0.5, 0.1, 0.9]], np.float32)
    mask = np.array([[False, True, True, True], [True, True, False, False]])
    assert hard_negatives(scores, mask, 2).tolist() == [[1, 2], [0, 1]]
    assert hard_negatives(scores, mask, 2, skip=1).tolist() == [[2, 3], [1, 1]]
    assert hard_negatives(scores, np.zeros_like(mask), 1).tolist() == [[-1], [-1]]
