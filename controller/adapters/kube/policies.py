"""TrainingPolicy objects: what each says, which pods are whose, finalizers, and the document of its status.

Before it: `watching.py` parses them with `parse_policy`. After it: one runner for each policy. A document that the
schema let through and `settings.py` does not is kept with the sentence that says why: its condition `Ready` tells it,
and nothing is changed.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from pydantic import ValidationError

from controller.adapters.kube.api_error import ApiError
from controller.adapters.kube.contracts import MERGE_PATCH, Api, Json, MayWrite
from controller.adapters.kube.paths import path_of
from controller.adapters.kube.records import API_VERSION, FINALIZER, MANAGED_LABEL, PodRecord
from controller.adapters.kube.status_writer import PARAMS, StatusDocument, check_leading
from controller.documents import policy_of
from controller.errors import UsageError
from controller.model import NodeMemory
from controller.policy_status import Conflict, Standing, TrainingPolicyStatus, node_intervals, policy_status
from controller.settings import LabelSelector, TrainingPolicy, validate

_TRIES = 3
"""A finalizer is set with the object's resource version; somebody may write in between, but not for ever."""

_NAMED = 3
"""Pods of a conflict that are told by name."""

Labels = Mapping[str, str]


def policy_path(name: str | None = None) -> str:
    """The path of one policy, or of all."""
    return path_of(API_VERSION, "trainingpolicies", name=name)


@dataclass(frozen=True, slots=True)
class PolicyRecord:
    """One TrainingPolicy. `document` is None where it cannot be obeyed, and then `invalid` is the sentence why."""

    uid: str
    name: str
    resource_version: str
    generation: int
    created_at_seconds: float
    document: TrainingPolicy | None
    invalid: str | None
    status: bytes = b"{}"
    finalizers: tuple[str, ...] = ()
    deleting: bool = False

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """By node: when it was looked at (Unix seconds), and its interval in seconds, as stored."""
        return {node.name: (node.looked_at_seconds, node.interval_seconds) for node in read_status(self.status).nodes}


def parse_policy(raw: Json) -> PolicyRecord:
    """Raises KeyError for what has no metadata; a spec that cannot be obeyed is no error."""
    meta = raw["metadata"]
    document, invalid = _read(meta["name"], raw.get("spec") or {})
    return PolicyRecord(
        uid=meta["uid"],
        name=meta["name"],
        resource_version=meta.get("resourceVersion", ""),
        generation=meta.get("generation", 1),
        created_at_seconds=datetime.fromisoformat(meta["creationTimestamp"]).timestamp(),
        document=document,
        invalid=invalid,
        status=json.dumps(raw.get("status") or {}).encode(),
        finalizers=tuple(meta.get("finalizers") or ()),
        deleting="deletionTimestamp" in meta,
    )


def _read(name: str, spec: Json) -> tuple[TrainingPolicy | None, str | None]:
    raw = {"metadata": {"name": name}, "spec": spec}
    try:
        document = validate(TrainingPolicy, raw, where=f"TrainingPolicy {name}")
        policy_of(document)
    except UsageError as error:
        return None, str(error)
    return document, None


def read_status(stored: bytes) -> TrainingPolicyStatus:
    """The status as stored; an empty one where somebody has written something else into it."""
    try:
        return TrainingPolicyStatus.model_validate_json(stored)
    except ValidationError:
        return TrainingPolicyStatus()


# --- whose pod is it -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Claims:
    """Which policy manages which pod."""

    policy_of: Mapping[str, str] = field(default_factory=dict)
    """By the pod's uid: the policy's name."""
    conflicts: Mapping[str, Conflict] = field(default_factory=dict)
    """By the policy's name: the running pods that an older one has."""


def claim_pods(
    policies: Iterable[PolicyRecord],
    pods: Iterable[PodRecord],
    namespaces: Mapping[str, Labels],
    nodes: Mapping[str, Labels],
) -> Claims:
    """Each pod goes to the oldest policy that selects it, by time of creation and then by name.

    `namespaces` and `nodes` are labels by name. Policies that are being deleted, or cannot be obeyed, have no pods.
    """
    choosers = [_Chooser(policy.name, policy.document, namespaces, nodes) for policy in by_age(policies)]
    policy_of_pod: dict[str, str] = {}
    lost: dict[str, list[PodRecord]] = defaultdict(list)
    winners: dict[str, str] = {}
    for pod in pods:
        for chooser in choosers:
            if not chooser.chooses(pod):
                continue
            winner = policy_of_pod.setdefault(pod.uid, chooser.name)
            if winner != chooser.name and not pod.ended and not pod.waits_for_us:
                lost[chooser.name].append(pod)
                winners.setdefault(chooser.name, winner)
    conflicts = {name: _conflict(pods_lost, winners[name]) for name, pods_lost in lost.items()}
    return Claims(policy_of_pod, conflicts)


def by_age(policies: Iterable[PolicyRecord]) -> list[PolicyRecord]:
    """Those that can be obeyed, the oldest first: creation times are whole seconds, so the name decides between two."""
    usable = [policy for policy in policies if policy.document is not None and not policy.deleting]
    return sorted(usable, key=lambda policy: (policy.created_at_seconds, policy.name))


class _Chooser:
    """One policy's selector; what it says of a namespace or a node is found out once."""

    def __init__(
        self,
        name: str,
        document: TrainingPolicy | None,
        namespaces: Mapping[str, Labels],
        nodes: Mapping[str, Labels],
    ) -> None:
        self.name = name
        selection = (document or TrainingPolicy()).spec.selector
        self._pods = selection.pods
        self._namespaces = _chosen(selection.namespaces, namespaces)
        self._nodes = _chosen(selection.nodes, nodes)
        self._any_node = selection.nodes == LabelSelector()
        self._any_namespace = selection.namespaces == LabelSelector()

    def chooses(self, pod: PodRecord) -> bool:
        """A pod that waits for us to find it a node is on none that could be chosen by; each policy has its own."""
        return (
            (self._any_namespace or pod.namespace in self._namespaces)
            and (self._any_node or pod.node in self._nodes or pod.waits_for_us)
            and self._pods.matches(pod.labels)
            and pod.labels.get(MANAGED_LABEL) == "true"
        )


def _chosen(selector: LabelSelector, labels_of: Mapping[str, Labels]) -> frozenset[str]:
    return frozenset(name for name, labels in labels_of.items() if selector.matches(labels))


def _conflict(pods: Sequence[PodRecord], winner: str) -> Conflict:
    names = sorted(f"{pod.namespace}/{pod.name}" for pod in pods)
    return Conflict(len(pods), tuple(names[:_NAMED]), winner)


# --- finalizers ----------------------------------------------------------------------------------------------


def add_finalizer(api: Api, name: str, may_write: MayWrite) -> None:
    """Keep the policy from going before its pods have their originals back.

    ApiError when it cannot be set, ActuationError when that may not be written any more.
    """
    _set_finalizer(api, name, may_write, wanted=True)


def remove_finalizer(api: Api, name: str, may_write: MayWrite) -> None:
    """Let the policy go; one that is gone already is no error.

    ApiError when it cannot be removed, ActuationError when that may not be written any more.
    """
    _set_finalizer(api, name, may_write, wanted=False)


def _set_finalizer(api: Api, name: str, may_write: MayWrite, *, wanted: bool) -> None:
    for tries_left in reversed(range(_TRIES)):
        try:
            return _try_finalizer(api, name, may_write, wanted=wanted)
        except ApiError as error:
            if error.is_gone and not wanted:
                return None
            if not error.is_conflict or not tries_left:
                raise
    return None


def _try_finalizer(api: Api, name: str, may_write: MayWrite, *, wanted: bool) -> None:
    meta = api.get(policy_path(name))["metadata"]
    there = list(meta.get("finalizers") or ())
    if (FINALIZER in there) == wanted:
        return
    finalizers = [*there, FINALIZER] if wanted else [each for each in there if each != FINALIZER]
    check_leading(may_write)
    # With the resource version: another controller's finalizer, set meanwhile, must not be lost.
    guarded = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"], "finalizers": finalizers}
    api.patch(policy_path(name), {"metadata": guarded}, MERGE_PATCH, PARAMS)


# --- its status ----------------------------------------------------------------------------------------------


class PolicyDocument(StatusDocument):
    """The status of one TrainingPolicy: what `policy_status` says of it, and the intervals of nodes."""

    def __init__(self, record: PolicyRecord) -> None:
        super().__init__(f"policy {record.uid}", policy_path(record.name), record.uid)
        self.name = record.name
        self._status = read_status(record.status)
        self._nodes = self._status.nodes
        self._shown: tuple[Standing, float] | None = None
        self.stored(record.uid, record.resource_version, json.loads(record.status))

    def show(self, standing: Standing, now_seconds: float) -> None:
        """What is to be told of the policy from now on."""
        self._shown = (standing, now_seconds)

    def remember(self, nodes: Mapping[str, NodeMemory]) -> None:
        """When its nodes were looked at, and their intervals."""
        self._nodes = node_intervals(nodes)

    def render(self) -> Json:
        """Both parts, as JSON."""
        if self._shown is not None:
            standing, now_seconds = self._shown
            self._status = policy_status(standing, self._status, now_seconds=now_seconds)
        whole = self._status.model_copy(update={"nodes": self._nodes})
        status: Json = whole.model_dump(mode="json", by_alias=True, exclude_none=True)
        return status
