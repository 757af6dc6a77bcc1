"""Jobs whose code says nothing of Slopewise, managed by a real run with a real Prometheus."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

import pytest
import requests
from local.conftest import a_policy, eventually, running

from slopewise.config.jobs_file import JobSpec
from slopewise.local.session import Session
from slopewise.local.workshop import Workshop
from slopewise.model import Job

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("nothing_left")]

PLAIN = """
    import time
    for epoch in range(1, 61):
        time.sleep({pause})
        print(f"epoch {{epoch}}/60 loss={{2.0 / epoch:.4f}}")
"""


FLAT = """
    import time
    while True:
        time.sleep(0.2)
        print("loss=1.0")
"""


def a_script(folder: Path, name: str, text: str) -> list[str]:
    path = folder / name
    path.write_text(dedent(text))
    return [sys.executable, str(path)]


def newest(session: Session, name: str) -> Job | None:
    for report in reversed(session.all_reports()):
        for job in report.snapshot.jobs if report.snapshot else ():
            if job.name == name:
                return job
    return None


def has_a_loss(session: Session, name: str) -> bool:
    job = newest(session, name)
    return job is not None and job.evaluation is not None


def value(session: Session, query: str) -> float | None:
    url = f"{session.prometheus.url}/api/v1/query"
    rows = requests.get(url, params={"query": query}, timeout=10).json()["data"]["result"]
    return float(rows[0]["value"][1]) if rows else None


def test_a_script_that_only_prints_its_loss_is_managed_to_its_end(workshop: Workshop, tmp_path: Path) -> None:
    job = JobSpec(
        "plain",
        a_script(tmp_path, "plain.py", PLAIN.format(pause=0.5)),
        0.0,
        environment={"SLOPEWISE_THREADS": "follow"},
    )
    other = JobSpec("flat", a_script(tmp_path, "flat.py", FLAT), 0.0)
    with running(workshop, a_policy(), job, other, ours=False) as session:
        eventually(lambda: has_a_loss(session, "plain") and has_a_loss(session, "flat"))
        # The first scrape may come between the first loss and the first plan.
        eventually(lambda: (seen := newest(session, "plain")) is not None and seen.steps_planned is not None)
        assert value(session, 'training_steps_planned{pod="plain"}') == 60
        eventually(lambda: value(session, 'training_cpu_in_effect_cores{pod="plain"}') is not None)
        seen = newest(session, "plain")
        assert seen is not None
        assert seen.steps_planned == 60
        process = session.supervisor.records["plain"].process
        assert process is not None
        started = value(session, 'process_start_time_seconds{pod="plain"}')
        assert started == seen.process_started_at_seconds
        eventually(lambda: any(report.count("applied") for report in session.all_reports()))
        eventually(lambda: session.supervisor.records["plain"].state == "finished")
        log = (session.supervisor.folder / "plain.log").read_text().splitlines()
        assert log == [f"epoch {epoch}/60 loss={2.0 / epoch:.4f}" for epoch in range(1, 61)]


def test_a_pattern_finds_the_loss_of_a_program_that_is_no_python(workshop: Workshop) -> None:
    script = 'n=1; while :; do echo "$n. Runde: Fehler 0,$n Punkte 0.$n"; n=$((n+1)); sleep 0.2; done'
    pattern = r"(?P<step>\d+)\. Runde: .* Punkte (?P<loss>\S+)"
    job = JobSpec("rounds", ["/bin/sh", "-c", script], 0.0, loss_pattern=pattern)
    with running(workshop, a_policy(), job, ours=False) as session:
        eventually(lambda: has_a_loss(session, "rounds"))
        first = value(session, 'training_steps_total{pod="rounds"}')
        assert first is not None
        eventually(lambda: (value(session, 'training_steps_total{pod="rounds"}') or 0) > first)


def test_a_pattern_that_begins_like_an_option_finds_its_loss(workshop: Workshop) -> None:
    script = "while :; do echo '--loss=0.5'; sleep 0.2; done"
    job = JobSpec("dash", ["/bin/sh", "-c", script], 0.0, loss_pattern=r"--loss=(?P<loss>\S+)")
    with running(workshop, a_policy(), job, ours=False) as session:
        eventually(lambda: has_a_loss(session, "dash"))


def test_a_command_with_a_port_of_its_own_is_started_as_it_is_with_threads_that_wait(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    script = "import os; print(sorted(set(os.environ) & {'SLOPEWISE_EXPORTER', 'PYTHONPATH', 'OMP_WAIT_POLICY'}))"
    job = JobSpec("own", [sys.executable, "-c", script], 0.0, port=20_987)
    with running(workshop, a_policy("fair"), job, ours=False) as session:
        eventually(session.supervisor.all_ended)
        assert (session.supervisor.folder / "own.log").read_text() == "['OMP_WAIT_POLICY']\n"
