"""`python -m replication`: run every published setting, write papers.md and its pictures, and docs/which-policy.md.

`--seeds 24 --workers 2` is what `make replicate` runs; `--only NAME` prints one setting and writes nothing.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown
from rich.progress import Progress

from replication import which_policy
from replication.page import page
from replication.plots import draw_all
from replication.run import SETTINGS, run_settings
from replication.validation import section

HERE = Path(__file__).resolve().parent


def main(
    seeds: Annotated[int, typer.Option(min=2, help="Seeds a setting; 2 or more, for an interval.")] = 24,
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = os.cpu_count() or 1,
    only: Annotated[list[str] | None, typer.Option(help="Only this setting; print it, write nothing.")] = None,
) -> None:
    """Run the published settings and write replication/papers.md."""
    err = Console(stderr=True)
    names = only or list(SETTINGS)
    if unknown := sorted(set(names) - SETTINGS.keys()):
        err.print(f"--only {unknown[0]}: there is no such setting; use one of {', '.join(SETTINGS)}.")
        raise typer.Exit(2)
    start = time.monotonic()
    with Progress(console=err) as progress:
        bar = progress.add_task("settings x seeds", total=len(names) * seeds)
        results = run_settings(names, range(1, seeds + 1), workers, lambda name: progress.advance(bar))
    if only:
        Console().print(Markdown(page(results, {}, "")))
    else:
        pictures = draw_all(results, HERE / "images")
        (HERE / "papers.md").write_text(page(results, pictures, section()), encoding="utf-8")
        which_policy.write(workers)
    err.print(f"{len(results)} settings, {seeds} seeds each, {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    typer.run(main)
