"""The memory in custom resources: what survives, what is stored before a change, and what happens when it cannot be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs
from structlog.testing import capture_logs
from support.api_server import ApiServer, Drop, refusal
from support.growths import GROWTHS, Pods, Replica, a_workload
from support.worlds import known

from slopewise.adapters.kube.client.client import KubeApi
from slopewise.adapters.kube.state.job_growth_store import LATE_CHECKS
from slopewise.adapters.kube.state.job_memory import WRITES_AT_ONCE, KubeMemory
from slopewise.adapters.kube.state.training_policies import Intervals, PolicyRecords
from slopewise.errors import ObservationError
from slopewise.model import (
    ClassFigures,
    CpuAllocation,
    Departed,
    JobMemory,
    MemoryAllocation,
    MemoryState,
    NodeMemory,
    PolicyMemory,
)

ORIGINAL = CpuAllocation(2000, 500)
MEMORY = MemoryAllocation(2**30, 3 * 2**29 + 1)


@pytest.fixture
def api(server: ApiServer) -> KubeApi:
    return server.client()


@pytest.fixture
def pods() -> Pods:
    return Pods()


@pytest.fixture
def replica(api: KubeApi, pods: Pods) -> Replica:
    return Replica(api, pods)


@pytest.fixture
def memory(replica: Replica) -> KubeMemory:
    """Of a policy that is new: its first pass has begun, with nothing to remember."""
    memory = replica.memory()
    assert memory.load() == MemoryState()
    return memory


def writes(server: ApiServer) -> list[str]:
    return [request.method for request in server.requests if request.method != "GET"]


def may_change(memory: KubeMemory, uid: str) -> bool:
    """Whether the actuator gets a stored original, and not a reason."""
    return isinstance(memory.stored_original(uid), CpuAllocation)


def changed(**more: Any) -> JobMemory:
    return known(efficiency=0.1, original=ORIGINAL, **more)


def test_a_restarted_controller_knows_what_both_of_two_policies_decided(api: KubeApi, pods: Pods) -> None:
    uid = pods.add("train", node="n2")
    first = Replica(api, pods).memory()
    first.load()
    placed = PolicyMemory(job_class="CC", class_since_seconds=3.0, marks=frozenset({"migrated"}))
    marks = frozenset({"migrated"})
    what = changed(decided=PolicyMemory(job_class="NL", marks=marks), placement=placed, last_resized_at_seconds=5.0)
    first.save(MemoryState({uid: what}))
    intervals = Intervals({"n2": (100.0, 20.0)}, {"n2": (90.0, 30.0)})
    again = Replica(api, pods).memory(intervals=intervals).load()
    assert again.jobs == {uid: what}
    assert again.nodes == {"n2": NodeMemory(frozenset({uid}), 100.0, 20.0)}
    assert again.placement_nodes == {"n2": NodeMemory(frozenset({uid}), 90.0, 30.0)}


@pytest.mark.parametrize("decided", [{"job_class": "CC"}, {"marks": frozenset({"migrated"})}])
def test_a_placement_is_urgent(pods: Pods, replica: Replica, memory: KubeMemory, decided: dict[str, Any]) -> None:
    uid = pods.add("train")
    memory.save(MemoryState({uid: known(placement=PolicyMemory())}))
    replica.writer.write()
    memory.save(MemoryState({uid: known(placement=PolicyMemory(**decided))}))
    assert replica.writer.urgent() == {"uid-of-train"}


def test_only_an_original_cannot_wait(server: ApiServer, pods: Pods, replica: Replica, memory: KubeMemory) -> None:
    uid = pods.add("train")
    memory.save(MemoryState({uid: known(job_class="NL")}))
    assert writes(server) == []
    assert replica.writer.urgent() == {"uid-of-train"}
    replica.writer.write()
    assert server.get(f"{GROWTHS}/train")["status"]["pods"][0]["memory"].count('"job_class":"NL"') == 1
    memory.save(MemoryState({uid: known(job_class="NL", efficiency=0.3)}))
    assert replica.writer.waiting
    assert replica.writer.urgent() == set()


def test_a_job_that_a_pass_does_not_see_keeps_its_original(pods: Pods, replica: Replica, memory: KubeMemory) -> None:
    uid = pods.add("train")
    memory.save(MemoryState({uid: changed()}))
    pods.by_job.clear()
    memory.save(MemoryState())
    assert memory.load().jobs[uid].original == ORIGINAL
    pods.add("train", pod_uid="the next pod", node="n2")
    memory.save(memory.load())
    replica.writer.write()
    (pod,) = replica.store.items()[0].read_status()["pods"]
    assert pod["uid"] == "the next pod"


def test_a_job_gone_between_two_passes_is_forgotten(server: ApiServer, pods: Pods, memory: KubeMemory) -> None:
    uid = pods.add("train")
    memory.save(MemoryState({uid: changed()}))
    pods.by_job.clear()
    server.remove(f"{GROWTHS}/train")
    assert memory.load().jobs, "the watch may be late"
    for _ in range(LATE_CHECKS):
        state = memory.load()
    assert state == MemoryState()


def test_a_jobgrowth_that_was_deleted_is_created_again_only_while_its_workload_has_a_pod(
    server: ApiServer, pods: Pods, replica: Replica, memory: KubeMemory
) -> None:
    gone, there = pods.add("gone"), pods.add("there")
    for efficiency in (0.2, 0.3):  # the second one is progress, which waits for its turn
        memory.save(MemoryState({uid: known(efficiency=efficiency, original=ORIGINAL) for uid in (gone, there)}))
    memory.load()
    del pods.by_job[gone]
    for name in ("gone", "there"):
        server.remove(f"{GROWTHS}/{name}")
    server.requests.clear()
    replica.writer.write()
    assert server.asked("POST") == []
    state = memory.load()
    assert list(state.jobs) == [there]
    replica.writer.write()
    assert [each.body["metadata"]["name"] for each in server.asked("POST")] == ["there"]
    assert server.get(f"{GROWTHS}/there")["status"]["pods"][0]["original"]["cpuLimit"] == "2"


def test_an_original_outlives_its_deleted_jobgrowth(server: ApiServer, pods: Pods, memory: KubeMemory) -> None:
    uid = pods.add("train")
    memory.save(MemoryState({uid: changed()}))
    memory.load()
    server.remove(f"{GROWTHS}/train")  # by a person
    server.fault(refusal(403, "Forbidden", "no right"), method="POST", path="jobgrowths", times=1)
    memory.save(memory.load())
    assert not may_change(memory, uid)
    state = memory.load()
    assert state.jobs[uid].original == ORIGINAL
    memory.save(state)
    assert server.get(f"{GROWTHS}/train")["status"]["pods"][0]["original"]["cpuLimit"] == "2"
    assert may_change(memory, uid)


def test_without_a_stored_original_nothing_is_resized(server: ApiServer, pods: Pods, memory: KubeMemory) -> None:
    good, bad = pods.add("good"), pods.add("bad")
    server.fault(refusal(403, "Forbidden", "no right"), method="POST", path="jobgrowths", times=1)
    memory.save(MemoryState({bad: changed(), good: changed()}))
    reason = str(memory.stored_original(bad))
    assert "could not be stored" in reason
    assert "no right" in reason
    assert memory.stored_original(good) == ORIGINAL
    assert memory.load().jobs[bad].original is None
    memory.save(MemoryState({bad: changed()}))
    assert memory.stored_original(bad) == ORIGINAL


def test_an_outage_is_found_out_once_and_not_for_every_job(server: ApiServer, pods: Pods, memory: KubeMemory) -> None:
    uids = [pods.add(f"train-{number}") for number in range(5)]
    server.fault(Drop(), path="jobgrowths", times=99)
    memory.save(MemoryState({uid: changed() for uid in uids}))
    assert len(server.asked("POST")) == 1
    assert not any(may_change(memory, uid) for uid in uids)
    server.heal()
    server.requests.clear()
    uids += [pods.add(f"more-{number}") for number in range(2 * WRITES_AT_ONCE)]
    for _ in range(2):
        memory.save(MemoryState({uid: changed() for uid in uids}))
    assert len(server.asked("POST")) == len(uids), "each original is stored once for many saves"
    assert all(may_change(memory, uid) for uid in uids)


def test_nothing_is_stored_or_resized_once_leadership_is_lost(server: ApiServer, api: KubeApi, pods: Pods) -> None:
    uid = pods.add("train")
    memory = Replica(api, pods, may_write=lambda: False).memory()
    memory.load()
    memory.save(MemoryState({uid: changed()}))
    assert writes(server) == []
    assert not may_change(memory, uid)
    unread = Replica(api, pods)
    unread.store.synced = False
    with pytest.raises(ObservationError, match="not read yet"):
        unread.memory().load()


def test_a_stored_original_is_only_cleared(api: KubeApi, pods: Pods, replica: Replica, memory: KubeMemory) -> None:
    uid = pods.add("train")
    memory.save(MemoryState({uid: changed(original_memory=MEMORY)}))
    memory.save(MemoryState({uid: JobMemory(original=CpuAllocation(1, 1), original_memory=MemoryAllocation(1, 2))}))
    known = memory.load().jobs[uid]
    assert (known.original, known.original_memory) == (ORIGINAL, MEMORY)
    memory.save(MemoryState({uid: JobMemory()}))
    assert replica.writer.urgent() == {"uid-of-train"}
    replica.writer.write()
    again = Replica(api, pods).memory().load().jobs[uid]
    assert (again.original, again.original_memory) == (None, None)


def test_a_workload_that_another_policy_takes_over_keeps_its_original(pods: Pods, replica: Replica) -> None:
    uid = pods.add("train")
    older, newer = replica.memory("older"), replica.memory("newer")
    older.load()
    older.save(MemoryState({uid: changed(decided=PolicyMemory(job_class="NL"))}))
    newer.load()
    # The pass that takes it over sees the changed allocation, and would take that for the original.
    newer.save(MemoryState({uid: JobMemory()}))
    newer.save(MemoryState({uid: JobMemory(original=CpuAllocation(1000, 500))}))
    assert newer.load().jobs == {uid: JobMemory(original=ORIGINAL)}
    assert older.load().jobs == {}
    replica.writer.write()
    assert replica.store.items()[0].policy == "newer"


def test_what_a_slow_pass_of_the_former_policy_saves_does_not_count(pods: Pods, replica: Replica) -> None:
    uid = pods.add("train")
    older, newer = replica.memory("older"), replica.memory("newer")
    older.load()
    older.save(MemoryState({uid: changed()}))
    older.load()  # a pass, or a restore of hundreds of pods, begins
    newer.load()
    newer.save(MemoryState({uid: known(job_class="NL")}))
    before = newer.load().jobs
    assert not may_change(older, uid)
    older.save(MemoryState({uid: JobMemory()}))  # it found the original in effect, before the newer one's change
    assert newer.load().jobs == before
    assert newer.stored_original(uid) == ORIGINAL


def test_two_policies_that_have_pods_of_one_workload_remember_each_their_own(pods: Pods, replica: Replica) -> None:
    theirs, ours = pods.add("train", "0"), pods.add("train", "1")
    older, newer = replica.memory("older"), replica.memory("newer")
    for _ in range(3):
        for memory, uid in ((older, theirs), (newer, ours)):
            jobs = memory.load().jobs or {uid: changed(decided=PolicyMemory(job_class="NL"))}
            assert jobs == {uid: changed(decided=PolicyMemory(job_class="NL"))}
            memory.save(MemoryState(jobs))
    newer.save(MemoryState({ours: JobMemory()}))
    newer.retire()
    replica.writer.write()
    (record,) = replica.store.items()
    assert (record.policy, [pod["slot"] for pod in record.read_status()["pods"]]) == ("older", ["0"])
    assert older.load().jobs[theirs].original == ORIGINAL


def test_an_original_is_that_of_a_pod_and_not_of_its_successor(api: KubeApi, pods: Pods, memory: KubeMemory) -> None:
    uid = pods.add("train")
    memory.save(MemoryState({uid: changed(original_memory=MEMORY)}))
    loaded = memory.load()
    pods.add("train", pod_uid="of another template")  # in the middle of a pass
    memory.save(loaded)
    assert "replaced" in str(memory.stored_original(uid)), "the pass has decided on the former one"

    state = memory.load()
    assert (state.jobs[uid].original, state.jobs[uid].original_memory) == (None, None)
    later = CpuAllocation(4000, 1000)
    memory.save(MemoryState({uid: state.jobs[uid].altered(original=later)}))
    assert memory.stored_original(uid) == later
    again = Replica(api, pods).memory()
    assert again.load().jobs[uid].original == later


def test_a_watch_that_is_behind_and_shows_the_former_pod_costs_no_original(api: KubeApi, pods: Pods) -> None:
    """A leader that takes over knows by the JobGrowth of a pod that its own watch of pods has not shown yet."""
    uid = pods.add("train", pod_uid="the new one")
    first = Replica(api, pods).memory()
    first.load()
    first.save(MemoryState({uid: changed(last_resized_at_seconds=500.0)}))
    again = Replica(api, pods).memory()
    for pod, created_at_seconds in (("the former one", 100.0), ("the new one", 400.0)):
        pods.add("train", pod_uid=pod)
        seen = pods.by_job[uid]
        pods.by_job[uid] = structs.replace(seen, pod=structs.replace(seen.pod, created_at_seconds=created_at_seconds))
        state = again.load()
        assert state.jobs[uid].original == ORIGINAL, pod
        again.save(state)
        assert again.stored_original(uid) == ORIGINAL


def test_a_pod_that_goes_by_its_own_name_is_forgotten_after_it(
    pods: Pods, replica: Replica, memory: KubeMemory
) -> None:
    """Each pod of a Deployment, or of a Job without an index, has a name of its own."""
    for number in range(20):
        pods.by_job.clear()
        uid = pods.add("train", f"train-{number}")
        pod = pods.by_job[uid].pod
        pods.by_job[uid] = structs.replace(pods.by_job[uid], pod=structs.replace(pod, name=f"train-{number}"))
        memory.save(memory.load().with_jobs({uid: known(job_class="NL")}))
    assert len(memory.load().jobs) <= 2
    replica.writer.write()
    assert len(replica.store.items()[0].read_status()["pods"]) <= 2


@pytest.mark.parametrize(
    ("place", "damaged", "reason"),
    [
        (("memory",), '{"growth": "much"}', "train, pod 0: its memory is damaged"),
        (("memory",), "[" * 100_000, "train, pod 0: its memory is damaged"),
        (("original", "cpuLimit"), "lots", "its original resources are damaged"),
    ],
)
def test_damaged_memory_starts_again_with_the_original_and_a_damaged_original_stops_no_other_job(
    server: ApiServer, api: KubeApi, pods: Pods, memory: KubeMemory, place: tuple[str, ...], damaged: str, reason: str
) -> None:
    uid, other = pods.add("train"), pods.add("other")
    memory.save(MemoryState({uid: changed(), other: changed()}))
    stored = server.get(f"{GROWTHS}/train")
    pod = stored["status"]["pods"][0]
    (pod if len(place) == 1 else pod[place[0]])[place[-1]] = damaged
    server.put(GROWTHS, stored)
    with capture_logs() as logs:
        state = Replica(api, pods).memory().load()
    kept = {uid: JobMemory(original=ORIGINAL)} if place == ("memory",) else {}
    assert state.jobs == {**kept, other: changed()}
    assert any(reason in line["reason"] for line in logs)


def test_two_workloads_of_a_name_get_two_names(server: ApiServer, api: KubeApi, pods: Pods, memory: KubeMemory) -> None:
    job, deployment = a_workload("train", uid="a"), a_workload("train", kind="Deployment", uid="b")
    uids = [pods.add(job), pods.add(deployment)]
    memory.save(MemoryState({uid: changed() for uid in uids}))
    assert server.get(f"{GROWTHS}/train")["spec"]["workload"]["uid"] == "a"
    assert server.get(f"{GROWTHS}/train-deployment")["spec"]["workload"]["uid"] == "b"
    assert set(Replica(api, pods).memory().load().jobs) == set(uids)


def test_a_name_that_was_taken_is_tried_again(server: ApiServer, pods: Pods, memory: KubeMemory) -> None:
    memory.save(MemoryState({pods.add(a_workload(name, uid=name)): changed() for name in ("train", "train-job")}))
    uid = pods.add(a_workload("train", uid="the next one"))
    memory.save(MemoryState({uid: changed()}))
    assert "belongs to another workload" in str(memory.stored_original(uid))
    server.remove(f"{GROWTHS}/train")  # with its owner
    memory.load()
    memory.save(MemoryState({uid: changed()}))
    assert memory.stored_original(uid) == ORIGINAL


def test_a_jobgrowth_goes_once_its_original_is_back(pods: Pods, replica: Replica, memory: KubeMemory) -> None:
    back, still = pods.add("back"), pods.add("still")
    memory.save(MemoryState({back: changed(), still: changed()}))
    memory.save(MemoryState({back: JobMemory()}))
    memory.retire()
    replica.writer.write()
    assert [record.name for record in replica.store.items()] == ["still"]
    assert set(memory.load().jobs) == {still}


def test_records_of_a_policy_begin_as_stored_are_kept_and_handed_on_when_they_changed(api: KubeApi, pods: Pods) -> None:
    received: list[Any] = []
    stored = PolicyRecords({"a": (ClassFigures("uid:0", 1.0, 0.5, 2.0, 0.25),)}, (Departed("uid:0", "[100.0,50.0]"),))
    memory = Replica(api, pods).memory(records=stored, on_records=received.append)
    state = memory.load()
    assert PolicyRecords(state.classes, state.departed) == stored
    memory.save(state)
    later = PolicyRecords({**stored.classes, "b": stored.classes["a"]}, stored.departed)
    memory.save(replace(state, classes=later.classes))
    assert (received, memory.load().classes) == ([later], later.classes)
    memory.save(replace(state, classes=later.classes, departed=()))
    assert (received[1:], memory.load().departed) == ([later._replace(departed=())], ())


def test_originals_outlive_the_controller(server: ApiServer, api: KubeApi, pods: Pods, memory: KubeMemory) -> None:
    uid = pods.add("train")
    memory.save(MemoryState({uid: changed()}))
    memory.save(MemoryState({uid: changed(original_memory=MEMORY)}))
    stored = server.get(f"{GROWTHS}/train")
    owner = stored["metadata"]["ownerReferences"][0]
    assert (owner["uid"], owner["kind"], owner["blockOwnerDeletion"]) == ("uid-of-train", "Job", False)
    assert stored["status"]["policy"] == "training"
    assert stored["status"]["pods"][0]["original"] == {
        "cpuLimit": "2",
        "cpuRequest": "500m",
        "memoryLimit": "1610612737",
        "memoryRequest": "1024Mi",
    }
    again = Replica(api, pods).memory()
    assert again.load().jobs[uid].original_memory == MEMORY
    assert again.original_memory(uid) == MEMORY


def test_memory_is_not_changed_before_its_original_is_stored(server: ApiServer, pods: Pods, memory: KubeMemory) -> None:
    uid = pods.add("train")
    memory.save(MemoryState({uid: changed()}))
    server.fault(refusal(403, "Forbidden", "no right"), method="PATCH", path="jobgrowths", times=1)
    server.fault(refusal(403, "Forbidden", "no right"), method="PUT", path="jobgrowths", times=1)
    memory.save(MemoryState({uid: changed(original_memory=MEMORY)}))
    assert "could not be stored" in str(memory.stored_original(uid))
    assert memory.original_memory(uid) is None


def test_the_object_of_a_trial_carries_its_study_when_the_next_leader_creates_it_again(
    server: ApiServer, api: KubeApi, pods: Pods, memory: KubeMemory
) -> None:
    trial, other = pods.add("trial"), pods.add("other")
    pods.by_job[trial] = structs.replace(pods.by_job[trial], study="sweep")
    memory.save(MemoryState({trial: changed(), other: changed()}))
    assert "labels" not in server.get(f"{GROWTHS}/other")["metadata"]
    again = Replica(api, pods).memory()
    kept = again.load().jobs[trial]
    api.delete(f"{GROWTHS}/trial")
    again.load()
    again.save(MemoryState({trial: kept}))
    assert server.get(f"{GROWTHS}/trial")["metadata"]["labels"] == {"slopewise.dev/study": "sweep"}
