"""Resolves pods to workloads and slots, which make up `Job.uid`.

The workload is the highest controlling owner that exists: Pod → Job → JobSet → TrainJob, Pod → PyTorchJob, Pod →
ReplicaSet → Deployment. An owner reference is text that a tenant may write, so a link counts only when an object of
that name and uid is in the pod's own namespace.

A pod keeps its workload and its slot for its lifetime, also when a right is granted or a second pod comes: its original
resources are stored under them, and under another name resized CPU would be taken for the original.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol
from urllib.parse import quote

from slopewise.adapters.kube.cache.parsing import controlling_owner
from slopewise.adapters.kube.cache.records import ContainerRecord, ManagedPod, ObjectRecord, OwnerRef, PodRecord
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.protocol import Api, Store, path_of
from slopewise.adapters.kube.workloads.annotations import STUDY_LABEL, as_label
from slopewise.model import JobUid

ONLY_SLOT = "0"

_PLURALS: Mapping[tuple[str, str], str] = {
    ("batch", "Job"): "jobs",
    ("jobset.x-k8s.io", "JobSet"): "jobsets",
    ("trainer.kubeflow.org", "TrainJob"): "trainjobs",
    ("kubeflow.org", "PyTorchJob"): "pytorchjobs",
    ("apps", "ReplicaSet"): "replicasets",
    ("apps", "Deployment"): "deployments",
    ("apps", "StatefulSet"): "statefulsets",
}
"""The kinds that our account may read; the manifests grant exactly these."""

_EACH_RUN_COUNTS = {("batch", "CronJob"), ("kubeflow.org", "Trial")}
"""Every run of a CronJob, and that of each of Katib's trials, is a training of its own: its loss starts again."""

_STUDY = ("trainer.kubeflow.org", "OptimizationJob")
"""Its trials are the workloads: each has a loss that starts again."""

_MAX_CHAIN = 5
"""Pod → Job → JobSet → TrainJob is three links; owners that own each other in a circle end here."""

_MAX_OWNERS_KEPT = 20_000

_SLOT_LABELS = (
    ("jobset.sigs.k8s.io/replicatedjob-name", "jobset.sigs.k8s.io/job-index"),
    ("training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index"),
    ("batch.kubernetes.io/job-completion-index",),
    ("apps.kubernetes.io/pod-index",),
)
"""Index labels that controllers write on their pods, from the outermost grouping to the innermost."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The workload and slot under which a pod's memory is stored."""

    workload: OwnerRef
    slot: str
    """The completion index (of a JobSet `<replicated job>-<job>-<index>`), `0` for a workload's only pod, or the pod's
    name where several are alike."""
    warnings: tuple[str, ...] = ()
    study: str = ""
    """By the label of its pod, by Katib's, or the OptimizationJob that owns it; empty: none."""

    job_uid: str = field(init=False)
    """`<workload uid>:<slot>`, which is asked for 10,000 pods in each pass."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "job_uid", str(JobUid(self.workload.uid, self.slot)))


@dataclass(frozen=True, slots=True)
class Resolution:
    """The jobs of all pods, at one moment."""

    pods: Mapping[str, tuple[Identity, PodRecord]]
    """By job uid; of several pods in one slot the running one, and the newest of those."""
    left_out: Mapping[str, str]
    """Pods, as `namespace/name`, whose owners could not be read, and the reason; the next pass retries."""
    gated: Mapping[str, tuple[Identity, PodRecord]] = field(default_factory=dict)
    """By job uid, the gated pods; also where the pod that they replace still exists."""


def owner_path(namespace: str, link: OwnerRef) -> str | None:
    """The path of an owner; None for a kind that is not read."""
    if (plural := _PLURALS.get((_group(link), link.kind))) is None:
        return None
    group, _, version = link.api_version.rpartition("/")
    # The version and the name are a tenant's text: quoted, they cannot lead the request elsewhere.
    return path_of(f"{group}/{quote(version, safe='')}", plural, namespace, quote(link.name, safe=""))


class Owners:
    """Resolves pods to jobs; safe from several threads. Share one instance, so that owners are read once."""

    def __init__(
        self, jobs: Store[ObjectRecord], api: Api, recorded: Callable[[PodRecord], Identity | None] = lambda _: None
    ) -> None:
        """`recorded`: the stored identity of a pod, after a restart of the controller."""
        self.jobs = jobs
        """Must be synced before pods are resolved: otherwise each Job would be read by itself."""
        self._api = api
        self._recorded = recorded
        self._lock = threading.Lock()
        self._identities: dict[str, Identity] = {}
        self._owners: dict[tuple[str, str], _Owner] = {}
        self._resolved: tuple[Sequence[PodRecord], Resolution] | None = None

    def resolve(self, pods: Sequence[PodRecord]) -> Resolution:
        """All jobs of these pods, which must be all known pods: a slot depends on the other pods.

        Costs nothing for the same list again (a store returns a new one when something has changed).
        """
        with self._lock:
            if self._resolved is None or self._resolved[0] is not pods:
                self._resolved = (pods, self._resolve(pods))
            resolution = self._resolved[1]
            if resolution.left_out:
                self._resolved = None
            return resolution

    def job_uid(self, pod: PodRecord, pods: Sequence[PodRecord]) -> str | None:
        """The job of one of these pods, also of one that is not its slot's; None: its workload is unknown."""
        with self._lock:
            known = self._identities.get(pod.uid)
        if known is None:
            self.resolve(pods)
            with self._lock:
                known = self._identities.get(pod.uid)
        return None if known is None else known.job_uid

    def _resolve(self, pods: Sequence[PodRecord]) -> Resolution:
        left_out: dict[str, str] = {}
        workloads = self._workloads([pod for pod in pods if pod.uid not in self._identities], left_out)
        # Live pods without an index, by their workload. One that succeeded counts: its work is done and it is not
        # replaced. One that failed, or is being deleted, leaves its slot to its replacement.
        alike = Counter(
            named.workload.uid
            for pod in (pods if workloads else ())  # only new pods need their peers
            if not pod.deleting and pod.phase != "Failed" and _index(pod) is None
            if (named := workloads.get(pod.uid) or self._identities.get(pod.uid)) is not None
        )
        identities: dict[str, Identity] = {}
        found: dict[str, tuple[Identity, PodRecord]] = {}
        gated: dict[str, tuple[Identity, PodRecord]] = {}
        for pod in pods:
            identity = self._identities.get(pod.uid)
            if identity is None:
                if pod.uid not in workloads:
                    continue
                new = workloads[pod.uid]
                alone, index = alike[new.workload.uid] <= 1, _index(pod)
                slot = index if index is not None else ONLY_SLOT if alone else pod.name
                named = self._recorded(pod) or replace(new, slot=slot)
                identity = replace(named, study=new.study)
            identities[pod.uid] = identity
            study = pod.labels.get(STUDY_LABEL) or pod.labels.get("katib.kubeflow.org/experiment") or identity.study
            if study != identity.study:  # unlike the workload, a label may come while it runs
                identity = replace(identity, study=study)
            rival = found.get(identity.job_uid)
            if rival is None or _presence(pod) > _presence(rival[1]):
                found[identity.job_uid] = (identity, pod)
            if pod.waits_for_us:
                gated[identity.job_uid] = (identity, pod)
        self._identities = identities
        return Resolution(found, left_out, gated)

    def _workloads(self, pods: Iterable[PodRecord], left_out: dict[str, str]) -> dict[str, Identity]:
        """The identity of each pod without its slot, by uid. Stops reading once the API server does not answer."""
        workloads = {}
        silent: ApiError | None = None
        for pod in pods:
            try:
                workloads[pod.uid] = self._workload(pod, silent)
            except ApiError as error:
                left_out[f"{pod.namespace}/{pod.name}"] = f"its owner cannot be read: {error}"
                silent = error if error.is_unanswered else silent
        return workloads

    def _workload(self, pod: PodRecord, silent: ApiError | None) -> Identity:
        top, link = OwnerRef("v1", "Pod", pod.name, pod.uid), pod.owner
        for _ in range(_MAX_CHAIN):
            if link is None:
                break
            if (_group(link), link.kind) == _STUDY:
                return Identity(top, "", study=as_label(link.name))
            owner = self._find(pod.namespace, link, silent)
            if owner.missing is not None:
                return Identity(top, "", (owner.missing,) if owner.missing else ())
            top, link = link, owner.owner
        return Identity(top, "")

    def _find(self, namespace: str, link: OwnerRef, silent: ApiError | None) -> _Owner:
        kind = (_group(link), link.kind)
        if kind == ("batch", "Job"):
            job = self.jobs.get(namespace, link.name)
            if job is not None and job.uid == link.uid:
                return _Owner(job.owner)
        if (path := owner_path(namespace, link)) is None:
            return _Owner(missing="" if kind in _EACH_RUN_COUNTS else _message(link, "is of a kind that is not read"))
        known = self._owners.get((namespace, link.uid))
        if known is None:
            if silent is not None:
                raise silent
            known = self._read_owner(link, path)
            if len(self._owners) >= _MAX_OWNERS_KEPT:
                self._owners.clear()
            self._owners[namespace, link.uid] = known
        return known

    def _read_owner(self, link: OwnerRef, path: str) -> _Owner:
        try:
            found = self._api.get(path, metadata_only=True)
        except ApiError as error:
            if not (error.is_forbidden or error.is_not_found):
                raise
            return _Owner(missing=_message(link, "may not be read" if error.is_forbidden else "is not there"))
        if found["metadata"]["uid"] != link.uid:
            return _Owner(missing=_message(link, "has been replaced"))
        return _Owner(controlling_owner(found["metadata"]))


@dataclass(frozen=True, slots=True)
class _Owner:
    """One link of a chain: its owner, or why it does not count (empty where no warning is needed)."""

    owner: OwnerRef | None = None
    missing: str | None = None


def _index(pod: PodRecord) -> str | None:
    parts = [
        pod.labels[label] for labels in _SLOT_LABELS if all(each in pod.labels for each in labels) for label in labels
    ]
    return "-".join(parts) if parts else None


def _presence(pod: PodRecord) -> tuple[int, float, str]:
    """The order of pods in one slot: running, then ending, then without a node."""
    rank = 0 if pod.node is None else 1 if pod.deleting or pod.ended else 2
    return rank, pod.created_at_seconds, pod.name


def _group(link: OwnerRef) -> str:
    return link.api_version.rpartition("/")[0]


def _message(link: OwnerRef, what: str) -> str:
    return f"its owner {link.kind} {link.name} {what}, so its job is only known up to there"


class JobIndex(Protocol):
    """Finds the pods of jobs (`WatchedJobIndex`)."""

    def find(self, job_uid: str) -> ManagedPod | None:
        """The newest version of a job's pod; None: it does not exist."""
        ...


Changed = Callable[[Identity], str | None]
"""The container of a job whose original is stored; None: it has all of its originals."""

Trainer = Callable[[Identity, PodRecord, str | None], ContainerRecord]
"""The container of a pod that trains; the last argument: what `Changed` says of its job."""


class WatchedJobIndex:
    """An index of the watched pods, also those that no policy selects. Shape: `JobIndex`."""

    def __init__(
        self,
        pods: Store[PodRecord],
        owners: Owners,
        trainer: Trainer,
        changed: Changed = lambda _: None,
    ) -> None:
        self._pods = pods
        self._owners = owners
        self._trainer = trainer
        self.changed = changed
        self._resolution = Resolution({}, {})
        self._known: Mapping[str, ManagedPod] = {}

    def refresh(self) -> Resolution:
        """Resolve all pods now. In between, `find` resolves again only for a missing pod: 5,000 take 10 ms."""
        self._resolution = self._owners.resolve(self._pods.items())
        return self._resolution

    def keep(self, known: Mapping[str, ManagedPod]) -> None:
        """Store results that `find` returns while the pods stay the same, by job uid."""
        self._known = known

    def find(self, job_uid: str) -> ManagedPod | None:
        """The newest version of a job's pod; None: it does not exist."""
        found = self._newest(job_uid)
        if found is None:
            self.refresh()
            found = self._newest(job_uid)
        if found is None:
            return None
        identity, pod = found
        known = self._known.get(job_uid)
        if known is not None and known.pod is pod:
            return known
        container = self._trainer(identity, pod, self.changed(identity))
        return ManagedPod(job_uid, identity.workload, identity.slot, pod, container, identity.study)

    def _newest(self, job_uid: str) -> tuple[Identity, PodRecord] | None:
        """The pod as the store has it now; not another pod of the same name."""
        if (found := self._resolution.pods.get(job_uid)) is None:
            return None
        identity, pod = found
        fresh = self._pods.get(pod.namespace, pod.name)
        return (identity, fresh) if fresh is not None and fresh.uid == pod.uid else None
