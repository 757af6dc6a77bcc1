"""A workload that could not be moved waits: until what refused it has changed, or for a while that its reason says."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from msgspec import structs
from support.api_server import refusal
from support.cluster_records import FakeStore, an_object
from support.suspended_jobs import BUDGETS, Yard

from slopewise.adapters.kube.cache.records import ManagedPod, ObjectRecord
from slopewise.adapters.kube.client.meanings import Refused
from slopewise.adapters.kube.moves.backoff import MoveBackoff
from slopewise.adapters.pauses import FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS

BY_BUDGET = Refused("deferred", "a disruption budget says no: guarded", "budget")
BY_RULE = Refused("infeasible", "an admission policy denies it", "rule")
TROUBLE = Refused("failed", "the API server did not carry it out (no answer)", "trouble")


@dataclass
class Scene:
    """A Job on the small API server, and what is remembered of it."""

    yard: Yard
    namespaces: FakeStore[ObjectRecord]
    backoff: MoveBackoff

    @property
    def managed(self) -> ManagedPod:
        return self.yard.managed()

    def reason(self) -> str | None:
        return self.backoff.reason(self.managed)

    def note(self, refused: Refused) -> str:
        return self.backoff.note(self.managed, refused)

    def put_budget(self, allowed: int) -> None:
        status = {"disruptionsAllowed": allowed}
        spec = {"selector": {"matchLabels": {"app": "training"}}}
        self.yard.server.put(BUDGETS, {"metadata": {"name": "guarded"}, "spec": spec, "status": status})


@pytest.fixture
def scene(yard: Yard) -> Scene:
    yard.put_job()
    namespaces = FakeStore((structs.replace(an_object(yard.managed().pod.namespace, "n"), namespace=""),))
    return Scene(yard, namespaces, MoveBackoff(yard.api, yard.jobs, namespaces, yard.clock))


def test_it_is_not_moved_for_five_minutes_and_both_texts_say_until_when(scene: Scene) -> None:
    scene.put_budget(0)
    assert scene.note(BY_BUDGET) == (
        "a disruption budget says no: guarded; tried again at 13:51:40 UTC, or when a disruption budget of its "
        "namespace changes"
    )
    assert scene.reason() == (
        "until 13:51:40 UTC or a disruption budget of its namespace changes: a disruption budget says no: guarded"
    )
    scene.yard.clock.seconds += MAX_BACKOFF_SECONDS - 1
    assert scene.reason() is not None
    scene.yard.clock.seconds += 1
    assert scene.reason() is None
    assert scene.note(Refused("deferred", "a pod of its Job is ending")) == "a pod of its Job is ending"
    assert scene.reason() is None, "what passes within a pass makes no job wait"


def test_a_budget_that_allows_more_or_is_gone_ends_the_wait_with_the_next_pass(scene: Scene) -> None:
    scene.put_budget(0)
    scene.note(BY_BUDGET)
    scene.yard.server.fault(refusal(403, "Forbidden", "not allowed"), method="GET", path="disruptionbudgets")
    scene.yard.clock.seconds += 20
    assert scene.reason() is not None, "budgets that cannot be read end no wait"
    scene.put_budget(1)
    scene.yard.clock.seconds += 20
    assert scene.reason() is None

    scene.note(BY_BUDGET)
    scene.yard.server.remove(f"{BUDGETS}/guarded")
    scene.yard.clock.seconds += 20
    assert scene.reason() is None


def test_labels_of_the_namespace_or_another_spec_of_the_job_end_the_wait_for_a_rule(scene: Scene) -> None:
    scene.note(BY_RULE)
    assert scene.reason() == (
        "until 13:51:40 UTC or its Job or a label of its namespace changes: an admission policy denies it"
    )
    (record,) = scene.namespaces.records
    scene.namespaces.records = (structs.replace(record, labels={"slopewise.dev/moves": "true"}),)
    assert scene.reason() is None
    scene.note(BY_RULE)
    scene.yard.change_job(lambda job: job["spec"].update(backoffLimit=3))
    assert scene.reason() is None
    assert scene.yard.server.asked("GET", "disruptionbudgets") == []


def test_an_error_makes_it_wait_for_half_a_minute_and_twice_as_long_each_further_time(scene: Scene) -> None:
    waits = []
    for _ in range(6):
        scene.note(TROUBLE)
        begun = scene.yard.clock.seconds
        while scene.reason() is not None:
            scene.yard.clock.seconds += 1.0
        waits.append(scene.yard.clock.seconds - begun)
    assert waits == [FIRST_BACKOFF_SECONDS, 60.0, 120.0, 240.0, 300.0, 300.0]

    scene.yard.clock.seconds += 3600.0
    scene.note(TROUBLE)
    scene.yard.clock.seconds += FIRST_BACKOFF_SECONDS
    assert scene.reason() is None, "an error of an hour ago is not of this row"


def test_a_mover_that_is_refused_says_so_and_the_job_waits(scene: Scene) -> None:
    cause = {"reason": "DisruptionBudget", "message": "The disruption budget guarded needs 1", "field": ""}
    no = refusal(429, "TooManyRequests", "Cannot evict pod", (cause,))
    scene.yard.server.fault(no, method="POST", path="/eviction$")
    mover = scene.yard.mover(on_refused=scene.backoff.note)
    outcome = scene.yard.begin(mover)
    assert outcome.detail.startswith(
        "a disruption budget says no: The disruption budget guarded needs 1; tried again at"
    )
    assert scene.reason() is not None
