"""The regression gate: what every policy decides in two small scenarios, as text that a person can read and compare.

`test_decisions.py` compares it with the committed files; `make accept` (`gate.py --accept`) writes them again. A change
of a policy, of growth, of a guard or of the pass shows as lines that came and went, job by job and second by second.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from slopewise import policies
from slopewise.simulator.engine import run
from slopewise.simulator.scenario.scenario import Scenario, load_scenario, policy_runs
from slopewise.simulator.workload import draw
from slopewise.simulator.world.model import JobOutcome, PolicyRun, RunOutcome, TraceEvent

HERE = Path(__file__).resolve().parent
EXPECTED = HERE / "expected"
SCENARIOS = {path.stem: load_scenario(str(path)) for path in sorted((HERE / "scenarios").glob("*.yaml"))}
SEED = 1

Case = tuple[Scenario, PolicyRun]


def cases() -> dict[str, Case]:
    """Every policy with its default parameters over each scenario, and what the scenario lists besides.

    By the name of the committed file, `SCENARIO/POLICY`.
    """
    names = [name.replace("_", "-") for name in policies.names()]
    return {
        f"{name}/{each.label}": (scenario, each)
        for name, scenario in SCENARIOS.items()
        for each in policy_runs(scenario, [*names, *(entry.shown for entry in scenario.spec.policies)])
    }


def committed(name: str) -> Path:
    """The file that holds what is expected of a case."""
    return EXPECTED / f"{name}.txt"


def text_of(case: Case) -> str:
    """One run as text: the outcome of each job, then everything that happened, in order."""
    scenario, policy = case
    outcome = run(draw(scenario, SEED), policy, trace=True)
    return "\n".join([*_summary(outcome), *(_event(event) for event in outcome.events)]) + "\n"


def _summary(outcome: RunOutcome) -> Iterator[str]:
    yield f"resizes {outcome.resizes_total}, migrations {outcome.migrations_total}, passes {outcome.passes_total}"
    yield f"withheld {outcome.withheld_total}"
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
    texts = {name: text_of(case) for name, case in cases().items()}
    shutil.rmtree(EXPECTED, ignore_errors=True)
    for name, text in texts.items():
        committed(name).parent.mkdir(parents=True, exist_ok=True)
        committed(name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] != ["--accept"]:
        sys.exit("gate.py: use `make accept` to take today's decisions as expected.")
    accept()
