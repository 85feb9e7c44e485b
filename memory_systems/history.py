"""`python -m memory_systems.history STORE`: users, memories and operations of a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recallbed.harness.app import App
from recallbed.harness.options import AsJson

if TYPE_CHECKING:
    from memory_systems.store import HistoryEntry, MemoryStore
    from recallbed.corpus.records import MemoryItem

app = App()


@app.command(
    examples=(
        "recallbed history runs/a/memory.sqlite",
        "recallbed history runs/a/memory.sqlite --user USER",
    )
)
def history(
    store: Annotated[Path, typer.Argument(help="File of a memory store.")],
    user: Annotated[
        str | None,
        typer.Option(metavar="USER", help="Show this user's memories and every operation."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the users and operations of a memory store."""
    import json

    from memory_systems.store import MemoryStore
    from recallbed.errors import UserError
    from recallbed.harness.terminal import one_line, say, say_json

    if not store.exists():
        raise UserError(f"{store}: no memory store here")
    opened = MemoryStore(store)
    if user is not None and user not in opened.users():
        raise UserError(f"{store}: no user `{user}`. Without --user all are listed")
    if user is None:
        users = [
            {"user": name, "memories": kept, "operations": done}
            for name, (kept, done) in opened.counts().items()
        ]
        if as_json:
            say_json(json.dumps(users))
            return
        for row in users:
            name = one_line(row["user"])
            say(f"{name}: {row['memories']} memories, {row['operations']} operations")
    elif as_json:
        # Texts may hold lone surrogates, so only ASCII can be printed.
        say_json(json.dumps(_user(opened, user)))
    else:
        say(*map(_line, opened.memories(user)), "", *map(_entry, opened.history(user)))


def _user(store: MemoryStore, user: str) -> dict[str, Any]:
    from memory_systems.base import item_json, operations_json

    entries = store.history(user)
    done = operations_json([entry.operation for entry in entries])
    return {
        "user": user,
        "memories": [item_json(item) for item in store.memories(user)],
        "history": [
            {"number": entry.number, "time": entry.time, **operation}
            for entry, operation in zip(entries, done, strict=True)
        ],
    }


def _entry(entry: HistoryEntry) -> str:
    from datetime import UTC, datetime

    when = datetime.fromtimestamp(entry.time, UTC).isoformat(timespec="seconds")
    before, after = entry.operation.before, entry.operation.after
    sides = [before] if before == after else [before, after]
    change = "  ->  ".join(_line(item) for item in sides if item is not None)
    return f"{entry.number:>5}  {when}  {entry.operation.action:<6}  {change}".rstrip()


def _line(item: MemoryItem) -> str:
    from recallbed.harness.terminal import one_line

    parts = (item.id, f"[{item.label}]" if item.label else None, item.text)
    return " ".join(one_line(part) for part in parts if part)


if __name__ == "__main__":
    app()
