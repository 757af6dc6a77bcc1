"""One test's part of the cluster: a namespace, policies, pods, and controllers that see nothing else of it.

`tests/cluster/faults/conftest.py` hands it out and tidies up after it. Most tests use a policy of
`support/policies`: it wants an even share of the node for each job, at once and for ever, and needs no metrics.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

from support.cluster import Kubectl, PodShape
from support.controller_process import ControllerProcess
from support.gateway import TEST_LABEL, Gateway, Request
from support.waiting import wait_for

from slopewise.adapters.kube.cache.records import API_VERSION, FINALIZER
from slopewise.adapters.kube.cache.wire import cpu_millicores
from slopewise.model import CpuAllocation

EVEN_SHARES = {"name": "even-shares"}
LEASE_SECONDS = 15.0
"""As installed: a machine on which nothing is written for 2 s loses no leader that no test has cut off."""

QUICK_LEASE_SECONDS = 3.0
"""For a test in which another replica takes over."""

SCRAPE_SECONDS = 5.0
QUICK_SCRAPE_SECONDS = 1.0
"""For tests without metrics: an interval is four scrapes at least, and 4 s are enough where nothing is measured."""

SHAPE: dict[str, Any] = {"node": "node-a", "cpu_request": "100m", "cpu_limit": "300m"}
ORIGINAL = CpuAllocation(300, 100)
STORED = {"cpuLimit": "300m", "cpuRequest": "100m"}
"""What a pod is made with, how it is read, and how its JobGrowth stores it."""

_SHOWN_CHARACTERS = 6000

Json = dict[str, Any]


@dataclass
class Stage:
    """What a test has in its hands."""

    kubectl: Kubectl
    kubeconfig: Path
    prometheus_url: str
    namespace: str
    idle: PodShape
    folder: Path
    stack: ExitStack
    processes: list[ControllerProcess] = field(default_factory=list)
    resized: Counter[str] = field(default_factory=Counter)
    """How often the API server took a resize, by pod, of all replicas together."""
    lease_seconds: float = LEASE_SECONDS
    """Of the replicas that are started from now on."""

    # --- what is there ---------------------------------------------------------------------------------------

    def name(self, policy: str) -> str:
        """Policies belong to the whole cluster, so each test's have names of their own."""
        return f"{self.namespace}-{policy}"

    def policy(self, name: str = "policy", mode: str = "Auto", pods: Json | None = None, **spec: Any) -> str:
        """Create or change a policy for this namespace, or for these `pods` of it; returns its full name."""
        self.kubectl.apply(self.policy_document(name, mode, pods, **spec))
        return self.name(name)

    def policy_document(self, name: str = "policy", mode: str = "Auto", pods: Json | None = None, **spec: Any) -> Json:
        """A policy as an object, for another tool to apply."""
        here = {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}}
        selector = {"namespaces": here, "pods": pods or {}}
        behaviour = {"intervalSeconds": 4, "cooldownSeconds": 0, "maxStepRatio": 8, **spec.pop("behaviour", {})}
        resources = {"control": "limits", "cpu": {"min": "250m"}, **spec.pop("resources", {})}
        return {
            "apiVersion": API_VERSION,
            "kind": "TrainingPolicy",
            "metadata": {"name": self.name(name), "labels": {TEST_LABEL: self.namespace}},
            "spec": {
                "mode": mode,
                "selector": selector,
                "policy": EVEN_SHARES,
                "resources": resources,
                "behaviour": behaviour,
                **spec,
            },
        }

    def delete_policy(self, name: str = "policy", *, seconds: float = 180.0) -> None:
        """Delete it and wait until its finalizer has let it go."""
        self.kubectl.run("delete", "trainingpolicy", self.name(name), "--wait=false")
        self.wait_for_no_policy(name, seconds)

    def wait_for_no_policy(self, name: str = "policy", seconds: float = 180.0) -> None:
        """Wait until a policy that is being deleted is gone."""
        wait_for(f"{name} is gone", lambda: self.has_no_policy(name), bool, seconds)

    def has_no_policy(self, name: str = "policy") -> bool:
        """True once it is gone."""
        return not self.kubectl.run("get", "trainingpolicy", self.name(name), "--ignore-not-found", "-o", "name")

    def pods(self, *names: str, running: bool = True, **shape: Any) -> None:
        """Make idle pods on node-a, and wait until they run."""
        made = {**SHAPE, **shape}
        self.kubectl.apply(*(replace(self.idle, **made).pod(name) for name in names), namespace=self.namespace)
        if running:
            self.kubectl.wait_running(self.namespace, *names)

    def delete_pods(self, *names: str) -> None:
        """At once, and wait until they are gone."""
        self.kubectl.run("delete", "pods", *names, "-n", self.namespace, "--grace-period=1")

    # --- controllers -----------------------------------------------------------------------------------------

    def gateway(self) -> Gateway:
        """To the API server, for one replica; confined to this test's objects."""
        cluster = self.kubectl.config()["clusters"][0]["cluster"]
        server, ca_file = cluster["server"], cluster["certificate-authority"]
        made = Gateway(server, ca_file, self.namespace, self._count)
        self.stack.callback(made.close)
        return made

    def _count(self, request: Request, status: int) -> None:
        if request.kind == "patch pods/resize" and status == HTTPStatus.OK:
            self.resized[request.path.split("/")[-2]] += 1

    def prometheus_gateway(self) -> Gateway:
        """To Prometheus."""
        made = Gateway(self.prometheus_url)
        self.stack.callback(made.close)
        return made

    def controller(
        self,
        gateway: Gateway | None = None,
        *,
        token: str | None = None,
        prometheus_url: str | None = None,
        scrape_seconds: float = QUICK_SCRAPE_SECONDS,
        leading: bool = True,
        policy_file: Path | None = None,
        record: Path | None = None,
        checkout: Path | None = None,
    ) -> ControllerProcess:
        """Start a replica. `token`: of the account that it acts as, instead of the administrator's. `policy_file`: the
        one policy that it obeys. `record`: where it writes decision records. `checkout`: of another version."""
        number = len(self.processes)
        kubeconfig = self.write_kubeconfig(f"replica-{number}", gateway or self.gateway(), token)
        arguments = [
            *("--kubeconfig", str(kubeconfig)),
            *("--prometheus-url", prometheus_url or self.prometheus_url),
            *("--scrape-interval", str(scrape_seconds)),
            *("--lease-namespace", self.namespace),
            *("--lease-seconds", str(self.lease_seconds)),
        ]
        if policy_file is not None:
            arguments += ["--policy-file", str(policy_file)]
        if record is not None:
            arguments += ["--record", str(record)]
        process = ControllerProcess(arguments, self.folder / f"replica-{number}.log", checkout)
        self.processes.append(process)
        self.stack.callback(process.kill)
        if leading:
            process.wait_until_leading()
        return process

    def write_kubeconfig(self, name: str, gateway: Gateway, token: str | None = None) -> Path:
        """Of the gateway, as an account or the administrator."""
        config = self.kubectl.config()
        config["clusters"][0]["cluster"] = {"server": gateway.url}
        if token is not None:
            config["users"][0]["user"] = {"token": token}
        path = self.folder / f"{name}.kubeconfig"
        path.write_text(json.dumps(config), encoding="utf-8")
        return path

    # --- what is seen ----------------------------------------------------------------------------------------

    def pod(self, name: str) -> Json:
        return dict(self.kubectl.get("pod", name, "-n", self.namespace))

    def cpu(self, *names: str) -> dict[str, CpuAllocation]:
        """What the pods' specs wish for."""
        pods = self.kubectl.get("pods", "-n", self.namespace)["items"]
        desired = {pod["metadata"]["name"]: _desired(pod) for pod in pods}
        return {name: desired[name] for name in names or desired if name in desired}

    def limits(self, *names: str) -> dict[str, int | None]:
        """Limits in millicores, by pod."""
        return {name: cpu.limit_millicores for name, cpu in self.cpu(*names).items()}

    def wait_for_limits(self, wanted: Mapping[str, int | None]) -> None:
        """Wait until the pods' specs say so."""
        wait_for(f"limits {wanted}", lambda: self.limits(*wanted), lambda seen: seen == wanted)

    def originals(self) -> dict[str, Json]:
        """What is stored of each pod, by its name; pods without an original are left out."""
        growths = self.kubectl.get("jobgrowths", "-n", self.namespace)["items"]
        stored = [pod for growth in growths for pod in growth.get("status", {}).get("pods", [])]
        return {pod["name"]: pod["original"] for pod in stored if "original" in pod}

    def growth(self, name: str) -> Json:
        """The status of a JobGrowth; empty where there is none yet."""
        found = self.kubectl.attempt("get", "jobgrowth", name, "-n", self.namespace, "-o", "json")
        return dict(json.loads(found.stdout).get("status", {})) if found.returncode == 0 else {}

    def condition(self, policy: str, kind: str) -> Json:
        """One condition of a policy's status; empty where it is not reported yet."""
        found = self.kubectl.attempt("get", "trainingpolicy", self.name(policy), "-o", "json")
        status = json.loads(found.stdout).get("status", {}) if found.returncode == 0 else {}
        return _condition(status, kind)

    def wait_for_condition(self, kind: str, reason: str, policy: str = "policy") -> Json:
        """Wait until a policy's condition has this reason."""
        return wait_for(
            f"{policy}: {kind} {reason}",
            lambda: self.condition(policy, kind),
            lambda seen: seen.get("reason") == reason,
        )

    def wait_for_growth(self, name: str, kind: str, reason: str) -> Json:
        """Wait until a JobGrowth's condition has this reason; returns its status."""
        return wait_for(
            f"growth {name}: {kind} {reason}",
            lambda: self.growth(name),
            lambda seen: _condition(seen, kind).get("reason") == reason,
        )

    def events(self, about: str) -> list[tuple[str, str]]:
        """Reason and note of each event about one of the test's pods, or one of its policies."""
        namespace = "default" if about.startswith(self.name("")) else self.namespace
        found = self.kubectl.get("events.v1.events.k8s.io", "-n", namespace)["items"]
        return [(each["reason"], each.get("note", "")) for each in found if each["regarding"]["name"] == about]

    def wait_for_event(self, about: str, reason: str, words: str = "") -> str:
        """Wait until an event about a pod or a policy is there; returns its note."""
        found = wait_for(
            f"event {reason} of {about} with {words!r}",
            lambda: self.events(about),
            lambda seen: any(why == reason and words in note for why, note in seen),
        )
        return next(note for why, note in found if why == reason and words in note)

    # --- the end ---------------------------------------------------------------------------------------------

    def clean_up(self) -> None:
        """Policies are cluster-wide, and one whose controller was killed is held by its finalizer."""
        self.stack.close()
        for process in self.processes:  # shown when the test fails
            print(process.text[-_SHOWN_CHARACTERS:])
        for policy in self.kubectl.get("trainingpolicies", "-l", f"{TEST_LABEL}={self.namespace}")["items"]:
            name = policy["metadata"]["name"]
            self.kubectl.attempt("delete", "trainingpolicy", name, "--wait=false")
            if FINALIZER in policy["metadata"].get("finalizers", []):
                gone = json.dumps({"metadata": {"finalizers": None}})
                self.kubectl.attempt("patch", "trainingpolicy", name, "--type=merge", "-p", gone)
        self.kubectl.run("delete", "lease", "--all", "-n", self.namespace)


def _desired(pod: Json) -> CpuAllocation:
    resources = pod["spec"]["containers"][0].get("resources", {})
    limit, request = (resources.get(side, {}).get("cpu") for side in ("limits", "requests"))
    return CpuAllocation(
        None if limit is None else cpu_millicores(limit), 0 if request is None else cpu_millicores(request)
    )


def _condition(status: Json, kind: str) -> Json:
    return next((dict(each) for each in status.get("conditions", []) if each["type"] == kind), {})
