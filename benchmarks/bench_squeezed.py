"""Whether a squeezed training stays alive for those who ask: its exporter, its probe, its heartbeat; in real cgroups.

One training (a Python loop of gradient steps) shares all cores of this machine with busy processes, each in a cgroup of
its own, as the controller makes them. It is given less and less: an even share, the floor of `marginal` among three,
five and ten jobs, the least that `resources.cpu.min: 20m` allows of shares, and the same as a hard quota. At each, for
`SECONDS`:

- a scrape of /metrics every second, as Prometheus does it: how long the answer takes;
- a liveness probe beside it, answered by a thread of the training: how many take longer than the kubelet's default
  of 1 s, and how many in a row, of which the kubelet's default allows two;
- a heartbeat that a thread of the training writes every half second, as distributed trainings send it: the longest gap.

Gate, at every floor but the reference: no scrape takes longer than Prometheus' default timeout of 10 s; never three
probes in a row take longer than 1 s; no heartbeat is more than 10 s late. On a machine that is busy with something else
the figures are worse, so that they are upper bounds.

    python benchmarks/bench_squeezed.py        # as root, or with a delegated cgroup; exit 1 beyond the gate
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from slopewise.adapters.local.crash_journal import Journal, new_run_id
from slopewise.adapters.local.limiters.base import NEUTRAL_REQUEST_MILLICORES
from slopewise.adapters.local.limiters.choose import Limiter, choose_limiter
from slopewise.errors import SlopewiseError
from slopewise.model import CpuControl
from slopewise.policies.marginal import Parameters

SECONDS = float(os.environ.get("SQUEEZED_SECONDS", "60"))
SCRAPE_EVERY_SECONDS = 1.0
HEARTBEAT_SECONDS = 0.5
SCRAPE_TIMEOUT_SECONDS = 10.0
PROBE_TIMEOUT_SECONDS, PROBES_IN_A_ROW = 1.0, 3
MAX_GAP_SECONDS = 10.0
CORES = len(os.sched_getaffinity(0))
MIN_CORES = 0.02
"""`resources.cpu.min: 20m` of examples/policy.yaml."""

_SQUEEZED = """
import os, sys, threading, time
from http.server import BaseHTTPRequestHandler, HTTPServer
from slopewise_exporter import Reporter

class Probe(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *words):
        pass

def beat():
    with open(sys.argv[1], "a", buffering=1) as diary:
        while True:
            diary.write(f"{time.monotonic()}\\n")
            time.sleep(%(heartbeat)s)

server = HTTPServer(("127.0.0.1", 0), Probe)
threading.Thread(target=server.serve_forever, daemon=True).start()
threading.Thread(target=beat, daemon=True).start()
weights = [0.0] * 200
with Reporter(planned_steps=10**9, port=0) as reporter:
    print(reporter.port, server.server_port, flush=True)
    step = 0
    while True:
        step += 1
        loss = sum((weight - 1.0) ** 2 for weight in weights)
        weights = [weight - 0.001 * (weight - 1.0) for weight in weights]
        reporter.step(loss=loss)
"""
_BUSY = "while True: pass"


@dataclass(frozen=True)
class Case:
    """How the training is squeezed."""

    name: str
    jobs: int
    """On the node, with it."""
    cores: float
    """What it is given."""
    control: CpuControl = "requests"
    is_reference: bool = False


def cases() -> list[Case]:
    """The floors of `marginal` by its own parameter, none below the least that is allowed."""
    ratio = Parameters().floor_ratio
    floors = {jobs: max(MIN_CORES, ratio * CORES / jobs) for jobs in (3, 5, 10)}
    return [
        Case("even share of 3 jobs", 3, CORES / 3, is_reference=True),
        *(Case(f"floor among {jobs} jobs", jobs, cores) for jobs, cores in floors.items()),
        Case("hard quota", 3, MIN_CORES, "limits"),
    ]


@dataclass(frozen=True)
class Seen:
    """What was seen of the training."""

    scrapes: Sequence[float]
    """Seconds each; the timeout for one that failed."""
    probes: Sequence[float]
    gap_seconds: float
    """The longest between two heartbeats."""
    cores: float
    """What it has used."""

    @property
    def slow_probes(self) -> int:
        """How many took longer than the kubelet waits."""
        return sum(each > PROBE_TIMEOUT_SECONDS for each in self.probes)

    @property
    def slow_in_a_row(self) -> int:
        """The most of them in a row."""
        runs = groupby(self.probes, lambda seconds: seconds > PROBE_TIMEOUT_SECONDS)
        return max((len(list(run)) for slow, run in runs if slow), default=0)

    @property
    def held(self) -> bool:
        """Whether it would have looked alive all the time."""
        answered = max(self.scrapes) < SCRAPE_TIMEOUT_SECONDS
        return answered and self.slow_in_a_row < PROBES_IN_A_ROW and self.gap_seconds < MAX_GAP_SECONDS


@contextmanager
def job(limiter: Limiter, name: str, script: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process in a cgroup of its own, until the block ends."""
    command = [sys.executable, "-c", script, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        limiter.admit(name, process.pid)
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        limiter.release(name)


def answer_seconds(url: str) -> float:
    """How long it takes to answer; the timeout of a scrape where it does not."""
    opener, begun = build_opener(ProxyHandler({})), time.monotonic()
    try:
        with opener.open(url, timeout=SCRAPE_TIMEOUT_SECONDS) as answer:
            answer.read()
    except (URLError, OSError):
        return SCRAPE_TIMEOUT_SECONDS
    return time.monotonic() - begun


def watch(limiter: Limiter, name: str, metrics: str, probe: str, diary: Path) -> Seen:
    """Scrape and probe in turn, and read the heartbeats of that time."""
    scrapes, probes = [], []
    used, begun = limiter.usage(name).cpu_seconds_total or 0.0, time.monotonic()
    while time.monotonic() - begun < SECONDS:
        scrapes.append(answer_seconds(f"http://127.0.0.1:{metrics}/metrics"))
        probes.append(answer_seconds(f"http://127.0.0.1:{probe}/"))
        time.sleep(SCRAPE_EVERY_SECONDS)
    ended = time.monotonic()
    beats = [at for line in diary.read_text().split() if begun <= (at := float(line)) <= ended]
    gap = max(after - before for before, after in pairwise([begun, *beats, ended]))
    used = (limiter.usage(name).cpu_seconds_total or 0.0) - used
    return Seen(scrapes, probes, gap, used / (ended - begun))


def measure(limiter: Limiter, case: Case, folder: Path) -> Seen:
    """One case: the training is squeezed once it has begun."""
    diary = folder / f"{case.name}.beats"
    diary.touch()
    busy = [f"busy-{number}" for number in range(case.jobs - 1)]
    with job(limiter, "squeezed", _SQUEEZED % {"heartbeat": HEARTBEAT_SECONDS}, str(diary)) as training:
        assert training.stdout is not None
        metrics, probe = training.stdout.readline().split()
        with ExitStack() as others:
            for name in busy:
                others.enter_context(job(limiter, name, _BUSY))
            if case.control == "limits":
                limiter.set_limit("squeezed", round(1000 * case.cores))
            else:
                total = NEUTRAL_REQUEST_MILLICORES * case.jobs
                own = round(total * case.cores / CORES)
                limiter.set_request("squeezed", own)
                for name in busy:
                    limiter.set_request(name, (total - own) // len(busy))
            return watch(limiter, "squeezed", metrics, probe, diary)


def main() -> int:
    """Print a line for each case; 1 when a squeezed training would have looked dead."""
    held = True
    with tempfile.TemporaryDirectory(prefix="slopewise-bench-") as folder:
        journal = Journal.open(Path(folder), new_run_id())
        try:
            limiter = choose_limiter(journal, "cgroup")
        except SlopewiseError as error:
            print(error)
            journal.close()
            return 1
        try:
            load = os.getloadavg()[0]
            print(f"{CORES} cores, {limiter.description}; load before {load:.1f}; {SECONDS:g} s each")
            print("                        given   used  scrape: median / worst  probes > 1 s (in a row)  longest gap")
            for case in cases():
                seen = measure(limiter, case, Path(folder))
                held = held and (case.is_reference or seen.held)
                print(
                    f"{case.name:22s} {case.cores:6.3f} {seen.cores:6.3f}  "
                    f"{statistics.median(seen.scrapes):9.2f} / {max(seen.scrapes):5.2f} s   "
                    f"{seen.slow_probes:6d} of {len(seen.probes)} ({seen.slow_in_a_row})   {seen.gap_seconds:14.1f} s",
                    flush=True,
                )
        finally:
            limiter.close()
            journal.close()
    print("held" if held else "MISSED")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
