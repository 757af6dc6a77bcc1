"""`python -m testbed.histories FOLDER`: the contradictions in a history; exit code 1 where there is one."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from slopewise.errors import SlopewiseError
from testbed.cli import OutputFormat
from testbed.histories.check import contradictions
from testbed.histories.reading import read

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def check(
    folder: Annotated[Path, typer.Argument(help="With audit*, records/*.jsonl, cgroups* and */diary.")],
    output: Annotated[OutputFormat, typer.Option("--output", "-o", help="A table or JSON.")] = OutputFormat.table,
    *,
    settled: Annotated[bool, typer.Option("--settled", help="Nothing was under way at the end.")] = False,
) -> None:
    """Check one history: each contradiction with the events that show it."""
    events = read(folder)
    found = contradictions(events, settled=settled)
    counts = Counter(type(event).__name__.lower() for event in events)
    if output is OutputFormat.json:
        shown = [{"rule": each.rule, "message": each.message, "events": list(map(str, each.events))} for each in found]
        typer.echo(json.dumps({"events": counts, "contradictions": shown}, indent=1))
    else:
        said = ", ".join(f"{number} {kind}s" for kind, number in sorted(counts.items()))
        typer.echo("\n".join([*map(str, found), f"{said}: {len(found) or 'no'} contradictions"]))
    raise typer.Exit(bool(found))


def main() -> None:
    """Run it; an expected error ends it with one message and its exit code."""
    try:
        app()
    except SlopewiseError as error:
        print(f"histories: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
