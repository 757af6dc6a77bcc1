"""A fault at every write of a move, and watches that are late: each ends with a job that runs, and a history without
contradictions."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import product
from typing import Any

import pytest
from support.api_server import ApiServer
from support.gated_pods import Stage, is_gated
from support.late_views import LateView, View, views
from support.managed_pods import NAMESPACE, PODS
from support.suspended_jobs import JOBS, NAME, WISH, Yard
from support.write_faults import ANY, FAULTS, Faulty

from slopewise.adapters.kube.cache.parsing import parse_object, parse_pod
from slopewise.adapters.kube.cache.records import MIGRATABLE, MOVES_ALLOWED, MOVES_LABEL
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.fencing import FencedApi
from slopewise.adapters.kube.moves.suspend.state_machine import freed
from slopewise.model import Migrate
from testbed.histories.check import contradictions
from testbed.histories.events import Contradiction

Story = Callable[[Yard], None]
"""What happens meanwhile, after every write."""
Plan = Mapping[tuple[str, int], str]

PASS_SECONDS = 20.0
OVER_SECONDS = 300.0
"""A fault costs a back-off of 30 s, and a Job without room 20 s."""


def nothing(yard: Yard) -> None:
    """All goes well."""


def fill(yard: Yard) -> None:
    """The target has no room any more."""
    yard.full.add("node-b")


def remove(yard: Yard) -> None:
    """The target is deleted."""
    yard.lose_node("node-b")


ON_TIME = View()
LATE_SECONDS = 900.0
"""After ten minutes a list is read again, which shows the change that was lost."""
WATCHED = {"jobs": (JOBS, parse_object), "pods": (PODS, parse_pod)}
SEEN_IN_MAKE_TEST = ("last change held back", "10 s late", "expired at change 2")


def every_view(**changes: int) -> pytest.MarkDecorator:
    """`changes`: how many of each kind there are in the run."""
    cases = [
        pytest.param(kind, view, id=f"{kind}: {wrong}", marks=[] if wrong in SEEN_IN_MAKE_TEST else pytest.mark.faults)
        for kind, most in changes.items()
        for wrong, view in views(most).items()
    ]
    return pytest.mark.parametrize(("kind", "view"), cases)


def taint(yard: Yard) -> None:
    """The target takes no further pod."""
    yard.put_node("node-b", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}])
    fill(yard)


def linger(yard: Yard) -> None:
    """Pods that are signalled to end take a while."""
    yard.end_pods()
    yard.lingering = True


SUSPENDED = {nothing: 3, linger: 3, fill: 4, taint: 2, remove: 2}
"""The writes of a move by suspension, in each story."""
EVICTED = 5
"""The writes of a move by eviction: two of its intent, the eviction, the gate, and the end of the intent."""
IN_MAKE_TEST = ("crash before", "crash after", "answer lost", "409")
every_fault = pytest.mark.parametrize(
    "fault", [fault if fault in IN_MAKE_TEST else pytest.param(fault, marks=pytest.mark.faults) for fault in FAULTS]
)


def consent(server: ApiServer) -> None:
    server.put("/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": {MOVES_LABEL: MOVES_ALLOWED}}})


def _see(place: Yard | Stage, kind: str, view: View) -> None:
    """The controllers of the place see the objects of a kind so."""
    if kind:
        path, parse = WATCHED[kind]
        setattr(place, kind, LateView(place.server.objects, path, parse, place.clock, view))


def suspend(
    yard: Yard, story: Story, plan: Plan, kind: str = "", view: View = ON_TIME, *, leaders: bool = True
) -> Faulty:
    """A Job that a policy wants on node-b; `leaders`: each crash has one more. `view`: of the Jobs or the pods."""
    consent(yard.server)
    yard.put_job(affinity=WISH, asks={MIGRATABLE: "true"})
    _see(yard, kind, view)
    faulty = Faulty(yard.server, plan, yard.clock.now)
    ends, next_pass, api = yard.clock.seconds + (OVER_SECONDS if view is ON_TIME else LATE_SECONDS), 0.0, None
    while yard.clock.seconds < ends and (leaders or not faulty.crashed):
        if api is None or faulty.crashed:
            api = FencedApi(faulty.client(), lambda: True)
            mover, follower = yard.mover(api), yard.follower(api)
        if (
            yard.clock.seconds >= next_pass
            and not yard.annotated
            and yard.running_on() == ["node-a"]
            and not yard.ended
        ):
            next_pass = yard.clock.seconds + PASS_SECONDS
            with suppress(ApiError):
                yard.begin(mover)
        story(yard)
        yard.work()
        with suppress(ApiError):
            follower.tick()
        yard.clock.seconds += 2.0
    return faulty


at_every_write = pytest.mark.parametrize(
    ("story", "at"), [(story, at + 1) for story, writes in SUSPENDED.items() for at in range(writes)]
)


@every_fault
@at_every_write
def test_a_fault_at_any_write_of_a_suspension_leaves_it_running(yard: Yard, story: Story, at: int, fault: str) -> None:
    faulty = suspend(yard, story, {(ANY, at): fault})
    assert faulty.done, "the fault was not tried"
    assert contradictions(faulty.events, settled=True) == []
    assert (yard.suspended, len(yard.running_on())) == (False, 1)
    if story in (nothing, linger):
        assert yard.running_on() == ["node-b"]


def unforeseen(faulty: Faulty, view: Mapping[str, Any]) -> list[Contradiction]:
    """What contradicts; but for a pod that waits for a change that the controller sees with the next list."""
    found = contradictions(faulty.events, settled=True)
    return [each for each in found if not (each.rule == "waiting" and view.keys() & {"lost", "held_back"})]


@every_view(jobs=5, pods=3)
def test_a_suspension_that_sees_late_leaves_a_job_that_runs(yard: Yard, kind: str, view: Mapping[str, Any]) -> None:
    seen = View(**view)
    faulty = suspend(yard, nothing, {}, kind, seen)
    assert unforeseen(faulty, view) == []
    assert seen.reached, "there were fewer changes"
    assert (yard.suspended, yard.running_on()) == (False, ["node-b"])


@at_every_write
def test_wherever_the_last_controller_is_killed_the_sweeper_resumes_it(yard: Yard, story: Story, at: int) -> None:
    assert suspend(yard, story, {(ANY, at): "crash after"}, leaders=False).crashed
    for _ in range(4):
        story(yard)
        yard.work()
        stuck = not yard.suspended and not yard.running_on()
        live = sum(not pod.ended for pod in yard.pods.items())
        body = freed(yard.job, live_pods=live, lost=stuck, now_seconds=yard.clock.seconds)
        if body is not None:
            yard.api.patch(f"{JOBS}/{NAME}", body, "application/merge-patch+json")
    yard.work()
    assert (yard.suspended, len(yard.running_on())) == (False, 1)


@pytest.fixture
def stage(server: ApiServer) -> Stage:
    consent(server)
    stage = Stage(server)
    stage.put_job()
    stage.put_pod("train-x")
    return stage


def _is_moved(stage: Stage) -> bool:
    running = [pod["spec"].get("nodeName") for pod in stage.live() if pod["status"]["phase"] == "Running"]
    return running == ["node-b"] and not stage.evictions.under_way()


def evict(stage: Stage, plan: Plan, kind: str = "", view: View = ON_TIME) -> Faulty:
    """A Job of one pod on node-a that a policy wants on node-b. `view`: of the Jobs or the pods."""
    faulty = Faulty(stage.server, plan, stage.clock.now)
    stage.api = FencedApi(faulty.client(), lambda: True)
    _see(stage, kind, view)
    stage.restart()
    for number in range(1, 40 if view is ON_TIME else 240):
        if faulty.crashed:
            stage.api = FencedApi(faulty.client(), lambda: True)
            stage.restart()
        with suppress(ApiError):
            managed = stage.find("uid-of-train:0")
            if (
                number % 5 == 1
                and managed is not None
                and managed.pod.node == "node-a"
                and not stage.evictions.under_way()
            ):
                move = Migrate(managed.job_uid, "node-a", "node-b", "why")
                stage.evictions.begin(move, managed, "draps", ())
        with suppress(ApiError):
            stage.tick(4.0)
        assert len(stage.live()) <= 1
        stage.let_the_cluster_react(number)
        if len(faulty.done) == len(plan) and _is_moved(stage):
            break
    return faulty


@every_fault
@pytest.mark.parametrize("at", range(1, EVICTED + 1))
def test_a_fault_at_any_write_of_a_move_by_eviction_leaves_a_job_that_runs(stage: Stage, at: int, fault: str) -> None:
    faulty = evict(stage, {(ANY, at): fault})
    assert faulty.done, "the fault was not tried"
    assert contradictions(faulty.events, settled=True) == []
    (pod,) = stage.live()
    assert (is_gated(pod), pod["spec"].get("nodeName")) == (False, "node-b")


@every_view(pods=5)
def test_an_eviction_that_sees_late_leaves_a_job_that_runs(stage: Stage, kind: str, view: Mapping[str, Any]) -> None:
    seen = View(**view)
    faulty = evict(stage, {}, kind, seen)
    assert unforeseen(faulty, view) == []
    assert seen.reached, "there were fewer changes"
    (pod,) = stage.live()
    assert (is_gated(pod), pod["spec"].get("nodeName")) == (False, "node-b")


def drawn(seed: int, writes: int) -> Plan:
    """A fault at one of the `writes` that the move makes in any case, and two at any of six, which others may bring."""
    draw = random.Random(seed)
    plan = draw.sample(list(product(range(1, writes + 1), FAULTS)), 1)
    plan += draw.sample(list(product(range(1, 7), FAULTS)), 2)
    return {(ANY, at): fault for at, fault in reversed(plan)}


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(60))
def test_three_faults_of_a_move_by_suspension_leave_a_job_that_runs(yard: Yard, seed: int) -> None:
    story = (nothing, fill, remove)[seed % 3]
    faulty = suspend(yard, story, drawn(seed, SUSPENDED[story]))
    assert faulty.done, "no fault was tried"
    assert contradictions(faulty.events, settled=True) == []
    assert (yard.suspended, len(yard.running_on())) == (False, 1)


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(60))
def test_three_faults_of_a_move_by_eviction_leave_a_job_that_runs(stage: Stage, seed: int) -> None:
    faulty = evict(stage, drawn(seed, EVICTED))
    assert faulty.done, "no fault was tried"
    assert contradictions(faulty.events, settled=True) == []
    (pod,) = stage.live()
    assert (is_gated(pod), "nodeName" in pod["spec"]) == (False, True)
