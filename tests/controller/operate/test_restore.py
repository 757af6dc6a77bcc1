"""`slopewise restore --all`: what is back, what is left and why, and that no controller works against it."""

from __future__ import annotations

import io
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from support.api_objects import Address
from support.api_server import refusal
from support.replicas import GROWTHS, LEASE, LEASES, ORIGINAL, Json, Town, is_held, wait_for
from support.suspended_jobs import JOBS, NAME, left_behind

from slopewise.adapters.kube.connection import Connection
from slopewise.adapters.kube.leader_election import Terms
from slopewise.adapters.kube.state.freezes import freeze_path
from slopewise.errors import SlopewiseError
from slopewise.feedback.restore import RestoreReport
from slopewise.operate.restore import Restoration, listing, restore_all
from slopewise.signals import StopSignal

SHORT = Terms(1.5, 1.0, 0.2)


@pytest.fixture(scope="module")
def changed() -> dict[Address, Json]:
    """What is stored of two pods that a controller has changed; it is stopped."""
    with Town() as town:
        town.pod("a")
        town.pod("b")
        town.policy()
        with town.replica():
            wait_for(lambda: {town.limit("a"), town.limit("b")} == {"1"}, "the pods get their shares", town)
        return town.server.objects.saved()


@pytest.fixture
def town(changed: dict[Address, Json]) -> Iterator[Town]:
    with Town() as town:
        town.server.objects.begin_with(changed)
        yield town


@pytest.fixture
def connection(town: Town, tmp_path: Path) -> Connection:
    path = tmp_path / "kubeconfig"
    path.write_text(town.server.kubeconfig)
    return Connection(kubeconfig=path, timeout_seconds=2.0)


def restore(connection: Connection, deadline_seconds: float = 20.0, stop: StopSignal | None = None) -> Restoration:
    return restore_all(connection, "controllers", deadline_seconds, stop or StopSignal(), lambda _: None, SHORT)


def shown(result: Restoration) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(listing(result))
    return console.export_text()


def test_every_pod_gets_what_it_came_with_and_every_policy_is_let_go(town: Town, connection: Connection) -> None:
    result = restore(connection)

    assert result.as_json() == {
        "restored": {"pod team-a/a": "", "pod team-a/b": ""},
        "gone": {},
        "accepted": {},
        "pending": {},
        "impossible": {},
        "finalizersRemoved": ["p"],
        "problems": [],
        "complete": True,
    }
    assert {town.limit("a"), town.limit("b")} == {ORIGINAL}
    assert not is_held(town)
    assert "original" not in town.found(f"{GROWTHS}/a")["status"]["pods"][0]
    assert town.server.get(LEASE)["spec"]["holderIdentity"] == ""
    assert "TrainingPolicy p" in shown(result)


def test_what_a_dead_kubelet_has_not_carried_out_is_not_back_and_said(town: Town, connection: Connection) -> None:
    town.server.objects.kubelets_follow = False
    result = restore(connection, deadline_seconds=2.0)

    assert {town.limit("a"), town.limit("b")} == {ORIGINAL}
    assert (result.restored, result.pending) == ({}, {})
    assert result.accepted == dict.fromkeys(
        ("pod team-a/a", "pod team-a/b"),
        "the API server has accepted limit 300m, request 100m; node-a has not reported it in effect yet "
        "(it reports limit 1000m, request 100m)",
    )
    assert not result.complete
    assert result.problems == ["the finalizer stays on p, as not everything is back"]
    assert is_held(town)
    assert "accepted, NOT in effect yet" in shown(result)
    assert "original" in town.found(f"{GROWTHS}/a")["status"]["pods"][0]

    for pod in ("a", "b"):  # the kubelet is back
        town.server.objects.follow(Address.of(f"/api/v1/namespaces/team-a/pods/{pod}"))
    assert restore(connection).complete


def test_a_job_that_a_move_has_suspended_is_resumed_before_the_end(town: Town, connection: Connection) -> None:
    town.server.put(JOBS, left_behind("node-z"))

    assert restore(connection).complete
    assert town.server.get(f"{JOBS}/{NAME}")["spec"]["suspend"] is False


def test_a_job_that_stays_suspended_is_reported_and_keeps_the_policies(town: Town, connection: Connection) -> None:
    still_ending = {**left_behind("node-z"), "status": {}}
    town.server.put(JOBS, still_ending)

    result = restore(connection, deadline_seconds=0.0)

    assert result.pending == {f"Job team-a/{NAME}": "suspended for a move, until its pods have ended"}
    assert is_held(town)


def test_a_second_time_there_is_nothing_left_to_do(connection: Connection) -> None:
    restore(connection)
    result = restore(connection)
    assert result.complete
    assert "no pod was changed, and no policy holds a finalizer" in shown(result)


def test_a_pod_that_is_gone_is_named_by_its_name(town: Town, connection: Connection) -> None:
    town.server.remove("/api/v1/namespaces/team-a/pods/b")
    result = restore(connection)
    assert result.gone == {"pod team-a/b": "its pod is gone"}
    assert result.complete


def test_what_is_left_at_the_deadline_is_reported_and_keeps_policies(town: Town, connection: Connection) -> None:
    town.server.fault(refusal(500, "InternalError", "the webhook is gone"), path="/pods/b/resize$", times=100)
    result = restore(connection, deadline_seconds=3.0)

    assert result.restored.keys() == {"pod team-a/a"}
    assert "the webhook is gone" in result.pending["pod team-a/b"]
    assert result.problems == ["the finalizer stays on p, as not everything is back"]
    assert not result.complete
    assert is_held(town)
    assert "NOT restored yet" in shown(result)

    town.server.heal()
    assert restore(connection).complete


def test_a_signal_ends_it_with_what_was_done_so_far(town: Town, connection: Connection) -> None:
    town.server.fault(refusal(500, "InternalError", "the webhook is gone"), path="/pods/b/resize$", times=100)
    stop = StopSignal()
    announced: list[str] = []

    def announce(message: str) -> None:
        announced.append(message)
        if sum("not back yet" in each for each in announced) == 2:  # what was accepted at the first is in effect
            stop.note(signal.SIGINT)

    result = restore_all(connection, "controllers", 60.0, stop, announce)

    assert "stopped by SIGINT" in result.problems
    assert result.restored.keys() == {"pod team-a/a"}
    assert announced[0].startswith("Taking the lease controllers/slopewise-controller")
    assert announced[1].startswith("1 not back yet, for example pod team-a/b: ")


def test_it_refuses_while_a_controller_leads(town: Town, connection: Connection) -> None:
    holder = {"holderIdentity": "slopewise-controller-1", "leaseDurationSeconds": 3600}
    town.server.put(LEASES, {"metadata": {"name": "slopewise-controller"}, "spec": holder})

    with pytest.raises(SlopewiseError, match=r"^slopewise-controller-1 holds the lease .*stop that controller first"):
        restore(connection)

    assert {town.limit("a"), town.limit("b")} == {"1"}


def test_a_lease_that_cannot_be_had_says_why_and_how_to_name_another(town: Town, connection: Connection) -> None:
    town.server.fault(refusal(403, "Forbidden", "cannot get leases"), path="leases", times=1000)
    with pytest.raises(SlopewiseError, match=r"cannot get leases.*name its namespace with --lease-namespace\.$"):
        restore(connection)


def test_what_the_last_try_said_of_a_pod_counts() -> None:
    result = Restoration()
    result.add(RestoreReport(waiting={"u:0": "no room"}), lambda uid: "ns/a")
    result.add(RestoreReport(restored={"u:0": ""}), lambda uid: "ns/a")
    assert (result.restored, result.pending) == ({"pod ns/a": ""}, {})
    assert json.loads(json.dumps(result.as_json()))["complete"] is True


def test_what_is_impossible_is_left_and_distinguished() -> None:
    result = Restoration()
    result.add(RestoreReport(impossible={"u:0": "vpa resizes it now"}), lambda uid: "ns/a")
    assert not result.complete
    assert "NOT restored" in shown(result)


def test_a_freeze_holds_nothing_back_that_a_person_restores(town: Town, connection: Connection) -> None:
    town.server.put(freeze_path(), {"metadata": {"name": "f"}, "spec": {"scope": "all"}})
    town.server.fault(refusal(403, "Forbidden", "no right to freezes"), path="/freezes", times=99)
    assert restore(connection).complete
    assert {town.limit("a"), town.limit("b")} == {ORIGINAL}
