"""Trainings that can be moved: real checkpoints on a volume that both nodes mount, and a diary of all their lives.

The volume is a folder of this machine, which an administrator's annotation calls shared: both nodes of the test-bed
really are on this machine. On it are the exporter of this checkout, so that no image has to be built, and of each
training its checkpoints and its diary: one line of JSON when a life begins or ends and at every step, in the order in
which they happened. So a test sees work that was repeated or left out, and two lives at the same time.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from support.cluster import Kubectl, PodShape
from support.rendering import ROOT
from support.waiting import wait_for

from slopewise.adapters.kube.cache.records import MIGRATABLE, PLACE_GATE
from slopewise.adapters.kube.workloads.annotations import MAX_USEFUL_CPU

METRICS_PORT = 9464
CLAIM = "shared"
STEP_SECONDS = 0.1
GRACE_SECONDS = 20
SHARED_STORAGE = "slopewise.dev/shared-storage"

WELL = "well"
IGNORES = "ignores SIGTERM"
EXITS_ZERO = "exits 0 on SIGTERM"
CRASHES = "crashes on resume"
SLOW = "takes 4 s to save"
"""How a training behaves when it is signalled to end, or started again."""

Json = dict[str, Any]

_SCRIPT = """
import fcntl, json, os, signal, sys, time
from pathlib import Path
from slopewise_exporter import Checkpoints, Reporter

NAME, HOW, STEPS = sys.argv[1], sys.argv[2], int(sys.argv[3])
INDEX = os.environ.get("JOB_COMPLETION_INDEX")
home = Path("/shared") / (NAME if INDEX is None else f"{NAME}-{INDEX}")
home.mkdir(exist_ok=True)
diary = os.open(home / "diary", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def started_at():
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")

def note(event, **more):
    line = {"event": event, "node": os.environ["NODE"], "pod": os.environ["POD"], "at": time.time(), **more}
    os.write(diary, (json.dumps(line) + "\\n").encode())

note("begins", started_at=started_at())
lock = os.open(home / "lock", os.O_WRONLY | os.O_CREAT)
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    note("is second")
    sys.exit(3)

def save(path, state):
    if HOW == "takes 4 s to save" and checkpoints.stopping:
        time.sleep(4)
    path.write_text(json.dumps(state))
    note("saved", steps=checkpoints.steps)

def train(reporter, checkpoints):
    state = checkpoints.resume() or {"sum": 0}
    if checkpoints.steps and HOW == "crashes on resume":
        raise RuntimeError("as the test wants it")
    note("goes on", steps=checkpoints.steps, sum=state["sum"])
    handler = signal.getsignal(signal.SIGTERM)
    noted = lambda *why: (note("is signalled to end"), handler(*why))
    signal.signal(signal.SIGTERM, signal.SIG_IGN if HOW == "ignores SIGTERM" else noted)
    while checkpoints.steps < STEPS:
        time.sleep(%(step_seconds)s)
        step = checkpoints.steps + 1
        state["sum"] += step
        loss = 1.0 + 10.0 / step
        reporter.step(loss=loss)
        reporter.evaluate(loss)
        note("step", steps=step, sum=state["sum"])
        if HOW == "exits 0 on SIGTERM" and checkpoints.stopping:
            os._exit(0)
        checkpoints.step(lambda: state)
        if step == 1:
            checkpoints.save(lambda: state)  # so that it is known how long that takes

with Reporter(planned_steps=STEPS) as reporter:
    with Checkpoints(home / "checkpoints", reporter=reporter, every_seconds=None, every_steps=None,
                     save=save, load=lambda path: json.loads(path.read_text())) as checkpoints:
        try:
            train(reporter, checkpoints)
        finally:
            note("ends")
"""


@dataclass(frozen=True)
class Diary:
    """All that one training has noted so far."""

    lines: Sequence[Json]

    def entries(self, event: str) -> list[Json]:
        """The lines of one kind, the oldest first."""
        return [line for line in self.lines if line["event"] == event]

    @property
    def lives(self) -> list[tuple[str, int]]:
        """On which node each life began to train, and after how many steps."""
        return [(line["node"], line["steps"]) for line in self.entries("goes on")]

    @property
    def steps(self) -> int:
        """Done so far."""
        return max((line["steps"] for line in self.entries("step")), default=0)

    @property
    def repeated(self) -> int:
        """Steps that were done more than once."""
        steps = [line["steps"] for line in self.entries("step")]
        return len(steps) - len(set(steps))

    def check(self, most_repeated: int = 0) -> None:
        """No two lives at once, no step left out, none done twice beyond what may be, and the sum right throughout."""
        assert not self.entries("is second"), self.entries("is second")
        steps = [line["steps"] for line in self.entries("step")]
        assert all(after <= before + 1 for before, after in pairwise(steps)), "a step was left out"
        assert self.repeated <= most_repeated
        assert all(line["sum"] == line["steps"] * (line["steps"] + 1) // 2 for line in self.entries("step"))


@dataclass
class MovableTrainings:
    """Makes them, in one namespace, on one shared volume."""

    kubectl: Kubectl
    namespace: str
    shape: PodShape
    folder: Path
    """What the nodes mount."""
    volume: str = field(init=False)

    def __post_init__(self) -> None:
        self.volume = f"{self.namespace}-{CLAIM}"

    # --- the volume ------------------------------------------------------------------------------------------

    def bring_volume(self) -> None:
        """Make the volume, of which an administrator says that every node mounts the same, and the claim."""
        self.folder.mkdir(exist_ok=True)
        self.folder.chmod(0o777)
        library = self.folder / "library"
        shutil.copytree(ROOT / "exporters/slopewise_exporter", library / "slopewise_exporter", dirs_exist_ok=True)
        claim = {"namespace": self.namespace, "name": CLAIM}
        metadata = {"name": self.volume, "annotations": {SHARED_STORAGE: "true"}}
        size, modes = {"storage": "1Gi"}, ["ReadWriteMany"]
        spec = {"capacity": size, "accessModes": modes, "hostPath": {"path": str(self.folder)}, "claimRef": claim}
        wish = {
            "accessModes": modes,
            "resources": {"requests": size},
            "storageClassName": "",
            "volumeName": self.volume,
        }
        self.kubectl.apply(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": metadata,
                "spec": {**spec, "persistentVolumeReclaimPolicy": "Retain", "storageClassName": ""},
            }
        )
        made = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": CLAIM}, "spec": wish}
        self.kubectl.apply(made, namespace=self.namespace)

    def take_volume_away(self) -> None:
        """The volume belongs to the whole cluster; the claim goes with the namespace."""
        self.kubectl.run("delete", "persistentvolume", self.volume, "--ignore-not-found", "--wait=false")

    # --- what runs -------------------------------------------------------------------------------------------

    def job(self, name: str, behaves: str = WELL, *, steps: int = 100_000, likes: str = "node-b", **shape: Any) -> Json:
        """A Job of one training, which the default scheduler puts on the node that it likes where that has room."""
        return self._on_volume(self._shape(name, behaves, steps, shape).job(name), likes)

    def gang(self, name: str, pods: int, **more: Any) -> Json:
        """A Job of several pods, each of which trains something of its own: `NAME-0`, `NAME-1`, ..."""
        made = self.job(name, **more)
        made["spec"] |= {"completionMode": "Indexed", "completions": pods, "parallelism": pods}
        return made

    def gated_job(self, name: str, behaves: str = WELL, **more: Any) -> Json:
        """A Job whose owner has done all that is needed to be evicted and placed."""
        made = gated(self.job(name, behaves, **more))
        conditions = [{"type": "DisruptionTarget", "status": "True"}]
        made["spec"]["podFailurePolicy"] = {"rules": [{"action": "Ignore", "onPodConditions": conditions}]}
        return made

    def stateful_set(self, name: str, pods: int = 1, **more: Any) -> Json:
        """A StatefulSet of one training, gated; or of several pods, each of which trains something of its own."""
        template = gated(self.job(name, **more))["spec"]["template"]
        if pods > 1:
            index = {"fieldRef": {"fieldPath": "metadata.labels['apps.kubernetes.io/pod-index']"}}
            template["spec"]["containers"][0]["env"].append({"name": "JOB_COMPLETION_INDEX", "valueFrom": index})
        template["spec"].pop("restartPolicy")
        template["metadata"]["labels"] = {**template["metadata"]["labels"], "app": name}
        spec = {"serviceName": name, "selector": {"matchLabels": {"app": name}}, "template": template, "replicas": pods}
        return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name}, "spec": spec}

    def pod(self, name: str, **more: Any) -> Json:
        """A pod that nothing starts again."""
        template = self.job(name, **more)["spec"]["template"]
        return {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {**template["metadata"], "name": name}}

    def daemon_set(self, name: str, **more: Any) -> Json:
        """One on each node."""
        template = self.job(name, **more)["spec"]["template"]
        template["spec"].pop("restartPolicy")
        template["metadata"]["labels"] = {**template["metadata"]["labels"], "app": name}
        spec = {"selector": {"matchLabels": {"app": name}}, "template": template}
        return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name}, "spec": spec}

    def start(self, *objects: Json) -> None:
        """Create them, and wait until the first steps of all their pods are done."""
        self.kubectl.apply(*objects, namespace=self.namespace)
        for each in objects:
            for diary in diaries(each):
                self.wait_for_steps(diary, 3)

    def _shape(self, name: str, behaves: str, steps: int, more: Mapping[str, Any]) -> PodShape:
        command = ("python3", "-c", _SCRIPT % {"step_seconds": STEP_SECONDS}, name, behaves, str(steps))
        desired = {"cpu_request": "50m", "cpu_limit": "500m", "termination_seconds": GRACE_SECONDS, **more}
        annotations = {MIGRATABLE: "true", MAX_USEFUL_CPU: "1", **desired.pop("annotations", {})}
        return replace(self.shape, command=command, metrics_port=METRICS_PORT, annotations=annotations, **desired)

    def _on_volume(self, job: Json, likes: str) -> Json:
        fields = {"NODE": "spec.nodeName", "POD": "metadata.name"}
        return on_volume(
            job,
            likes,
            {"name": "PYTHONPATH", "value": "/shared/library"},
            {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"},
            {"name": "SLOPEWISE_EXPORTER_LINGER_SECONDS", "value": "0"},
            *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()),
        )

    # --- what is seen ----------------------------------------------------------------------------------------

    def diary(self, name: str) -> Diary:
        """What a training has noted; a line that is being written is left out."""
        path = self.folder / name / "diary"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        return Diary([json.loads(line) for line in text.rpartition("\n")[0].splitlines()])

    def wait_for_steps(self, name: str, more: int = 3) -> None:
        """Wait for so many further steps."""
        wanted = self.diary(name).steps + more
        wait_for(f"{name} does step {wanted}", lambda: self.diary(name).steps, lambda steps: steps >= wanted)

    def wait_for_life(self, name: str, number: int, node: str | None = None, seconds: float = 180.0) -> int:
        """Wait until the life of this number (0: the first) trains, on this node; returns the steps done before it."""
        lives = wait_for(
            f"life {number} of {name}", lambda: self.diary(name).lives, lambda seen: len(seen) > number, seconds
        )
        assert node is None or lives[number][0] == node, lives
        return lives[number][1]

    def live_pods(self, name: str, label: str = "job-name") -> list[Json]:
        """The pods that have not ended of the Job with this name, or of whatever else the label names."""
        found = self.kubectl.get("pods", "-n", self.namespace, "-l", f"{label}={name}")["items"]
        return [pod for pod in found if pod["status"].get("phase") not in ("Succeeded", "Failed")]


def diaries(workload: Json) -> list[str]:
    """The names of the diaries of a workload: one for each pod of a gang."""
    name, spec = workload["metadata"]["name"], workload["spec"]
    pods = spec.get("completions") or (spec.get("replicas", 1) if spec.get("replicas", 1) > 1 else None)
    return [name] if pods is None else [f"{name}-{index}" for index in range(pods)]


def on_volume(workload: Json, likes: str, *environment: Json) -> Json:
    """The same, with the volume at /shared, preferring a node."""
    spec = workload["spec"]["template"]["spec"]
    spec["volumes"] = [{"name": CLAIM, "persistentVolumeClaim": {"claimName": CLAIM}}]
    (container,) = spec["containers"]
    container["volumeMounts"] = [{"name": CLAIM, "mountPath": "/shared"}]
    container["env"] = list(environment)
    return preferring(workload, likes)


def preferring(workload: Json, node: str) -> Json:
    """The same; the scheduler puts it on this node where that has room."""
    here = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    preferred = [{"weight": 100, "preference": here}]
    workload["spec"]["template"]["spec"]["affinity"] = {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}
    }
    return workload


def gated(workload: Json) -> Json:
    """The same, with our scheduling gate on its pod template."""
    workload["spec"]["template"]["spec"]["schedulingGates"] = [{"name": PLACE_GATE}]
    return workload


@contextmanager
def shared_volume(trainings: MovableTrainings) -> Iterator[MovableTrainings]:
    """With its volume from entry to exit."""
    trainings.bring_volume()
    try:
        yield trainings
    finally:
        trainings.take_volume_away()
