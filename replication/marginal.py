"""Writes `replication/marginal-figures.md`: what the policy `marginal` gives in the simulator, beside other policies.

Its long tables are in `marginal_figures/tables.md`.

`python -m replication.marginal --section NAME` runs one setting over seeds that nothing was tuned on, keeps its figures
(`marginal_figures/NAME.json`), and writes the page from all that is kept. Without `--section` it runs all of them, an
hour on one core; with `--render` none. `--policy marginal` runs that policy alone again, and keeps the others' figures.
The workloads of Pollux need `--external`, the folder that `python -m replication.pollux` has written.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from replication import marginal_published
from replication.marginal_page import TABLES, page, tables
from replication.marginal_runs import KEPT, WORST, Kept, load, run, save
from replication.marginal_settings import SETTINGS, Setting
from replication.plots import draw_trade

PAGE = Path(__file__).with_name("marginal-figures.md")

NAMES = [*(setting.name for setting in SETTINGS), marginal_published.NAME]


PICTURED = ("one-node", "four-nodes-20")


def rendered(folder: Path = KEPT) -> tuple[str, str]:
    """The short page and the long tables, from all that is kept."""
    kept = {setting.name: found for setting in SETTINGS if (found := load(setting.name, folder)) is not None}
    return page(SETTINGS, kept), tables(SETTINGS, kept, marginal_published.load(folder))


def write() -> None:
    """Write the page, its picture and the tables from all that is kept."""
    for path, text in zip((PAGE, PAGE.parent / TABLES), rendered(), strict=True):
        path.write_text(text, encoding="utf-8")
    panels = {
        each.title: found for each in SETTINGS if each.name in PICTURED and (found := load(each.name)) is not None
    }
    draw_trade(panels, "jct_mean_seconds", WORST, PAGE.parent / "images" / "marginal-figures.svg")


def main(
    *,
    section: Annotated[list[str] | None, typer.Option(help="Only this setting; may be repeated.")] = None,
    policy: Annotated[list[str] | None, typer.Option(help="Only this policy, beside what is kept of others.")] = None,
    seeds: Annotated[int | None, typer.Option(min=2, help="Seeds a setting; default: its own, 24 of most.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    out: Annotated[Path, typer.Option(help="Where the figures are kept.")] = KEPT,
    external: Annotated[Path | None, typer.Option(help="Scenarios that are no part of the project.")] = None,
    render: Annotated[bool, typer.Option("--render", help="Run nothing; write the page from what is kept.")] = False,
) -> None:
    """Simulate the figures of the page, and write replication/marginal-figures.md."""
    err = Console(stderr=True)
    if unknown := sorted(set(section or ()) - set(NAMES)):
        err.print(f"--section {unknown[0]}: there is no such section; use one of {', '.join(NAMES)}.")
        raise typer.Exit(2)
    chosen = [] if render else [each for each in SETTINGS if each.name in (section or NAMES)]
    for setting in chosen:
        if setting.external and external is None and not section:
            err.print(f"{setting.name}: left out, without --external")
            continue
        try:
            kept = _run(setting, policy or (), seeds, workers, out, external)
        except ValueError as error:
            err.print(f"{setting.name}: {error}.")
            raise typer.Exit(2) from error
        err.print(f"wrote {save(setting.name, kept, out)}")
    if not render and marginal_published.NAME in (section or NAMES):
        asked = range(1, (seeds or marginal_published.SEEDS) + 1)
        err.print(f"wrote {marginal_published.save(marginal_published.run(asked, workers), asked, out)}")
    if out == KEPT:
        write()
        err.print(f"wrote {PAGE.name}")


def _run(
    setting: Setting, policies: Sequence[str], seeds: int | None, workers: int, out: Path, external: Path | None
) -> Kept:
    asked = range(1, (seeds or setting.seeds) + 1)
    before = load(setting.name, out)
    again = [each for each in setting.policies if each in policies]
    if policies and before is not None and not again:
        return before
    newer = run(setting, asked, workers, external, again)
    return newer if not again or before is None else before.merged(newer)


if __name__ == "__main__":
    typer.run(main)
