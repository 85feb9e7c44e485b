import json
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
# Never the user's own store; commands that the tests start share one.
_cache = tempfile.TemporaryDirectory(prefix="recallbed-tests-")
os.environ["RECALLBED_STORE"] = f"{_cache.name}/embeddings.sqlite"
os.environ["RECALLBED_REPLIES"] = f"{_cache.name}/replies.sqlite"
HOUSE = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def alpsbench() -> Path:
    """The real data: $ALPSBENCH_DATA, else the copy that lies beside a checkout."""
    named = os.environ.get("ALPSBENCH_DATA")
    root = Path(named) if named else HOUSE.parent / "shared" / "alpsbench" / "benchmark_data"
    if not (root / "dev" / "task3" / "d100").is_dir():
        pytest.skip(f"no AlpsBench data at {root}; set ALPSBENCH_DATA")
    return root


WriteRelease = Callable[..., Path]


@pytest.fixture
def write_release(tmp_path: Path) -> WriteRelease:
    """Writes a small release: `write_release([(query, [texts], gold position), ...])`.

    Returns its root; the split is `dev`, the folder `task3/d<number of distractors of row 0>`.
    """

    def write(
        rows: Sequence[tuple[str, Sequence[str], int]],
        *,
        size: int | None = None,
        own: dict[str, list[str]] | None = None,
        ids: Sequence[str] | None = None,
    ) -> Path:
        root = tmp_path / "release"
        folder = root / "dev" / "task3" / f"d{size or max(len(rows[0][1]) - 1, 1)}"
        inputs, references = [], []
        for number, (query, texts, gold) in enumerate(rows):
            name = f"q{number}"
            candidates = [
                {
                    "memory_id": ids[i] if ids else f"m{i}",
                    "value": text,
                    "label": "Preferences/Food",
                }
                for i, text in enumerate(texts)
            ]
            head = {"benchmark_id": name, "task": "task3", "session_id": name}
            inputs.append(
                {
                    **head,
                    "stratum": "secret",
                    "input": {"candidate_memories": candidates, "query": query},
                }
            )
            chosen = candidates[gold]
            references.append(
                {
                    **head,
                    "gold": {"selected_memory_id": chosen["memory_id"], "selected_memory": chosen},
                }
            )
        write_lines(folder / "model_input.jsonl", inputs)
        write_lines(folder / "reference_output.jsonl", references)
        if own:
            items = [
                {"session_id": s, "gold": {"memory_items": [{"value": v} for v in values]}}
                for s, values in own.items()
            ]
            write_lines(root / "dev" / "task1" / "reference_output.jsonl", items)
        return root

    return write


def write_lines(path: Path, rows: Sequence[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every figure that is saved, as matplotlib holds it; the file is written all the same."""
    from matplotlib.figure import Figure

    figures: list[Any] = []
    save = Figure.savefig

    def spy(self: Figure, *args: Any, **options: Any) -> None:
        figures.append(self)
        save(self, *args, **options)

    monkeypatch.setattr(Figure, "savefig", spy)
    return figures
