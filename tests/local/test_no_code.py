"""Jobs whose code says nothing of Slopewise, managed by a real run with a real Prometheus."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from textwrap import dedent

import pytest
import requests
from local.conftest import a_policy, observed_jobs, resizes, running, states
from support.waiting import eventually

from slopewise.config.jobs_file import JobSpec
from slopewise.local.session import Session
from slopewise.local.workshop import Workshop

pytestmark = pytest.mark.processes

PLAIN = """
    import time
    for epoch in range(1, 61):
        time.sleep(0.3)
        print(f"epoch {epoch}/60 loss={2.0 / epoch:.4f}")
"""
FLAT = """
    import time
    while True:
        time.sleep(0.2)
        print("loss=1.0")
"""
ROUNDS = 'n=1; while :; do echo "$n. Runde: Fehler 0,$n Punkte 0.$n"; n=$((n+1)); sleep 0.2; done'
DASHES = "while :; do echo '--loss=0.5'; sleep 0.2; done"
SET = """
    import os
    print(sorted(set(os.environ) & {"SLOPEWISE_EXPORTER", "PYTHONPATH", "OMP_WAIT_POLICY"}))
    print(os.environ["OMP_NUM_THREADS"])
"""


@pytest.fixture(scope="module")
def session(shared_workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A run of a user's commands."""
    folder = tmp_path_factory.mktemp("scripts")

    def script(name: str, text: str) -> list[str]:
        path = folder / name
        path.write_text(dedent(text))
        return [sys.executable, str(path)]

    shell = ["/bin/sh", "-c"]
    jobs = [
        JobSpec("plain", script("plain.py", PLAIN), 0.0, environment={"SLOPEWISE_THREADS": "follow"}),
        JobSpec("flat", script("flat.py", FLAT), 0.0),
        JobSpec("rounds", [*shell, ROUNDS], 0.0, loss_pattern=r"(?P<step>\d+)\. Runde: .* Punkte (?P<loss>\S+)"),
        JobSpec("dash", [*shell, DASHES], 0.0, loss_pattern=r"--loss=(?P<loss>\S+)"),
        JobSpec("own", script("own.py", SET), 0.0, port=20_987),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONPATH", raising=False)
        patch.setenv("OMP_NUM_THREADS", "7")
        with running(shared_workshop, a_policy(), *jobs, ours=False) as session:
            yield session


def has_a_loss(session: Session, name: str) -> bool:
    return any(job.evaluation is not None for job in observed_jobs(session, name))


def value(session: Session, query: str) -> float | None:
    url = f"{session.prometheus.url}/api/v1/query"
    rows = requests.get(url, params={"query": query}, timeout=10).json()["data"]["result"]
    return float(rows[0]["value"][1]) if rows else None


def output(session: Session, name: str) -> list[str]:
    return (session.supervisor.processes.folder / f"{name}.log").read_text().splitlines()


def test_a_script_that_only_prints_its_loss_is_managed_to_its_end(session: Session) -> None:
    assert eventually(lambda: has_a_loss(session, "plain") and has_a_loss(session, "flat"))
    assert eventually(lambda: states(session)["plain"] == "finished")
    seen = observed_jobs(session, "plain")
    # The first scrape may come between the first loss and the first plan.
    assert {job.steps_planned for job in seen if job.steps_planned is not None} == {60}
    assert output(session, "plain") == [f"epoch {epoch}/60 loss={2.0 / epoch:.4f}" for epoch in range(1, 61)]
    assert eventually(lambda: any(outcome.result == "applied" for outcome in resizes(session)))
    assert value(session, 'max_over_time(training_cpu_in_effect_cores{pod="plain"}[1h])') is not None


def test_a_pattern_finds_the_loss_of_a_program_that_is_no_python(session: Session) -> None:
    assert eventually(lambda: has_a_loss(session, "rounds"))
    first = value(session, 'training_steps_total{pod="rounds"}')
    assert first is not None
    assert eventually(lambda: (value(session, 'training_steps_total{pod="rounds"}') or 0) > first)


def test_a_pattern_that_begins_like_an_option_finds_its_loss(session: Session) -> None:
    assert eventually(lambda: has_a_loss(session, "dash"))


def test_a_command_with_a_port_of_its_own_has_the_users_environment_with_threads_that_wait(session: Session) -> None:
    assert eventually(lambda: states(session)["own"] == "finished")
    assert output(session, "own") == ["['OMP_WAIT_POLICY']", "7"]


def test_the_output_of_a_users_command_stays(shared_workshop: Workshop) -> None:
    with Workshop(actuator="duty-cycle", announce=lambda _: None) as workshop:
        log = workshop.users_logs("kept") / "job.log"
        log.write_text("kept\n")
    assert log.read_text() == "kept\n"
