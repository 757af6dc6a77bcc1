"""Checks what a short demo printed and wrote; used by `make test`. Usage: check_demo.py DEMO.json REPORT.html"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

MANAGED = ("flowcon", "marginal")


def problems(result: dict[str, Any], report: str) -> list[str]:
    """What is wrong with a demo's result, one sentence each."""
    runs = result["policy_runs"]
    if list(runs) != ["fair", *MANAGED]:
        return [f"ran {list(runs)}, not fair, {' and '.join(MANAGED)}"]
    found = [problem for policy, run in runs.items() for problem in problems_of_run(policy, run)]
    if runs["fair"]["resizes_applied"]:
        found.append("fair changed something")
    found += [f"{policy} changed nothing" for policy in MANAGED if not runs[policy]["resizes_applied"]]
    fair, *managed = ({job["name"]: job["steps"] for job in run["jobs"]} for run in runs.values())
    found += [f"the same jobs did different work: {fair}, {steps}" for steps in managed if steps != fair]
    if any(run["other_cpu_cores"] is None for run in runs.values()):
        found.append("not counted: what everything else on the machine used")
    for said in result["comparison"].values():
        if bool(said["rounds_compared"]) == bool(said["not_compared_because"]):
            found.append(f"it compared {said['rounds_compared']} rounds and says {said['not_compared_because']}")
    if len(report.encode()) > 1_000_000:
        found.append(f"the report has {len(report.encode())} bytes")
    if any(name not in report for name in fair):
        found.append("the report does not name every job")
    return found


def problems_of_run(policy: str, run: dict[str, Any]) -> list[str]:
    """What is wrong with one policy's run."""
    found = []
    if len({job["name"] for job in run["jobs"]}) < 5:
        found.append(f"{policy}: fewer than five jobs")
    for job in run["jobs"]:
        if job["state"] != "finished":
            found.append(f"{policy}: {job['name']} is {job['state']}")
        if job["loss_last"] is None or job["loss_last"] == job["loss_first"]:
            found.append(f"{policy}: {job['name']} shows no loss curve")
        if job["node"] != "local":
            found.append(f"{policy}: {job['name']} ran on {job['node'] or 'no node'}, and there is one, local")
    if run["passes"] - run["passes_held"] < 3:  # on a busy machine Prometheus does not always answer in time
        found.append(f"{policy}: {run['passes']} passes, {run['passes_held']} of them held")
    return found


def main() -> int:
    """0 when nothing is wrong."""
    result = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    found = problems(result, Path(sys.argv[2]).read_text(encoding="utf-8"))
    for problem in found:
        print(f"short demo: {problem}")
    print(f"short demo: {len(result['policy_runs'])} runs, {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
