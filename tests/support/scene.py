"""A test's trainings on the cluster under a policy of its own: what they were given, in the API server and the kernel.

`tests/cluster/end_to_end/conftest.py` hands a scene out beside a controller that runs as a Deployment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from support.cluster import Kubectl, PodShape
from support.programs import ask
from support.waiting import wait_for

from slopewise.adapters.kube.cache.records import API_VERSION
from slopewise.adapters.kube.cache.wire import cpu_millicores

METRICS_PORT = 9464
PERIOD_MICROSECONDS = 100_000
FIXED_RATE = Path(__file__).with_name("fixed_rate.py").read_text(encoding="utf-8")
"""The program of a client."""
ODD_SERVER = Path(__file__).with_name("odd_server.py").read_text(encoding="utf-8")
"""The program of a server with clients."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Scene:
    """One namespace and the one policy that selects it."""

    kubectl: Kubectl
    namespace: str
    prometheus_url: str
    shape: PodShape
    """Of the trainer's image."""

    # --- what runs ---------------------------------------------------------------------------------------------

    def training(self, name: str, steps: int, node: str | None, cpu_limit: str, **more: Any) -> Json:
        """A Job of one built-in training, which can use one core."""
        command = ("python3", "-P", "-m", "slopewise.demo.trainings", name, "--steps", str(steps))
        return self._shape(command, node, cpu_limit, **more).job(name)

    def served_without_load(
        self, name: str, model: str, flags: Sequence[str], node: str | None, cpu_limit: str, **more: Any
    ) -> Json:
        """A Job of this name that serves a model to clients in other pods. `flags`: of `support/odd_server.py`."""
        return self._shape(("python3", "-P", "-c", ODD_SERVER, model, *flags), node, cpu_limit, **more).job(name)

    def client(self, name: str, url: str, rate_per_second: float, node: str) -> Json:
        """A Job that is not managed, and sends requests to a served model at a fixed rate."""
        command = ("python3", "-c", FIXED_RATE, url, f"{rate_per_second:g}")
        return replace(self.shape, command=command, node=node, cpu_request="20m", cpu_limit=None, labels={}).job(name)

    def _shape(self, command: Sequence[str], node: str | None, cpu_limit: str, **more: Any) -> PodShape:
        asked = {"slopewise.dev/max-useful-cpu": "1", **more.pop("annotations", {})}
        return replace(
            self.shape,
            command=command,
            node=node,
            cpu_request=more.pop("cpu_request", "20m"),
            cpu_limit=cpu_limit,
            metrics_port=METRICS_PORT,
            annotations=asked,
            **more,
        )

    def service(self, name: str) -> str:
        """Create a Service in front of the pods of the Job of this name; returns its URL, which outlives the pods."""
        spec = {"selector": {"job-name": name}, "ports": [{"port": METRICS_PORT}]}
        made = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}
        self.kubectl.apply(made, namespace=self.namespace)
        address = self.kubectl.get("service", name, "-n", self.namespace)["spec"]["clusterIP"]
        return f"http://{address}:{METRICS_PORT}"

    def start(self, *jobs: Json) -> None:
        """Create the Jobs and wait until their pods run."""
        self.kubectl.apply(*jobs, namespace=self.namespace)
        wait_for("the pods are there", self.pods, lambda pods: len(pods) >= len(jobs))
        self.kubectl.wait_running(self.namespace, *(pod["metadata"]["name"] for pod in self.pods().values()))

    def end(self, *names: str) -> None:
        """Delete Jobs; returns when their pods are gone."""
        self.kubectl.run("delete", "job", *names, "-n", self.namespace, "--cascade=foreground")

    # --- the policy --------------------------------------------------------------------------------------------

    @property
    def policy(self) -> str:
        """Its name; policies belong to the whole cluster."""
        return f"{self.namespace}-policy"

    def obey(self, mode: str, **spec: Any) -> None:
        """Create the policy, or change it: its mode, or more of its spec."""
        selector = {"namespaces": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}}}
        document = {
            "apiVersion": API_VERSION,
            "kind": "TrainingPolicy",
            "metadata": {"name": self.policy},
            "spec": {"mode": mode, "selector": selector, **spec},
        }
        self.kubectl.apply(document)

    def set_mode(self, mode: str) -> None:
        """As a person does it."""
        self.kubectl.run(
            "patch", "trainingpolicy", self.policy, "--type=merge", "-p", f'{{"spec":{{"mode":"{mode}"}}}}'
        )

    def delete_policy(self) -> None:
        """Returns when it is gone, which is when its pods have what they came with."""
        self.kubectl.run("delete", "trainingpolicy", self.policy, "--ignore-not-found", "--timeout=90s")

    def wait_ready(self, reason: str) -> None:
        """Wait until a pass in this mode has ended, e.g. `ModeAuto`."""
        wait_for(
            f"the policy is ready: {reason}",
            lambda: self.kubectl.get("trainingpolicy", self.policy).get("status", {}).get("conditions", []),
            lambda all_of_it: any(one["type"] == "Ready" and one["reason"] == reason for one in all_of_it),
        )

    # --- what is seen ------------------------------------------------------------------------------------------

    def pods(self) -> dict[str, Json]:
        """By the name of their Job."""
        found = self.kubectl.get("pods", "-n", self.namespace)["items"]
        return {pod["metadata"]["labels"]["job-name"]: pod for pod in found}

    def running(self) -> dict[str, Json]:
        """Of the pods, those that have not ended."""
        return {name: pod for name, pod in self.pods().items() if pod["status"]["phase"] == "Running"}

    def annotate(self, name: str, annotation: str) -> None:
        """Put `key=value` on the pod of this name."""
        pod = self.pods()[name]["metadata"]["name"]
        self.kubectl.run("annotate", "pod", pod, "-n", self.namespace, annotation)

    def growths(self) -> dict[str, Json]:
        """The JobGrowths by name, which is that of the Job."""
        found = self.kubectl.get("growth", "-n", self.namespace)["items"]
        return {growth["metadata"]["name"]: growth for growth in found}

    def status(self, name: str) -> Json:
        """Of the JobGrowth of this name; empty before it has one."""
        found: Json = self.growths().get(name, {}).get("status", {})
        return found

    def limits(self) -> dict[str, int]:
        """Millicores, of the running."""
        return {name: limit_millicores(pod) for name, pod in self.running().items()}

    def requests(self) -> dict[str, str]:
        """Of CPU, of the running."""
        pods = self.running()
        return {name: pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] for name, pod in pods.items()}

    def weights(self) -> dict[str, int]:
        """By which the kernel shares a node's CPU out, of the running."""
        names = {name: pod["metadata"]["name"] for name, pod in self.running().items()}
        return {name: self.kubectl.cpu_weight(self.namespace, pod) for name, pod in names.items()}

    def quotas_microseconds(self, pods: Mapping[str, Json]) -> dict[str, int | None]:
        """What the kernel gives each of every 100 ms, by the name of its Job."""
        name_of = {name: pod["metadata"]["name"] for name, pod in pods.items()}
        return {name: self.kubectl.cpu_quota_microseconds(self.namespace, pod) for name, pod in name_of.items()}

    def reasons_of_events(self, kind: str) -> set[str]:
        """Of the events of this test's pods, or of its policy, whose events are in the namespace `default`."""
        if kind == "Pod":
            place = ("-n", self.namespace, "--field-selector=involvedObject.kind=Pod")
        else:
            place = ("-n", "default", f"--field-selector=involvedObject.kind={kind},involvedObject.name={self.policy}")
        return {event["reason"] for event in self.kubectl.get("events", *place)["items"]}

    def wait_complete(self, seconds: float) -> dict[str, Json]:
        """Wait until every Job has done its work; the pods as they ended."""

        def phases() -> dict[str, str]:
            return {name: pod["status"]["phase"] for name, pod in self.pods().items()}

        wait_for("all jobs complete", phases, lambda seen: set(seen.values()) == {"Succeeded"}, seconds)
        return self.pods()

    def events(self, reason: str) -> list[str]:
        """The notes of the events of this reason in the namespace."""
        found = self.kubectl.get("events", "-n", self.namespace, f"--field-selector=reason={reason}")["items"]
        return [event["message"] for event in found]

    def query(self, text: str) -> dict[str, float]:
        """What Prometheus answers, by pod."""
        return by_pod(self.prometheus_url, text)


def by_pod(prometheus_url: str, query: str) -> dict[str, float]:
    """What Prometheus answers, by the label `pod`."""
    answer = ask(f"{prometheus_url}/api/v1/query", query=query)
    return {one["metric"]["pod"]: float(one["value"][1]) for one in answer.json()["data"]["result"]}


def quota_microseconds(millicores: int) -> int:
    """What the kernel gives a container of so much CPU in each period of 100 ms."""
    return millicores * PERIOD_MICROSECONDS // 1000


def limit_millicores(pod: Json) -> int:
    """What the pod's one container is to have at most."""
    millicores: int = cpu_millicores(pod["spec"]["containers"][0]["resources"]["limits"]["cpu"])
    return millicores


def has_condition(status: Json, kind: str) -> bool:
    """Whether a condition of a custom resource is True."""
    return any(one["type"] == kind and one["status"] == "True" for one in status.get("conditions", []))


def identity(pod: Json) -> tuple[str, int]:
    """Which container it is, and how often it was started again."""
    (status,) = pod["status"]["containerStatuses"]
    return status["containerID"], status["restartCount"]


def seconds_taken(pod: Json) -> float:
    """From the pod's start to its container's end."""
    (status,) = pod["status"]["containerStatuses"]
    ended = datetime.fromisoformat(status["state"]["terminated"]["finishedAt"])
    return (ended - datetime.fromisoformat(pod["status"]["startTime"])).total_seconds()
