"""`slopewise dashboards`: puts the Grafana dashboards into a Grafana, or into a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slopewise.commands.console import print_result
from slopewise.commands.options import Output, OutputFormat

dashboards = typer.Typer(help="Grafana dashboards.", no_args_is_help=True)


@dashboards.command("push")
def push(
    url: Annotated[str, typer.Option(envvar="GRAFANA_URL", help="Grafana, e.g. https://grafana.example.org.")],
    token: Annotated[str, typer.Option(envvar="GRAFANA_TOKEN", help="A service account's token.")],
    folder: Annotated[str, typer.Option(help="Folder, made when missing.")] = "Slopewise",
    output: Output = OutputFormat.table,
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
    output: Output = OutputFormat.table,
) -> None:
    """Write the Slopewise dashboards into a folder, with a provider for Grafana's provisioning.

    Example: `slopewise dashboards export /var/lib/grafana/slopewise`. Copy `slopewise-provider.yaml` into Grafana's
    folder `provisioning/dashboards`.
    """
    from slopewise.adapters.grafana import export_dashboards

    written = [str(path) for path in export_dashboards(folder)]
    print_result(written, "\n".join(written), output)
