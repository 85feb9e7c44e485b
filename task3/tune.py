"""`python -m task3.tune --label hybrid --retriever hybrid --out tuned.json`: settings fitted."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recallbed.chat_models.flags import DEFAULT_CHAT, ChatOptions, chat_options
from recallbed.harness.app import AllowCode, App
from recallbed.harness.text_table import TextTable, print_tables

if TYPE_CHECKING:
    from recallbed.corpus.material import Material
    from recallbed.harness.configurations import Configuration
    from task3.tuning import Tuned

app = App()
SHOWN = 30


@app.command()
@chat_options
def tune_command(
    retriever: Annotated[
        list[str] | None,
        typer.Option(
            "--retriever",
            metavar="[LABEL=]NAME",
            help="The retriever to tune, and those that serve as its legs. May be repeated.",
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="LABEL.KEY=VALUE",
            help="A setting that stays as it is; @FILE for a file of them. May be repeated.",
        ),
    ] = None,
    allow_code: AllowCode = False,
    label: Annotated[
        str | None, typer.Option(help="Whose settings to fit. Default: the only retriever's.")
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            metavar="LABEL.KEY=VALUE/VALUE/...",
            help="Values to try, of any label; all combinations. Default: bm25's k1 and b, the"
            " weights of a hybrid of two legs.",
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="As for task3.sweep. Default: the embedded sample.")
    ] = None,
    split: Annotated[str, typer.Option(help="Which split of it.")] = "dev",
    pools: Annotated[
        str | None, typer.Option(metavar="nested|released|as-released", help="As for task3.sweep.")
    ] = None,
    pool_seeds: Annotated[
        str, typer.Option(help="Seeds of the pools; several are averaged.")
    ] = "0",
    distractors: Annotated[
        str | None, typer.Option(help="Sizes. Default: 100,300,500,700,1000.")
    ] = None,
    folds: Annotated[int, typer.Option(help="Folds, by a hash of the session id.")] = 5,
    objective: Annotated[
        str,
        typer.Option(
            metavar="floor|mean",
            help="floor: the worst size's lower 95 % bound of the difference to the best leg (or to"
            " the settings as given); mean: the mean over sizes of recall.",
        ),
    ] = "floor",
    k: Annotated[int, typer.Option("--k", min=1, help="Recall at how many?")] = 1,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the intervals and of random retrievers.")
    ] = 0,
    store: Annotated[
        str | None, typer.Option(help="File of the embedding store, or none, as for task3.sweep.")
    ] = None,
    chat: ChatOptions = DEFAULT_CHAT,
    out: Annotated[Path, typer.Option(help="The settings file to write.")] = Path("tuned.json"),
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the file if it is there.")
    ] = False,
) -> None:
    """Fit settings by cross-validation, and write a file for --set @FILE.

    Prints every candidate, and what the choice is worth on folds that it wasn't made on.
    """
    from recallbed.errors import DataError, UserError
    from recallbed.harness.app import one_line_errors
    from recallbed.harness.configurations import parse_configurations
    from recallbed.harness.files import refuse_output
    from recallbed.harness.options import parse_numbers
    from recallbed.harness.terminal import say

    with one_line_errors(DataError, OSError):
        from indexes.embedding_store import choose_store
        from recallbed.chat_models.session import open_chats
        from recallbed.corpus.material import gather
        from recallbed.corpus.options import STRATEGIES
        from recallbed.harness.plan import checked_plans, print_plans
        from retrievers.base import RunContext
        from task3.grid import parse_grid
        from task3.tuning import OBJECTIVES, tune

        strategies = {name: name for name in STRATEGIES}
        if pools is not None and pools not in strategies:
            raise UserError(f"--pools {pools}: choose one of {', '.join(strategies)}")
        objectives = {name: name for name in OBJECTIVES}
        if objective not in objectives:
            raise UserError(f"--objective {objective}: choose one of {', '.join(objectives)}")
        configurations = parse_configurations(retriever or [], setting or [], allow_code)
        target = _target(label, configurations)
        candidates = parse_grid(grid or [], target, configurations)
        refuse_output(out, overwrite)
        material = gather(
            data,
            split,
            None if pools is None else strategies[pools],
            None if distractors is None else parse_numbers("--distractors", distractors),
            parse_numbers("--pool-seeds", pool_seeds, minimum=0),
        )
        with open_chats(chat) as chats:
            bank = material.data.bank
            run = RunContext(seed, bank, partial(choose_store, store), chats=chats)
            found = tune(
                material, run, configurations, target, candidates, folds, objectives[objective], k
            )
            if chat.dry_run:
                print_plans(checked_plans(chats.plans()))
                return
        table, lines = report(found, k)
        print_tables([table])
        say(*lines)
        _write(out, found, material, configurations, {"objective": objective, "k": k})


def _target(label: str | None, configurations: tuple[Configuration, ...]) -> str:
    from recallbed.errors import UserError

    labels = [one.label for one in configurations]
    if label is None and len(labels) > 1:
        raise UserError(f"--label: whose settings are to be fitted? One of {', '.join(labels)}")
    if label is not None and label not in labels:
        raise UserError(f"--label {label}: no retriever has it (labels: {', '.join(labels)})")
    return label or labels[0]


def report(found: Tuned, k: int) -> tuple[TextTable, list[str]]:
    """The candidates with the choice and its cross-validated worth, and what it gains."""
    sizes = list(found.estimate)
    columns = ("candidate", "objective", "folds", *map(str, sizes), "choice")
    title = f"recall@{k} by distractors, {found.queries} queries"
    table = TextTable(title, columns, texts=("choice",))
    order = sorted(range(len(found.candidates)), key=lambda i: -found.worth[i])
    for i in order[:SHOWN]:
        mark = "<- chosen" if i == found.chosen else ""
        figures = (f"{found.means[i][size]:.4f}" for size in sizes)
        worth, folds = f"{found.worth[i]:+.4f}", found.by_fold.count(i)
        table.add(name(found, i), worth, folds, *figures, mark)
    for other, means in (*found.others.items(), ("cross-validated", found.estimate)):
        table.add(other, "", "", *(f"{means[size]:.4f}" for size in sizes), "")
    lines = []
    if len(order) > SHOWN:
        lines.append(f"... and {len(order) - SHOWN} candidates more")
    if found.failed:
        lines.append(f"{found.failed} queries left out: a candidate or a leg failed on them")
    lines.append("cross-validated: each fold by the choice of the others")
    for other in found.others:
        for size in sizes:
            gap = found.against[size][other]
            lines.append(
                f"cross-validated - {other} at {size}: {gap.difference:+.4f} {gap.interval_text},"
                f" wins {gap.wins}, ties {gap.ties}, losses {gap.losses}"
            )
    return table, lines


def name(found: Tuned, i: int) -> str:
    """A candidate as a user would set it."""
    return " ".join(f"{label}.{key}={v}" for (label, key), v in found.candidates[i].items())


def _write(
    out: Path,
    found: Tuned,
    material: Material,
    configurations: tuple[Configuration, ...],
    how: dict[str, Any],
) -> None:
    from recallbed.harness.fingerprint import code_identity
    from recallbed.harness.settings_file import SettingsFile, write_settings
    from recallbed.harness.terminal import note

    grid: dict[str, list[str]] = {}
    for candidate in found.candidates:
        for (label, key), value in candidate.items():
            values = grid.setdefault(f"{label}.{key}", [])
            if value not in values:
                values.append(value)
    settings: dict[str, dict[str, str]] = {found.label: {}}
    for one in configurations:  # what stays as it is belongs to what was found
        if one.settings:
            settings[one.label] = dict(one.settings)
    for (label, key), value in found.candidates[found.chosen].items():
        settings.setdefault(label, {})[key] = value
    estimate = {
        str(size): {
            "recall": round(found.estimate[size], 6),
            "minus": {
                other: [
                    None if x is None else round(x, 6) for x in (gap.difference, gap.low, gap.high)
                ]
                for other, gap in found.against[size].items()
            },
        }
        for size in found.estimate
    }
    provenance = {
        **material.fingerprint(),
        **how,
        "label": found.label,
        "folds": len(found.by_fold),
        "candidates": len(found.candidates),
        "grid": grid,
        "chosen_by_fold": [name(found, i) for i in found.by_fold],
        "cross_validated": estimate,
        "failed": found.failed,
        "code": code_identity(),
    }
    retrievers = {one.label: one.name for one in configurations}
    rows = material.data.smallest.sha256
    write_settings(out, SettingsFile(retrievers, settings, rows, provenance))
    note(f"{out}: use it with --set @{out}")


if __name__ == "__main__":
    app()
