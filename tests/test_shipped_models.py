"""The trained models that are part of the package: what they were trained on, and that they run."""

import json
import re
from pathlib import Path

import pytest

from recallbed.corpus.dataset import load_dataset
from recallbed.corpus.records import Memory
from recallbed.corpus.sessions import session_digest
from retrievers.adapted import SMALLER_MODEL, Adapted
from retrievers.trained import CARD_FILE, read_card
from task3.sweep import app
from tests.kit import ROOT, one_line_error, run

MODELS = sorted((ROOT / "retrievers" / "models").glob("*/*"))
NAMES = [f"{folder.parent.name}/{folder.name}" for folder in MODELS]
MOST_BYTES = 1_200_000
"""Of a model with its card: it is in every wheel."""
each_model = pytest.mark.parametrize("folder", MODELS, ids=NAMES)


def test_there_are_models() -> None:
    assert set(NAMES) == {"adapted/minilm-use", "adapted/mpnet-use", "learned/mpnet"}


@each_model
def test_a_card_says_what_a_model_was_trained_on_and_how_it_does_elsewhere(folder: Path) -> None:
    card = read_card(folder)
    assert card is not None
    assert card["data"]["split"] == "dev"
    assert "ODC-BY" in card["data"]["license"]
    assert {"AlpsBench", "WildChat"} <= set(re.findall(r"\w+", card["data"]["attribution"]))
    assert card["number_of_sessions"] <= len(card["sessions"])
    assert all(re.fullmatch(r"[0-9a-f]{16}", one) for one in card["sessions"])
    assert all(base["license"] != "unknown" for base in card["base"])
    figures = card["figures"]
    assert figures["folds"] == 5
    gap = figures["retrievers"][folder.parent.name]["R@1"]["1000"]["minus minilm"]
    assert gap["low"] > 0
    assert sum(path.stat().st_size for path in folder.rglob("*")) < MOST_BYTES
    texts = [path for kind in ("*.json", "*.md") for path in folder.rglob(kind)]
    written = "".join(path.read_text("utf-8") for path in texts)
    assert not re.search(r"[\"' ](/|~/|[A-Z]:\\)\w", written)


@each_model
def test_a_model_knows_every_session_of_dev_and_holds_none_of_its_texts(
    folder: Path, alpsbench: Path
) -> None:
    rows = load_dataset(alpsbench, "dev").smallest.rows
    card = json.loads((folder / CARD_FILE).read_text("utf-8"))
    assert {session_digest(row.session_id) for row in rows} <= set(card["sessions"])
    written = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    for row in rows:
        for text in (row.query, row.session_id, *(memory.text for memory in row.candidates)):
            assert len(text) < 12 or text.encode() not in written


def test_a_shipped_model_is_not_measured_on_what_it_was_trained_on(
    alpsbench: Path, tmp_path: Path
) -> None:
    words = ("--retriever", "adapted", "--set", f"adapted.model={SMALLER_MODEL}")
    done = run(app, *words, "--data", alpsbench, "--out", tmp_path / "run")
    error = one_line_error(done)
    assert "was trained on 410 of these 410 sessions" in error
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_the_smaller_adapter_finds_what_a_query_is_about() -> None:
    pool = [Memory("Plays the violin in an orchestra"), Memory("Is allergic to peanuts")]
    adapted = Adapted(SMALLER_MODEL, device="cpu")
    [food] = adapted.results(["What should I avoid when I order a dessert?"], [pool])
    [music] = adapted.results(["Which instrument do I play?"], [pool])
    assert food.scores[1] > food.scores[0]
    assert music.scores[0] > music.scores[1]
