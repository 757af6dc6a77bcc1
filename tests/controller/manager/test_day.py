"""A day of one policy's passes over an API server, with jobs that come and go: no store of the controller grows."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest
from support.api_objects import Address, Selector
from support.api_server import ApiServer
from support.fake_prometheus import FakePrometheus
from support.replicas import POLICIES, policy_document, shared_parts
from support.simulated_trainings import SCRAPE_SECONDS, SimulatedTrainings, node_object, pod_object
from support.stores import store_sizes
from support.waiting import eventually

from slopewise.adapters.clock import SystemClock
from slopewise.adapters.kube.events import EventRecorder
from slopewise.adapters.kube.state.job_growth_object import growth_path
from slopewise.manager.policy_runner import PolicyRunner
from slopewise.manager.shared import SharedState

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]  # 70 s of CPU, which at a load of 10 are 12 minutes

NODES, JOBS, HOURS = 8, 40, 24
PASSES_AN_HOUR = 20
"""One job ends in each, and another one comes: 480 in a day, each for two hours."""

A_LEAK = PASSES_AN_HOUR * (HOURS - 5) // 4
"""Entries of one for every fourth job that came after the fifth hour: fewer are deferred resizes, or a second copy of a
policy after its list was read again."""

BOUNDED_IN_REAL_TIME = {"Reflector._observed"}
"""What each list empties, every ten minutes by the machine's clock: a day takes less than that here."""


@dataclass
class LaterClock(SystemClock):
    """The machine's, by the simulated time later."""

    later_seconds: float = 0.0

    def now(self) -> float:
        return super().now() + self.later_seconds

    def monotonic(self) -> float:
        return super().monotonic() + self.later_seconds


@dataclass
class Day:
    """The cluster, its trainings, and the controller's own objects."""

    server: ApiServer
    trainings: SimulatedTrainings
    shared: SharedState
    clock: LaterClock
    alive: list[str] = field(default_factory=list)
    begun: int = 0

    def begin(self) -> None:
        """One more job."""
        name, now = f"train-{self.begun}", self.clock.now()
        self.begun += 1
        begun = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
        self.server.put(PODS, pod_object(name, f"node-{self.begun % NODES}", begun))
        self.trainings.add("team", name, f"node-{self.begun % NODES}", now)
        self.alive.append(name)

    def end_oldest(self) -> None:
        """Its pod is deleted, and the garbage collector takes what it owned."""
        name = self.alive.pop(0)
        self.server.remove(f"{PODS}/{name}")
        self.trainings.remove("team", name)
        uids = {each["metadata"]["uid"] for each in self.server.objects.stored(Address.of(PODS), Selector())}
        for growth in self.server.objects.stored(Address.of(growth_path()), Selector()):
            if growth["spec"]["workload"]["uid"] not in uids:
                self.server.remove(growth_path("team", growth["metadata"]["name"]))

    def is_seen(self) -> bool:
        """Whether the watch of the pods has all changes."""
        return {each.name for each in self.shared.watches.pods.items()} == set(self.alive)


PODS = "/api/v1/namespaces/team/pods"


@pytest.fixture
def day() -> Iterator[Day]:
    with ApiServer() as server:
        yield from _day(server)


def _day(server: ApiServer) -> Iterator[Day]:
    for number in range(NODES):
        server.put("/api/v1/nodes", node_object(f"node-{number}"))
    server.put("/api/v1/namespaces", {"metadata": {"name": "team"}})
    server.put(
        POLICIES,
        policy_document(
            policy={"name": "marginal"}, behaviour={"intervalSeconds": 180}, resources={"cpu": {"min": "100m"}}
        ),
    )
    server.objects.kubelets_follow = True
    prometheus, trainings = FakePrometheus(), SimulatedTrainings()
    prometheus.respond = trainings.respond
    clock = LaterClock()
    with prometheus, shared_parts(server.client(), prometheus.url, scrape_seconds=SCRAPE_SECONDS) as made:
        shared = replace(made, clock=clock, events=EventRecorder(made.api, instance="day", clock=clock.now))
        shared.start()
        yield Day(server, trainings, shared, clock)
        shared.stop()


def test_no_store_grows_after_the_second_hour_of_a_day_with_jobs_that_come_and_go(day: Day) -> None:
    [record] = day.shared.claims.policies()
    assert record.document is not None
    runner = PolicyRunner(day.shared, record, record.document, None)
    for _ in range(JOBS):
        day.begin()
    by_hour: list[Counter[str]] = []
    for _ in range(HOURS):
        for _ in range(PASSES_AN_HOUR):
            assert eventually(day.is_seen)
            report = runner.one_pass()
            assert report.held is None
            runner.publish(report)
            day.clock.later_seconds += 3600 / PASSES_AN_HOUR
            day.end_oldest()
            day.begin()
        day.server.requests.clear()
        by_hour.append(store_sizes(runner, day.shared) + Counter({"metrics": _metric_samples(day.shared)}))
    runner.stop(60)
    early, late = by_hour[1:5], by_hour[-4:]
    grown = {
        name: ([each[name] for each in early], [each[name] for each in late])
        for name in set().union(*late) - BOUNDED_IN_REAL_TIME
        if max(each[name] for each in late) > max(each[name] for each in early) + A_LEAK
    }
    assert not grown


def _metric_samples(shared: SharedState) -> int:
    return sum(len(family.samples) for family in shared.instruments.registry.collect())
