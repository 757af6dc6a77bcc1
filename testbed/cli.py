"""The commands of `python -m testbed`. Data goes to stdout, messages and progress to stderr.

Each command reads what the user gave and hands over; `docs/testbed.md` describes them with examples.
"""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from slopewise.errors import UsageError
from testbed import cluster, images, modules, report, session, simulated
from testbed.faults import Faults
from testbed.progress import Progress
from testbed.settings import NODES, read_settings

app = typer.Typer(
    name="testbed",
    help="A real Kubernetes cluster on this machine, without Docker, for the controller's tests.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


class OutputFormat(StrEnum):
    """How data is printed."""

    table = "table"
    json = "json"


class Fault(StrEnum):
    """What is done to a component."""

    stop = "stop"
    resume = "resume"
    kill = "kill"
    start = "start"
    restart = "restart"


@app.command()
def up(
    scrape_interval_seconds: Annotated[float, typer.Option(help="How often Prometheus asks pods and kubelets.")] = 5.0,
) -> None:
    """Build what is missing, start everything, and print how to reach it."""
    settings = read_settings(scrape_interval_seconds=scrape_interval_seconds)
    progress = Progress()
    was_down = cluster.up(settings, progress)
    names = ", ".join(f"{node.name} ({node.cpus} CPU)" for node in NODES)
    state = "is up" if was_down else "was up already"
    progress.say(
        f"Kubernetes {settings.kubernetes_version} {state}: nodes {names}, Prometheus {settings.prometheus_url}"
    )
    progress.say(f"Next: {settings.kubectl} get nodes, make test-cluster; end it with make cluster-down.")
    typer.echo(f"export KUBECONFIG={settings.kubeconfig}")


@app.command()
def down() -> None:
    """End everything and leave nothing behind but the cache of built programs."""
    was_up = cluster.down(read_settings())
    Progress().say("The test-bed is down." if was_up else "No test-bed is up; nothing to do.")


@app.command()
def status(
    output: Annotated[OutputFormat, typer.Option("--output", "-o", help="A table or JSON.")] = OutputFormat.table,
) -> None:
    """Show every component with its pid; exit code 1 when one of them is not running."""
    processes = cluster.running(read_settings())
    reports = report.look(processes)
    if output is OutputFormat.json:
        typer.echo(json.dumps(report.as_json(reports), indent=1))
    else:
        Console().print(report.as_table(reports))
        typer.echo(f"Logs: {processes.log('NAME')}")
    if any(one.life != "running" for one in reports):
        raise typer.Exit(1)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def run(context: typer.Context) -> None:
    """Run a command (after --) with KUBECONFIG set: that of the environment, or a test-bed started for it."""
    if not context.args:
        raise UsageError("run: no command given; write it after --, e.g. `run -- pytest tests/cluster`.")
    raise typer.Exit(session.run_with_cluster(read_settings(), context.args, Progress()))


@app.command("load-image")
def load_image(
    archives: Annotated[list[Path], typer.Argument(help="What `docker save` or `buildah push docker-archive:` wrote.")],
) -> None:
    """Bring images into both nodes; pods then name them with imagePullPolicy: Never."""
    settings = read_settings()
    for name in images.load(settings, Path(cluster.running(settings).state.ctr), archives):
        typer.echo(name)


@app.command()
def fault(
    what: Annotated[Fault, typer.Argument(help="stop lets it hang, kill crashes it.")],
    name: Annotated[str, typer.Argument(help="A component (see status), or a node, e.g. node-b.")],
) -> None:
    """Disturb one component or node: stop, resume, kill, start, restart."""
    faults = Faults(read_settings())
    act = {
        Fault.stop: faults.stop,
        Fault.resume: faults.resume,
        Fault.kill: faults.kill,
        Fault.start: faults.start,
        Fault.restart: faults.restart,
    }[what]
    act(name)


@app.command()
def kwok(
    nodes: Annotated[int, typer.Option(help="How many nodes.")] = 200,
    pods: Annotated[int, typer.Option(help="How many pods, spread evenly.")] = 5000,
    down: Annotated[bool, typer.Option("--down", help="Remove them all instead.")] = False,
) -> None:
    """Simulate nodes and pods beside the real ones, in the namespace slopewise-simulated."""
    settings = read_settings()
    if down:
        simulated.take_down(settings)
    else:
        simulated.bring_up(settings, nodes, pods, Progress())


@app.command()
def build() -> None:
    """Build all programs and images into the cache, and start nothing."""
    cluster.bring_all(read_settings(), Progress())


@app.command()
def module(version: Annotated[str, typer.Argument(help="A release of Kubernetes, e.g. 1.35.4.")]) -> None:
    """Write the Go module for another release of Kubernetes, to be committed."""
    typer.echo(modules.write(version))
