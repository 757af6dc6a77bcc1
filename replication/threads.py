"""Writes `replication/threads.md`: what threads cost, as measured, and what that makes of our scenarios, as simulated.

`python -m replication.threads` simulates the two scenarios of ours that are of one node with two cores: with one thread
a job, and with default threads that spin, that wait, and whose number follows the CPU. The measuring is done by
`python -m replication.thread_penalty`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from replication.thread_penalty import load, section
from slopewise.reports.estimates import estimate
from slopewise.reports.wording import plus_minus
from slopewise.simulator.engine import run
from slopewise.simulator.scenario.scenario import load_scenario, policy_runs
from slopewise.simulator.scenario.thread_penalties import libraries, threads_of
from slopewise.simulator.workload import draw
from slopewise.simulator.world.model import RunOutcome

PAGE = Path(__file__).with_name("threads.md")
SCENARIOS = ("demo", "tradl")
POLICIES = ("flowcon", "marginal")
"""Beside fair sharing."""

CORES = 2
"""Of the scenarios' node, and so the default threads of a job."""

NEAR_ONE = 2**0.5
"""Threads a core up to which a row stands for one."""

WAYS: Mapping[str, Mapping[str, object]] = {
    "default, spin": {"threads": CORES, "threadBehaviour": "spin"},
    "default, wait": {"threads": CORES, "threadBehaviour": "wait"},
    "follow": {"threads": CORES, "threadBehaviour": "follow"},
}
TEXT = """\
# Threads

<!-- Written by `python -m replication.threads`. -->

## What they cost

`python -m replication.thread_penalty` ran real trainings on {cores} cores that others used as well: 1, 2 and 4 at once,
each with as many threads as there are cores. *A core*: threads for each core that a training had, as the exporter reads
it. CPU-seconds a step are against one thread, the speed is against one thread with as much CPU. The last columns are of
windows that are not in the table, beside what the simulator gives for their steps, with half of the 95 % interval:
windows of one row differ, most where threads spin. The cost of threads depends on the machine, and on who else uses it.

"""
HEADING = """
## What the policies bring

Means over {seeds} seeds with 95 % intervals. Each job has as many threads as the node has cores, at the cost of the
library. *Ratio*: to fair sharing with threads that spin. *CPU*: CPU-seconds for a
core-second of work.

| scenario | library | threads | policy | mean completion, s | ratio | CPU |
|---|---|---|---|---|---|---|
"""

NOTHING = """
## What the policies bring

Not simulated: no library has rows near one thread a core both spinning and waiting, which is where a job that follows
the CPU runs alone. Others used the machine; on a quieter one `python -m replication.thread_penalty` adds such windows.
"""


def reaches_one_thread_a_core(library: str) -> bool:
    """Whether threads with a core each were measured, spinning and waiting."""
    lowest = [threads_of(CORES, behaviour, library).penalties[0] for behaviour in ("spin", "wait")]
    return all(each.threads_per_core < NEAR_ONE for each in lowest)


def runs(scenario: str, overrides: Mapping[str, object], seeds: Sequence[int]) -> dict[str, list[RunOutcome]]:
    """By policy, a run for each seed."""
    document = load_scenario(scenario, overrides)
    instances = [draw(document, seed) for seed in seeds]
    return {policy.label: [run(each, policy) for each in instances] for policy in policy_runs(document, POLICIES)}


def rows(scenario: str, library: str, seeds: Sequence[int]) -> Iterator[str]:
    """The lines of one scenario and library; `one thread` costs nothing, whatever the library."""
    ways = {way: runs(scenario, {**keys, "threadLibrary": library}, seeds) for way, keys in WAYS.items()}
    ways["one thread"] = runs(scenario, {}, seeds)
    base = [_completion(each) for each in ways["default, spin"]["fair"]]
    for way, by_policy in ways.items():
        for policy, found in by_policy.items():
            times = [_completion(each) for each in found]
            ratios = [time / of for time, of in zip(times, base, strict=True)]
            cells = [
                plus_minus(estimate(times), 0),
                plus_minus(estimate(ratios), 2),
                plus_minus(estimate([_cost(each) for each in found]), 2),
            ]
            yield f"| {scenario} | {library} | {way} | `{policy}` | {' | '.join(cells)} |"


def _completion(outcome: RunOutcome) -> float:
    times = [job.jct_seconds for job in outcome.jobs if job.jct_seconds is not None]
    return sum(times) / len(times)


def _cost(outcome: RunOutcome) -> float:
    """CPU-seconds for a core-second of work, contention included."""
    return sum(job.served_cpu_seconds for job in outcome.jobs) / sum(job.work_cpu_seconds for job in outcome.jobs)


def main(
    seeds: Annotated[int, typer.Option(min=2, help="Seeds of each scenario.")] = 12,
    only: Annotated[list[str] | None, typer.Option(help="Only this library.")] = None,
) -> None:
    """Simulate the scenarios, and write replication/threads.md."""
    err = Console(stderr=True)
    if unknown := sorted(set(only or ()) - set(libraries())):
        err.print(f"--only {unknown[0]}: it is not measured; use one of {', '.join(libraries())}.")
        raise typer.Exit(2)
    numbers = range(1, seeds + 1)
    usable = [library for library in only or libraries() if reaches_one_thread_a_core(library)]
    lines = [line for library in usable for name in SCENARIOS for line in rows(name, library, numbers)]
    found = HEADING.format(seeds=seeds) + "\n".join(lines) + "\n" if lines else NOTHING
    PAGE.write_text(TEXT.format(cores=CORES) + section(load()) + found, encoding="utf-8")
    err.print(f"wrote {PAGE.name}")


if __name__ == "__main__":
    typer.run(main)
