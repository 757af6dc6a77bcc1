"""`slopewise replay`: decides the passes of a record again, or asks another policy what it would have decided."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slopewise.commands.console import announce, err, out, print_json
from slopewise.commands.options import Output, OutputFormat, PoliciesFolders, complete_runnable_policy


def replay(
    file: Annotated[Path, typer.Argument(help="A decision record, as `slopewise run --record` writes it.")],
    policy: Annotated[
        str | None,
        typer.Option(
            help="Another policy, or its file: what would it have decided?", autocompletion=complete_runnable_policy
        ),
    ] = None,
    policies_folders: PoliciesFolders = None,
    output: Output = OutputFormat.table,
) -> None:
    """Decide the passes of a record again. Exit code 1: a pass decided something else than was recorded.

    Examples: `slopewise replay records/default.jsonl`; `slopewise replay records/default.jsonl --policy marginal`.
    """
    from slopewise.decision_record import comparison
    from slopewise.reports.wording import plain

    with err.status("replaying") as status:
        whole = comparison.replay_file(file, policy, announce, lambda passes: status.update(f"{passes} passes"))
    if output is OutputFormat.json:
        print_json(comparison.as_json(whole))
    else:
        out.print(comparison.summary(whole), markup=False, highlight=False, soft_wrap=True)
        for line in comparison.differences(whole):
            out.print(plain(line), markup=False, highlight=False, soft_wrap=True)
        if whole.policy is not None:
            out.print(comparison.table(whole, out.width))
    raise typer.Exit(0 if whole.is_same else 1)
