"""Writes `replication/threads.md`: what threads cost, as measured, and what that makes of our scenarios, as simulated.

`python -m replication.threads` simulates scenarios of nodes with two cores: with one thread a job, and with default
threads that spin, that wait, and whose number follows the CPU. The page has the ratios over all libraries,
`thread_figures/` a table for each. The measuring is done by `python -m replication.thread_penalty`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Annotated, NamedTuple

import typer
from rich.console import Console

from replication.thread_penalty import load, section
from slopewise.reports.estimates import estimate
from slopewise.reports.wording import plus_minus
from slopewise.simulator.engine import run
from slopewise.simulator.scenario.parts import libraries, threads_of
from slopewise.simulator.scenario.scenario import load_scenario, policy_runs
from slopewise.simulator.workload import draw
from slopewise.simulator.world.model import RunOutcome

PAGE = Path(__file__).with_name("threads.md")
FIGURES = Path(__file__).with_name("thread_figures")
CORES = 2
"""Of each node, and so the default threads of a job."""

TWO_NODES = {"nodes": [{"name": "worker", "count": 2, "cpu": CORES, "memoryGiB": 64}]}


class Study(NamedTuple):
    """A scenario, what is changed of it, and the policies beside fair sharing that have what they need there."""

    scenario: str
    overrides: Mapping[str, object]
    policies: Sequence[str]


STUDIES = (
    Study("demo", {}, ("flowcon", "marginal")),
    Study("tradl", {}, ("flowcon", "tradl", "marginal")),
    Study("specon-20-mixed", TWO_NODES, ("flowcon2", "specon", "draps", "procon", "marginal")),
)
NEAR_ONE = 2**0.5
"""Threads a core up to which a row stands for one."""

WAYS: Mapping[str, Mapping[str, object]] = {
    "default, spin": {"threads": CORES, "threadBehaviour": "spin"},
    "default, wait": {"threads": CORES, "threadBehaviour": "wait"},
    "follow": {"threads": CORES, "threadBehaviour": "follow"},
    "one thread": {},
}
TEXT = """\
# Threads

<!-- Written by `python -m replication.threads`. -->

## What they cost

`python -m replication.thread_penalty` ran real trainings on {cores} cores that others used as well: 1, 2 and 4 at once,
each with as many threads as there are cores. *A core*: threads for each core that a training had, as the exporter reads
it. CPU-seconds a step are against one thread, the speed is against one thread with as much CPU. The next columns are of
windows that are not in the table, beside what the simulator gives for their steps, with half of the 95 % interval:
windows of one row differ, most where threads spin. *More* windows would decide, most likely, if a row is within 15 %;
`--minutes 10` takes them where they are few. The cost of threads depends on the machine, and on who else uses it.

"""
HEADING = """
## What the policies bring

Mean completion, as a ratio to fair sharing of the same jobs with one thread each: the geometric mean over {libraries}
libraries, and the lowest and highest of them, over {seeds} seeds of each. Each job has as many threads as a node has
cores, {cores}, at the cost of its library. [The table of each library](thread_figures) has seconds, CPU-seconds for a
core-second of work, and 95 % intervals. `specon-20-mixed` is on two nodes of two cores here. Left out: `dqoes` and
`deadline`, since no job states an objective or a deadline, and policies of nodes alone where there is one.

| scenario | policy | {ways} |
|---|---|{lines}|
"""

NOTHING = """
## What the policies bring

Not simulated: no library has rows near one thread a core both spinning and waiting, which is where a job that follows
the CPU runs alone. Others used the machine; on a quieter one `python -m replication.thread_penalty` adds such windows.
"""
COLUMNS = ("scenario", "threads", "policy", "mean completion, s", "ratio", "CPU-seconds a core-second", "seeds")


class Row(NamedTuple):
    """One policy under one way of a library's threads; a figure for each seed."""

    scenario: str
    way: str
    policy: str
    seconds: Sequence[float]
    ratios: Sequence[float]
    """Of the mean completion to that of fair sharing with one thread."""
    costs: Sequence[float]
    """CPU-seconds for a core-second of work, contention included."""


def reaches_one_thread_a_core(library: str) -> bool:
    """Whether threads with a core each were measured, spinning and waiting."""
    lowest = [threads_of(CORES, behaviour, library).penalties[0] for behaviour in ("spin", "wait")]
    return all(each.threads_per_core < NEAR_ONE for each in lowest)


def runs(study: Study, overrides: Mapping[str, object], seeds: Sequence[int]) -> dict[str, list[RunOutcome]]:
    """By policy, a run for each seed."""
    document = load_scenario(study.scenario, {**study.overrides, **overrides})
    instances = [draw(document, seed) for seed in seeds]
    return {policy.label: [run(each, policy) for each in instances] for policy in policy_runs(document, study.policies)}


def rows(study: Study, library: str, seeds: Sequence[int]) -> Iterator[Row]:
    """The rows of one scenario and library; `one thread` costs nothing, whatever the library."""
    of_library = {"threadLibrary": library}
    ways = {way: runs(study, {**keys, **of_library} if keys else keys, seeds) for way, keys in WAYS.items()}
    base = [_completion(each) for each in ways["one thread"]["fair"]]
    for way, by_policy in ways.items():
        for policy, found in by_policy.items():
            times = [_completion(each) for each in found]
            ratios = [time / of for time, of in zip(times, base, strict=True)]
            yield Row(study.scenario, way, policy, times, ratios, [_cost(each) for each in found])


def _completion(outcome: RunOutcome) -> float:
    times = [job.jct_seconds for job in outcome.jobs if job.jct_seconds is not None]
    return sum(times) / len(times)


def _cost(outcome: RunOutcome) -> float:
    return sum(job.served_cpu_seconds for job in outcome.jobs) / sum(job.work_cpu_seconds for job in outcome.jobs)


def table(found: Iterable[Row]) -> str:
    """The file of a library."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in found:
        figures = zip((row.seconds, row.ratios, row.costs), (0, 2, 2), strict=True)
        shown = (plus_minus(estimate(each), digits) for each, digits in figures)
        writer.writerow((*row[:3], *shown, len(row.seconds)))
    return text.getvalue()


def seeds_of(tables: Iterable[str]) -> str:
    """How many seeds the files have: of another run than this one it may be another number."""
    numbers = {int(row["seeds"]) for row in _lines(tables)}
    return " to ".join(map(str, sorted({min(numbers), max(numbers)})))


def _lines(tables: Iterable[str]) -> Iterator[dict[str, str]]:
    return (row for text in tables for row in csv.DictReader(io.StringIO(text)))


def summary(tables: Iterable[str]) -> Iterator[str]:
    """The page's lines, of the files of all libraries together."""
    ratios: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in _lines(tables):
        of_policy = ratios.setdefault((row["scenario"], row["policy"]), {})
        of_policy.setdefault(row["threads"], []).append(float(row["ratio"].split()[0]))
    for (scenario, policy), of_policy in ratios.items():
        cells = (f"{geometric_mean(each):.2f} ({min(each):.2f}–{max(each):.2f})" for each in of_policy.values())
        yield f"| {scenario} | `{policy}` | {' | '.join(cells)} |"


def policies(tables: Sequence[str]) -> str:
    """The page's section on what the policies bring, of the files of all libraries."""
    if not tables:
        return NOTHING
    ways, lines = " | ".join(WAYS), "|".join("---" for _ in WAYS)
    head = HEADING.format(libraries=len(tables), seeds=seeds_of(tables), cores=CORES, ways=ways, lines=lines)
    return head + "\n".join(summary(tables)) + "\n"


def main(
    *,
    seeds: Annotated[int, typer.Option(min=2, help="Seeds of each scenario.")] = 4,
    only: Annotated[list[str] | None, typer.Option(help="Only this library; the others keep their figures.")] = None,
    render: Annotated[bool, typer.Option("--render", help="Simulate nothing.")] = False,
) -> None:
    """Simulate the scenarios, and write replication/threads.md."""
    err = Console(stderr=True)
    if unknown := sorted(set(only or ()) - set(libraries())):
        err.print(f"--only {unknown[0]}: it is not measured; use one of {', '.join(libraries())}.")
        raise typer.Exit(2)
    numbers = range(1, seeds + 1)
    usable = {library: FIGURES / f"{library}.csv" for library in libraries() if reaches_one_thread_a_core(library)}
    FIGURES.mkdir(exist_ok=True)
    for library in () if render else set(only or usable) & set(usable):
        found = [row for study in STUDIES for row in rows(study, library, numbers)]
        usable[library].write_text(table(found), encoding="utf-8")
    tables = {library: file.read_text(encoding="utf-8") for library, file in usable.items() if file.exists()}
    PAGE.write_text(TEXT.format(cores=CORES) + section(load()) + policies(list(tables.values())), encoding="utf-8")
    err.print(f"wrote {PAGE.name} with {len(tables)} libraries")


if __name__ == "__main__":
    typer.run(main)
