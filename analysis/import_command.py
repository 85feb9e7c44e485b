"""The command behind `python -m analysis.import`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from recallbed.harness.app import App

app = App()


def by_size(words: Sequence[str], sizes: Sequence[int]) -> dict[int, Path]:
    """`["100=a.run", "300=b.run"]` as files by size; a bare file name where there is one size.

    Raises UserError for a size without a file, or a file without a size.
    """
    from recallbed.errors import UserError

    if len(words) == len(sizes) == 1 and not re.match(r"\d+=", words[0]):
        return {sizes[0]: Path(words[0])}
    by_name = {str(size): size for size in sizes}
    files: dict[int, Path] = {}
    for word in words:
        number, equals, name = word.partition("=")
        size = by_name.get(number, 0)
        if not (equals and name and size):
            raise UserError(
                f"{word}: write SIZE=FILE, SIZE being one of {', '.join(map(str, sizes))}"
            )
        if size in files:
            raise UserError(f"{word}: there are two files for {size} distractors")
        files[size] = Path(name)
    missing = [size for size in sizes if size not in files]
    if missing:
        raise UserError(f"no file for {missing[0]} distractors. Give {missing[0]}=FILE")
    return files


@app.command()
def command(
    files: Annotated[
        list[str], typer.Argument(metavar="[SIZE=]FILE", help="One file a pool size.")
    ],
    label: Annotated[str, typer.Option(help="What the system is called in tables.")],
    out: Annotated[Path, typer.Option(help="Run folder to write.")],
    kind: Annotated[
        str, typer.Option("--format", metavar="trec|predictions", help="What the files are.")
    ] = "trec",
    data: Annotated[
        Path | None,
        typer.Option(help="Release or .jsonl of the pools. Default: the embedded sample."),
    ] = None,
    split: Annotated[str, typer.Option(help="Which split of it.")] = "dev",
    pools: Annotated[
        str | None,
        typer.Option(metavar="nested|released|as-released", help="How its pools were made."),
    ] = None,
    pool_seed: Annotated[int, typer.Option(min=0, help="The seed of the pools.")] = 0,
    distractors: Annotated[
        str | None, typer.Option(help="The sizes. Default: those of task3.sweep.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N queries.")] = None,
    k: Annotated[
        str | None,
        typer.Option("--k", help="Recall at how many? Default: 1,5,10; 1 of predictions."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the intervals.")] = 0,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the run in --out.")
    ] = False,
) -> None:
    """Take other people's TREC runs or official predictions into a run folder.

    Documents of a TREC run are named as `python -m analysis.export --what pools` names them.
    """
    from recallbed.errors import DataError, UserError
    from recallbed.harness.cli import one_line_errors
    from recallbed.harness.configurations import parse_configurations, parse_numbers

    with one_line_errors(DataError, OSError):
        from analysis.curves import draw_run
        from analysis.importing import Imported, import_run
        from analysis.tables import print_table
        from recallbed.corpus.material import gather
        from recallbed.corpus.pools import STRATEGIES

        strategies = {name: name for name in STRATEGIES}
        if pools is not None and pools not in strategies:
            raise UserError(f"--pools {pools}: choose one of {', '.join(strategies)}")
        if kind not in ("trec", "predictions"):
            raise UserError(f"--format {kind}: choose trec or predictions")
        parse_configurations([f"{label}=imported"], [])  # says what a label may look like
        sizes = None if distractors is None else parse_numbers("--distractors", distractors)
        strategy = None if pools is None else strategies[pools]
        material = gather(data, split, strategy, sizes, (pool_seed,), limit)
        system = Imported(label, kind, by_size(files, material.sizes), seed)
        ks = parse_numbers("--k", k or ("1,5,10" if kind == "trec" else "1"))
        summary = import_run(system, material, out, ks, "overwrite" if overwrite else "refuse")
        draw_run(out, ks)
        print_table(out, summary)


def main() -> None:
    """Entry point of the console script."""
    app()


if __name__ == "__main__":
    main()
