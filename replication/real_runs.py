"""Writes the table of real runs of the demo in `real-runs.md` from what `slopewise demo --repeat 5 -o json` printed.

`make real-runs` (25 minutes on a quiet machine of two cores) runs both; `python -m replication.real_runs demo.json` is
the second half. It takes several such files of one machine. A round counts where the demo itself compares every policy
with fair sharing; the others are left out, and their number is said. What is kept of the runs is `real_runs.json`, from
which the table can be written again.
"""

from __future__ import annotations

import json
import re
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


def table(recorded: Mapping[str, Any]) -> str:
    """The block of the page: a row for each measure of each policy."""
    rounds = recorded["rounds"]
    policies = [policy for policy in rounds[0] if policy != BASELINE]
    columns = [f"run {number}" for number in range(1, len(rounds) + 1)]
    cpu_seconds = [run["cpu_seconds"] for of_round in rounds for run in of_round.values()]
    said = (
        f"These are {len(rounds)} rounds of `make demo` ({recorded['cores']:g} cores, {_short(recorded['actuator'])}, "
        f"Prometheus {recorded['prometheus']}), as ratios to fair sharing of the same round; less is better. The mean "
        f"has its 95 % interval. The same work took {min(cpu_seconds):.0f} to {max(cpu_seconds):.0f} CPU-seconds in a "
        "run."
        f"{_left_out(recorded['left_out'])}"
    )
    lines = [
        said,
        "",
        f"| | {' | '.join(columns)} | mean |",
        f"|---|{'---|' * (len(rounds) + 1)}",
    ]
    for policy in policies:
        for measure, label in MEASURES.items():
            found = ratios(recorded, policy, measure)
            cells = [f"{each:.2f}" for each in found]
            lines.append(f"| `{policy}`: {label} | {' | '.join(cells)} | {_shown(estimate(found))} |")
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


def _shown(mean: Estimate) -> str:
    if mean.mean is None or mean.low is None or mean.high is None:
        return "–"
    return f"{mean.mean:.2f} [{mean.low:.2f}, {mean.high:.2f}]"


def block(page: str) -> str:
    """The part of the page that is written here; ValueError where its marks are missing."""
    found = re.findall(re.escape(BEGIN) + "(.*?)" + re.escape(END), page, re.DOTALL)
    if len(found) != 1:
        raise ValueError(f"real-runs.md has {len(found)} blocks of real runs; its marks are {BEGIN!r} and {END!r}")
    text: str = found[0]
    return text


def with_table(page: str, recorded: Mapping[str, Any]) -> str:
    """The page with the table of these runs."""
    return page.replace(BEGIN + block(page) + END, BEGIN + table(recorded) + END)


def main(demos: Annotated[list[Path], typer.Argument(help="What `slopewise demo -o json` printed.")]) -> None:
    """Keep the figures of the runs, and write the table of the page."""
    console = Console(stderr=True)
    try:
        recorded = condensed([json.loads(demo.read_text(encoding="utf-8")) for demo in demos])
    except (OSError, json.JSONDecodeError, UsageError) as error:
        console.print(f"{', '.join(str(demo) for demo in demos)}: {error}")
        raise typer.Exit(2) from error
    RECORDED.write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), recorded), encoding="utf-8")
    console.print(f"wrote {RECORDED.name} and the table of {PAGE.name}; now: make which-policy")


if __name__ == "__main__":
    typer.run(main)
