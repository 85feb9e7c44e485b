"""Was the gold memory used, for every prediction of a file: by overlap, or by a model's word."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from chat_models.session import ChatOptions, open_chats
from corpus.records import Task3File, Task3Row
from harness.errors import UserError
from harness.fingerprint import code_hash, own_version, short_hash, versions
from harness.item_run import Done, is_item_row, run_items
from harness.run_folder import open_run
from judge.used_memory import UsedMemoryJudge
from judge.verdicts import Judged, Unjudged, disagreed, from_row, to_row
from task3.exact_match import Verdict
from task3.use import Use, Words, by_overlap, read_words, use_figures

By = Literal["overlap", "judge"]


@dataclass(frozen=True, slots=True)
class UseOptions:
    """How use is told. `folder` keeps the verdicts of a judge; None is one in `runs/`."""

    by: By
    judge_model: str | None = None
    votes: int = 1
    chat: ChatOptions = field(default_factory=ChatOptions)
    folder: Path | None = None


def use_options(
    by: str | None,
    judge_model: str | None,
    votes: int,
    chat: ChatOptions,
    folder: Path | None,
) -> UseOptions | None:
    """What a command's options ask for, None for nothing. Raises UserError for what can't be."""
    if by not in (None, "overlap", "judge"):
        raise UserError(f"--use {by}: choose overlap or judge")
    if by != "judge" and (judge_model or folder or votes > 1):
        raise UserError("--judge-model, --votes and --verdicts are for --use judge")
    if by == "judge" and judge_model is None:
        raise UserError("--use judge: who judges? Give --judge-model openai:MODEL")
    return None if by is None else UseOptions(by, judge_model, votes, chat, folder)  # type: ignore[arg-type]


def uses_of(
    file: Task3File, path: Path, verdicts: Mapping[str, Verdict], options: UseOptions
) -> dict[str, Use]:
    """By benchmark_id, for every query that has exactly one prediction row in `path`.

    Raises UserError for a judge that can't be asked and where its budget is spent; verdicts that
    came are kept, and the same call goes on with the rest.
    """
    words = read_words(path)
    said = {
        row.benchmark_id: (row, words.get(verdict.lines[0], Words("", "")))
        for row in file.rows
        if (verdict := verdicts[row.benchmark_id]).cause not in ("missing", "repeated")
    }
    if options.by == "overlap":
        return {name: by_overlap(row.gold_memory.text, own) for name, (row, own) in said.items()}
    return _judged(file, said, options)


def _judged(
    file: Task3File, said: Mapping[str, tuple[Task3Row, Words]], options: UseOptions
) -> dict[str, Use]:
    assert options.judge_model is not None
    with open_chats(options.chat) as chats:
        chat = chats(options.judge_model)
        judge = UsedMemoryJudge(chat, options.votes)
        fingerprint = {
            "data": {"sha256": file.sha256, "distractors": file.size},
            "predictions": short_hash({n: [w.answer, w.reason] for n, (_, w) in said.items()}),
            "judge": dict(judge.settings()),
            "code": {"version": own_version(), "sha256": code_hash()},
            "libraries": versions(sorted(chat.libraries)),
        }
        folder = options.folder or Path("runs") / f"task3-use-{short_hash(fingerprint)}"
        items: dict[str, Callable[[], Done]] = {
            name: partial(_judge, judge, row, words) for name, (row, words) in said.items()
        }
        with open_run(folder, fingerprint, "resume", is_item_row) as run:
            run.write_manifest()
            flight = options.chat.in_flight
            # A call that failed before is made again: it may have been the server's bad day.
            run_items(run, items, label="judge", in_flight=flight, retry_failed=True)
            uses = {row["item"]: _use(row) for row in run.rows}
    if all(one.used is None for one in uses.values()):
        causes = ", ".join(sorted({one.cause for one in uses.values()}))
        raise UserError(
            f"{options.judge_model}: none of {len(uses)} predictions could be judged ({causes})"
        )
    return uses


def _judge(judge: UsedMemoryJudge, row: Task3Row, words: Words) -> Done:
    verdict = judge(row.query, words.answer, words.reason, row.gold_memory.text)
    used = verdict.usage
    return Done(
        to_row(verdict),
        used.calls,
        used.estimate_in,
        used.estimate_out,
        error=verdict.cause if isinstance(verdict, Unjudged) else None,
    )


def _use(row: Mapping[str, Any]) -> Use:
    verdict = from_row(row["result"])
    used = verdict.value if isinstance(verdict, Judged) else None
    return Use(used, row["error"] or "", disagreed(verdict))


def use_result(
    rows: Sequence[Task3Row],
    uses: Mapping[str, Use],
    verdicts: Mapping[str, Verdict],
    options: UseOptions,
) -> dict[str, Any]:
    """The figures over `rows`, as `--json` prints them."""
    of_rows = {row.benchmark_id for row in rows}
    correct = {name: verdicts[name].cause == "correct" for name in uses}
    by = options.by if options.judge_model is None else f"{options.by} {options.judge_model}"
    kept = {name: use for name, use in uses.items() if name in of_rows}
    return {"by": by, "votes": options.votes, **use_figures(rows, kept, correct)}
