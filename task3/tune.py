"""`python -m task3.tune --label hybrid --retriever hybrid --out tuned.json`: fitted settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recallbed.harness.app import App
from recallbed.harness.options import only_one
from recallbed.harness.run_options import Overwrite
from recallbed.harness.text_table import TextTable, print_tables
from task3.options import TuneOptions

if TYPE_CHECKING:
    from recallbed.corpus.material import Material
    from recallbed.harness.configurations import Configuration
    from task3.tuning import Tuned

app = App()
SHOWN = 30


@app.command(
    examples=(
        "recallbed tune --retriever bm25 --out tuned.json",
        "recallbed tune --retriever hybrid --grid hybrid.depth=20/50 --objective mean",
    )
)
def tune_command(
    options: TuneOptions,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Settings file to write.")] = Path(
        "tuned.json"
    ),
    overwrite: Overwrite = False,
) -> None:
    """Fit a retriever's settings by cross-validation.

    Writes a file for --set @FILE, and prints every candidate and the recall of the choice on folds
    that it was not made on. Settings given with --set are kept.
    """
    from recallbed.chat_models.session import open_chats
    from recallbed.corpus.material import gather
    from recallbed.harness.files import refuse_output
    from recallbed.harness.plan import checked_plans, print_plans
    from recallbed.harness.terminal import say
    from retrievers.registry import build_retrievers
    from retrievers.unseen import only_unseen
    from task3.tuning import configured, parse_grid, tune

    retrievers, pools, k = options.retrievers, options.pools, only_one("--k", options.ks)
    configurations, label = retrievers.configurations, retrievers.chosen
    candidates = parse_grid(options.grid, label, configurations)
    refuse_output(out, overwrite)
    data = options.data
    material = gather(
        data.data, data.split, pools.pools, pools.distractors, pools.pool_seeds, data.limit
    )
    with open_chats(options.chat) as chats:
        run = retrievers.context(options.seed, material.data.bank, chats)
        built = (
            (label, build_retrievers(configured(configurations, one), run)[label])
            for one in candidates
        )
        material = only_unseen(material, built, retrievers.unseen)
        found = tune(
            *(material, run, configurations, label, candidates),
            *(options.folds, options.objective, k),
        )
        if options.chat.dry_run:
            print_plans(checked_plans(chats.plans()))
            return
    table, lines = tuning_table(found, k)
    print_tables([table])
    say(*lines)
    _write(out, found, material, configurations, {"objective": options.objective, "k": k})


def tuning_table(found: Tuned, k: int) -> tuple[TextTable, list[str]]:
    """Return the table of candidates with the choice, and lines on its cross-validated gain."""
    sizes = list(found.estimate)
    columns = ("candidate", "objective", "folds", *map(str, sizes), "choice")
    title = f"recall@{k} by distractors, {found.queries} queries"
    table = TextTable(title, columns, texts=("choice",))
    order = sorted(range(len(found.candidates)), key=lambda i: -found.worth[i])
    for i in order[:SHOWN]:
        mark = "<- chosen" if i == found.chosen else ""
        figures = (f"{found.means[i][size]:.4f}" for size in sizes)
        worth, folds = f"{found.worth[i]:+.4f}", found.by_fold.count(i)
        table.add(candidate_name(found, i), worth, folds, *figures, mark)
    for other, means in (*found.others.items(), ("cross-validated", found.estimate)):
        table.add(other, "", "", *(f"{means[size]:.4f}" for size in sizes), "")
    lines = []
    if len(order) > SHOWN:
        lines.append(f"... and {len(order) - SHOWN} more candidates")
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


def candidate_name(found: Tuned, i: int) -> str:
    """Return a candidate in the form of --set."""
    return " ".join(f"{label}.{key}={v}" for (label, key), v in found.candidates[i].items())


def _write(
    out: Path,
    found: Tuned,
    material: Material,
    configurations: tuple[Configuration, ...],
    how: dict[str, Any],
) -> None:
    from recallbed.harness.configurations import SettingsFile, write_settings
    from recallbed.harness.fingerprint import code_identity
    from recallbed.harness.terminal import note

    grid: dict[str, list[str]] = {}
    for candidate in found.candidates:
        for (label, key), value in candidate.items():
            values = grid.setdefault(f"{label}.{key}", [])
            if value not in values:
                values.append(value)
    settings: dict[str, dict[str, str]] = {found.label: {}}
    for one in configurations:  # unchanged settings are part of the result
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
        "chosen_by_fold": [candidate_name(found, i) for i in found.by_fold],
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
