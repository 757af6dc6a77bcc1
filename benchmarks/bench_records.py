"""What it costs to parse the pods of a cluster into the records that are kept: 5,000 at a leader's start.

Gate, on a ratio within the run: parsing takes no longer than msgspec takes to decode the JSON itself. Prints the memory
of a record beside its texts.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec

from slopewise.adapters.kube.cache.parsing import parse_pod

PODS = 5_000
ROUNDS = 7
BOUND_RATIO = 1.0
AT = "2026-11-21T15:25:31Z"
RESOURCES = {"limits": {"cpu": "400m", "memory": "2Gi"}, "requests": {"cpu": "100m", "memory": "1Gi"}}
ENVIRONMENT = [{"name": f"VARIABLE_{place}", "value": "of the training"} for place in range(10)]
CONTAINERS = ("trainer", "log")
CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")


def written_fields(what: str, keys: tuple[str, ...]) -> dict[str, Any]:
    """A part of `fieldsV1`: each key with what its writer set of it."""
    parts = ("f:env", "f:image", "f:name", "f:resources", "f:terminationMessagePath", "f:volumeMounts")
    return {what: {f'k:{{"name":"{key}"}}': {part: {".": {}, "f:cpu": {}} for part in parts} for key in keys}}


def a_pod(number: int) -> dict[str, Any]:
    """A pod of two containers as a kubelet's cluster has it, 6 KB of JSON."""
    name, uid = f"trainer-{number:05d}", f"0f4a6c1e-1111-4222-8333-{number:012d}"
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": f"job-{uid}", "controller": True}
    fields = {"f:spec": written_fields("f:containers", CONTAINERS)}
    status_fields = {"f:status": written_fields("f:conditions", CONDITIONS)}
    return {
        "metadata": {
            "name": name,
            "namespace": f"team-{number % 40}",
            "uid": uid,
            "resourceVersion": str(number),
            "generation": 2,
            "creationTimestamp": AT,
            "labels": {"slopewise.dev/managed": "true", "app": "trainer", "job-name": name, "controller-uid": uid},
            "annotations": {"slopewise.dev/weight": "2"},
            "ownerReferences": [owner],
            "managedFields": [
                {"manager": "kube-controller-manager", "operation": "Update", "fieldsV1": fields},
                {"manager": "slopewise", "operation": "Update", "fieldsV1": fields, "subresource": "resize"},
                {"manager": "kubelet", "operation": "Update", "fieldsV1": status_fields, "subresource": "status"},
            ],
        },
        "spec": {
            "nodeName": f"node-{number % 200}",
            "containers": [{"name": each, "env": ENVIRONMENT, "resources": RESOURCES} for each in CONTAINERS],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "saved"}}],
        },
        "status": {
            "phase": "Running",
            "qosClass": "Burstable",
            "startTime": AT,
            "conditions": [{"type": each, "status": "True", "lastTransitionTime": AT} for each in CONDITIONS],
            "containerStatuses": [
                {"name": each, "ready": True, "state": {"running": {"startedAt": AT}}, "resources": RESOURCES}
                for each in CONTAINERS
            ],
        },
    }


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU time of this process that it takes, without the collector's."""
    gc.collect()
    gc.disable()
    start = time.process_time()
    done = work()
    seconds = time.process_time() - start
    del done
    gc.enable()
    return seconds


def main() -> int:
    """Print the figures; 1 when the bound is missed."""
    texts = [json.dumps(a_pod(number), separators=(",", ":")).encode() for number in range(PODS)]
    pods = [msgspec.json.decode(text) for text in texts]
    decoding, parsing = [], []
    for _ in range(ROUNDS):
        decoding.append(cpu_seconds(lambda: [msgspec.json.decode(text) for text in texts]))
        parsing.append(cpu_seconds(lambda: [parse_pod(pod) for pod in pods]))
    tracemalloc.start()
    records = [parse_pod(pod) for pod in pods]
    record_bytes = tracemalloc.get_traced_memory()[0] / len(records)
    tracemalloc.stop()
    decode, parse = statistics.median(decoding), statistics.median(parsing)
    held = parse <= BOUND_RATIO * decode
    print(f"{PODS} pods of {len(texts[0])} bytes: JSON {1000 * decode:.0f} ms, records {1000 * parse:.0f} ms")
    print(f"{record_bytes:.0f} bytes a record beside its texts")
    print(f"bound: {parse / decode:.2f} of {BOUND_RATIO} times the JSON: {'held' if held else 'MISSED'}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
