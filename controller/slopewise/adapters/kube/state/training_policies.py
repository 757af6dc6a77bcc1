"""TrainingPolicy objects: parsing, assignment of pods, finalizers, and the document of their status.

A document that the schema accepts and `config/training_policy.py` does not is kept with the message of that error, for
its condition `Ready`; nothing is changed under it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
from pydantic import ValidationError

from slopewise.adapters.kube.cache.records import API_VERSION, FINALIZER, MANAGED_LABEL, PodRecord
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.protocol import MERGE_PATCH, PARAMS, Api, Json, path_of
from slopewise.adapters.kube.client.retry import update
from slopewise.adapters.kube.state.status_writer import StatusDocument
from slopewise.config.pass_settings import policy_of, with_interval
from slopewise.config.training_policy import LabelSelector, TrainingPolicy
from slopewise.config.validation import validate
from slopewise.crds.policy_status import (
    Conflict,
    NodeInterval,
    PolicyFacts,
    TrainingPolicyStatus,
    node_intervals,
    policy_status,
)
from slopewise.errors import UsageError
from slopewise.model import DEPARTED_KEPT, MEMORY_JSON, ClassFigures, Departed, NodeMemory

_TRIES = 3
"""A finalizer is set with the object's resource version; concurrent writes cause a few conflicts, not endless ones."""

RECORDS_SECONDS = 60.0
"""Records of known classes and departed jobs are stored no more often: figures change in every pass."""

MAX_CLASSES_BYTES = 32_000
"""As JSON; 48 classes of 4 jobs are 20 KB, and names of jobs may be long."""

_CLASSES = dict[str, tuple[ClassFigures, ...]]

_NAMED = 3
"""Pods of a conflict that are named."""

Labels = Mapping[str, str]


def policy_path(name: str | None = None) -> str:
    """The path of one policy, or of all."""
    return path_of(API_VERSION, "trainingpolicies", name=name)


class Intervals(NamedTuple):
    """What is stored of nodes, by name: when each was evaluated (Unix seconds), and its interval in seconds."""

    nodes: Mapping[str, tuple[float, float]] = MappingProxyType({})
    placement_nodes: Mapping[str, tuple[float, float]] = MappingProxyType({})
    """Of the policy of `spec.placement`."""


NONE_STORED = Intervals()

ClassRecords = Mapping[str, tuple[ClassFigures, ...]]
"""What the jobs of each workload class have shown (`MemoryState.classes`)."""


class PolicyRecords(NamedTuple):
    """What is stored of a policy beside nodes: as in `MemoryState`."""

    classes: ClassRecords = MappingProxyType({})
    departed: tuple[Departed, ...] = ()


NO_RECORDS = PolicyRecords()

OnNodes = Callable[[Mapping[str, NodeMemory], Mapping[str, NodeMemory]], None]
"""Stores the evaluations of nodes: by the policy, and by its placement."""


@dataclass(frozen=True, slots=True)
class PolicyRecord:
    """One TrainingPolicy. `document` is None where it is invalid, and then `invalid` is the message."""

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
    def intervals(self) -> Intervals:
        """As stored; those of a placement only where the policy has one."""
        status = read_status(self.status)
        places = self.document is not None and self.document.spec.placement is not None
        return Intervals(_by_node(status.nodes), _by_node(status.placement_nodes) if places else {})

    @property
    def records(self) -> PolicyRecords:
        """As stored; without those that are damaged: jobs are measured again."""
        status = read_status(self.status)
        classes: ClassRecords = _decoded(status.classes or "{}", _CLASSES, {})
        departed: tuple[Departed, ...] = _decoded(status.departed or "[]", tuple[Departed, ...], ())
        return PolicyRecords(classes, departed[-DEPARTED_KEPT:])


def _decoded(text: str, kind: Any, otherwise: Any) -> Any:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return otherwise


def _by_node(nodes: Iterable[NodeInterval]) -> dict[str, tuple[float, float]]:
    return {node.name: (node.evaluated_at_seconds, node.interval_seconds) for node in nodes}


def parse_policy(raw: Json) -> PolicyRecord:
    """KeyError without metadata; an invalid spec is no error."""
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
        policy_of(with_interval(document, scrape_interval_seconds=0.0))
    except UsageError as error:
        return None, str(error)
    return document, None


def read_status(stored: bytes) -> TrainingPolicyStatus:
    """The stored status; an empty one where another client has written something else into it."""
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
    """By the policy's name: the running pods that an older policy has."""
    policies: frozenset[str] = frozenset()
    """The names of those that may manage pods."""


def claim_pods(
    policies: Iterable[PolicyRecord],
    pods: Iterable[PodRecord],
    namespaces: Mapping[str, Labels],
    nodes: Mapping[str, Labels],
) -> Claims:
    """Each pod goes to the oldest policy that selects it, by time of creation and then by name.

    `namespaces` and `nodes` are labels by name. Invalid policies, and those that are being deleted, have no pods.
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
    names = {name: sorted(f"{pod.namespace}/{pod.name}" for pod in theirs) for name, theirs in lost.items()}
    conflicts = {name: Conflict(len(each), tuple(each[:_NAMED]), winners[name]) for name, each in names.items()}
    return Claims(policy_of_pod, conflicts, frozenset(chooser.name for chooser in choosers))


def by_age(policies: Iterable[PolicyRecord]) -> list[PolicyRecord]:
    """The valid policies, oldest first: creation times are whole seconds, so the name decides between equal ones."""
    usable = [policy for policy in policies if policy.document is not None and not policy.deleting]
    return sorted(usable, key=lambda policy: (policy.created_at_seconds, policy.name))


class _Chooser:
    """One policy's selector, evaluated once for each namespace and node."""

    def __init__(
        self, name: str, document: TrainingPolicy | None, namespaces: Mapping[str, Labels], nodes: Mapping[str, Labels]
    ) -> None:
        self.name = name
        selection = (document or TrainingPolicy()).spec.selector
        self._pods = selection.pods
        self._namespaces = _chosen(selection.namespaces, namespaces)
        self._nodes = _chosen(selection.nodes, nodes)
        self._any_node = selection.nodes == LabelSelector()
        self._any_namespace = selection.namespaces == LabelSelector()
        self._any_pod = selection.pods == LabelSelector()

    def chooses(self, pod: PodRecord) -> bool:
        """Whether the selector picks a pod. A gated pod has no node, so any policy may pick it."""
        return (
            (self._any_namespace or pod.namespace in self._namespaces)
            and (self._any_node or pod.node in self._nodes or pod.waits_for_us)
            and (self._any_pod or self._pods.matches(pod.labels))
            and pod.labels.get(MANAGED_LABEL) == "true"
        )


def _chosen(selector: LabelSelector, labels_of: Mapping[str, Labels]) -> frozenset[str]:
    return frozenset(name for name, labels in labels_of.items() if selector.matches(labels))


# --- finalizers ----------------------------------------------------------------------------------------------


def set_finalizer(api: Api, name: str, *, wanted: bool) -> None:
    """Keep the policy until its pods have their original resources, or let it go, which may be deleted already.

    ApiError when it cannot be written, NotLeadingError without the lease.
    """
    path = policy_path(name)
    try:
        update(partial(_write_finalizer, api, wanted=wanted), lambda: api.get(path), tries=_TRIES)
    except ApiError as error:
        if not error.is_not_found or wanted:
            raise


def _write_finalizer(api: Api, policy: Json, *, wanted: bool) -> None:
    meta = policy["metadata"]
    there = list(meta.get("finalizers") or ())
    if (FINALIZER in there) == wanted:
        return
    finalizers = [*there, FINALIZER] if wanted else [each for each in there if each != FINALIZER]
    # With the resource version: another controller's finalizer, set meanwhile, must not be lost.
    guarded = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"], "finalizers": finalizers}
    api.patch(policy_path(meta["name"]), {"metadata": guarded}, MERGE_PATCH, PARAMS)


# --- its status ----------------------------------------------------------------------------------------------


class PolicyDocument(StatusDocument):
    """The status of one TrainingPolicy: `policy_status`, and the intervals of its nodes."""

    def __init__(self, record: PolicyRecord) -> None:
        super().__init__(f"policy {record.uid}", policy_path(record.name), record.uid)
        self.name = record.name
        self._status = read_status(record.status)
        self._nodes = {"nodes": self._status.nodes, "placement_nodes": self._status.placement_nodes}
        self._records = {"classes": self._status.classes, "departed": self._status.departed}
        self._recorded = _names(record.records)
        self._recorded_at = float("-inf")
        self._shown: tuple[PolicyFacts, float] | None = None
        self.stored(record.uid, record.resource_version, json.loads(record.status))

    def show(self, standing: PolicyFacts, now_seconds: float) -> None:
        """Show this from the next write on."""
        self._shown = (standing, now_seconds)

    def remember(self, nodes: Mapping[str, NodeMemory], placement_nodes: Mapping[str, NodeMemory]) -> None:
        """Store the evaluation times and intervals of its nodes, by its policy and by its placement."""
        self._nodes = {"nodes": node_intervals(nodes), "placement_nodes": node_intervals(placement_nodes)}

    def remember_records(self, records: PolicyRecords, monotonic_seconds: float) -> bool:
        """Store them, if a class or a departed job is new or the last ones are a minute old; True for a new one."""
        names = _names(records)
        is_new = not names <= self._recorded
        if is_new or monotonic_seconds - self._recorded_at >= RECORDS_SECONDS:
            departed = MEMORY_JSON.encode(records.departed).decode() if records.departed else None
            self._records = {"classes": classes_json(records.classes), "departed": departed}
            self._recorded, self._recorded_at = names, monotonic_seconds
        return is_new

    def render(self) -> Json:
        """All parts, as JSON."""
        if self._shown is not None:
            facts, now_seconds = self._shown
            self._status = policy_status(facts, self._status, now_seconds=now_seconds)
        whole = self._status.model_copy(update={**self._nodes, **self._records})
        status: Json = whole.model_dump(mode="json", by_alias=True, exclude_none=True)
        return status


def _names(records: PolicyRecords) -> frozenset[str]:
    """Of the classes and of the departed jobs."""
    return frozenset([*records.classes, *(each.job_uid for each in records.departed)])


def classes_json(classes: ClassRecords) -> str | None:
    """The class records as JSON, in at most `MAX_CLASSES_BYTES`: those of the classes seen last; None for none."""
    kept = dict(classes)
    while kept:
        encoded = MEMORY_JSON.encode(kept)
        if len(encoded) <= MAX_CLASSES_BYTES:
            return encoded.decode()
        del kept[next(iter(kept))]
    return None
