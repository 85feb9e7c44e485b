"""`python -m recallbed.corpus.convert longmemeval FILE`: another benchmark as a data file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from recallbed.corpus.longmemeval import Level, Question
from recallbed.harness.app import App
from recallbed.harness.run_options import Overwrite

if TYPE_CHECKING:
    from collections import Counter

app = App(no_args_is_help=True)


@app.callback()
def formats() -> None:
    """Convert another benchmark to a data file."""


@app.command(
    examples=(
        "recallbed convert longmemeval longmemeval_s.json --level session --out s.jsonl",
        "recallbed convert longmemeval longmemeval_m.json --level turn --out t.jsonl",
    )
)
def longmemeval(
    file: Annotated[
        Path, typer.Argument(help="longmemeval_s.json, _m or _oracle, also as .json.gz.")
    ],
    level: Annotated[Level, typer.Option(help="What a memory is.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="File to write, .jsonl or .jsonl.gz.")],
    include_assistant: Annotated[
        bool, typer.Option(help="Index the assistant's turns too.")
    ] = False,
    dates: Annotated[bool, typer.Option(help="Put the session's date before each memory.")] = False,
    overwrite: Overwrite = False,
) -> None:
    """Convert LongMemEval's questions over chat histories.

    The gold is that of LongMemEval's retrieval evaluation; see docs/longmemeval.md. Question type
    and date are kept as further fields, for `recallbed breakdown`.
    """
    from collections import Counter

    from recallbed.corpus.longmemeval import read_longmemeval
    from recallbed.errors import DataError
    from recallbed.harness.terminal import note

    _refuse(out, file, overwrite)
    repairs: Counter[str] = Counter()
    written = Written()
    with _whole_or_not(out) as stream:
        for question in read_longmemeval(
            file, level, repairs, include_assistant=include_assistant, dates=dates
        ):
            stream.write(_line(question))
            written.add(question)
        if not any(written.golds):
            raise DataError(
                f"not one of {written.questions} questions has a gold at {level} level",
                file,
                todo="Gold needs a turn with has_answer in a session of answer_session_ids",
            )
    note(*(f"{out}: {line}" for line in written.lines(repairs)))


class Written:
    """What a file holds, for the report on stderr."""

    def __init__(self) -> None:
        self.memories: list[int] = []
        self.golds: list[int] = []
        self.abstentions = 0
        self.silent_answers = 0
        self.histories_with_repeats = 0
        self.repeated_sessions = 0
        self.empty_sessions = 0

    @property
    def questions(self) -> int:
        """How many there are, abstentions included."""
        return len(self.memories)

    def add(self, question: Question) -> None:
        """Count one question."""
        self.memories.append(len(question.memories))
        self.golds.append(len(question.golds))
        self.abstentions += question.abstention
        self.silent_answers += question.silent_answers
        self.histories_with_repeats += question.repeated_sessions > 0
        self.repeated_sessions += question.repeated_sessions
        self.empty_sessions += question.empty_sessions

    def lines(self, repairs: Counter[str]) -> Iterator[str]:
        """The report; at least one question has a gold."""
        golds = [count for count in self.golds if count]
        without = self.questions - self.abstentions - len(golds)
        yield (
            f"{self.questions} questions: {len(golds)} with gold, {self.abstentions} abstentions,"
            f" {without} without gold at this level"
        )
        yield f"memories a question: {_spread(self.memories)}"
        yield f"golds a question that has any: {_spread(golds)}"
        yield f"answer sessions without a marked turn, so not gold: {self.silent_answers}"
        yield (
            f"repeated session ids: {self.repeated_sessions} in {self.histories_with_repeats}"
            " histories, each kept as a memory of its own"
        )
        yield f"empty sessions: {self.empty_sessions}"
        for kind, count in sorted(repairs.items()):
            yield f"repaired: {kind} x {count}"


def _spread(counts: list[int]) -> str:
    from statistics import median

    return f"{min(counts)} to {max(counts)}, median {median(counts):g}"


def _line(question: Question) -> bytes:
    import json

    row = {
        "id": question.id,
        "query": question.query,
        "memories": question.memories,
        "gold": question.golds,
    }
    for name in ("question_type", "question_date"):
        value = getattr(question, name)
        row |= {} if value is None else {name: value}
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"


def _refuse(out: Path, file: Path, overwrite: bool) -> None:
    """Say what is wrong with --out before anything is read."""
    from recallbed.errors import UserError
    from recallbed.harness.files import refuse_output

    if out.is_file() and file.exists() and out.samefile(file):
        raise UserError(f"{out}: is the file that is read. Give another --out")
    refuse_output(out, overwrite)


@contextmanager
def _whole_or_not(out: Path) -> Iterator[BinaryIO]:
    """A stream (gzip for .gz) that becomes `out` at the end, and nothing after an error."""
    import gzip
    from typing import cast

    from recallbed.harness.files import written_whole

    with written_whole(out) as raw:
        if out.suffix == ".gz":
            with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed:
                yield cast(BinaryIO, packed)
        else:
            yield raw


if __name__ == "__main__":
    app()
