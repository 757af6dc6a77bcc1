"""`slopewise run --once`: one pass of each policy, and the exit code that says how it went."""

from __future__ import annotations

import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.managed_pods import PODS
from support.own_policy import a_file, deciding
from support.replicas import LEASE, LEASES, ORIGINAL, SHARE, Town, is_held, policy_document
from support.suspended_jobs import JOBS, NAME, left_behind
from support.waiting import eventually

from slopewise.adapters.kube.cache.records import PLACE_GATE
from slopewise.adapters.kube.connection import Connection
from slopewise.adapters.kube.leader_election import Terms
from slopewise.errors import SlopewiseError, UsageError
from slopewise.manager.metrics import ClusterMetrics
from slopewise.manager.replica import Replica, policy_of_file, run_once
from slopewise.manager.shared import ClusterOptions
from slopewise.signals import StoppedError, StopSignal
from slopewise.telemetry.metrics import Instruments


def options_in(town: Town, **more: Any) -> ClusterOptions:
    """With the lease as installed: a short one lapses on a busy machine, and nothing is written any more."""
    known = ClusterOptions(
        Connection(), town.prometheus.url, scrape_interval_seconds=0.5, once=True, lease_namespace="controllers"
    )
    return replace(known, **more)


def once(town: Town, stop: StopSignal | None = None, **more: Any) -> tuple[int, list[str]]:
    """The exit code, and what was announced."""
    options = options_in(town, **more)
    instruments = Instruments()
    found: list[str] = []
    metrics = ClusterMetrics(instruments.registry)
    with Replica(options, town.server.client(), instruments, metrics, policy_of_file(options)) as replica:
        return run_once(replica.shared, replica.elector, stop or StopSignal(), found.append), found


def test_it_changes_what_the_policy_wants_holds_the_policy_and_hands_the_lease_back(town: Town) -> None:
    town.policy()
    assert once(town) == (0, [])
    assert town.limit() == SHARE
    assert is_held(town)
    assert town.condition("Ready")["reason"] == "ModeAuto"
    assert town.server.get(LEASE)["spec"]["holderIdentity"] == ""


def test_a_dry_run_asks_for_no_lease_and_writes_nothing(town: Town) -> None:
    town.policy()
    assert once(town, dry_run=True) == (0, [])
    assert town.writes() == []
    assert [line["name"] for line in town.lines("pass completed")] == ["p"]


def test_a_policy_that_cannot_be_obeyed_makes_it_1_and_the_others_have_their_pass(town: Town) -> None:
    town.policy("bad", behaviour={"intervalSeconds": 1})
    town.policy()
    code, announced = once(town)
    assert code == 1
    assert announced[0].startswith("slopewise: TrainingPolicy bad: spec.behaviour.intervalSeconds: 1 s is less than")
    assert town.limit() == SHARE


def test_a_pass_that_cannot_observe_makes_it_4(town: Town) -> None:
    town.prometheus.close()
    town.policy()
    assert once(town) == (4, [])
    assert town.limit() == ORIGINAL


def test_a_users_policy_that_fails_makes_it_1(town: Town, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOPEWISE_POLICIES", str(tmp_path))
    a_file(tmp_path, deciding("return None"), name="wrong")
    town.policy(policy={"name": "wrong"})
    assert once(town)[0] == 1
    assert town.limit() == ORIGINAL


def test_without_a_policy_it_says_what_to_do(town: Town) -> None:
    assert once(town) == (0, ["There is no TrainingPolicy; apply one, or name one with --policy-file."])


def test_a_controller_that_leads_is_named(town: Town) -> None:
    town.policy()
    holder = {"holderIdentity": "slopewise-controller-1", "leaseDurationSeconds": 3600}
    town.server.put(LEASES, {"metadata": {"name": "slopewise-controller"}, "spec": holder})
    with pytest.raises(SlopewiseError, match=r"^slopewise-controller-1 holds the lease controllers/slopewise-contr"):
        once(town, lease=Terms.within(1.5))
    assert town.limit() == ORIGINAL


def test_a_signal_while_it_waits_ends_it(town: Town) -> None:
    town.policy()
    stop = StopSignal()
    stop.note(signal.SIGTERM)
    with pytest.raises(StoppedError, match=r"^stopped by SIGTERM; nothing was changed\.$") as stopped:
        once(town, stop)
    assert stopped.value.exit_code == 143
    assert town.limit() == ORIGINAL


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (
            {"behaviour": {"intervalSeconds": 1}},
            r"p\.yaml: TrainingPolicy p: spec\.behaviour\.intervalSeconds: 1 s is less",
        ),
        ({"policy": {"name": "srpt-oracle"}}, "only the simulator does"),
    ],
)
def test_a_bad_policy_file_is_a_usage_error(town: Town, tmp_path: Path, spec: dict[str, Any], reason: str) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(str(policy_document(**spec)))
    with pytest.raises(UsageError, match=reason):
        policy_of_file(options_in(town, policy_file=path))


def test_one_namespace_needs_a_policy_file(town: Town) -> None:
    with pytest.raises(UsageError, match=r"add --policy-file FILE\.$"):
        policy_of_file(options_in(town, connection=Connection(namespace="team-a")))


def test_a_pod_behind_our_gate_that_no_policy_places_is_let_go_before_it_ends(town: Town) -> None:
    town.policy()
    raw = town.pod("arrives")
    raw["spec"] = {**raw["spec"], "schedulingGates": [{"name": PLACE_GATE}], "nodeName": None}
    town.server.put(PODS, {**raw, "status": {"phase": "Pending"}})

    assert once(town) == (0, [])
    assert not town.server.get(f"{PODS}/arrives")["spec"]["schedulingGates"]


def test_moves_that_are_under_way_are_seen_through_before_it_ends(town: Town) -> None:
    town.server.put(JOBS, left_behind("node-z"))  # there is no such node, so it runs where it may

    assert once(town)[0] == 0
    assert town.server.get(f"{JOBS}/{NAME}")["spec"]["suspend"] is False


def test_a_signal_ends_the_wait_for_moves(town: Town) -> None:
    town.server.put(JOBS, left_behind("node-a"))  # nothing starts its pods
    stop = StopSignal()

    def end_it_once_the_job_is_resumed() -> None:
        eventually(lambda: not town.server.get(f"{JOBS}/{NAME}")["spec"]["suspend"])
        stop.note(signal.SIGTERM)

    ender = threading.Thread(target=end_it_once_the_job_is_resumed)
    ender.start()
    _, announced = once(town, stop)
    ender.join()

    assert announced[-1] == "Moves are under way; another controller, or `slopewise sweep`, continues them."
