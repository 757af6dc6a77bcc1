"""The example of a served model on this machine: its middleware, the run's Prometheus, and what the policy reads."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from local.conftest import a_policy, running
from support.serving import statuses_of
from support.waiting import eventually

from slopewise.config.jobs_file import JobSpec, load_jobs
from slopewise.config.training_policy import load_training_policy
from slopewise.local.session import Session
from slopewise.local.workshop import Workshop
from slopewise.model import Job, Objectives

EXAMPLE = Path(__file__).parents[2] / "examples/serving"

pytestmark = pytest.mark.processes


def newest(session: Session) -> Job | None:
    snapshots = [report.snapshot for report in session.all_reports() if report.snapshot is not None]
    return next((job for job in snapshots[-1].jobs if job.name == "model"), None) if snapshots else None


def answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=10) as answer:
            return bool(answer.status == 200)
    except URLError:
        return False


def test_the_files_of_the_example_are_valid_and_belong_together() -> None:
    (job,) = load_jobs(EXAMPLE / "jobs.yaml")
    assert job.objectives.qoe_seconds == 0.05
    assert (EXAMPLE / job.command[1]).is_file()
    assert load_training_policy(EXAMPLE / "policy.yaml").spec.policy.name == "dqoes"


def test_the_example_is_timed_and_its_policy_judges_it_by_its_response_times(workshop: Workshop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, str(EXAMPLE / "serve.py"), "--port", str(port)]
    model = JobSpec("model", command, 0.0, objectives=Objectives(qoe_seconds=1e-6))
    with running(workshop, a_policy("dqoes"), model) as session:
        url = f"http://127.0.0.1:{port}"
        assert eventually(lambda: answers(f"{url}/predict"))
        assert statuses_of(url, ["/"], clients=1) == [404]

        def judged() -> bool:
            statuses_of(url, ["/predict"] * 5, clients=2)
            reasons = [
                report.decisions.reasons.get("model", "") for report in session.all_reports() if report.decisions
            ]
            return any("s of 1e-06 s asked" in reason for reason in reasons)

        assert eventually(judged)
        job = newest(session)
    assert job is not None
    assert job.responses is not None
    assert job.responses.count_total >= 6
    assert job.responses.failed_total == 1
    assert job.missing_evaluation is None
