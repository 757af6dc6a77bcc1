"""The API server's JSON becomes records; what cannot be read is named and stops nothing else."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cluster_records import container_status, pod_json

from slopewise.adapters.kube.cache.parsing import parse_node, parse_object, parse_other_pod, parse_pod
from slopewise.adapters.kube.cache.records import ObjectRecord, OwnerRef, PodPending, Taint, Toleration, VolumeRecord
from slopewise.model import CpuAllocation, MemoryAllocation

AT_15_25_33 = 1_795_274_733.0


def resized_by(manager: str, *path: str, subresource: str = "resize") -> dict[str, Any]:
    """A managedFields entry of somebody who wrote one field, e.g. `f:containers`, `f:limits`, `f:cpu`."""
    kind, bound, resource = path or ("f:containers", "f:limits", "f:cpu")
    fields: dict[str, Any] = {"f:spec": {kind: {'k:{"name":"trainer"}': {"f:resources": {bound: {resource: {}}}}}}}
    return {"manager": manager, "operation": "Update", "subresource": subresource, "fieldsV1": fields}


def test_a_running_pod_is_read_with_its_container() -> None:
    pod = parse_pod(pod_json())
    (container,) = pod.containers
    assert (pod.uid, pod.namespace, pod.name, pod.node, pod.phase) == ("uid-p", "team", "p", "node-a", "Running")
    assert (pod.qos_class, pod.deleting, pod.owner, pod.pending) == ("Burstable", False, None, None)
    assert pod.started_at_seconds == AT_15_25_33 - 1
    assert container.desired == container.reported == CpuAllocation(400, 100)
    assert (container.memory_request_bytes, container.memory_limit_bytes) == (32 * 2**20, None)
    assert (container.ready, container.running_since_seconds, container.init) == (True, AT_15_25_33, False)


@pytest.mark.parametrize(
    ("resources", "desired", "has_request", "memory_request"),
    [
        ({"limits": {"cpu": "2", "memory": "1Gi"}}, CpuAllocation(2000, 2000), True, 2**30),
        ({}, CpuAllocation(None, 0), False, None),
    ],
)
def test_a_request_that_is_missing_is_the_limit(
    resources: Any, desired: CpuAllocation, has_request: bool, memory_request: int | None
) -> None:
    (container,) = parse_pod(pod_json(spec={"containers": [{"name": "trainer", "resources": resources}]})).containers
    assert (container.desired, container.has_request) == (desired, has_request)
    assert container.memory_request_bytes == memory_request


def test_what_its_kubelet_reports_may_lack_a_limit_or_be_nothing_at_all() -> None:
    status = container_status(resources={"requests": {"cpu": "10m"}})
    without_limit = parse_pod(pod_json(status={"containerStatuses": [status]}))
    assert (without_limit.containers[0].reported, without_limit.matches_spec) == (CpuAllocation(None, 10), False)
    silent = parse_pod(pod_json(status={"containerStatuses": [container_status()]}))
    assert (silent.containers[0].reported, silent.matches_spec) == (None, True), "it cannot be waited for"


def test_memory_is_read_as_accepted_and_as_reported() -> None:
    wanted = {"requests": {"memory": "64Mi"}, "limits": {"memory": "1Gi"}}
    status = container_status(resources={"requests": {"memory": "32Mi"}, "limits": {"memory": "1Gi"}})
    restarts = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    spec = {"containers": [{"name": "trainer", "resources": wanted, "resizePolicy": restarts}]}
    (container,) = parse_pod(pod_json(spec=spec, status={"containerStatuses": [status]})).containers
    assert container.memory == MemoryAllocation(64 * 2**20, 2**30)
    assert container.reported_memory == MemoryAllocation(32 * 2**20, 2**30)
    assert (container.memory_resize_restarts, container.resize_restarts) == (True, False)
    spec["containers"][0]["resizePolicy"] = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    assert parse_pod(pod_json(spec=spec)).containers[0].resize_restarts


@pytest.mark.parametrize(
    ("reported", "actual"),
    [
        (("400m", "100m"), (400, 100)),
        (("392m", "91m"), (400, 100)),
        (("800m", "100m"), (800, 100)),
        (("400m", "250m"), (400, 250)),
    ],
    ids=["the same", "but for a cgroup's rounding", "another limit", "another request"],
)
def test_what_is_actual_is_what_the_kubelet_reports(reported: tuple[str, str], actual: tuple[int, int]) -> None:
    resources = {"limits": {"cpu": reported[0]}, "requests": {"cpu": reported[1]}}
    pod = parse_pod(pod_json(status={"containerStatuses": [container_status(resources=resources)]}))
    assert pod.containers[0].actual == CpuAllocation(*actual)
    assert pod.matches_spec is (actual == (400, 100))
    assert pod.awaits_kubelet is (actual != (400, 100))


@pytest.mark.parametrize(("observed", "pending"), [(3, None), (4, "Deferred")])
def test_what_a_kubelet_said_of_an_older_wish_is_not_said_of_the_newest(observed: int, pending: str | None) -> None:
    condition = {
        "type": "PodResizePending",
        "status": "True",
        "reason": "Deferred",
        "lastTransitionTime": "2026-11-21T15:25:33Z",
        "observedGeneration": observed,
    }
    for seen in (3, 4):
        pod = pod_json(metadata={"generation": 4}, status={"observedGeneration": seen, "conditions": [condition]})
        found = parse_pod(pod)
        assert (found.pending.kind if found.pending else None) == (pending if seen == 4 else None)
        is_late = seen == 3
        assert (found.unobserved, found.matches_spec, found.awaits_kubelet) == (is_late, not is_late, is_late)


def test_restartable_init_containers_count_and_others_do_not() -> None:
    init = [{"name": "side", "restartPolicy": "Always"}, {"name": "setup"}]
    statuses = [{**container_status(), "name": "side"}]
    pod = parse_pod(pod_json(spec={"initContainers": init}, status={"initContainerStatuses": statuses}))
    assert [(container.name, container.init, container.ready) for container in pod.containers] == [
        ("trainer", False, True),
        ("side", True, True),
    ]


@pytest.mark.parametrize(
    ("variable", "is_rank"),
    [
        ({"name": "MASTER_ADDR", "value": "train-0.train"}, True),
        ({"name": "PET_RDZV_ENDPOINT", "value": "train-0.train:29400"}, True),
        ({"name": "MASTER_ADDR", "value": "localhost"}, False),
        ({"name": "JAX_COORDINATOR_ADDRESS", "value": "127.0.0.1:1234"}, False),
        ({"name": "MASTER_ADDR", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}, False),
    ],
)
def test_a_rank_is_told_which_other_pod_the_first_one_is_in(variable: dict[str, Any], is_rank: bool) -> None:
    (container,) = parse_pod(pod_json(spec={"containers": [{"name": "trainer", "env": [variable]}]})).containers
    assert container.is_rank is is_rank


@pytest.mark.parametrize(
    ("resources", "count"),
    [
        ({"nvidia.com/gpu": "4", "cpu": "3", "rdma/hca": "1"}, 4),
        ({"nvidia.com/mig-1g.5gb": 2, "nvidia.com/gpu.shared": 1}, 3),
        ({"google.com/tpu": "8", "amd.com/gpu": "1"}, 9),
        ({"aws.amazon.com/neuron": "1"}, 1),
        ({"cpu": "3", "example.com/gpu-driver": "1"}, 0),
    ],
)
def test_devices_and_claims_are_named_and_those_that_compute_counted(resources: dict[str, Any], count: int) -> None:
    trainer = {"limits": resources, "requests": {**resources, "ephemeral-storage": "1Gi"}, "claims": [{"name": "tpu"}]}
    pod = parse_pod(pod_json(spec={"containers": [{"name": "trainer", "resources": trainer}, {"name": "side"}]}))
    assert pod.accelerators == count
    assert set(pod.containers[0].extended_resources) == {*(resources.keys() - {"cpu"}), "claim tpu"}


@pytest.mark.parametrize(("where", "exit_code"), [("state", 137), ("lastState", None)])
def test_a_container_that_was_killed_for_memory_is_reported_with_the_time(where: str, exit_code: int | None) -> None:
    """What it ended with is known while it has ended."""
    ended = {"reason": "OOMKilled", "exitCode": 137, "finishedAt": "2026-11-21T15:25:33Z"}
    killed = {where: {"terminated": ended}, "restartCount": 3}
    (container,) = parse_pod(pod_json(status={"containerStatuses": [container_status(**killed)]})).containers
    assert (container.oom_killed_at_seconds, container.restarts_total) == (AT_15_25_33, 3)
    assert container.exit_code == exit_code


@pytest.mark.parametrize(
    ("conditions", "pending"),
    [
        ([("PodResizePending", "True", "Deferred")], "Deferred"),
        ([("PodResizePending", "True", "Infeasible")], "Infeasible"),
        ([("PodResizeInProgress", "True", "Error")], "Error"),
        ([("PodResizeInProgress", "True", "")], None),
        ([("PodResizePending", "False", "Deferred")], None),
        ([("PodResizeInProgress", "True", "Error"), ("PodResizePending", "True", "Deferred")], "Deferred"),
    ],
)
def test_a_resize_that_waits_or_failed_is_reported(conditions: list[tuple[str, str, str]], pending: str | None) -> None:
    reported = [
        {"type": kind, "status": status, "reason": reason, "message": "m", "lastTransitionTime": "2026-11-21T15:25:33Z"}
        for kind, status, reason in conditions
    ]
    found = parse_pod(pod_json(status={"conditions": reported})).pending
    assert found == (pending and PodPending(pending, AT_15_25_33, "m"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("entry", "resizers"),
    [
        (resized_by("vpa-updater"), ("vpa-updater",)),
        (resized_by("kubectl-patch", "f:initContainers", "f:requests", "f:cpu"), ("kubectl-patch",)),
        (resized_by("slopewise"), ()),
        (resized_by("kubectl-patch", "f:containers", "f:limits", "f:memory"), ()),
        (resized_by("kubectl-edit", subresource=""), ()),
        ({"manager": "x", "subresource": "resize"}, ()),
    ],
)
def test_somebody_else_whose_cpu_is_in_effect_is_named(entry: dict[str, Any], resizers: tuple[str, ...]) -> None:
    of_memory = resized_by("vpa", "f:containers", "f:requests", "f:memory")
    pod = parse_pod(pod_json(metadata={"managedFields": [entry, of_memory]}))
    assert pod.foreign_resizers == resizers
    assert "vpa" in pod.foreign_memory_resizers


def test_what_else_is_kept_of_a_pod() -> None:
    annotations = {"slopewise.dev/weight": "2", "vpaUpdates": "x", "kubectl.kubernetes.io/last-applied": "huge"}
    spec = {"resources": {"limits": {"cpu": "2"}}, "schedulingGates": [{"name": "slopewise.dev/placement"}]}
    metadata = {"annotations": annotations, "deletionTimestamp": "2026-11-21T15:25:33Z"}
    pod = parse_pod(pod_json(spec=spec, metadata=metadata))
    assert pod.annotations == {"slopewise.dev/weight": "2", "vpaUpdates": "x"}
    assert (pod.gates, pod.deleting) == (("slopewise.dev/placement",), True)
    assert (pod.pod_level_resources, pod.pod_level) == (True, CpuAllocation(2000, 2000))
    assert parse_pod(pod_json(spec={"resources": {"limits": {"memory": "1Gi"}}})).pod_level is None


def test_of_other_objects_the_controlling_owner_and_our_annotations_are_kept() -> None:
    references = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "1"},
        {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "2", "controller": True},
    ]
    meta = {
        "name": "o", "namespace": "n", "uid": "u", "generation": 3, "deletionTimestamp": "2026-11-21T15:25:33Z",
        "annotations": {"slopewise.dev/move": "{}", "kubectl.kubernetes.io/last-applied": "huge"},
        "ownerReferences": references,
    }  # fmt: skip
    owner = OwnerRef("batch/v1", "Job", "j", "2")
    expected = ObjectRecord("u", "o", "n", {}, owner, {"slopewise.dev/move": "{}"}, deleting=True, generation=3)
    assert parse_object({"metadata": meta}) == expected


def a_node(ready: str = "True", labels: dict[str, str] | None = None, pressure: str = "True", **status: Any) -> Any:
    conditions = [{"type": "MemoryPressure", "status": pressure}, {"type": "Ready", "status": ready}]
    taints = [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}, {"key": "x", "effect": "NoExecute"}]
    allocatable = {"cpu": "1930m", "memory": "24581684Ki"}
    return parse_node(
        {
            "metadata": {"name": "node-a", "uid": "u", "labels": labels or {}},
            "spec": {"unschedulable": True, "taints": taints},
            "status": {"allocatable": allocatable, "conditions": conditions, **status},
        }
    )


def test_a_node_is_read_with_what_it_has_to_give() -> None:
    node = a_node()
    assert (node.allocatable_millicores, node.allocatable_memory_bytes) == (1930, 24_581_684 * 1024)
    assert (node.ready, node.unschedulable, node.static_cpu_manager) == (True, True, None)
    assert node.taints == (Taint("gpu", "yes", "NoSchedule"), Taint("x", "", "NoExecute"))
    assert (node.memory_pressure, node.swap_bytes) == (True, 0)
    assert a_node(nodeInfo={"swap": {"capacity": 2**30}}).swap_bytes == 2**30
    assert not a_node(pressure="False").memory_pressure
    assert not a_node(ready="Unknown").ready, "its kubelet is silent"
    assert a_node(labels={"slopewise.dev/static-cpu-manager": "true"}).static_cpu_manager is True


def test_an_object_that_cannot_be_read_is_named() -> None:
    raw = pod_json(spec={"containers": [{"name": "trainer", "resources": {"limits": {"cpu": "much"}}}]})
    with pytest.raises(ValueError, match="team/p cannot be read: 'much' is not a Kubernetes quantity"):
        parse_pod(raw)
    with pytest.raises(
        ValueError, match=r"team/p cannot be read: Expected `str \| null`, got `int` - at `\$\.spec\.nodeName`"
    ):
        parse_pod(pod_json(spec={"nodeName": 1}))
    with pytest.raises(ValueError, match="node-a cannot be read: Object missing required field `status`"):
        parse_node({"metadata": {"name": "node-a", "uid": "u"}})


def _paths(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    below = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    return [path, *(found for key, each in below for found in _paths(each, (*path, key)))]


_WHOLE = pod_json(
    metadata={"managedFields": [resized_by("x")], "annotations": {"slopewise.dev/weight": "2"}},
    spec={"resources": {"limits": {}}, "schedulingGates": [{"name": "g"}]},
)
_JSON: st.SearchStrategy[object] = (
    st.none() | st.booleans() | st.integers() | st.text() | st.just([]) | st.just({}) | st.just([{}]) | st.just([0])
)


@given(st.sampled_from([path for path in _paths(_WHOLE) if path]), _JSON)
def test_whatever_is_in_a_field_a_pod_is_read_or_refused_in_words(path: tuple[Any, ...], hostile: object) -> None:
    raw = copy.deepcopy(_WHOLE)
    place: Any = raw
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = hostile
    found = ""
    try:
        name = parse_pod(json.loads(json.dumps(raw))).name
    except ValueError as error:
        name, found = "", str(error)
    assert name == "p" or "cannot be read" in found or path == ("metadata", "name")


MIGRATABLE_POD: dict[str, Any] = {"annotations": {"slopewise.dev/migratable": "true"}}


def test_what_decides_on_where_a_pod_can_run_is_kept_of_migratable_and_gated_pods_only() -> None:
    gated = {"schedulingGates": [{"name": "slopewise.dev/place"}]}
    assert parse_pod(pod_json()).scheduling is None
    assert parse_pod(pod_json(metadata={"annotations": {"slopewise.dev/migratable": "false"}})).scheduling is None
    assert parse_pod(pod_json(metadata=MIGRATABLE_POD)).scheduling is not None
    assert parse_pod(pod_json(spec=gated)).scheduling is not None


def test_scheduling_facts_are_read_in_full() -> None:
    affinity = {"nodeAffinity": {"x": 1}}
    spec = {
        "affinity": affinity,
        "nodeSelector": {"b": "2", "a": "1"},
        "tolerations": [{"operator": "Exists"}, {"key": "gpu", "value": "yes", "effect": "NoSchedule"}],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "saved"}},
            {"name": "tmp", "emptyDir": {}},
            {"name": "host", "hostPath": {"path": "/data"}},
        ],
        "terminationGracePeriodSeconds": 120,
        "topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}, {"whenUnsatisfiable": "DoNotSchedule"}],
        "resourceClaims": [{"name": "gpu"}],
    }
    facts = parse_pod(pod_json(metadata=MIGRATABLE_POD, spec=spec)).scheduling
    assert facts is not None
    (facts.affinity or {})["nodeAffinity"]["y"] = 2  # a change of what is handed out changes no facts
    assert (facts.affinity, facts.node_selector, facts.grace_seconds) == (affinity, (("a", "1"), ("b", "2")), 120.0)
    assert facts.tolerations == (Toleration("", "Exists", "", ""), Toleration("gpu", "Equal", "yes", "NoSchedule"))
    assert facts.volumes == (
        VolumeRecord("data", "persistentVolumeClaim", "saved"),
        VolumeRecord("tmp", "emptyDir"),
        VolumeRecord("host", "hostPath"),
    )
    assert (facts.spreads_strictly, facts.claims_devices, facts.needs_no_volume) == (True, True, False)


@pytest.mark.parametrize(
    ("annotation", "value", "needs_none", "forbids"),
    [
        ("slopewise.dev/checkpoints", "external", True, False),
        ("slopewise.dev/checkpoints", "none", True, False),
        ("slopewise.dev/checkpoints", "here", False, False),
        ("karpenter.sh/do-not-disrupt", "true", False, True),
        ("cluster-autoscaler.kubernetes.io/safe-to-evict", "false", False, True),
    ],
)
def test_annotations_on_volumes_and_disruption(annotation: str, value: str, needs_none: bool, forbids: bool) -> None:
    annotations = {**MIGRATABLE_POD["annotations"], annotation: value}
    facts = parse_pod(pod_json(metadata={"annotations": annotations})).scheduling
    assert facts is not None
    assert facts.needs_no_volume is needs_none
    assert facts.do_not_disrupt == (f"{annotation}: {value}" if forbids else "")


def test_a_pod_that_no_node_takes_is_known_since_when() -> None:
    def since(**condition: str) -> float | None:
        found = {"type": "PodScheduled", "lastTransitionTime": "2026-11-21T15:25:33Z", **condition}
        return parse_pod(pod_json(status={"conditions": [found]})).unschedulable_since_seconds

    assert since(status="False", reason="Unschedulable") == AT_15_25_33
    assert since(status="False", reason="SchedulingGated") is None
    assert since(status="True") is None


def _asks(cpu: str, **more: Any) -> dict[str, Any]:
    return {"name": f"c{cpu}", "resources": {"requests": {"cpu": cpu}}, **more}


SIDE_AND_INIT = [_asks("50m", restartPolicy="Always"), _asks("500m")]


@pytest.mark.parametrize(
    ("spec", "reserved", "start"),
    [
        ({"containers": [_asks("100m"), {"name": "side"}]}, 100, 0),
        ({"containers": [_asks("100m")], "initContainers": [_asks("500m"), _asks("200m")]}, 500, 500),
        ({"containers": [_asks("100m")], "initContainers": SIDE_AND_INIT}, 550, 550),
        ({"containers": [_asks("1")], "initContainers": SIDE_AND_INIT}, 1050, 550),
        ({"containers": [_asks("100m")], "resources": {"requests": {"cpu": "2"}}}, 2000, 0),
        ({"containers": [_asks("100m")], "overhead": {"cpu": "250m"}}, 350, 0),
    ],
)
def test_what_the_scheduler_reserves_is_kept_of_a_pod_of_others_and_what_init_containers_request_of_ours(
    spec: dict[str, Any], reserved: int, start: int
) -> None:
    raw = pod_json(spec={"nodeName": "n1", **spec})
    other = parse_other_pod(raw)
    assert (other.node, other.request_millicores, parse_pod(raw).start_millicores) == ("n1", reserved, start)
