"""Progress on stderr: rows, and the calls of a chat model that one row may rest on."""

from __future__ import annotations

import pytest

from recallbed.harness import progress as module
from recallbed.harness.progress import call_made, progress


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        self.now += 6.0  # past the time between two lines
        return self.now


def test_calls_are_shown_before_the_first_row_is_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "time", Clock())
    call_made()  # nothing is shown: no error
    with progress("llm", 3) as advance:
        call_made()
        call_made()
        advance(1)
    call_made()
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "llm: 0/3, 1 calls in 6 s",
        "llm: 0/3, 2 calls in 12 s",
        "llm: 1/3, 0.056/s, 36 s left, 2 calls in 18 s",
    ]


def test_rows_without_calls_say_nothing_of_calls(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "time", Clock())
    with progress("bm25", 1200) as advance:
        advance(600)
    assert capsys.readouterr().err.splitlines() == ["bm25: 600/1200, 100/s, 6 s left"]
