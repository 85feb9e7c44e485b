"""`python -m memory_systems.install NAME`: install an external memory system."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recallbed.harness.app import App
from recallbed.harness.options import AsJson

app = App()


@app.command(
    on_stop="the system is not installed; run the command again",
    examples=("recallbed install-system", "recallbed install-system mem0"),
)
def install_system(
    name: Annotated[
        str | None, typer.Argument(help="System to install. Default: list all systems.")
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Clone of a system that is run from its source."),
    ] = None,
    python: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="Python of the environment. Default: this one if it fits."
        ),
    ] = None,
    if_missing: Annotated[
        bool, typer.Option("--if-missing", help="Keep an environment that is complete.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Install an external memory system in an environment of its own.

    The environment is a folder in $RECALLBED_SYSTEMS, by default in the user's cache folder. Its
    packages have fixed versions and come from the registry that pip uses. An environment that
    exists is replaced.
    """
    import json
    from dataclasses import asdict

    from memory_systems.external.catalogue import EXTERNAL, external_spec
    from memory_systems.external.environments import install, installed
    from recallbed.errors import UserError
    from recallbed.harness.terminal import note, say, say_json
    from recallbed.harness.text_table import TextTable, print_tables

    if name is not None:
        spec = external_spec(name)
        new = (if_missing and installed(spec)) or install(spec, python, source, note)
        if as_json:
            say_json(json.dumps(asdict(new)))
        else:
            figures = f"{new.megabytes} MB in {new.seconds:.0f} s, checksum {new.checksum[:16]}"
            say(f"{name} {new.version}: {figures}")
        return
    if source or python or if_missing:
        raise UserError("--source, --python and --if-missing need the name of a system")
    found = {spec.name: installed(spec) for spec in EXTERNAL.values()}
    if as_json:
        say_json(json.dumps({key: made and asdict(made) for key, made in found.items()}))
        return
    columns = ("system", "version", "licence", "installed", "content")
    table = TextTable("External memory systems", columns, texts=columns)
    for spec in EXTERNAL.values():
        made = found[spec.name]
        size = f"{made.megabytes} MB" if made else "no"
        table.add(spec.name, spec.version, spec.licence, size, spec.title)
    print_tables([table])


if __name__ == "__main__":
    app()
