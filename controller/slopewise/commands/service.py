"""`slopewise up`, `submit`, `attach`, `jobs`, `cancel`, `logs`, `mode`: a session and what is asked of it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slopewise.commands.console import (
    JSON_LOGS,
    announce,
    out,
    print_json,
    print_line,
    print_rankings,
    print_result,
    print_unpadded,
)
from slopewise.commands.options import (
    Actuator,
    Output,
    PoliciesFolders,
    PolicyFile,
    Rows,
    RowsFormat,
)
from slopewise.commands.run import JsonLogs, LocalPolicy, Port
from slopewise.errors import UsageError
from slopewise.signals import Interrupted, StopSignal, orderly_stop, received_signals

if TYPE_CHECKING:
    from slopewise.adapters.local.session_requests import JobAnswer

POLL_SECONDS = 0.5
"""Between two questions of a command that waits."""

_PYTHON = re.compile(r"python[\d.]*")

JobName = Annotated[str | None, typer.Option(help="Else from the command; a number is added where it is taken.")]
Study = Annotated[str | None, typer.Option(help="Jobs that belong together.")]
JobClass = Annotated[str | None, typer.Option("--class", help="Jobs that are alike, else those of the study.")]
PlannedSteps = Annotated[int | None, typer.Option(help="Steps of the training, where it reports no plan.")]
Name = Annotated[str, typer.Argument(help="The job's name.")]


def up(
    policy_file: PolicyFile = None,
    policies_folders: PoliciesFolders = None,
    policy: LocalPolicy = None,
    max_running: Annotated[
        int | None, typer.Option(min=1, max=10_000, help="Jobs that run at the same time; else as many as cores.")
    ] = None,
    actuator: Actuator = "auto",
    port: Port = 8080,
    systemd: Annotated[
        bool, typer.Option("--systemd", help="Print a user unit of systemd with these options, and exit.")
    ] = False,
    json_logs: JsonLogs = False,
) -> None:
    """Take jobs from `slopewise submit` and run them on this machine, until it is stopped.

    Its end leaves jobs running without limits, and the next `up` takes them over.
    Examples: `slopewise up --policy-file policy.yaml`; `slopewise up --max-running 4 --systemd`.
    """
    from slopewise.local.run import LocalRunOptions
    from slopewise.local.up import serve, unit
    from slopewise.own_policies.catalogue import is_path

    if systemd:
        written: list[tuple[str, object]] = [
            ("--policy-file", None if policy_file is None else policy_file.absolute()),
            *(("--policies-dir", folder.absolute()) for folder in policies_folders or ()),
            ("--policy", Path(policy).expanduser().absolute() if policy and is_path(policy) else policy),
            ("--max-running", max_running),
            ("--actuator", actuator),
            ("--port", port),
        ]
        words = [word for option, value in written if value is not None for word in (option, str(value))]
        typer.echo(unit([*words, *([JSON_LOGS] if json_logs else [])]), nl=False)
        return
    most = len(os.sched_getaffinity(0)) if max_running is None else max_running
    with orderly_stop(announce):
        serve(
            LocalRunOptions(Path(), policy_file, actuator, port, json_logs, policy=policy, max_running=most),
            announce,
        )


def submit(
    words: Annotated[
        list[str], typer.Argument(metavar="FILE | -- COMMAND", help="A jobs file (FILE.yaml, -), or a command.")
    ],
    name: JobName = None,
    study: Study = None,
    class_: JobClass = None,
    planned_steps: PlannedSteps = None,
    after: Annotated[list[str] | None, typer.Option(help="A job or study before it; one option each.")] = None,
    restart: Annotated[int | None, typer.Option(help="Starts after a failure, at most.")] = None,
    memory: Annotated[str | None, typer.Option(help="Memory that must be free, such as 4Gi.")] = None,
    max_useful_cpu: Annotated[str | None, typer.Option(help="CPU beyond which it gets no faster, such as 1.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end; Ctrl-C ends the waiting alone.")] = False,
    output: Output = "table",
) -> None:
    """Give a command, or the jobs of a file, to the `slopewise up` of this machine.

    A command runs in this folder and with this environment. Exit code of --wait: 1 when a job did not succeed.
    Examples: `slopewise submit -- python train.py --epochs 60`; `slopewise submit jobs.yaml --wait`.
    """
    from slopewise.adapters.local.session_requests import Submit, asked
    from slopewise.config.sweeps import as_name
    from slopewise_exporter.environment import STUDY_VARIABLE

    keys = {
        "study": study,
        "class": class_,
        "plannedSteps": planned_steps,
        "after": after,
        "restart": None if restart is None else {"onFailure": restart},
        "memory": memory,
        "maxUsefulCpu": max_useful_cpu,
    }
    chosen = {key: value for key, value in keys.items() if value is not None}
    folder, where = Path.cwd(), "submit"
    document: Any
    if is_file := len(words) == 1 and (words[0] == "-" or Path(words[0]).suffix in (".yaml", ".yml")):
        from slopewise.config.jobs_file import read_document

        if chosen or name is not None:
            raise UsageError("a jobs file has these keys itself; leave the options out, or write `-- COMMAND`.")
        where, document, folder = read_document(Path(words[0]))
    else:
        of_optuna = {"study": named} if (named := as_name(os.environ.get(STUDY_VARIABLE, ""))) else {}
        document = [{"name": name or name_of(words), "command": words, **of_optuna, **chosen}]
    request = Submit(document, where, str(folder), _environment(), renames=name is None and not is_file)
    names = asked(request).names
    if not wait:
        print_result({"submitted": names}, f"submitted: {', '.join(names)}", output)
        return
    from slopewise.adapters.local.job_record import SUCCEEDED

    announce(f"submitted: {', '.join(names)}; waiting for the end, which Ctrl-C leaves to them")
    with received_signals() as stop:
        ended = _wait(names, stop)
    _print_jobs(ended, output)
    succeeded = {job.name for job in ended if job.state in SUCCEEDED}
    raise typer.Exit(0 if succeeded >= set(names) else 1)


def attach(
    pid: Annotated[int, typer.Argument(help="The process, such as a training; its children come with it.")],
    name: JobName = None,
    study: Study = None,
    class_: JobClass = None,
    planned_steps: PlannedSteps = None,
    output: Output = "table",
) -> None:
    """Give a process that runs already to the `slopewise up` of this machine.

    It needs cgroups. `slopewise cancel` puts it back into its own.
    Example: `slopewise attach 4711 --name train`.
    """
    from slopewise.adapters.local.attached import command_of, metrics_port
    from slopewise.adapters.local.session_requests import Attach, asked

    command, port = command_of(pid), metrics_port(pid)
    keys = {"study": study, "class": class_, "plannedSteps": planned_steps, "port": port}
    chosen = {key: value for key, value in keys.items() if value is not None}
    entry = {"name": name or name_of(command), "command": command, **chosen}
    names = asked(Attach(pid, entry, renames=name is None)).names
    how = "it serves no metrics, and keeps its share" if port is None else f"metrics on port {port}"
    print_result({"attached": names, "port": port}, f"attached: {', '.join(names)}; {how}", output)


def _environment() -> dict[str, str]:
    """The environment of this terminal, without what no JSON text can hold."""
    unsent = [name for name, value in os.environ.items() if re.search("[\ud800-\udfff]", name + value)]
    if unsent:
        announce(f"left out of the environment, since they are not UTF-8: {', '.join(map(ascii, unsent))}")
    return {name: value for name, value in os.environ.items() if name not in unsent}


def name_of(words: list[str]) -> str:
    """A name from a command. Worked example: `python3 -u src/train_net.py --lr 1` is `train-net`."""
    from slopewise.config.sweeps import as_name

    programs = [Path(word).stem for word in words if not word.startswith("-")]
    named = next((each for each in programs if not _PYTHON.fullmatch(each)), programs[0] if programs else "job")
    return as_name(named)[:50].strip("-") or "job"


def _wait(names: list[str], stop: StopSignal) -> list[JobAnswer]:
    """These jobs once they have ended, as they were last listed: the session forgets the oldest of many."""
    from slopewise.adapters.local.session_requests import session_and_jobs

    seen: dict[str, JobAnswer] = {}
    while True:
        listed = {job.name: job for job in session_and_jobs()[1] if job.name in names}
        seen |= listed
        left = [name for name, job in listed.items() if job.finished_at_seconds is None]
        if not left:
            return list(seen.values())
        if stop.wait(POLL_SECONDS):
            announce(f"still there: {', '.join(left)}")
            raise Interrupted(stop.number or 0)


def jobs(
    study: Annotated[str | None, typer.Option(help="Only jobs of this study, the best first.")] = None,
    output: Rows = "table",
) -> None:
    """Print the jobs of this machine: those that wait and why, those that run, and those that have ended.

    Examples: `slopewise jobs`; `slopewise jobs --study sweep -o json`.
    """
    from slopewise.adapters.local.session_requests import session_and_jobs
    from slopewise.operate.local_session import jobs_of, ranking_of

    listed = session_and_jobs()[1] if study is None else jobs_of(study, session_and_jobs()[1])
    if study is None:
        if output == "csv":
            raise UsageError("jobs: CSV has the trials of a study; add the --study NAME of one, or print JSON.")
        _print_jobs(listed, output)
    elif output == "json":
        by_name = {job.name: job for job in listed}
        _print_jobs([by_name[each.name] for each in ranking_of(study, listed).trials], "json")
    else:
        print_rankings([ranking_of(study, listed)], output)


def _print_jobs(listed: list[JobAnswer], output: RowsFormat) -> None:
    from slopewise.operate.local_session import jobs_json, jobs_table

    if output == "json":
        print_json(jobs_json(listed))
    elif listed:
        print_unpadded(jobs_table(listed, out.width))
    else:
        print_line("There are no jobs; `slopewise submit -- COMMAND` adds one.")


def cancel(
    names: Annotated[list[str] | None, typer.Argument(help="Names of jobs.")] = None,
    study: Annotated[str | None, typer.Option(help="All jobs of this study.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All jobs.")] = False,
    output: Output = "table",
) -> None:
    """End jobs: one that waits at once; one that runs gets SIGTERM and 30 s to save; an attached one runs on.

    Examples: `slopewise cancel train-2`; `slopewise cancel --study sweep`.
    """
    from slopewise.adapters.local.session_requests import Cancel, asked

    if not names and study is None and not everything:
        raise UsageError("cancel: name jobs, or add --study NAME or --all.")
    cancelled = asked(Cancel(names or [], study or "", everything)).names
    text = f"cancelled: {', '.join(cancelled)}" if cancelled else "nothing was left to cancel"
    print_result({"cancelled": cancelled}, text, output)


def logs(
    name: Name,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
) -> None:
    """Print what a job has written.

    Example: `slopewise logs train -f`.
    """
    job = _job(name)
    if not job.log:
        print_line(f"{name} was attached and has no log here: it writes where it was started")
        return
    with received_signals() as stop:
        if follow and _has_to_start(job):
            announce(f"{name} is {job.state}{f', {job.reason}' if job.reason else ''}; what it writes follows")
            while _has_to_start(job):
                if stop.wait(POLL_SECONDS):
                    return
                job = _job(name)
        path = Path(job.log)
        try:
            with path.open(encoding="utf-8", errors="replace", newline="") as file:
                while True:
                    ended = not follow or job.finished_at_seconds is not None
                    while block := file.read(65_536):
                        typer.echo(block, nl=False)
                    if ended or stop.wait(POLL_SECONDS):
                        return
                    job = _job(name)
        except FileNotFoundError:
            if job.finished_at_seconds is not None and job.started_at_seconds is not None:
                print_line(f"{name} has no log any more: those of the jobs that ended last are kept")
                return
            print_line(f"{name} has written nothing: it is {job.state}{f', {job.reason}' if job.reason else ''}")


def _has_to_start(job: JobAnswer) -> bool:
    return job.finished_at_seconds is None and not Path(job.log).exists()


def _job(name: str) -> JobAnswer:
    from slopewise.adapters.local.session_requests import session_and_jobs
    from slopewise.text import unknown_name

    known = {job.name: job for job in session_and_jobs()[1]}
    if name not in known:
        raise UsageError(unknown_name("job", name, list(known)))
    return known[name]


def mode(
    wanted: Annotated[str, typer.Argument(metavar="MODE", help="Observe, Recommend, Canary or Auto.")],
    output: Output = "table",
) -> None:
    """Change the mode of the session on this machine, and of later ones, until its policy file changes.

    Example: `slopewise mode Auto`.
    """
    from slopewise.adapters.local.session_requests import SetMode, asked

    session = asked(SetMode(wanted)).session
    now = wanted if session is None else session.mode
    print_result({"mode": now}, f"mode is {now}", output)
