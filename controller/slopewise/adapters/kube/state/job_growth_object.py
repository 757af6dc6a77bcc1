"""JobGrowth objects: parsing, naming, creation, and rendering of their status.

A `GrowthDocument` of each workload joins the two parts of its status: the memory of each pod (`slots`), and what users
see. The memory is JSON, compressed where a workload has many pods.

Worked example: in the middle of a run a pod's memory with 113 raw points is 5.1 KB as JSON and 2.7 KB compressed. Each
of 10 pods keeps 100 points, 2.3 KB, and each of 16 none, 1 KB: their JobGrowths are below 32 KB.
"""

from __future__ import annotations

import base64
import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
from pydantic import TypeAdapter, ValidationError

from slopewise.adapters.kube.cache.records import API_VERSION, ManagedPod, OwnerRef
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.protocol import PARAMS, Api, Json, path_of
from slopewise.adapters.kube.state.status_writer import StatusDocument
from slopewise.adapters.kube.workloads.annotations import STUDY_LABEL
from slopewise.crds.history import appended
from slopewise.crds.job_growth import Action, JobGrowthStatus, MoveIntent, Original, PodGrowth
from slopewise.errors import SlopewiseError
from slopewise.estimators.raw_points import shortened
from slopewise.model import MEMORY_JSON, CpuAllocation, JobMemory, JobUid, MemoryAllocation, read_job_memory

_HISTORY: TypeAdapter[tuple[Action, ...]] = TypeAdapter(tuple[Action, ...])
_KEPT_APART = {"pods", "move", "history"}
"""Fields of the status that are rendered from memory, not from what users see."""


def growth_path(namespace: str | None = None, name: str | None = None) -> str:
    """The path of one JobGrowth, of a namespace's, or of all."""
    return path_of(API_VERSION, "jobgrowths", namespace, name)


@dataclass(frozen=True, slots=True)
class GrowthRecord:
    """A stored JobGrowth. Its status stays JSON, since it is read once, at a takeover.

    Compressed: of 5,000 workloads 4 MB instead of 15 MB.
    """

    uid: str
    name: str
    namespace: str
    resource_version: str
    workload: OwnerRef
    policy: str
    compressed_status: bytes
    deleting: bool = False

    def read_status(self) -> Json:
        """The status as it is stored."""
        status: Json = msgspec.json.decode(zlib.decompress(self.compressed_status))
        return status


def parse_growth(raw: Json) -> GrowthRecord:
    """KeyError or TypeError for anything else; the watch skips and logs it."""
    meta, workload, status = raw["metadata"], raw["spec"]["workload"], raw.get("status") or {}
    return GrowthRecord(
        uid=meta["uid"],
        name=meta["name"],
        namespace=meta["namespace"],
        resource_version=meta.get("resourceVersion", ""),
        workload=OwnerRef(workload["apiVersion"], workload["kind"], workload["name"], workload["uid"]),
        policy=str(status.get("policy", "")),
        compressed_status=zlib.compress(msgspec.json.encode(status), level=1),
        deleting="deletionTimestamp" in meta,
    )


@dataclass(slots=True)
class Slot:
    """The memory of one pod of a workload, for the lifetime of the workload."""

    job_uid: str
    memory: JobMemory
    stored_original: CpuAllocation | None = None
    """The original in the API server; a pod is not resized before it is stored."""
    stored_memory: MemoryAllocation | None = None
    """Likewise of its memory, before the first change of that."""
    adopted: bool = False
    """The original, or the owner's CPU, was stored since this policy's last `load`, whose jobs lack it."""
    pod: PodGrowth = field(default_factory=lambda: PodGrowth(slot="0"))
    study: str = ""
    """Of which it is a trial when the object is created; empty: of none."""
    policy: str = ""
    """The TrainingPolicy whose passes keep their memory here: pods of one workload may belong to several."""

    @property
    def is_safe(self) -> bool:
        """The originals, if there are any, are stored."""
        known = self.memory
        return known.original is None or (
            known.original == self.stored_original and known.original_memory in (None, self.stored_memory)
        )

    def note_stored(self) -> None:
        """The originals in its memory are stored, or there are none."""
        self.stored_original, self.stored_memory = self.memory.original, self.memory.original_memory

    def is_of_former(self, managed: ManagedPod) -> bool:
        """Whether there is an original, and it is that of the pod before this one, whose template may be another.

        Not where this pod was there before the last change: a watch that is behind shows a pod that is gone already.
        """
        known = self.memory
        changed_at = max(known.last_resized_at_seconds or 0.0, known.memory_resizes.at_seconds or 0.0)
        is_another = self.pod.uid not in ("", managed.pod.uid) and managed.pod.created_at_seconds >= changed_at
        return known.original is not None and is_another

    def forget_former(self, managed: ManagedPod) -> None:
        """Drop the original of a pod that this one has replaced."""
        if self.is_of_former(managed):
            self.memory = self.memory.altered(original=None, original_memory=None)
            self.note_stored()

    def meet(self, managed: ManagedPod) -> bool:
        """Record the current pod of this slot, unless its original is of another; True when it has changed."""
        pod, container, self.study = managed.pod, managed.container.name, managed.study
        node = "" if pod.ended else pod.node or ""
        known = self.pod
        if (known.uid, known.node, known.container) == (pod.uid, node, container) or self.is_of_former(managed):
            return False
        self.pod = PodGrowth(slot=managed.slot, name=pod.name, uid=pod.uid, node=node, container=container)
        return True

    def rendered(self, slots: int = 1) -> PodGrowth:
        """As it is stored: the original in readable form, the rest as JSON. `slots`: pods of the workload."""
        known = self.memory
        memory = memory_text(known.altered(original=None, original_memory=None), slots)
        original = None if known.original is None else Original.of(known.original, known.original_memory)
        return self.pod.model_copy(update={"original": original, "memory": memory})


class GrowthDocument(StatusDocument):
    """The JobGrowth of one workload. `lock` guards what a pass changes while the writer renders."""

    def __init__(self, workload: OwnerRef, namespace: str, name: str, lock: threading.RLock) -> None:
        super().__init__(workload.uid, growth_path(namespace, name), None)
        self.workload = workload
        self.namespace = namespace
        self.name = name
        self.policy = ""
        """The TrainingPolicy that has taken a pod of it last, and shows its own pods."""
        self.slots: dict[str, Slot] = {}
        self.move: MoveIntent | None = None
        """A move by eviction that is under way (`evict/controller.py`)."""
        self.seen = False
        """The watch has shown the object: from then on its absence means that it was deleted."""
        self.missed = 0
        """How many checks of the watch have not shown it yet."""
        self.lock = lock
        self._new_status: Callable[[JobGrowthStatus], JobGrowthStatus] | None = None
        """Makes the next status from the last one; None: nothing is new since the last rendering."""
        self._shown = b"{}"
        self._history = b"[]"
        """As JSON, like `_shown`: ten actions of 5,000 workloads are 15 MB so, and ten times that as objects."""

    def slots_of(self, policy: str) -> list[Slot]:
        """The pods of this policy."""
        return [slot for slot in list(self.slots.values()) if slot.policy == policy]

    def lose(self) -> None:
        """The object was deleted, and nothing is stored."""
        with self.lock:
            super().lose()
            self.seen, self.lost, self.missed = False, True, 0
            for slot in self.slots.values():
                slot.stored_original = slot.stored_memory = None

    def show(self, new_status: Callable[[JobGrowthStatus], JobGrowthStatus]) -> None:
        """Show from the next write on what this makes of the last status (`running_status`, `absent_status`, …)."""
        with self.lock:  # or what is shown while it is rendered would be lost
            self._new_status = new_status

    def acted(self, action: Action) -> None:
        """Append an action, or an attempt, to the history."""
        with self.lock:
            history = appended(_HISTORY.validate_json(self._history), action)
            self._history = _HISTORY.dump_json(history, by_alias=True)

    def render(self) -> Json:
        """The whole status, with what users see rendered again if it is new."""
        with self.lock:
            if self._new_status is not None:
                shown = self._new_status(JobGrowthStatus.model_validate_json(self._shown))
                self._shown = shown.model_dump_json(by_alias=True, exclude_none=True, exclude=_KEPT_APART).encode()
                self._new_status = None  # or a whole snapshot would live until the workload's next change
            status: Json = msgspec.json.decode(self._shown)
            pods = [slot.rendered(len(self.slots)) for slot in self.slots.values()]
            move, history = self.move, msgspec.json.decode(self._history)
        status["policy"] = self.policy
        if history:
            status["history"] = history
        if move is not None:
            status["move"] = move.model_dump(mode="json", by_alias=True)
        status["pods"] = [pod.model_dump(mode="json", by_alias=True, exclude_none=True) for pod in pods]
        return status

    def take_over(self, record: GrowthRecord) -> list[str]:
        """Continue from a former leader's object. Returns messages about unreadable parts; the rest is used."""
        status = record.read_status()
        damaged = []
        self.seen, self.policy = True, record.policy
        self.stored(record.uid, record.resource_version, status)
        self._shown, self._history = _valid_status(status), _valid_history(status)
        try:
            self.move = MoveIntent.model_validate(status["move"]) if "move" in status else None
        except ValidationError as error:
            damaged.append(_message(record, "(all)", "a move under way is damaged, and is not continued", error))
        for raw in status.get("pods") or []:
            try:
                slot, problem = _read_slot(self.workload.uid, raw)
            except (ValidationError, ValueError) as error:
                damaged.append(_message(record, raw.get("slot"), "its original resources are damaged", error))
                continue
            slot.policy = record.policy
            self.slots[slot.pod.slot] = slot
            if problem is not None:
                what = "its memory is damaged, and starts empty"
                damaged.append(_message(record, slot.pod.slot, what, problem))
        return damaged

    def create(self, api: Api) -> bool:
        """Create the object, owned by its workload, or take over a former leader's; False for a lost one."""
        if self.lost:
            return False
        for name in (self.workload.name, f"{self.workload.name}-{self.workload.kind.lower()}"):
            self.name, self.path = name, growth_path(self.namespace, name)
            found = self._create_or_get(api)
            if found["spec"]["workload"]["uid"] == self.workload.uid:
                meta = found["metadata"]
                self.stored(meta["uid"], meta["resourceVersion"], found.get("status") or {})
                return True
        raise SlopewiseError(
            f"The JobGrowth {self.namespace}/{self.name} belongs to another workload; if that one is gone, delete it."
        )

    def _create_or_get(self, api: Api) -> Json:
        try:
            return api.create(growth_path(self.namespace), self._body(), PARAMS)
        except ApiError as error:
            if not error.already_exists:
                raise
        return api.get(self.path)

    def _body(self) -> Json:
        workload = {
            "apiVersion": self.workload.api_version,
            "kind": self.workload.kind,
            "name": self.workload.name,
            "uid": self.workload.uid,
        }
        # Not a controlling reference, and one that blocks no deletion: the workload is a tenant's.
        owner = {**workload, "controller": False, "blockOwnerDeletion": False}
        study = next((slot.study for slot in self.slots.values() if slot.study), "")
        labels = {"labels": {STUDY_LABEL: study}} if study else {}
        return {
            "apiVersion": API_VERSION,
            "kind": "JobGrowth",
            "metadata": {"name": self.name, "namespace": self.namespace, "ownerReferences": [owner], **labels},
            "spec": {"workload": workload},
        }


def _valid_status(status: Json) -> bytes:
    try:
        known = JobGrowthStatus.model_validate({key: each for key, each in status.items() if key not in _KEPT_APART})
    except ValidationError:
        return b"{}"
    return known.model_dump_json(by_alias=True, exclude_none=True, exclude=_KEPT_APART).encode()


def _valid_history(status: Json) -> bytes:
    try:
        known = _HISTORY.validate_python(status.get("history") or ())
    except ValidationError:
        return b"[]"
    return _HISTORY.dump_json(known, by_alias=True)


def _read_slot(workload_uid: str, raw: Json) -> tuple[Slot, Exception | None]:
    pod = PodGrowth.model_validate(raw)
    original, of_memory = (None, None) if pod.original is None else (pod.original.allocation(), pod.original.memory())
    problem = None
    try:
        memory = read_memory(pod.memory)
    except (msgspec.DecodeError, RecursionError, ValueError, zlib.error) as error:
        memory, problem = JobMemory(), error
    known = memory.altered(original=original, original_memory=of_memory)
    there = pod.model_copy(update={"memory": ""})
    slot = Slot(str(JobUid(workload_uid, pod.slot)), known, pod=there)
    slot.note_stored()
    return slot, problem


def _message(record: GrowthRecord, slot: object, what: str, error: Exception) -> str:
    first = str(error).splitlines()[0]
    return f"JobGrowth {record.namespace}/{record.name}, pod {slot}: {what} ({first})."


COMPRESSED = "zlib:"
"""A text that begins so goes on in base 85; JSON begins with a brace."""

READABLE_PODS = 4
"""The memory of no more pods than that stays JSON, for people who read it."""

POINTS_STORED = 1000
"""Raw points of all pods of a workload together."""

LEARNING_PODS = 12
"""With more pods than that no points and no state of the policy are stored: they begin again with the next leader."""

MAX_JSON_BYTES = 1_000_000


def memory_text(known: JobMemory, pods: int) -> str:
    """The memory of one of so many pods."""
    encoded = MEMORY_JSON.encode(_learning_part(known, pods))
    if pods <= READABLE_PODS:
        return encoded.decode()
    return COMPRESSED + base64.b85encode(zlib.compress(encoded, level=9)).decode()


def _learning_part(known: JobMemory, pods: int) -> JobMemory:
    if pods > LEARNING_PODS:
        return known.altered(points=None).with_decided(state="", ends=None)
    most = POINTS_STORED // pods
    if known.points is None or known.points.count <= most:
        return known
    return known.altered(points=shortened(known.points, most))


def read_memory(text: str) -> JobMemory:
    """The memory as it was stored; msgspec.DecodeError, ValueError or zlib.error where it is damaged."""
    if not text.startswith(COMPRESSED):
        return read_job_memory(text or "{}")
    reader = zlib.decompressobj()
    encoded = reader.decompress(base64.b85decode(text.removeprefix(COMPRESSED)), MAX_JSON_BYTES)
    if reader.unconsumed_tail or not reader.eof:
        raise ValueError("the compressed memory is cut off, or too large")
    return read_job_memory(encoded)
