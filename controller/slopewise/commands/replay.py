"""`slopewise replay`: decides the passes of a record again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slopewise.commands.console import announce, err, out, print_json
from slopewise.commands.options import Output, OutputFormat, PoliciesFolders
from slopewise.errors import UsageError


def replay(
    file: Annotated[Path, typer.Argument(help="A decision record, as `slopewise run --record` writes it.")],
    policy: Annotated[
        str | None,
        typer.Option(hidden=True, help="There is no such option any more."),
    ] = None,
    policies_folders: PoliciesFolders = None,
    output: Output = OutputFormat.table,
) -> None:
    """Decide the passes of a record again. Exit code 1: a pass decided something else than was recorded.

    Example: `slopewise replay records/default.jsonl`.
    """
    from slopewise.operate import replay as replaying
    from slopewise.reports.wording import plain

    if policy is not None:
        raise UsageError(
            "--policy: a record is replayed with its own policy only; `slopewise simulate --policy` compares policies."
        )
    with err.status("replaying") as status:
        whole = replaying.replay_file(file, announce, lambda passes: status.update(f"{passes} passes"))
    if output is OutputFormat.json:
        print_json(replaying.as_json(whole))
    else:
        out.print(replaying.summary(whole), markup=False, highlight=False, soft_wrap=True)
        for line in replaying.differences(whole):
            out.print(plain(line), markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(0 if whole.is_same else 1)
