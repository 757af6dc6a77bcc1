"""Writes the table of real runs of the demo in `real-runs.md`, and runs them (`make real-runs`, on a quiet machine).

Stated before the first round: fair sharing and `marginal` run in turn (A B, B A) until the 95 % interval of the ratio
of mean completion times is narrower than ± 5 % over at least six rounds, or 40 rounds were run. Each pair of rounds is
in `real_runs.json` and in the table once it has ended, and `make real-runs` goes on from there, days later and also on
another machine: a ratio is of one round, so of one machine, and the mean is over rounds. A round counts

- where the demo itself compares the policy with fair sharing; the number of the others is said,
- while the regression gate expects the decisions of both policies that it expected then (after `make accept` rounds
  begin again: the table goes over to the new decisions once five of their rounds count).

Files that `slopewise demo -o json` printed on this machine count too (`python -m replication.real_runs demo.json`).

The same work takes a different number of CPU-seconds in each run, as the machine is faster or slower. Each ratio
therefore stands beside the same ratio by CPU-seconds: of seconds per CPU-second that all jobs of the run took.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer
from rich.console import Console

from slopewise.errors import UsageError
from slopewise.reports.estimates import Estimate, estimate

PAGE = Path(__file__).with_name("real-runs.md")
RECORDED = Path(__file__).with_name("real_runs.json")
EXPECTED = Path(__file__).parents[1] / "tests/regression/expected"
BEGIN, END = "<!-- real runs: written by `make real-runs` -->\n", "<!-- end of real runs -->\n"

LEAST_ROUNDS = 5
ROUNDS_BEFORE_STOP = 6
MOST_ROUNDS = 40
NARROW_RATIO = 0.05
"""Half the interval's width: a difference of 5 % is then seen."""

RUN = ("slopewise", "demo", "--policy", "marginal", "--repeat", "2", "--output", "json")

MEASURES = {
    "time_to_90_mean_seconds": "mean time to 90 % of a job's improvement",
    "jct_mean_seconds": "mean completion time (JCT)",
    "makespan_seconds": "makespan",
    "worst_job": "completion time of the worst job",
}
BASELINE = "fair"
Json = dict[str, Any]


def decisions() -> str:
    """Identifies today's decisions of `fair` and `marginal`: a digest of what the gate expects of them."""
    files = sorted(file for policy in (BASELINE, "marginal") for file in EXPECTED.glob(f"*/{policy}.txt"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


def processor() -> str:
    """The name of this machine's processor; empty where the kernel does not say it."""
    found = re.search(r"^model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else ""


def rounds_of(result: Mapping[str, Any]) -> list[Json]:
    """The rounds of what a demo printed on this machine, with its kind; of one that does not count, only why.

    UsageError for what is no comparison of `marginal`.
    """
    if any(not {BASELINE, "marginal"} <= of_round.keys() for of_round in result.get("rounds", [{}])):
        raise UsageError("it is not what `slopewise demo --policy marginal -o json` prints.")
    compared = result["comparison"].values()
    apart = {
        number: why
        for said in compared
        for number, why in zip(said["rounds_not_compared"], said["not_compared_because"], strict=True)
    }
    cores, limiter = f"{result['node_cores']:g} cores", result["actuator"].partition(":")[0]
    machine = f"{' of '.join(filter(None, [cores, processor()]))}, {limiter}, Prometheus {result['prometheus_version']}"
    return [
        {
            "machine": machine,
            "decisions": decisions(),
            "left_out": apart.get(number, ""),
            "runs": {} if number in apart else {policy: _figures(run) for policy, run in of_round.items()},
        }
        for number, of_round in enumerate(result["rounds"], start=1)
    ]


def _figures(run: Mapping[str, Any]) -> Json:
    jobs = {job["name"]: job["jct_seconds"] for job in run["jobs"]}
    cpu_seconds = sum(job["cpu_seconds"] for job in run["jobs"])
    kept = {name: run[name] for name in (*MEASURES, "fair_seconds") if name in run}
    return {**kept, "cpu_seconds": cpu_seconds, "jobs": jobs}


def added(recorded: Sequence[Json], result: Mapping[str, Any]) -> list[Json]:
    """With the rounds of what a demo printed, once; UsageError where its jobs are others.

    Rounds that do not count may be alike in two demos: a demo is known again by a round that counts.
    """
    found = rounds_of(result)
    known = any(each in recorded for each in found if not each["left_out"])
    rounds = [*recorded, *([] if known else found)]
    if len({frozenset(run["jobs"]) for each in rounds for run in each["runs"].values()}) > 1:
        raise UsageError("its jobs are others than before: a demo on a busy machine runs fewer, and does not count.")
    return rounds


def newest(recorded: Sequence[Json]) -> list[Json]:
    """The rounds of the newest decisions of which enough count; UsageError where there are none."""
    of_decisions: dict[str, list[Json]] = {}
    for each in recorded:
        of_decisions.setdefault(each["decisions"], []).append(each)
    enough = [rounds for rounds in of_decisions.values() if len(counting(rounds)) >= LEAST_ROUNDS]
    if not enough:
        why = dict.fromkeys(each["left_out"] for each in recorded if each["left_out"])
        raise UsageError(
            f"{len(counting(recorded))} of {len(recorded)} rounds can be compared; at least {LEAST_ROUNDS} must be "
            f"(one more file, or `make real-runs`). {' '.join(why)}".rstrip()
        )
    return enough[-1]


def counting(rounds: Sequence[Json]) -> list[Json]:
    """The figures of each run of those that can be compared, by policy."""
    return [each["runs"] for each in rounds if not each["left_out"]]


def ratios(rounds: Sequence[Json], policy: str, measure: str) -> list[float]:
    """Of each round that counts, the policy's figure over that of fair sharing."""
    if measure != "worst_job":
        return [runs[policy][measure] / runs[BASELINE][measure] for runs in counting(rounds)]
    return [
        max(seconds / runs[BASELINE]["jobs"][name] for name, seconds in runs[policy]["jobs"].items())
        for runs in counting(rounds)
    ]


def by_cpu_seconds(rounds: Sequence[Json], policy: str, measure: str) -> list[float]:
    """The same ratios, of seconds per CPU-second of the run's work: twice the time for twice the work is 1."""
    work = [runs[policy]["cpu_seconds"] / runs[BASELINE]["cpu_seconds"] for runs in counting(rounds)]
    return [ratio / of_work for ratio, of_work in zip(ratios(rounds, policy, measure), work, strict=True)]


def ended(rounds: Sequence[Json]) -> bool:
    """Whether the rounds of one kind of decisions suffice by the rule that was stated before them."""
    if len(rounds) >= MOST_ROUNDS:
        return True
    half = estimate(ratios(rounds, "marginal", "jct_mean_seconds")).half
    return len(counting(rounds)) >= ROUNDS_BEFORE_STOP and half is not None and half < NARROW_RATIO


def estimate_errors(pairs: Sequence[tuple[Mapping[str, float], Mapping[str, float]]]) -> str:
    """A sentence on estimates of fair sharing's time of each job beside what it took; empty where none is known.

    Worked example: of two jobs that took 10 and 30 s, estimated at 12 and 30 s, the sum is 5 % off, the mean job 10 %.
    """
    known = [pair for pair in pairs if pair[0]]
    if not known:
        return ""
    sums = [math.fsum(of.values()) / math.fsum(took[name] for name in of) - 1 for of, took in known]
    jobs = [fmean(abs(seconds / took[name] - 1) for name, seconds in of.items()) for of, took in known]
    return (
        "What fair sharing would have taken, as the other run of a round estimates it, is off what it took\n"
        f"by {fmean(sums):+.0%} in the sum of jobs ({min(sums):+.0%} to {max(sums):+.0%}), and by {fmean(jobs):.0%} "
        f"in the mean job; rounds: {len(known)}.".replace("%", " %")
    )


def table(rounds: Sequence[Json]) -> str:
    """The block of the page: a row for each measure of each policy."""
    counted = counting(rounds)
    policies = [policy for policy in counted[0] if policy != BASELINE and all(policy in runs for runs in counted)]
    cpu_seconds = [run["cpu_seconds"] for runs in counted for run in runs.values()]
    on = Counter(each["machine"] for each in rounds if not each["left_out"])
    machines = "; ".join(f"{number} on {machine}" if len(on) > 1 else machine for machine, number in on.items())
    said = (
        f"These are {len(counted)} rounds of `make demo` ({machines}), as ratios to fair sharing of the same round, "
        f"with their 95 % interval; less is better. The same work took {min(cpu_seconds):.0f} to "
        f"{max(cpu_seconds):.0f} CPU-seconds in a run; the last column is the ratio of seconds per CPU-second."
        f"{_left_out(len(rounds) - len(counted))}"
    )
    lines = [said, "", "| | least | most | mean | mean by CPU-seconds |", "|---|--:|--:|--:|--:|"]
    for policy in policies:
        for measure, label in MEASURES.items():
            found = ratios(rounds, policy, measure)
            means = [shown(estimate(each)) for each in (found, by_cpu_seconds(rounds, policy, measure))]
            lines.append(f"| `{policy}`: {label} | {min(found):.2f} | {max(found):.2f} | {' | '.join(means)} |")
    estimated = [(runs["marginal"].get("fair_seconds", {}), runs[BASELINE]["jobs"]) for runs in counted]
    lines += ["", errors] if (errors := estimate_errors(estimated)) else []
    return "\n".join(lines) + "\n"


def _left_out(rounds: int) -> str:
    if not rounds:
        return ""
    return (
        f" {rounds} more {'was' if rounds == 1 else 'were'} left out, by the demo's own rule: what other programs left "
        "of the CPU to its jobs differed by more than 5 % between policies, or jobs failed."
    )


def shown(mean: Estimate) -> str:
    """With its interval, as `0.86 [0.78, 0.93]`."""
    if mean.mean is None or mean.low is None or mean.high is None:
        return "–"
    return f"{mean.mean:.2f} [{mean.low:.2f}, {mean.high:.2f}]"


def block(page: str, begin: str = BEGIN, end: str = END) -> str:
    """The part of the page between its marks; ValueError where they are missing."""
    found = re.findall(re.escape(begin) + "(.*?)" + re.escape(end), page, re.DOTALL)
    if len(found) != 1:
        raise ValueError(f"the page has {len(found)} blocks between {begin!r} and {end!r}")
    text: str = found[0]
    return text


def with_block(page: str, text: str, begin: str = BEGIN, end: str = END) -> str:
    """The page with this text between its marks."""
    return page.replace(begin + block(page, begin, end) + end, begin + text + end)


def with_table(page: str, recorded: Sequence[Json]) -> str:
    """The page with the table of the newest decisions' rounds."""
    return with_block(page, table(newest(recorded)))


def keep(result: Mapping[str, Any], recorded: Path, page: Path) -> None:
    """Add the rounds of what a demo printed to those that are kept, and write the table where enough count."""
    rounds = added(read(recorded), result)
    recorded.write_text(json.dumps(rounds, indent=1) + "\n", encoding="utf-8")
    with suppress(UsageError):
        page.write_text(with_table(page.read_text(encoding="utf-8"), rounds), encoding="utf-8")


def read(recorded: Path) -> list[Json]:
    """The rounds that are kept, in the order in which they were run."""
    rounds: list[Json] = json.loads(recorded.read_text(encoding="utf-8")) if recorded.exists() else []
    return rounds


def run_rounds(demo: Callable[[], Json], recorded: Path, page: Path, console: Console) -> None:
    """Run pairs of rounds until those of today's decisions suffice; each is kept as it ends."""
    while not ended(rounds := [each for each in read(recorded) if each["decisions"] == decisions()]):
        count = f"{len(counting(rounds))} of {len(rounds)} rounds count"
        console.print(f"{count}; two more take about seven minutes, and Ctrl-C loses no more than these")
        keep(demo(), recorded, page)


def _demo() -> Json:
    printed = subprocess.run([sys.executable, "-m", *RUN], stdout=subprocess.PIPE, check=True, text=True).stdout
    found: Json = json.loads(printed)
    return found


def main(
    demos: Annotated[list[Path] | None, typer.Argument(help="What `slopewise demo -o json` printed.")] = None,
) -> None:
    """Run the rounds that are missing, or add the files'; keep their figures, and write the table of the page."""
    console, source = Console(stderr=True), "slopewise demo"
    try:
        for file in demos or ():
            source = str(file)
            keep(json.loads(file.read_text(encoding="utf-8")), RECORDED, PAGE)
        if not demos:
            run_rounds(_demo, RECORDED, PAGE, console)
        console.print(table(newest(read(RECORDED))))
    except (OSError, json.JSONDecodeError, UsageError, subprocess.CalledProcessError) as error:
        console.print(f"{source}: {error}")
        raise typer.Exit(2) from error
    console.print(f"wrote {RECORDED.name} and the table of {PAGE.name}; now: make which-policy")


if __name__ == "__main__":
    typer.run(main)
