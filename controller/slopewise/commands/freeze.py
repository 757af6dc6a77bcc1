"""`slopewise freeze` and `slopewise unfreeze`: stop changes of some or of all jobs of a cluster, and let them go on."""

from __future__ import annotations

from contextlib import closing
from enum import StrEnum
from typing import Annotated

import typer

from slopewise.commands.console import out, print_json
from slopewise.commands.options import Kubeconfig, KubeContext, Output, OutputFormat
from slopewise.errors import UsageError


class Effect(StrEnum):
    """What a freeze does, as its `spec.effect` has it."""

    Freeze = "Freeze"
    Recommend = "Recommend"


Scope = Annotated[
    str, typer.Argument(metavar="SCOPE", help="all, namespace/NAME, node/NAME or policy/NAME.", show_default=False)
]


def freeze(
    scope: Scope,
    lasts: Annotated[str, typer.Option("--for", help="How long, such as 1h, 90m or 2d.")] = "1h",
    reason: Annotated[str, typer.Option(help="Why, for those who find it.", show_default=False)] = "",
    effect: Annotated[
        Effect, typer.Option(help="Freeze: no change at all. Recommend: as the mode, originals are restored.")
    ] = Effect.Freeze,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
    output: Output = OutputFormat.table,
) -> None:
    """Stop changes of all jobs, or of those of a namespace, a node or a policy, until `unfreeze` or for a time.

    Examples: `slopewise freeze namespace/team-a --for 2h --reason "load test"`; `slopewise freeze all`.
    """
    from slopewise.adapters.kube.connection import Connection, connect
    from slopewise.config.freeze import parse_scope
    from slopewise.config.quantities import duration_seconds
    from slopewise.operate.freeze import MAX_FOR_SECONDS, freeze_by_hand

    parsed, seconds = parse_scope(scope), duration_seconds(lasts)
    if seconds is None or not 1 <= seconds <= MAX_FOR_SECONDS:
        raise UsageError(f"--for {lasts!r} is not a time from 1s to 366d; write it like 1h, 90m or 2d.")
    with closing(connect(Connection(kubeconfig, context))) as api:
        made = freeze_by_hand(api, parsed, seconds, reason, effect.value)
    if output is OutputFormat.json:
        print_json(made.as_json())
    else:
        out.print(made.sentence, markup=False, highlight=False, soft_wrap=True)


def unfreeze(
    scope: Scope,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
    output: Output = OutputFormat.table,
) -> None:
    """Delete all Freezes of a scope, also those of others; exit 1 where there is none.

    One that an alert made comes back while the alert fires: silence it first. Example:
    `slopewise unfreeze namespace/team-a`.
    """
    from slopewise.adapters.kube.connection import Connection, connect
    from slopewise.config.freeze import parse_scope
    from slopewise.operate.freeze import unfreeze as delete_all
    from slopewise.reports.wording import plain

    parsed = parse_scope(scope)
    with closing(connect(Connection(kubeconfig, context))) as api:
        deleted = delete_all(api, parsed)
    if output is OutputFormat.json:
        print_json({"deleted": deleted})
    elif deleted:
        out.print(plain(f"unfrozen: {', '.join(deleted)}"), markup=False, highlight=False, soft_wrap=True)
    else:
        out.print(plain(f"there is no Freeze of {scope}"), markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(0 if deleted else 1)
