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


def test_a_request_that_is_missing_is_the_limit() -> None:
    spec = {"containers": [{"name": "trainer", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}]}
    (container,) = parse_pod(pod_json(spec=spec)).containers
    assert container.desired == CpuAllocation(2000, 2000)
    assert container.has_request
    assert container.memory_request_bytes == 2**30


def test_memory_is_read_as_accepted_and_as_reported() -> None:
    wanted = {"requests": {"memory": "64Mi"}, "limits": {"memory": "1Gi"}}
    status = container_status(resources={"requests": {"memory": "32Mi"}, "limits": {"memory": "1Gi"}})
    restarts = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    spec = {"containers": [{"name": "trainer", "resources": wanted, "resizePolicy": restarts}]}
    (container,) = parse_pod(pod_json(spec=spec, status={"containerStatuses": [status]})).containers
    assert container.memory == MemoryAllocation(64 * 2**20, 2**30)
    assert container.reported_memory == MemoryAllocation(32 * 2**20, 2**30)
    assert (container.memory_resize_restarts, container.resize_restarts) == (True, False)


def test_who_resizes_memory_is_distinguished_from_who_resizes_cpu() -> None:
    raw = pod_json()
    raw["metadata"]["managedFields"] = [resized_by("vpa", "f:containers", "f:requests", "f:memory")]
    pod = parse_pod(raw)
    assert (pod.foreign_resizers, pod.foreign_memory_resizers) == ((), ("vpa",))


def test_a_container_without_resources_has_neither_request_nor_limit() -> None:
    (container,) = parse_pod(pod_json(spec={"containers": [{"name": "trainer"}]})).containers
    assert container.desired == CpuAllocation(None, 0)
    assert not container.has_request


def test_a_node_that_does_not_report_what_is_in_effect_leaves_it_unknown() -> None:
    (container,) = parse_pod(pod_json(status={"containerStatuses": [container_status()]})).containers
    assert container.reported is None


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


def test_a_limit_that_its_kubelet_does_not_report_yet_is_not_in_effect() -> None:
    status = container_status(resources={"requests": {"cpu": "100m"}})
    assert not parse_pod(pod_json(status={"containerStatuses": [status]})).matches_spec


def test_a_kubelet_that_reports_no_resources_cannot_be_waited_for() -> None:
    assert parse_pod(pod_json(status={"containerStatuses": [container_status()]})).matches_spec


def test_a_kubelet_that_has_not_seen_the_newest_spec_reports_of_an_older_one() -> None:
    seen = {"metadata": {"generation": 3}, "status": {"observedGeneration": 3}}
    assert parse_pod(pod_json(**seen)).matches_spec
    late = parse_pod(pod_json(metadata={"generation": 4}, status={"observedGeneration": 3}))
    assert (late.unobserved, late.matches_spec, late.awaits_kubelet) == (True, False, True)


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
        found = parse_pod(pod).pending
        assert (found.kind if found else None) == (pending if seen == 4 else None)


def test_cpu_of_the_pod_as_a_whole_is_read() -> None:
    assert parse_pod(pod_json(spec={"resources": {"limits": {"cpu": "2"}}})).pod_level == CpuAllocation(2000, 2000)
    assert parse_pod(pod_json(spec={"resources": {"limits": {"memory": "1Gi"}}})).pod_level is None


def test_resources_in_effect_without_a_limit_are_without_a_limit() -> None:
    status = container_status(resources={"requests": {"cpu": "10m"}})
    (container,) = parse_pod(pod_json(status={"containerStatuses": [status]})).containers
    assert container.reported == CpuAllocation(None, 10)


def test_restartable_init_containers_count_and_others_do_not() -> None:
    init = [{"name": "side", "restartPolicy": "Always"}, {"name": "setup"}]
    statuses = [{**container_status(), "name": "side"}]
    pod = parse_pod(pod_json(spec={"initContainers": init}, status={"initContainerStatuses": statuses}))
    assert [(container.name, container.init, container.ready) for container in pod.containers] == [
        ("trainer", False, True),
        ("side", True, True),
    ]


def test_devices_and_claims_are_named() -> None:
    resources: dict[str, Any] = {
        "limits": {"nvidia.com/gpu": "1", "cpu": "1"},
        "requests": {"ephemeral-storage": "1Gi"},
    }
    resources = {**resources, "claims": [{"name": "tpu"}]}
    (container,) = parse_pod(pod_json(spec={"containers": [{"name": "trainer", "resources": resources}]})).containers
    assert container.extended_resources == ("nvidia.com/gpu", "claim tpu")


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
def test_devices_that_compute_are_counted(resources: dict[str, Any], count: int) -> None:
    containers = [{"name": "trainer", "resources": {"limits": resources, "requests": resources}}, {"name": "side"}]
    assert parse_pod(pod_json(spec={"containers": containers})).accelerators == count


@pytest.mark.parametrize(("resource", "restarts"), [("cpu", True), ("memory", False)])
def test_only_a_resize_policy_for_cpu_counts(resource: str, restarts: bool) -> None:
    policy = [{"resourceName": resource, "restartPolicy": "RestartContainer"}]
    (container,) = parse_pod(pod_json(spec={"containers": [{"name": "trainer", "resizePolicy": policy}]})).containers
    assert container.resize_restarts is restarts


@pytest.mark.parametrize("where", ["state", "lastState"])
def test_a_container_that_was_killed_for_memory_is_reported_with_the_time(where: str) -> None:
    killed = {where: {"terminated": {"reason": "OOMKilled", "finishedAt": "2026-11-21T15:25:33Z"}}, "restartCount": 3}
    (container,) = parse_pod(pod_json(status={"containerStatuses": [container_status(**killed)]})).containers
    assert (container.oom_killed_at_seconds, container.restarts_total) == (AT_15_25_33, 3)


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
    assert parse_pod(pod_json(metadata={"managedFields": [entry]})).foreign_resizers == resizers


def test_only_annotations_that_matter_here_are_kept() -> None:
    annotations = {"slopewise.dev/weight": "2", "vpaUpdates": "x", "kubectl.kubernetes.io/last-applied": "huge"}
    assert parse_pod(pod_json(metadata={"annotations": annotations})).annotations == {
        "slopewise.dev/weight": "2",
        "vpaUpdates": "x",
    }


def test_pod_level_resources_gates_and_deletion_are_seen() -> None:
    spec = {"resources": {"limits": {"cpu": "2"}}, "schedulingGates": [{"name": "slopewise.dev/placement"}]}
    pod = parse_pod(pod_json(spec=spec, metadata={"deletionTimestamp": "2026-11-21T15:25:33Z"}))
    assert (pod.pod_level_resources, pod.gates, pod.deleting) == (True, ("slopewise.dev/placement",), True)


def test_only_the_controlling_owner_is_the_owner() -> None:
    references = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "1"},
        {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "2", "controller": True},
    ]
    found = parse_object({"metadata": {"name": "o", "namespace": "n", "uid": "u", "ownerReferences": references}})
    assert found == ObjectRecord("u", "o", "n", {}, OwnerRef("batch/v1", "Job", "j", "2"))


def node_json(**more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "node-a", "uid": "u", "labels": {}, **more},
        "spec": {"unschedulable": True},
        "status": {
            "allocatable": {"cpu": "1930m", "memory": "24581684Ki"},
            "conditions": [{"type": "MemoryPressure", "status": "True"}, {"type": "Ready", "status": "True"}],
        },
    }


def test_a_node_is_read_with_what_it_has_to_give() -> None:
    node = parse_node(node_json())
    assert (node.allocatable_millicores, node.allocatable_memory_bytes) == (1930, 24_581_684 * 1024)
    assert (node.ready, node.unschedulable, node.static_cpu_manager) == (True, True, None)


def test_a_node_says_whether_it_is_short_of_memory_and_whether_it_swaps() -> None:
    raw = node_json()
    assert (parse_node(raw).memory_pressure, parse_node(raw).swap_bytes) == (True, 0)
    raw["status"]["conditions"] = [{"type": "MemoryPressure", "status": "False"}]
    for info, swap in (({"swap": {"capacity": 2**30}}, 2**30), ({"swap": {}}, 0), ({}, 0)):
        raw["status"]["nodeInfo"] = info
        assert (parse_node(raw).memory_pressure, parse_node(raw).swap_bytes) == (False, swap)


def test_a_node_whose_kubelet_is_silent_is_not_ready() -> None:
    raw = node_json()
    raw["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    assert not parse_node(raw).ready


def test_an_administrator_may_declare_a_static_cpu_manager() -> None:
    assert parse_node(node_json(labels={"slopewise.dev/static-cpu-manager": "true"})).static_cpu_manager is True


def test_an_object_that_cannot_be_read_is_named() -> None:
    raw = pod_json(spec={"containers": [{"name": "trainer", "resources": {"limits": {"cpu": "much"}}}]})
    with pytest.raises(ValueError, match="team/p cannot be read: 'much' is not a Kubernetes quantity"):
        parse_pod(raw)
    with pytest.raises(ValueError, match="team/p cannot be read: Object missing required field `spec`"):
        parse_pod({"metadata": pod_json()["metadata"]})
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
    assert (facts.affinity, facts.node_selector, facts.grace_seconds) == (affinity, (("a", "1"), ("b", "2")), 120.0)
    assert facts.tolerations == (Toleration("", "Exists", "", ""), Toleration("gpu", "Equal", "yes", "NoSchedule"))
    assert facts.volumes == (
        VolumeRecord("data", "persistentVolumeClaim", "saved"),
        VolumeRecord("tmp", "emptyDir"),
        VolumeRecord("host", "hostPath"),
    )
    assert (facts.spreads_strictly, facts.claims_devices, facts.needs_no_volume) == (True, True, False)


@pytest.mark.parametrize(("value", "needs_none"), [("external", True), ("none", True), ("", False), ("here", False)])
def test_checkpoints_elsewhere_and_none_at_all_need_no_volume(value: str, needs_none: bool) -> None:
    annotations = {**MIGRATABLE_POD["annotations"], "slopewise.dev/checkpoints": value}
    facts = parse_pod(pod_json(metadata={"annotations": annotations})).scheduling
    assert facts is not None
    assert facts.needs_no_volume is needs_none


@pytest.mark.parametrize(
    ("annotation", "value", "forbids"),
    [
        ("karpenter.sh/do-not-disrupt", "true", True),
        ("karpenter.sh/do-not-disrupt", "false", False),
        ("cluster-autoscaler.kubernetes.io/safe-to-evict", "false", True),
        ("cluster-autoscaler.kubernetes.io/safe-to-evict", "true", False),
    ],
)
def test_an_annotation_that_forbids_to_disrupt_a_pod_is_kept(annotation: str, value: str, forbids: bool) -> None:
    annotations = {**MIGRATABLE_POD["annotations"], annotation: value}
    facts = parse_pod(pod_json(metadata={"annotations": annotations})).scheduling
    assert facts is not None
    assert facts.do_not_disrupt == (f"{annotation}: {value}" if forbids else "")


def test_the_pods_of_one_template_share_their_scheduling_facts() -> None:
    one, other = (parse_pod(pod_json(metadata={**MIGRATABLE_POD, "name": name})) for name in ("a", "b"))
    assert one.scheduling is other.scheduling


def test_no_caller_changes_the_affinity_of_a_record_by_changing_what_it_hands_out() -> None:
    pod = parse_pod(pod_json(metadata=MIGRATABLE_POD, spec={"affinity": {"nodeAffinity": {}}}))
    assert pod.scheduling is not None
    (pod.scheduling.affinity or {})["nodeAffinity"]["x"] = 1
    assert pod.scheduling.affinity == {"nodeAffinity": {}}


def test_a_pod_that_no_node_takes_is_known_since_when() -> None:
    def since(**condition: str) -> float | None:
        found = {"type": "PodScheduled", "lastTransitionTime": "2026-11-21T15:25:33Z", **condition}
        return parse_pod(pod_json(status={"conditions": [found]})).unschedulable_since_seconds

    assert since(status="False", reason="Unschedulable") == AT_15_25_33
    assert since(status="False", reason="SchedulingGated") is None
    assert since(status="True") is None


def test_what_a_container_ended_with_is_known_while_it_has_ended() -> None:
    ended = container_status(state={"terminated": {"exitCode": 143}})
    (container,) = parse_pod(pod_json(status={"containerStatuses": [ended]})).containers
    assert container.exit_code == 143
    again = container_status(lastState={"terminated": {"exitCode": 143}})
    (container,) = parse_pod(pod_json(status={"containerStatuses": [again]})).containers
    assert container.exit_code is None


def test_the_taints_of_a_node_are_kept() -> None:
    raw = {
        "metadata": {"name": "a", "uid": "u"},
        "spec": {
            "taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}, {"key": "x", "effect": "NoExecute"}]
        },
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi"}},
    }
    assert parse_node(raw).taints == (Taint("gpu", "yes", "NoSchedule"), Taint("x", "", "NoExecute"))


def test_of_an_objects_annotations_only_ours_are_kept() -> None:
    meta = {
        "name": "o",
        "uid": "u",
        "generation": 3,
        "deletionTimestamp": "2026-11-21T15:25:33Z",
        "annotations": {"slopewise.dev/move": "{}", "kubectl.kubernetes.io/last-applied": "huge"},
    }
    found = parse_object({"metadata": meta})
    assert (found.annotations, found.deleting, found.generation) == ({"slopewise.dev/move": "{}"}, True, 3)


def _asks(cpu: str, **more: Any) -> dict[str, Any]:
    return {"name": f"c{cpu}", "resources": {"requests": {"cpu": cpu}}, **more}


@pytest.mark.parametrize(
    ("spec", "reserved"),
    [
        ({"containers": [_asks("100m"), {"name": "side"}]}, 100),
        ({"containers": [_asks("100m")], "initContainers": [_asks("500m")]}, 500),
        ({"containers": [_asks("100m")], "initContainers": [_asks("50m", restartPolicy="Always"), _asks("500m")]}, 550),
        ({"containers": [_asks("1")], "initContainers": [_asks("50m", restartPolicy="Always"), _asks("500m")]}, 1050),
        ({"containers": [_asks("100m")], "resources": {"requests": {"cpu": "2"}}}, 2000),
        ({"containers": [_asks("100m")], "overhead": {"cpu": "250m"}}, 350),
    ],
)
def test_of_a_pod_of_others_only_what_the_scheduler_reserves_for_it_is_kept(
    spec: dict[str, Any], reserved: int
) -> None:
    pod = parse_other_pod(pod_json(spec={"nodeName": "n1", **spec}))
    assert (pod.node, pod.request_millicores) == ("n1", reserved)


@pytest.mark.parametrize(
    ("init", "expected"),
    [
        ([], 0),
        ([_asks("50m", restartPolicy="Always")], 0),
        ([_asks("500m"), _asks("200m")], 500),
        ([_asks("50m", restartPolicy="Always"), _asks("500m")], 550),
    ],
)
def test_what_init_containers_request_is_kept_for_the_run(init: list[Any], expected: int) -> None:
    assert parse_pod(pod_json(spec={"initContainers": init})).start_millicores == expected
