"""The commands. Data goes to stdout, messages and progress to stderr.

Exit codes: 0 ok, 1 error, 2 usage, 4 data source unreachable, 128 + signal when stopped before the work was done (the
controller of a cluster has no end of its own: stopped in an orderly way it says 0). Commands are thin: each reads
what the user gave, checks all of it before anything starts, and hands over.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import structlog
import typer
from rich.console import Console
from typer.core import TyperGroup

from controller import __version__, log_lines
from controller.command_options import given, refuse, refuse_beside
from controller.errors import SlopewiseError, UsageError
from controller.interrupts import Interrupted, orderly_stop

if TYPE_CHECKING:
    from controller.local_run import LocalRunOptions

app = typer.Typer(
    name="slopewise",
    help="Gives CPU to the training jobs whose loss is still falling.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
dashboards = typer.Typer(help="Grafana dashboards.", no_args_is_help=True)
app.add_typer(dashboards, name="dashboards")


class ListsByDefault(TyperGroup):
    """A group whose command `list` need not be named: `slopewise policies flowcon`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `list` before arguments that begin with no command of the group."""
        known = bool(args) and (args[0] in self.commands or args[0] == "--help")
        return super().parse_args(ctx, args if known else ["list", *args])


policies = typer.Typer(cls=ListsByDefault)
app.add_typer(policies, name="policies")

out = Console()
err = Console(stderr=True)


class OutputFormat(StrEnum):
    """How data is printed."""

    table = "table"
    json = "json"


class SweepFormat(StrEnum):
    """How the figures of a sweep are printed."""

    table = "table"
    json = "json"
    csv = "csv"


class ActuatorOption(StrEnum):
    """How CPU is given on this machine."""

    auto = "auto"
    cgroup = "cgroup"
    duty_cycle = "duty-cycle"


class ControlOption(StrEnum):
    """Which side of CPU is changed."""

    limits = "limits"
    requests = "requests"


class WorkloadOption(StrEnum):
    """Which jobs the demo runs."""

    trainings = "trainings"
    served = "served"
    deadlines = "deadlines"
    targets = "targets"
    uneven = "uneven"


def _policies(incomplete: str) -> list[str]:
    """Policies that begin so, for completion."""
    from controller.own_policies.catalogue import names

    return [name for name in names() if name.startswith(incomplete)]


def _runnable_policies(incomplete: str) -> list[str]:
    """The same, without those that only the simulator can run."""
    from controller.policies import find, names

    simulated = {name.replace("_", "-") for name in names() if find(name).simulator_only}
    return [name for name in _policies(incomplete) if name not in simulated]


def _scenarios(incomplete: str) -> list[str]:
    """Shipped scenarios that begin so, for completion; a shell adds the files by itself where none does."""
    from controller.simulator.scenario import shipped

    return [name for name in shipped() if name.startswith(incomplete)]


Output = Annotated[OutputFormat, typer.Option("--output", "-o", help="Print a table or one JSON object.")]
JobsFile = Annotated[
    Path | None, typer.Option("--jobs", help="YAML list of {name, command, …} (docs/jobs-file.md); -: standard input.")
]
PolicyFile = Annotated[Path | None, typer.Option("--policy-file", help="A TrainingPolicy document.")]
PrometheusUrl = Annotated[
    str | None,
    typer.Option(
        envvar="PROMETHEUS_URL",
        help="The Prometheus that scrapes the trainers. With --local, where only the option counts and not the "
        "variable, else one is started.",
    ),
]
PrometheusConfig = Annotated[
    Path | None,
    typer.Option(help="Credentials, TLS, headers and proxy for it: a file with an http_config as Prometheus has it."),
]
Kubeconfig = Annotated[
    Path | None,
    typer.Option(help="How to reach the cluster; else as the pod's account, by KUBECONFIG, or by ~/.kube/config."),
]
KubeContext = Annotated[str | None, typer.Option("--context", help="Context of the kubeconfig; else its current one.")]
OneNamespace = Annotated[
    str | None, typer.Option("--namespace", help="Only this namespace of the cluster, with no right beyond it.")
]
LeaseNamespace = Annotated[
    str | None,
    typer.Option(envvar="POD_NAMESPACE", help="Where the controllers' Lease is; else --namespace or slopewise-system."),
]
Actuator = Annotated[ActuatorOption, typer.Option(help="cgroup quotas and weights, or stop-and-continue.")]


def _use_folders(folders: list[Path] | None) -> list[Path] | None:
    if folders:
        from controller.own_policies.catalogue import use_folders

        use_folders(folders)
    return folders


PoliciesFolders = Annotated[
    list[Path] | None,
    typer.Option(
        "--policies-dir",
        callback=_use_folders,
        help="A folder with policies of your own, also SLOPEWISE_POLICIES; one option each.",
    ),
]


NO_PROMETHEUS = (
    "no Prometheus is named; add --prometheus-url http://HOST:9090, or set PROMETHEUS_URL (in a pod, by "
    "the ConfigMap slopewise-settings); or manage this machine with --local --jobs FILE."
)


_JSON_LOGS = "--json-logs"
_REFUSED: type[Exception] = typer.BadParameter.__mro__[2]
"""What the command line library raises of options that it cannot read: the base of its UsageError."""


def announce(message: str) -> None:
    """One line to the user, on stderr; foreign text is never taken for markup."""
    with suppress(OSError, ValueError):  # a terminal that was closed is no reason to stop
        if _wants_json():
            log_lines.announce(message)
        else:
            err.print(message, markup=False, highlight=False, soft_wrap=True)


def _wants_json() -> bool:
    """Asked of the command line itself, since it may be what cannot be read."""
    return _JSON_LOGS in sys.argv[1:]


def _announce_failure(message: str, exit_code: int) -> None:
    if _wants_json():
        log_lines.announce_failure(message, exit_code)
    else:
        announce(f"slopewise: {message}")


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """What holds for every command."""


@app.command()
def demo(
    call: typer.Context,
    policy: Annotated[
        str | None,
        typer.Option(
            help="The policy to compare with fair sharing: flowcon, see `slopewise policies`, or ./mine.py.",
            autocompletion=_runnable_policies,
        ),
    ] = None,
    compare: Annotated[
        list[str] | None,
        typer.Option(help="Further policies, one option each.", autocompletion=_runnable_policies),
    ] = None,
    jobs: JobsFile = None,
    workload: Annotated[
        WorkloadOption | None, typer.Option(help="Which built-in jobs; else those that fit the first policy.")
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(min=1, help="Split this machine's cores into so many nodes; policies that place: 2.")
    ] = None,
    policy_file: PolicyFile = None,
    policies_folders: PoliciesFolders = None,
    control: Annotated[ControlOption | None, typer.Option(help="limits are hard, requests are shares.")] = None,
    interval: Annotated[float | None, typer.Option(min=4, max=3600, help="Seconds between two looks.")] = None,
    scale: Annotated[float, typer.Option(min=0.01, max=10, help="Length of the built-in jobs.")] = 1.0,
    repeat: Annotated[
        int, typer.Option(min=1, max=100, help="Rounds, in alternating order; figures then have intervals.")
    ] = 1,
    actuator: Actuator = ActuatorOption.auto,
    report: Annotated[Path | None, typer.Option(help="Write one self-contained HTML file.")] = None,
    output: Output = OutputFormat.table,
) -> None:
    """Run real trainings or served models on this machine, first unmanaged, then under a policy, and compare.

    Examples: `slopewise demo --report demo.html`; `slopewise demo --policy dqoes`; `slopewise demo --jobs mine.yaml`.
    """
    if jobs is not None:
        refuse(call, ("--scale",), "is for the built-in jobs; leave it or --jobs out")
    if policy_file is not None:
        refuse(call, ("--compare",), f"and --policy-file contradict each other; write it into {policy_file}")
    from controller.demo.command import DemoOptions, run_demo  # heavy imports only where they are needed
    from controller.demo.comparison import as_json
    from controller.demo.report import write_report
    from controller.demo.table import comparison

    options = DemoOptions(
        policies=[*([] if policy is None else [policy]), *(compare or [])],
        jobs_file=jobs,
        policy_file=policy_file,
        control=None if control is None else control.value,
        interval_seconds=interval,
        scale=scale,
        actuator=actuator.value,
        report=report,
        nodes=nodes,
        workload=None if workload is None else workload.value,
        repeat=repeat,
    )
    with orderly_stop(announce):
        result = run_demo(options, err, announce)
    if output is OutputFormat.json:
        print_json(as_json(result))
    else:
        out.print(comparison(result))
    if report is not None:  # after the figures: a disk that has filled up meanwhile must not cost them
        write_report(result, report)
        announce(f"Report: {report}")
    if result.stopped is not None:
        announce(f"slopewise: {result.stopped}; {len(result.rounds)} of {repeat} rounds are whole.")
        raise typer.Exit(result.stopped.exit_code)
    if any(job.state == "failed" for of_round in result.rounds for run in of_round for job in run.jobs):
        raise typer.Exit(1)


@app.command()
def run(
    call: typer.Context,
    local: Annotated[bool, typer.Option("--local", help="Manage commands on this machine, not a cluster.")] = False,
    jobs: JobsFile = None,
    policy_file: PolicyFile = None,
    policy: Annotated[
        str | None, typer.Option(help="This machine: the policy, or its file; instead of --policy-file.")
    ] = None,
    policies_folders: PoliciesFolders = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Decide and report, write nothing.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Cluster: one pass of each policy, then exit.")] = False,
    actuator: Actuator = ActuatorOption.auto,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of /healthz and /metrics; 0: a free one.")] = 8080,
    host: Annotated[str, typer.Option(help="Cluster: address of that port; the pod's own says 0.0.0.0.")] = "127.0.0.1",
    json_logs: Annotated[bool, typer.Option(_JSON_LOGS, help="Each line on stderr is a JSON object.")] = False,
    prometheus_url: PrometheusUrl = None,
    prometheus_config: PrometheusConfig = None,
    scrape_interval: Annotated[
        float, typer.Option(min=1, max=300, help="Seconds between two scrapes of the trainers by that Prometheus.")
    ] = 15.0,
    again: Annotated[
        bool,
        typer.Option(
            "--again", help="With --local: start every job, though one that was started before may still run."
        ),
    ] = False,
    targets_file: Annotated[
        Path | None,
        typer.Option(
            help="With --local and --prometheus-url: the file from which that Prometheus learns what to scrape "
            "(file_sd_configs); else one in ~/.local/state/slopewise/targets."
        ),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
    namespace: OneNamespace = None,
    lease_namespace: LeaseNamespace = None,
    lease_seconds: Annotated[
        float, typer.Option(min=1.5, max=300, help="Cluster: how long a replica that died holds up the others.")
    ] = 15.0,
    output: Annotated[
        OutputFormat, typer.Option("--output", "-o", help="With --local: print the end as a table or one JSON object.")
    ] = OutputFormat.table,
) -> None:
    """Run the controller of a cluster; with --local --jobs FILE it starts and manages commands on this machine.

    Examples: `slopewise run --prometheus-url http://prometheus:9090 --dry-run --once`;
    `slopewise run --local --jobs mine.yaml --policy-file policy.yaml`.
    """
    if not local:
        _refuse_without_local(call, once=once, dry_run=dry_run)
        if prometheus_url is None:
            raise UsageError(NO_PROMETHEUS)
        from controller.cluster.signals import heard_signals

        with heard_signals() as stop:
            from controller.adapters.kube.election import Terms
            from controller.cluster.options import ClusterOptions, Connection, lease_namespace_of
            from controller.cluster.process import run_cluster  # takes seconds on a busy node

            connection = Connection(kubeconfig, context, namespace)
            cluster = ClusterOptions(
                connection,
                prometheus_url,
                policy_file,
                scrape_interval,
                dry_run=dry_run,
                once=once,
                host=host,
                port=port,
                json_logs=json_logs,
                lease=Terms.within(lease_seconds),
                lease_namespace=lease_namespace_of(connection, lease_namespace),
                prometheus_config=prometheus_config,
            )
            raise typer.Exit(run_cluster(cluster, stop, announce))
    _refuse_with_local(call)
    if jobs is None:
        raise UsageError("run --local: there is nothing to run; add --jobs FILE (see the README).")
    from controller.adapters.http_config import Endpoint
    from controller.local_run import LocalRunOptions
    from controller.session import PrometheusInUse

    options = LocalRunOptions(jobs, policy_file, dry_run, actuator.value, port, json_logs, policy=policy, again=again)
    if prometheus_url is not None and "--prometheus-url" in given(call):
        in_use = PrometheusInUse(Endpoint(prometheus_url, prometheus_config), targets_file)
        options = replace(options, prometheus=in_use, scrape_interval_seconds=scrape_interval)
    _run_here(options, output)


def _run_here(options: LocalRunOptions, output: OutputFormat) -> NoReturn:
    """Run the commands of this machine, print how it ended, and exit."""
    from controller.local_result import table
    from controller.local_run import run_local

    with orderly_stop(announce):
        outcome = run_local(options, err, announce)
    if output is OutputFormat.json:
        print_json(outcome.result.as_json())
    elif options.json_logs:
        structlog.get_logger("slopewise").info("run ended", **outcome.result.as_json())
    else:
        out.print(table(outcome.result))
    if outcome.stopped is not None:
        raise outcome.stopped
    raise typer.Exit(1 if outcome.result.failed else 0)


def _refuse_without_local(call: typer.Context, *, once: bool, dry_run: bool) -> None:
    of_machines = ("--jobs", "--actuator", "--again", "--targets-file", "--output", "-o")
    refuse(call, of_machines, "is for this machine; add --local, or leave it out")
    refuse(call, ("--policy",), "is for this machine, on a cluster a TrainingPolicy names it; add --local")
    if once:
        refuse(call, ("--port", "--host"), "is for a controller that stays; leave it or --once out")
    if dry_run:
        why = "is for a controller that writes, which takes the lease; leave it or --dry-run out"
        refuse(call, ("--lease-namespace", "--lease-seconds"), why)


_OF_CLUSTERS = ("--once", "--host", "--kubeconfig", "--context", "--namespace", "--lease-namespace", "--lease-seconds")


def _refuse_with_local(call: typer.Context) -> None:
    refuse(call, _OF_CLUSTERS, "is for a cluster; leave it or --local out")
    if "--prometheus-url" not in given(call):
        why = "is for a Prometheus of your own; add --prometheus-url, or leave it out"
        refuse(call, ("--prometheus-config", "--scrape-interval", "--targets-file"), why)


@app.command()
def restore(
    everything: Annotated[bool, typer.Option("--all", help="Every pod that was changed, and every finalizer.")] = False,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
    namespace: OneNamespace = None,
    lease_namespace: LeaseNamespace = None,
    deadline: Annotated[float, typer.Option(min=1, max=3600, help="Seconds to try for.")] = 60.0,
    output: Output = OutputFormat.table,
) -> None:
    """Give every container of the cluster its original resources back, and let the policies go.

    What one runs before the controller is removed; the controller must not run meanwhile.
    Example: `kubectl -n slopewise-system scale deployment slopewise-controller --replicas=0; slopewise restore --all`.
    """
    if not everything:
        raise UsageError("restore: say --all; it gives every changed pod its original resources back.")
    from controller.cluster.signals import heard_signals

    with heard_signals() as stop:
        from controller.cluster.options import Connection
        from controller.cluster.restore import listing, restore_all

        result = restore_all(Connection(kubeconfig, context, namespace), lease_namespace, deadline, stop, announce)
        exit_code = 0 if result.complete else 1 if stop.number is None else stop.exit_code
    if output is OutputFormat.json:
        print_json(result.as_json())
    else:
        out.print(listing(result))
    raise typer.Exit(exit_code)


@app.command()
def history(
    job: Annotated[str | None, typer.Argument(help="Only this workload: NAME or NAMESPACE/NAME.")] = None,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
    namespace: OneNamespace = None,
    output: Output = OutputFormat.table,
) -> None:
    """Print what was done to the jobs of a cluster: the last ten resizes, placements and moves of each.

    Examples: `slopewise history`; `slopewise history team-a/train -o json`.
    """
    from controller.cluster.options import Connection
    from controller.cluster.reading_history import read_history
    from controller.history import as_json, listing

    lines = read_history(Connection(kubeconfig, context, namespace), job)
    if output is OutputFormat.json:
        print_json(as_json(lines))
    else:
        out.print(listing(lines), soft_wrap=True)  # a line for a program such as grep is one line


@app.command()
def sweep(
    older_than: Annotated[
        float,
        typer.Option("--older-than", min=1, max=3600, help="Seconds for which it is left to a controller."),
    ] = 60.0,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
    namespace: OneNamespace = None,
    output: Output = OutputFormat.table,
) -> None:
    """Free pods and Jobs that a controller which is no more has left gated, suspended, or pinned to nowhere.

    What a CronJob runs each minute; it does nothing to what a controller that runs still sees to.
    Example: `slopewise sweep -o json`.
    """
    from controller.cluster.signals import heard_signals

    with heard_signals() as stop:
        from controller.cluster import sweep as sweeping
        from controller.cluster.options import Connection

        swept = sweeping.sweep(Connection(kubeconfig, context, namespace), older_than, stop)
        exit_code = stop.exit_code if stop.number is not None else 1 if swept.failed else 0
    if output is OutputFormat.json:
        print_json(swept.as_json())
    else:
        out.print(sweeping.listing(swept))
    raise typer.Exit(exit_code)


@app.command()
def simulate(
    call: typer.Context,
    scenario: Annotated[
        str | None,
        typer.Argument(help="A scenario file, or the name of a shipped one.", autocompletion=_scenarios),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="Instead of the scenario's: a policy or its file; one option each.", autocompletion=_policies
        ),
    ] = None,
    policies_folders: PoliciesFolders = None,
    seeds: Annotated[int | None, typer.Option(help="Seeds 1 to N; the scenario says how many otherwise.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes at the same time; one a core otherwise.")] = None,
    output: Annotated[SweepFormat, typer.Option("--output", "-o", help="How to print the figures.")] = (
        SweepFormat.table
    ),
    report: Annotated[Path | None, typer.Option(help="Write one self-contained HTML file.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Write every event of every run as a line of JSON.")] = None,
    list_shipped: Annotated[bool, typer.Option("--list", help="List the shipped scenarios and exit.")] = False,
) -> None:
    """Run policies over simulated jobs, the same for each policy, and compare them with fair sharing.

    Examples: `slopewise simulate flowcon-10`; `slopewise simulate mine.yaml --policy flowcon --seeds 24 -o json`.
    """
    from controller.simulator.scenario import shipped  # heavy imports only where they are needed

    if list_shipped:
        if scenario is not None:
            refuse(call, (scenario,), "says what to simulate; leave it or --list out")
        refuse_beside(call, "--list", "says how to simulate; leave it or --list out")
        typer.echo("\n".join(shipped()))
        return
    if scenario is None:
        raise UsageError("slopewise simulate: name a scenario file or a shipped scenario (--list prints those).")
    from controller.simulator.command import SimulateOptions, run_simulate
    from controller.simulator.report import write_report
    from controller.simulator.table import comparison

    options = SimulateOptions(scenario, policy or [], seeds, workers, report, trace)
    with orderly_stop(lambda _: announce("Already stopping.")):
        result = run_simulate(options, err)
    if output is SweepFormat.json:
        print_json(result.as_json())
    elif output is SweepFormat.csv:
        typer.echo(result.csv_text(), nl=False)
    else:
        out.print(comparison(result))
    if report is not None:  # after the figures: a disk that has filled up meanwhile must not cost them
        write_report(result, report)
        announce(f"Report: {report}")
    if result.stopped is not None:
        announce(f"slopewise: {result.stopped}; {len(result.seeds)} of {len(result.seeds_asked)} seeds are whole.")
        raise typer.Exit(result.stopped.exit_code)


@policies.callback()
def _policies_group() -> None:
    """List the policies, begin one of your own, hold it to the contract.

    Examples: `slopewise policies`; `slopewise policies flowcon`; `slopewise policies new mine`;
    `slopewise policies check mine.py`.
    """


@policies.command("list")
def list_policies(
    name: Annotated[
        str | None,
        typer.Argument(help="Only this one, or the one in this file, in full.", autocompletion=_policies),
    ] = None,
    policies_folders: PoliciesFolders = None,
    output: Output = OutputFormat.table,
) -> None:
    """List what each policy is for; of one, its parameters with units, defaults, bounds and sources.

    `list` may be left out. Examples: `slopewise policies`; `slopewise policies flowcon -o json`.
    """
    from controller.policy_listing import describe, listing, page

    described = describe(name)
    if output is OutputFormat.json:
        print_json(described)
    else:
        out.print(listing(described) if name is None else page(described[0]))


@policies.command("new")
def new_policy(
    name: Annotated[str, typer.Argument(help="Its name, e.g. shortest-first; its file is shortest_first.py.")],
    folder: Annotated[Path, typer.Option(help="Where the file is written.")] = Path(),
) -> None:
    """Write a policy of your own that works, to be changed (docs/policies.md says how).

    Example: `slopewise policies new shortest-first`.
    """
    from controller.own_policies.template import write_new

    path = write_new(name, folder)
    typer.echo(path)
    named = path if path.is_absolute() else f"./{path}"
    announce(f"Change it, then: slopewise policies check {named}; slopewise simulate flowcon-10 --policy {named}")


@policies.command("check")
def check_policy(
    file: Annotated[Path, typer.Argument(help="A policy's file.")],
    worlds: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many random worlds.")] = 200,
    output: Output = OutputFormat.table,
) -> None:
    """Hold a policy to what every policy must keep: pure, explained, within bounds, in ordinary and in odd worlds.

    It executes the file. Exit code 1: it does not keep to it; 2: it cannot be loaded.
    Example: `slopewise policies check ./mine.py`.
    """
    from controller.own_policies.check import check_file
    from controller.policy_listing import checked

    result = check_file(file, worlds)
    if output is OutputFormat.json:
        print_json(result.as_json())
    else:
        out.print(checked(result), soft_wrap=True)
    raise typer.Exit(0 if result.kept else 1)


@dashboards.command("push")
def push(
    url: Annotated[str, typer.Option(envvar="GRAFANA_URL", help="Grafana, e.g. https://grafana.example.org.")],
    token: Annotated[str, typer.Option(envvar="GRAFANA_TOKEN", help="A service account's token.")],
    folder: Annotated[str, typer.Option(help="Folder, made when missing.")] = "Slopewise",
    output: Output = OutputFormat.table,
) -> None:
    """Put our dashboards into a Grafana, replacing older versions of them.

    Example: `GRAFANA_TOKEN=… slopewise dashboards push --url https://grafana.example.org`.
    """
    from controller.adapters.grafana import push_dashboards

    pushed = push_dashboards(url, token, folder)
    if output is OutputFormat.json:
        print_json([vars(each) for each in pushed])
    else:
        for each in pushed:
            out.print(str(each), markup=False, highlight=False, soft_wrap=True)


def print_json(data: Any) -> None:
    """One JSON object to stdout; NaN has no place in JSON and is a mistake of ours."""
    typer.echo(json.dumps(data, indent=2, allow_nan=False, ensure_ascii=False))


def run_command_line() -> NoReturn:
    """The `slopewise` command: one sentence and the right exit code for every expected error."""
    if _wants_json():
        log_lines.only_json_lines()
    try:
        code = app(standalone_mode=not _wants_json())
    except SlopewiseError as error:
        _announce_failure(str(error), error.exit_code)
        sys.exit(error.exit_code)
    except Interrupted as stop:
        _announce_failure(f"{stop}; limits, processes and folders were put back.", stop.exit_code)
        sys.exit(stop.exit_code)
    except _REFUSED as error:
        refused: Any = error
        _announce_failure(refused.format_message(), refused.exit_code)
        sys.exit(refused.exit_code)
    sys.exit(code if isinstance(code, int) else 0)
