"""Writes the README's table of real runs of the demo from what `slopewise demo --repeat 5 -o json` printed.

`make real-runs` (25 minutes on a quiet machine of two cores) runs both; `python -m replication.real_runs demo.json` is
the second half. Runs that the demo itself does not compare are refused, with its reason. What is kept of the runs is
`real_runs.json`, from which the table can be written again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from slopewise.errors import UsageError
from slopewise.reports.estimates import Estimate, estimate

README = Path(__file__).resolve().parent.parent / "README.md"
RECORDED = Path(__file__).with_name("real_runs.json")
BEGIN, END = "<!-- real runs: written by `make real-runs`; do not edit -->\n", "<!-- end of real runs -->\n"

LEAST_ROUNDS = 5

MEASURES = {
    "time_to_90_mean_seconds": "mean time to 90 % of a job's improvement",
    "jct_mean_seconds": "mean completion time (JCT)",
    "makespan_seconds": "makespan",
    "worst_job": "completion time of the worst job",
}
BASELINE = "fair"
Json = dict[str, Any]


def condensed(result: Mapping[str, Any]) -> Json:
    """The figures of each run, by round and policy; UsageError for runs that say nothing."""
    rounds = result["rounds"]
    if len(rounds) < LEAST_ROUNDS:
        raise UsageError(f"there are {len(rounds)} rounds; record at least {LEAST_ROUNDS} (--repeat {LEAST_ROUNDS}).")
    for policy, said in result["comparison"].items():
        if said["rounds_compared"] < len(rounds):
            why = "; ".join(said["not_compared_because"])
            raise UsageError(f"{policy}: {said['rounds_compared']} of {len(rounds)} rounds can be compared: {why}")
    return {
        "cores": result["node_cores"],
        "actuator": result["actuator"],
        "prometheus": result["prometheus_version"],
        "rounds": [{policy: _figures(run) for policy, run in of_round.items()} for of_round in rounds],
    }


def _figures(run: Mapping[str, Any]) -> Json:
    jobs = {job["name"]: job["jct_seconds"] for job in run["jobs"]}
    return {**{name: run[name] for name in MEASURES if name in run}, "jobs": jobs}


def ratios(recorded: Mapping[str, Any], policy: str, measure: str) -> list[float]:
    """Of each round, the policy's figure over that of fair sharing."""
    if measure != "worst_job":
        return [each[policy][measure] / each[BASELINE][measure] for each in recorded["rounds"]]
    return [
        max(seconds / each[BASELINE]["jobs"][name] for name, seconds in each[policy]["jobs"].items())
        for each in recorded["rounds"]
    ]


def table(recorded: Mapping[str, Any]) -> str:
    """The README's block: a row for each measure of each policy."""
    rounds = recorded["rounds"]
    policies = [policy for policy in rounds[0] if policy != BASELINE]
    columns = [f"run {number}" for number in range(1, len(rounds) + 1)]
    said = (
        f"These are {len(rounds)} rounds of `make demo` ({recorded['cores']:g} cores, {_short(recorded['actuator'])}, "
        f"Prometheus {recorded['prometheus']}), as ratios to fair sharing of the same round; less is better. The mean "
        "has its 95 % interval."
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


def _short(actuator: str) -> str:
    return actuator.partition(":")[0]


def _shown(mean: Estimate) -> str:
    if mean.mean is None or mean.low is None or mean.high is None:
        return "–"
    return f"{mean.mean:.2f} [{mean.low:.2f}, {mean.high:.2f}]"


def block(readme: str) -> str:
    """The part of the README that is written here; ValueError where its marks are missing."""
    found = re.findall(re.escape(BEGIN) + "(.*?)" + re.escape(END), readme, re.DOTALL)
    if len(found) != 1:
        raise ValueError(f"README.md has {len(found)} blocks of real runs; its marks are {BEGIN!r} and {END!r}")
    text: str = found[0]
    return text


def with_table(readme: str, recorded: Mapping[str, Any]) -> str:
    """The README with the table of these runs."""
    return readme.replace(BEGIN + block(readme) + END, BEGIN + table(recorded) + END)


def main(demo: Annotated[Path, typer.Argument(help="What `slopewise demo -o json` printed.")]) -> None:
    """Keep the figures of the runs, and write the README's table."""
    console = Console(stderr=True)
    try:
        recorded = condensed(json.loads(demo.read_text(encoding="utf-8")))
    except (OSError, json.JSONDecodeError, UsageError) as error:
        console.print(f"{demo}: {error}")
        raise typer.Exit(2) from error
    RECORDED.write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")
    README.write_text(with_table(README.read_text(encoding="utf-8"), recorded), encoding="utf-8")
    console.print(f"wrote {RECORDED.name} and the table of README.md; now: make which-policy")


if __name__ == "__main__":
    typer.run(main)
