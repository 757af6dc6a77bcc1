"""`slopewise doctor --local`: checks all that `run --local` needs on this machine, and leaves nothing behind."""

from __future__ import annotations

import platform
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from slopewise.adapters.http.config import Endpoint
from slopewise.adapters.local.crash_journal import Journal, default_state_dir, new_run_id
from slopewise.adapters.local.limiters.choose import choose_limiter
from slopewise.adapters.local.prometheus_install import installed_prometheus
from slopewise.config.jobs_file import load_jobs
from slopewise.errors import SlopewiseError
from slopewise.operate.doctor.findings import Finding
from slopewise.operate.doctor.prometheus import check_prometheus
from slopewise.reports.wording import counted


def check_machine(
    jobs_file: Path | None, actuator: str, prometheus: Endpoint | None, scrape_interval_seconds: float
) -> Iterator[Finding]:
    """All findings."""
    system = platform.system()
    if system == "Linux":
        yield Finding("system", "ok", system)
    else:
        yield Finding("system", "failed", f"{system or 'this system'} has neither cgroups nor /proc", "use Linux")
    try:
        yield Finding("state", "ok", f"{default_state_dir()} can be written")
    except SlopewiseError as error:
        yield Finding("state", "failed", str(error))
    yield _limiter(actuator)
    if prometheus is None:
        yield _prometheus_program()
    else:
        yield from check_prometheus(prometheus, scrape_interval_seconds, time.time())
    if jobs_file is not None:
        yield _jobs_file(jobs_file)


def _limiter(choice: str) -> Finding:
    """By using it, in a journal of its own: what a killed run has left stays as it is."""
    with tempfile.TemporaryDirectory(prefix="slopewise-doctor-") as folder:
        journal = Journal.open(Path(folder), new_run_id())
        try:
            limiter = choose_limiter(journal, choice)
        except SlopewiseError as error:
            return Finding("CPU", "failed", str(error))
        else:
            limiter.close()
        finally:
            journal.close()
    text = f"CPU is given by {limiter.description}"
    if "requests" in limiter.controls:
        return Finding("CPU", "ok", text)
    remedy = "run as root or under systemd-run --user --scope -p Delegate=yes for shares and finer limits"
    return Finding("CPU", "note", text, remedy)


def _prometheus_program() -> Finding:
    try:
        found = installed_prometheus()
    except (SlopewiseError, OSError) as error:
        return Finding("Prometheus", "failed", str(error))
    if found is None:
        remedy = "the first run downloads one; or install it, or add --prometheus"
        return Finding("Prometheus", "note", "no Prometheus is on the PATH or in the cache", remedy)
    return Finding("Prometheus", "ok", f"{found.prometheus} {found.version} runs")


def _jobs_file(path: Path) -> Finding:
    try:
        jobs = load_jobs(path)
    except SlopewiseError as error:
        return Finding("jobs", "failed", str(error))
    return Finding("jobs", "ok", f"{path}: {counted(len(jobs), 'job')}")
