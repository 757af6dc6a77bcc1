"""Writes the table of real runs of the demo in `real-runs.md`, and runs them (`make real-runs`, on a quiet machine).

Fair sharing and `marginal` run in turn (A B, B A) until the 95 % interval of the ratio of mean completion times is
narrower than ± 5 % over at least six rounds, or 40 rounds were run: stated before the first round. A round counts where
the demo itself compares the policy with fair sharing; the others are left out, and their number is said. Files that
`slopewise demo -o json` printed on the same machine count too (`python -m replication.real_runs demo.json`). It keeps
the figures in `real_runs.json`, from which the table can be written again.

The same work takes a different number of CPU-seconds in each run, as the machine is faster or slower. Each ratio
therefore stands beside the same ratio by CPU-seconds: of seconds per CPU-second that all jobs of the run took.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from slopewise.errors import UsageError
from slopewise.reports.estimates import Estimate, estimate

PAGE = Path(__file__).with_name("real-runs.md")
RECORDED = Path(__file__).with_name("real_runs.json")
BEGIN, END = "<!-- real runs: written by `make real-runs` -->\n", "<!-- end of real runs -->\n"

LEAST_ROUNDS = 5
ROUNDS_BEFORE_STOP = 6
MOST_ROUNDS = 40
NARROW_RATIO = 0.05
"""Half the interval's width: a difference of 5 % is then seen."""

RUN = ("slopewise", "demo", "--policy", "marginal", "--repeat", "2", "--output", "json")
RUNS = Path("build/real-runs")

MEASURES = {
    "time_to_90_mean_seconds": "mean time to 90 % of a job's improvement",
    "jct_mean_seconds": "mean completion time (JCT)",
    "makespan_seconds": "makespan",
    "worst_job": "completion time of the worst job",
}
BASELINE = "fair"
Json = dict[str, Any]


def condensed(results: Sequence[Mapping[str, Any]]) -> Json:
    """The figures of each run, by round and policy; UsageError for runs that say nothing."""
    first, kept, left_out, why = results[0], [], 0, []
    for result in results:
        for part in ("node_cores", "actuator", "prometheus_version"):
            if result[part] != first[part]:
                raise UsageError(f"{part} is {first[part]!r} in one file and {result[part]!r} in another.")
        if _jobs(result) != _jobs(first):
            raise UsageError(
                "the files have different jobs: a demo on a busy machine runs fewer. Leave those files out."
            )
        compared = result["comparison"].values()
        apart = {number for said in compared for number in said["rounds_not_compared"]}
        why += [reason for said in compared for reason in said["not_compared_because"]]
        kept += [of_round for number, of_round in enumerate(result["rounds"], start=1) if number not in apart]
        left_out += len(apart)
    if len(kept) < LEAST_ROUNDS:
        raise UsageError(
            f"{len(kept)} of {len(kept) + left_out} rounds can be compared; at least {LEAST_ROUNDS} must be "
            f"(--repeat, or one more file). {' '.join(why)}".rstrip()
        )
    return {
        "cores": first["node_cores"],
        "actuator": first["actuator"],
        "prometheus": first["prometheus_version"],
        "left_out": left_out,
        "rounds": [{policy: _figures(run) for policy, run in of_round.items()} for of_round in kept],
    }


def _jobs(result: Mapping[str, Any]) -> set[str]:
    return {job["name"] for of_round in result["rounds"] for run in of_round.values() for job in run["jobs"]}


def _figures(run: Mapping[str, Any]) -> Json:
    jobs = {job["name"]: job["jct_seconds"] for job in run["jobs"]}
    cpu_seconds = sum(job["cpu_seconds"] for job in run["jobs"])
    return {**{name: run[name] for name in MEASURES if name in run}, "cpu_seconds": cpu_seconds, "jobs": jobs}


def ratios(recorded: Mapping[str, Any], policy: str, measure: str) -> list[float]:
    """Of each round, the policy's figure over that of fair sharing."""
    if measure != "worst_job":
        return [each[policy][measure] / each[BASELINE][measure] for each in recorded["rounds"]]
    return [
        max(seconds / each[BASELINE]["jobs"][name] for name, seconds in each[policy]["jobs"].items())
        for each in recorded["rounds"]
    ]


def by_cpu_seconds(recorded: Mapping[str, Any], policy: str, measure: str) -> list[float]:
    """The same ratios, of seconds per CPU-second of the run's work: twice the time for twice the work is 1."""
    work = [each[policy]["cpu_seconds"] / each[BASELINE]["cpu_seconds"] for each in recorded["rounds"]]
    return [ratio / of_work for ratio, of_work in zip(ratios(recorded, policy, measure), work, strict=True)]


def ended(recorded: Mapping[str, Any] | None) -> bool:
    """Whether the rounds suffice by the rule that was stated before them."""
    if recorded is None or len(recorded["rounds"]) < ROUNDS_BEFORE_STOP:
        return False
    half = estimate(ratios(recorded, "marginal", "jct_mean_seconds")).half
    return half is not None and half < NARROW_RATIO


def table(recorded: Mapping[str, Any]) -> str:
    """The block of the page: a row for each measure of each policy."""
    rounds = recorded["rounds"]
    policies = [policy for policy in rounds[0] if policy != BASELINE]
    cpu_seconds = [run["cpu_seconds"] for of_round in rounds for run in of_round.values()]
    said = (
        f"These are {len(rounds)} rounds of `make demo` ({recorded['cores']:g} cores, {_short(recorded['actuator'])}, "
        f"Prometheus {recorded['prometheus']}), as ratios to fair sharing of the same round, with their 95 % interval; "
        f"less is better. The same work took {min(cpu_seconds):.0f} to {max(cpu_seconds):.0f} CPU-seconds in a run; "
        f"the last column is the ratio of seconds per CPU-second.{_left_out(recorded['left_out'])}"
    )
    lines = [said, "", "| | least | most | mean | mean by CPU-seconds |", "|---|--:|--:|--:|--:|"]
    for policy in policies:
        for measure, label in MEASURES.items():
            found = ratios(recorded, policy, measure)
            means = [shown(estimate(each)) for each in (found, by_cpu_seconds(recorded, policy, measure))]
            lines.append(f"| `{policy}`: {label} | {min(found):.2f} | {max(found):.2f} | {' | '.join(means)} |")
    return "\n".join(lines) + "\n"


def _left_out(rounds: int) -> str:
    if not rounds:
        return ""
    return (
        f" {rounds} more {'was' if rounds == 1 else 'were'} left out, by the demo's own rule: what other programs left "
        "of the CPU to its jobs differed by more than 5 % between policies, or jobs failed."
    )


def _short(actuator: str) -> str:
    return actuator.partition(":")[0]


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


def with_table(page: str, recorded: Mapping[str, Any]) -> str:
    """The page with the table of these runs."""
    return with_block(page, table(recorded))


def run_rounds(folder: Path, console: Console) -> list[Path]:
    """Runs pairs of rounds until they suffice; what they print stays in `folder`, and counts when it is run again."""
    folder.mkdir(parents=True, exist_ok=True)
    while True:
        files = sorted(folder.glob("*.json"))
        recorded = _recorded_yet(files)
        if ended(recorded) or 2 * len(files) >= MOST_ROUNDS:
            return files
        console.print(f"{2 * len(files)} rounds were run; two more take about seven minutes")
        printed = subprocess.run([sys.executable, "-m", *RUN], stdout=subprocess.PIPE, check=True, text=True).stdout
        (folder / f"{len(files):02}.json").write_text(printed, encoding="utf-8")


def _recorded_yet(files: Sequence[Path]) -> Json | None:
    try:
        return condensed(_read(files)) if files else None
    except UsageError:  # too few that can be compared
        return None


def _read(files: Sequence[Path]) -> list[Json]:
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def main(
    demos: Annotated[list[Path] | None, typer.Argument(help="What `slopewise demo -o json` printed.")] = None,
) -> None:
    """Run the rounds, or take the files'; keep their figures, and write the table of the page."""
    console = Console(stderr=True)
    files = demos or run_rounds(RUNS, console)
    try:
        recorded = condensed(_read(files))
    except (OSError, json.JSONDecodeError, UsageError) as error:
        console.print(f"{', '.join(str(file) for file in files)}: {error}")
        raise typer.Exit(2) from error
    RECORDED.write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), recorded), encoding="utf-8")
    console.print(f"wrote {RECORDED.name} and the table of {PAGE.name}; now: make which-policy")


if __name__ == "__main__":
    typer.run(main)
