"""Replicas of the controller in the test's own process, over a small API server and a Prometheus that has no series.

    with Town() as town:
        town.pod("a", cpu_limit="300m")
        town.policy("p", mode="Auto")
        with town.replica() as replica:
            replica.wait_until_leading()

The policy is `support/policies/even_shares.py`: it wants an even share of the node for each job, at once, and needs no
metrics. The node has two CPUs, so one pod alone is to get a limit of 2.
"""

from __future__ import annotations

import io
import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import requests
import structlog
from support.api_objects import RefusedError
from support.api_server import ApiServer
from support.fake_prometheus import FakePrometheus, answer, vector
from support.managed_pods import NAMESPACE, PODS, a_raw_pod
from support.waiting import eventually

from slopewise.adapters.kube.cache.records import API_VERSION, FINALIZER, MANAGED_LABEL, MOVES_ALLOWED, MOVES_LABEL
from slopewise.adapters.kube.client.client import KubeApi
from slopewise.adapters.kube.connection import LEASE_NAME, Connection
from slopewise.adapters.kube.leader_election import Terms
from slopewise.adapters.kube.watches import make_watches, wait_for_watches
from slopewise.manager.metrics import ClusterMetrics
from slopewise.manager.replica import Replica, policy_of_file
from slopewise.manager.shared import ClusterOptions, SharedState, make_shared_state
from slopewise.own_policies import catalogue
from slopewise.signals import StopSignal
from slopewise.telemetry.metrics import Instruments, configure_logging

POLICIES = f"/apis/{API_VERSION}/trainingpolicies"
GROWTHS = f"/apis/{API_VERSION}/namespaces/{NAMESPACE}/jobgrowths"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/controllers/leases"
LEASE = f"{LEASES}/{LEASE_NAME}"
EVENTS = "events.k8s.io"
EVEN_SHARES = {"name": "even-shares"}
ORIGINAL, SHARE = "300m", "2"
"""The limit that a pod comes with, and what the policy gives it when it is alone."""

Json = dict[str, Any]

_NODE_SIZES = {"machine_cpu_cores": "2", "machine_memory_bytes": "8e9"}


def sizes_alone(handler: BaseHTTPRequestHandler) -> None:
    """What a Prometheus answers that has no series but the size of the node."""
    asked = parse_qs(urlsplit(handler.path).query)
    sizes = _NODE_SIZES if "machine_cpu_cores" in handler.path else {}
    rows = [
        {"metric": {"__name__": name, "node": "node-a"}, "value": [float(asked["time"][0]), value]}
        for name, value in sizes.items()
    ]
    answer(vector(*rows))(handler)


class Town(AbstractContextManager["Town"]):
    """A cluster of one node with two CPUs, a Prometheus, and what the controllers in it have logged."""

    def __init__(self) -> None:
        catalogue.name_file(Path(__file__).with_name("policies") / "even_shares.py")
        self.server = ApiServer()
        self.server.objects.kubelets_follow = True
        self.client = self.server.client
        """Makes the client of a replica."""
        self.prometheus = FakePrometheus()
        self.prometheus.respond = sizes_alone
        self._log = io.StringIO()
        configure_logging(stream=self._log, as_json=True)
        self.server.put(
            "/api/v1/nodes",
            {
                "metadata": {"name": "node-a"},
                "status": {
                    "allocatable": {"cpu": "2", "memory": "8Gi"},
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            },
        )
        self.label_namespace({MOVES_LABEL: MOVES_ALLOWED})

    def __exit__(self, *_: object) -> None:
        self.server.stop()
        self.prometheus.close()
        catalogue.forget()
        structlog.reset_defaults()

    def label_namespace(self, labels: Json) -> None:
        """Give the one namespace these labels beside its team's."""
        self.server.put("/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": {"team": "a", **labels}}})

    def pod(self, name: str = "a", cpu_limit: str = ORIGINAL, labels: Json | None = None) -> Json:
        """A running pod."""
        raw = a_raw_pod({"requests": {"cpu": "100m"}, "limits": {"cpu": cpu_limit}})
        raw["metadata"] = {"name": name, "labels": {**raw["metadata"]["labels"], **(labels or {})}}
        return dict(self.server.put(PODS, raw))

    def label(self, value: str | None) -> None:
        """Set the label by which an owner lets us manage a pod; None: take it off."""
        raw = self.server.get(f"{PODS}/a")
        raw["metadata"]["labels"] = {} if value is None else {MANAGED_LABEL: value}
        self.server.put(PODS, raw)

    def policy(self, name: str = "p", mode: str = "Auto", **more: Any) -> Json:
        """Make a policy, or change its spec."""
        return self.server.put(POLICIES, policy_document(name, mode, **more) | self.found(f"{POLICIES}/{name}"))

    def found(self, path: str) -> Json:
        """The metadata of what is there, so that a change keeps finalizers and uid; empty when nothing is."""
        try:
            raw = self.server.get(path)
        except RefusedError:
            return {}
        return {"status": raw.get("status") or {}, "metadata": raw["metadata"]}

    def limit(self, pod: str = "a") -> str:
        """The CPU limit in its spec."""
        return str(self.server.get(f"{PODS}/{pod}")["spec"]["containers"][0]["resources"]["limits"]["cpu"])

    def is_there(self, path: str) -> bool:
        return bool(self.found(path))

    def condition(self, kind: str, policy: str = "p") -> Json:
        """Of a policy's status; empty where it is not reported."""
        status = self.found(f"{POLICIES}/{policy}").get("status", {})
        return next((each for each in status.get("conditions", []) if each["type"] == kind), {})

    def delete_policy(self, name: str = "p") -> None:
        self.server.client().delete(f"{POLICIES}/{name}")

    def lines(self, event: str = "") -> list[Json]:
        """What was logged, the oldest first."""
        lines = [json.loads(line) for line in self._log.getvalue().splitlines()]
        return [line for line in lines if event in ("", line["event"])]

    def writes(self) -> list[str]:
        """Method and path of each request that changes something."""
        return [f"{each.method} {each.path}" for each in self.server.requests if each.method != "GET"]

    def replica(self, **options: Any) -> RunningReplica:
        """One more of them. `options`: of ClusterOptions."""
        return RunningReplica(self, options)


LIMITS = {"control": "limits", "cpu": {"min": "250m"}}


def policy_document(name: str = "p", mode: str = "Auto", **more: Any) -> Json:
    """A TrainingPolicy, as one writes it. `more`: of its spec."""
    behaviour = {"intervalSeconds": 2, "cooldownSeconds": 0, "maxStepRatio": 20, **more.pop("behaviour", {})}
    spec = {"mode": mode, "policy": EVEN_SHARES, "behaviour": behaviour, "resources": LIMITS, **more}
    return {"apiVersion": API_VERSION, "kind": "TrainingPolicy", "metadata": {"name": name}, "spec": spec}


@dataclass
class RunningReplica(AbstractContextManager["RunningReplica"]):
    """A replica in a thread of its own. Leaving it stops it as SIGTERM does."""

    town: Town
    options: Json
    stop_signal: StopSignal = field(default_factory=StopSignal)
    exit_code: int | None = None

    def __enter__(self) -> Self:
        known = ClusterOptions(
            Connection(namespace=self.options.pop("namespace", None)),
            self.town.prometheus.url,
            scrape_interval_seconds=0.5,
            port=0,
            lease_namespace="controllers",
            lease=Terms(lease_seconds=6.0, renew_deadline_seconds=4.0, retry_seconds=0.2),
            restore_deadline_seconds=4.0,
        )
        options = replace(known, **self.options)
        instruments = Instruments()
        metrics = ClusterMetrics(instruments.registry)
        api = self.town.client(2.0, metrics.on_request)
        self.replica = Replica(options, api, instruments, metrics, policy_of_file(options)).__enter__()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> int | None:
        """As a kubelet does it; returns the exit code."""
        if self._thread.is_alive() or self.exit_code is None:
            self.stop_signal.note(signal.SIGTERM)
            self._thread.join()
        return self.exit_code

    def wait_until_leading(self) -> None:
        assert eventually(lambda: self.metric("slopewise_leader") == 1)

    def ended(self) -> bool:
        return not self._thread.is_alive()

    def get(self, path: str) -> requests.Response:
        """Of its own endpoint."""
        return requests.get(f"http://127.0.0.1:{self.replica.health.port}{path}", timeout=10)

    def metric(self, metric: str, /, **labels: str) -> float | None:
        return self.replica.shared.instruments.registry.get_sample_value(metric, labels)

    def passes(self) -> float:
        """How many could observe."""
        return self.metric("slopewise_passes_total", result="ok") or 0.0

    def _run(self) -> None:
        try:
            self.exit_code = self.replica.run(self.stop_signal)
        finally:
            self.replica.__exit__()


@contextmanager
def shared_parts(
    api: KubeApi, prometheus_url: str, may_write: Callable[[], bool] = lambda: True, scrape_seconds: float = 0.5
) -> Iterator[SharedState]:
    """The parts of a replica, whose watches have read everything; nothing else of it runs."""
    instruments = Instruments()
    watches = make_watches(api, None, lambda old, new: None)
    options = ClusterOptions(Connection(), prometheus_url, scrape_interval_seconds=scrape_seconds)
    metrics = ClusterMetrics(instruments.registry)
    shared = make_shared_state(options, api, watches, may_write, instruments, metrics, file_policy=None)
    watches.start()
    wait_for_watches(watches, StopSignal())
    yield shared
    watches.stop()
    api.close()


def is_held(town: Town) -> bool:
    """Whether the policy has our finalizer."""
    return FINALIZER in town.found(f"{POLICIES}/p").get("metadata", {}).get("finalizers", [])


def wait_for(condition: Callable[[], object], what: str, town: Town) -> None:
    """Assert that it comes true, and show the log where it does not."""
    assert eventually(condition), f"{what}\n" + "\n".join(str(line) for line in town.lines()[-20:])


def write_policy(folder: Path, **more: Any) -> Path:
    """A policy as a file."""
    path = folder / "policy.yaml"
    path.write_text(json.dumps(policy_document(**more)), encoding="utf-8")
    return path
