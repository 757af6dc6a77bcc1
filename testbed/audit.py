"""The API server's audit log: each write to what Slopewise reads or writes, with request and response.

`python -m testbed.histories` checks it. Objects that kwok simulates are left out: a benchmark with 5,000 pods would
write gigabytes, and measure that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from testbed.settings import Settings

_LOG_MIB = 500
"""A write to a pod is 20 KiB with request and response: 25,000 writes, and as many in the one file before it."""
_WRITES = ["create", "update", "patch", "delete", "deletecollection"]
_KINDS: Mapping[str, list[str]] = {
    "": [
        "pods",
        "pods/resize",
        "pods/status",
        "pods/eviction",
        "pods/binding",
        "namespaces",
        "resourcequotas",
        "nodes",
    ],
    "batch": ["jobs", "jobs/status"],
    "coordination.k8s.io": ["leases"],
    "slopewise.dev": ["jobgrowths", "jobgrowths/status", "trainingpolicies", "trainingpolicies/status", "freezes"],
}
_SIMULATED = "slopewise-simulated"


def log_path(settings: Settings) -> Path:
    """The log, in the run folder."""
    return settings.run_folder / "audit.log"


def arguments(settings: Settings) -> tuple[str, ...]:
    """Of the API server."""
    return (
        f"--audit-policy-file={_policy_path(settings)}",
        f"--audit-log-path={log_path(settings)}",
        f"--audit-log-maxsize={_LOG_MIB}",
        "--audit-log-maxbackup=1",
    )


def write_policy(settings: Settings) -> None:
    """The policy; JSON is YAML too."""
    _policy_path(settings).write_text(json.dumps(policy()), encoding="utf-8")


def policy() -> dict[str, object]:
    """The first rule that fits a request counts; leases of kubelets are not ours."""
    groups = [{"group": group, "resources": kinds} for group, kinds in _KINDS.items()]
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "None", "namespaces": [_SIMULATED, "kube-system", "kube-node-lease"]},
            {"level": "RequestResponse", "verbs": _WRITES, "resources": groups},
            {"level": "None"},
        ],
    }


def _policy_path(settings: Settings) -> Path:
    return settings.run_folder / "audit-policy.json"
