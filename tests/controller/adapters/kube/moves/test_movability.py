"""Whether and how a pod could be moved: by its owner, its volumes, its server, and what forbids it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs
from support.cluster_records import a_container, a_node_record, a_pod, an_object, owned_by

from slopewise.adapters.kube.cache.records import (
    MANAGED_LABEL,
    MIGRATABLE,
    ManagedPod,
    PodRecord,
    SchedulingFacts,
    VolumeRecord,
)
from slopewise.adapters.kube.moves.movability import MoveCase, movability
from slopewise.adapters.kube.moves.node_predicates import NodeFit
from slopewise.adapters.kube.moves.owner_cache import Disk, OwnerTemplate
from slopewise.model import CpuAllocation

JOB = owned_by("Job", "train", "job-1")
CLAIM = VolumeRecord("data", "persistentVolumeClaim", "saved")
SCRATCH, HOST = VolumeRecord("tmp", "emptyDir"), VolumeRecord("host", "hostPath")
REQUIRED = '{"%s": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}'
SHARED = SchedulingFacts(volumes=(CLAIM, SCRATCH))
MOVABLE: dict[str, Any] = {"owner": JOB, "annotations": {MIGRATABLE: "true"}}
GATELESS = "its Job's template has no scheduling gate"


def managed(name: str = "p", slot: str = "0", **pod: Any) -> ManagedPod:
    made: PodRecord = a_pod(name, **{**MOVABLE, **pod})
    return ManagedPod(f"job-1:{slot}", JOB, slot, made, made.containers[0])


_GPU = a_container(extended_resources=("nvidia.com/gpu",))
WITH_GPU = ManagedPod("job-1:0", JOB, "0", a_pod("p", _GPU, **MOVABLE), _GPU)


def case(facts: SchedulingFacts = SHARED, **changed: Any) -> MoveCase:
    """A pod of a Job with a shared volume, on a server that suspends; `pod` replaces fields of the pod."""
    me = managed(**changed.pop("pod", {}))
    made = MoveCase(
        managed=me,
        original=CpuAllocation(2000, 500),
        scheduling=facts,
        owner_record=an_object("train", "job-1"),
        owner_affinity_json="",
        template=OwnerTemplate(not_evictable_reason=GATELESS),
        disks={"saved": Disk()},
        members=(me,),
        can_suspend=True,
    )
    return replace(made, **changed)


def stays(made: MoveCase) -> str | None:
    found = movability(made, NodeFit(()))
    assert (found.way is None) == (found.blocked_reason is not None)
    return found.blocked_reason


def test_a_job_of_its_own_on_a_new_server_is_suspended_whatever_its_template_says_of_gates() -> None:
    found = movability(case(), NodeFit(()))
    assert (found.way, found.blocked_reason, found.restart_seconds) == ("suspend", None, 2.0)
    assert (found.grace_seconds, found.members) == (30.0, ("job-1:0",))
    assert "nodes may not be read" in (movability(case(), None).blocked_reason or "")


@pytest.mark.parametrize(
    "changed",
    [{"can_suspend": False}, {"owner_record": an_object("train", "job-1", owner=owned_by("JobSet", "s", "set"))}],
)
def test_on_an_old_server_or_under_another_controller_it_is_evicted_if_it_comes_back(changed: dict[str, Any]) -> None:
    assert stays(case(**changed)) == GATELESS
    found = movability(case(**changed, template=OwnerTemplate()), NodeFit(()))
    assert (found.way, found.restart_seconds) == ("evict", 12.0)


def test_an_eviction_waits_twice_as_long_each_time_but_for_a_stateful_sets_pod() -> None:
    by_eviction = case(can_suspend=False, template=OwnerTemplate())
    waits = [movability(replace(by_eviction, moves_made=made), NodeFit(())).restart_seconds for made in (0, 1, 2, 50)]
    assert waits == [12.0, 22.0, 42.0, 602.0]
    owner = owned_by("StatefulSet", "s", "set-1", "apps/v1")
    found = movability(case(pod={"owner": owner}, owner_record=None, template=OwnerTemplate()), NodeFit(()))
    assert (found.way, found.restart_seconds) == ("evict", 2.0)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (case(pod={"owner": None}), "a bare pod is not recreated"),
        (case(pod={"labels": {MANAGED_LABEL: "true", "kueue.x-k8s.io/podset": "main"}}), "Kueue manages it"),
        (
            case(owner_record=structs.replace(an_object("t", "j"), labels={"kueue.x-k8s.io/queue-name": "q"})),
            "Kueue manages it",
        ),
        (
            case(structs.replace(SHARED, do_not_disrupt="karpenter.sh/do-not-disrupt: true")),
            "karpenter.sh/do-not-disrupt: true",
        ),
        (case(structs.replace(SHARED, claims_devices=True)), "a device claim"),
        (case(structs.replace(SHARED, spreads_strictly=True)), "DoNotSchedule"),
        (case(moves_allowed=False), "namespace team does not opt in to moves; label it slopewise.dev/moves=allowed"),
        (case(can_suspend=None), "has not reported its version yet"),
        (case(template=OwnerTemplate(blocked_reason="its Job is managed by x")), "managed by x"),
        (case(pod={"deleting": True}), "the pod is being deleted"),
        (case(owner_record=structs.replace(an_object("train", "j"), deleting=True)), "its Job train is being deleted"),
        (case(disks={"saved": Disk(blocked_reason="its claim saved is a local volume")}), "a local volume"),
        (case(template=OwnerTemplate(not_suspendable_reason="rule 0 fails it")), "rule 0 fails it"),
        (case(owner_affinity_json=REQUIRED % "podAffinity"), "its podAffinity is required"),
        (case(owner_affinity_json=REQUIRED % "podAntiAffinity"), "its podAntiAffinity is required"),
        (case(managed=WITH_GPU, members=(WITH_GPU,)), "it asks for nvidia.com/gpu"),
        (case(managed=managed("a", "a"), members=(managed("a", "a"), managed("b", "b"))), "make the Job Indexed"),
        (case(members=(managed(), managed("b", "1", annotations={}))), "pod b of its workload is not migratable"),
    ],
)
def test_what_is_in_the_way_is_reported(made: MoveCase, words: str) -> None:
    assert words in (stays(made) or "")


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (SHARED, None),
        (SchedulingFacts(volumes=(VolumeRecord("data", "nfs"),)), None),
        (SchedulingFacts(volumes=(), needs_no_volume=True), None),
        (SchedulingFacts(volumes=(CLAIM, HOST)), "volume host is a directory of its node"),
        (SchedulingFacts(volumes=(SCRATCH, VolumeRecord("cm", "configMap"))), "slopewise.dev/checkpoints: external"),
        (SchedulingFacts(volumes=(VolumeRecord("data", "ephemeral"),)), "slopewise.dev/checkpoints: external"),
        (SchedulingFacts(), "none where a served model makes none"),
    ],
)
def test_a_pod_whose_checkpoints_only_its_node_has_stays(facts: SchedulingFacts, words: str | None) -> None:
    found = stays(case(facts))
    assert found is None if words is None else words in (found or "")


def test_nodes_that_would_not_take_it_are_named_for_what_all_its_members_reserve() -> None:
    a, b = managed("a", "0"), managed("b", "1")
    fit = NodeFit((a_node_record("small", cpu=900), a_node_record("large", cpu=4000)))
    fit.set_requests({})
    assert set(movability(case(managed=a, members=(a,)), fit).refused_nodes) == set()
    together = movability(case(managed=a, members=(a, b)), fit)
    assert (set(together.refused_nodes), together.members) == ({"small"}, ("job-1:0", "job-1:1"))


def test_the_request_is_the_one_that_it_came_with_not_the_one_that_we_gave_it() -> None:
    lowered = a_container(request=100)
    me = ManagedPod("job-1:0", JOB, "0", a_pod("p", lowered, **MOVABLE), lowered)
    fit = NodeFit((a_node_record("small", cpu=900),))
    fit.set_requests({})
    found = movability(case(managed=me, members=(me,), original=CpuAllocation(2000, 1000)), fit)
    assert set(found.refused_nodes) == {"small"}


def test_where_a_disk_can_be_reached_from_counts_for_the_pod() -> None:
    zone = '{"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["x"]}]}]}'
    fit = NodeFit((a_node_record("a", labels={"zone": "x"}), a_node_record("b", labels={"zone": "y"})))
    fit.set_requests({})
    found = movability(case(disks={"saved": Disk(node_affinity_json=zone)}), fit)
    assert found.refused_nodes == {"b": "a volume of the pod cannot be reached from it"}
