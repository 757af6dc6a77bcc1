"""The regression gate: what every policy decides in one small scenario, as text that a person can read and compare.

`test_decisions.py` compares it with the committed files; `make accept` (`gate.py --accept`) writes them anew. A change
of a policy, of growth, of a guard or of the pass shows as lines that came and went, job by job and second by second.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from controller import policies
from controller.simulator.engine import run
from controller.simulator.model import JobOutcome, PolicyRun, RunOutcome, TraceEvent
from controller.simulator.scenario import load_scenario, policy_runs
from controller.simulator.workload import draw

HERE = Path(__file__).resolve().parent
EXPECTED = HERE / "expected"
SCENARIO = HERE / "scenario.yaml"
SEED = 1


def cases() -> dict[str, PolicyRun]:
    """Every policy by its name, under shares; and the two that resize most under hard limits as well."""
    names = [name.replace("_", "-") for name in policies.names()]
    runs = {run.label: run for run in policy_runs(load_scenario(str(SCENARIO)), names)}
    hard = {f"{name}-limits": replace(runs[name], control="limits") for name in ("flowcon", "dqoes")}
    return runs | hard


def told(case: PolicyRun) -> str:
    """One run as text: what became of each job, then everything that happened, in order."""
    outcome = run(draw(load_scenario(str(SCENARIO)), SEED), case, trace=True)
    return "\n".join([*_summary(outcome), *(_event(event) for event in outcome.events)]) + "\n"


def _summary(outcome: RunOutcome) -> Iterator[str]:
    yield f"resizes {outcome.resizes_total}, migrations {outcome.migrations_total}, passes {outcome.passes_total}"
    yield f"cpu used {outcome.cpu_utilisation_ratio:.3f}, growth efficiency sum {outcome.growth_efficiency_sum:.4f}"
    yield from (_job(job) for job in outcome.jobs)
    yield ""


def _job(job: JobOutcome) -> str:
    ended = "did not end" if job.finished_seconds is None else f"ended {job.finished_seconds:.1f}"
    stays = ", ".join(f"{stay.node} ({stay.came})" for stay in job.stays)
    response = "" if job.response_seconds is None else f", responds in {job.response_seconds:.3f} s"
    return f"{job.name}: {ended}, on {stays}, used {job.served_cpu_seconds:.1f} CPU-s{response}"


def _event(event: TraceEvent) -> str:
    detail = " ".join(f"{key}={_figure(value)}" for key, value in event.detail.items())
    return f"{event.at_seconds:7.1f} {event.kind} {event.job} {event.node} {detail}".rstrip()


def _figure(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def accept() -> None:
    """Write what every policy decides today; files of policies that are gone are removed."""
    EXPECTED.mkdir(exist_ok=True)
    for old in EXPECTED.glob("*.txt"):
        old.unlink()
    for name, case in cases().items():
        (EXPECTED / f"{name}.txt").write_text(told(case), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] != ["--accept"]:
        sys.exit("gate.py: use `make accept` to take today's decisions as expected.")
    accept()
