"""The groups of commands: `slopewise policies` lists, writes and checks; `slopewise dashboards` serves a Grafana."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from slopewise.commands.console import announce, out, print_json, print_result
from slopewise.commands.options import Output, PoliciesFolders


class ListsByDefault(TyperGroup):
    """A group whose command `list` need not be named: `slopewise policies flowcon`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `list` before arguments that begin with no command of the group."""
        known = bool(args) and (args[0] in self.commands or args[0] == "--help")
        return super().parse_args(ctx, args if known else ["list", *args])


policies = typer.Typer(cls=ListsByDefault)


@policies.callback()
def _policies_group() -> None:
    """List the policies, write one of your own, check it against the contract.

    Examples: `slopewise policies`; `slopewise policies flowcon`; `slopewise policies new mine`;
    `slopewise policies check mine.py`.
    """


@policies.command("list")
def list_policies(
    name: Annotated[str | None, typer.Argument(help="Only this one, or the one in this file, in full.")] = None,
    policies_folders: PoliciesFolders = None,
    output: Output = "table",
) -> None:
    """List what each policy is for; of one, its parameters with units, defaults, bounds and sources.

    `list` may be left out. Examples: `slopewise policies`; `slopewise policies flowcon -o json`.
    """
    from slopewise.policy_listing import describe, listing, page

    described = describe(name)
    print_result(described, listing(described) if name is None else page(described[0]), output)


@policies.command("new")
def new_policy(
    name: Annotated[str, typer.Argument(help="Its name, e.g. shortest-first; its file is shortest_first.py.")],
    folder: Annotated[Path, typer.Option(help="Where the file is written.")] = Path(),
) -> None:
    """Write a policy of your own that works, to be changed (docs/own-policies.md says how).

    Example: `slopewise policies new shortest-first`.
    """
    from slopewise.own_policies.template import write_new

    path = write_new(name, folder)
    typer.echo(path)
    named = path if path.is_absolute() else f"./{path}"
    announce(f"Change it, then: slopewise policies check {named}; slopewise simulate flowcon-10 --policy {named}")


@policies.command("check")
def check_policy(
    file: Annotated[Path, typer.Argument(help="A policy's file.")],
    worlds: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many random worlds.")] = 200,
    output: Output = "table",
) -> None:
    """Check a policy against the contract of all policies.

    It must be pure, explained and within bounds, in ordinary and odd worlds. The check executes the file.
    Exit code 1: it breaks the contract; 2: it cannot be loaded. It needs `pip install "slopewise[policies]"`.
    Example: `slopewise policies check ./mine.py`.
    """
    from slopewise.extras import require

    require("hypothesis", "policies", "slopewise policies check needs hypothesis")
    from slopewise.own_policies.check import check_file
    from slopewise.policy_listing import checked

    result = check_file(file, worlds)
    if output == "json":
        print_json(result.as_json())
    else:
        out.print(checked(result), soft_wrap=True)
    raise typer.Exit(0 if result.kept else 1)


dashboards = typer.Typer(help="Grafana dashboards.", no_args_is_help=True)


@dashboards.command("push")
def push(
    url: Annotated[str, typer.Option(envvar="GRAFANA_URL", help="Grafana, e.g. https://grafana.example.org.")],
    token: Annotated[str, typer.Option(envvar="GRAFANA_TOKEN", help="A service account's token.")],
    folder: Annotated[str, typer.Option(help="Folder, made when missing.")] = "Slopewise",
    output: Output = "table",
) -> None:
    """Put the Slopewise dashboards into a Grafana, replacing older versions of them.

    Example: `GRAFANA_TOKEN=… slopewise dashboards push --url https://grafana.example.org`.
    """
    from slopewise.adapters.grafana import push_dashboards

    pushed = push_dashboards(url, token, folder)
    print_result([vars(each) for each in pushed], "\n".join(map(str, pushed)), output)


@dashboards.command("export")
def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Made where it is missing.")],
    output: Output = "table",
) -> None:
    """Write the Slopewise dashboards into a folder, with a provider for Grafana's provisioning.

    Example: `slopewise dashboards export /var/lib/grafana/slopewise`. Copy `slopewise-provider.yaml` into Grafana's
    folder `provisioning/dashboards`.
    """
    from slopewise.adapters.grafana import export_dashboards

    written = [str(path) for path in export_dashboards(folder)]
    print_result(written, "\n".join(written), output)
