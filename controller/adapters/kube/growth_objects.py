"""JobGrowth objects: how one is read, named, made and rendered.

Before it: `watching.py` parses them with `parse_growth`. After it: `memory.py` keeps a `GrowthDocument` of each
workload, in which the two parts of its status meet: what is remembered (`slots`), and what is shown (`shown`).
"""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from pydantic import TypeAdapter, ValidationError

from controller.adapters.kube.api_error import ApiError
from controller.adapters.kube.contracts import Api, Json
from controller.adapters.kube.paths import path_of
from controller.adapters.kube.records import API_VERSION, ManagedPod, OwnerRef
from controller.adapters.kube.status_writer import PARAMS, StatusDocument
from controller.errors import SlopewiseError
from controller.growth_absence import absent_face
from controller.growth_face import Departure, PassView, departed_face, face
from controller.history import appended
from controller.job_growth import Action, JobGrowthStatus, MoveIntent, Original, PodGrowth
from controller.model import Absence, CpuAllocation, Job, JobMemory

_MEMORY: TypeAdapter[JobMemory] = TypeAdapter(JobMemory)
_HISTORY: TypeAdapter[tuple[Action, ...]] = TypeAdapter(tuple[Action, ...])
_KEPT_APART = {"pods", "move", "history"}
"""Parts of the status that are rendered from what is remembered, not from what is shown."""


def growth_path(namespace: str | None = None, name: str | None = None) -> str:
    """The path of one JobGrowth, of a namespace's, or of all."""
    return path_of(API_VERSION, "jobgrowths", namespace, name)


@dataclass(frozen=True, slots=True)
class GrowthRecord:
    """A JobGrowth as it is stored. Its status stays JSON: it is read once, when this controller takes over.

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
        status: Json = json.loads(zlib.decompress(self.compressed_status))
        return status


def parse_growth(raw: Json) -> GrowthRecord:
    """Raises KeyError or TypeError for what is no JobGrowth of ours; the watch skips it and tells."""
    meta, workload, status = raw["metadata"], raw["spec"]["workload"], raw.get("status") or {}
    return GrowthRecord(
        uid=meta["uid"],
        name=meta["name"],
        namespace=meta["namespace"],
        resource_version=meta.get("resourceVersion", ""),
        workload=OwnerRef(workload["apiVersion"], workload["kind"], workload["name"], workload["uid"]),
        policy=str(status.get("policy", "")),
        compressed_status=zlib.compress(json.dumps(status).encode(), level=1),
        deleting="deletionTimestamp" in meta,
    )


@dataclass(slots=True)
class Slot:
    """One pod of a workload, as long as the workload is there."""

    job_uid: str
    memory: JobMemory
    stored_original: CpuAllocation | None = None
    """What is safely in the API server; a pod is not resized before it is."""
    adopted: bool = False
    """The original was stored by another policy, and this one's next `load` is the first to tell of it."""
    pod: PodGrowth = field(default_factory=lambda: PodGrowth(slot="0"))

    @property
    def is_safe(self) -> bool:
        """The original, if there is one, is stored."""
        return self.memory.original is None or self.memory.original == self.stored_original

    def meet(self, managed: ManagedPod) -> bool:
        """The pod that is in this slot now; True when that is news."""
        pod, container = managed.pod, managed.container.name
        node = "" if pod.ended else pod.node or ""
        known = self.pod
        if (known.uid, known.node, known.container) == (pod.uid, node, container):
            return False
        self.pod = PodGrowth(slot=managed.slot, name=pod.name, uid=pod.uid, node=node, container=container)
        return True

    def rendered(self) -> PodGrowth:
        """As it is stored: the original in words that people can read, the rest as the controller's own."""
        original = self.memory.original
        memory = _MEMORY.dump_json(self.memory, exclude={"original"}, exclude_defaults=True).decode()
        return self.pod.model_copy(
            update={"original": None if original is None else Original.of(original), "memory": memory}
        )


class GrowthDocument(StatusDocument):
    """The JobGrowth of one workload. `lock` guards what a pass changes while the writer renders."""

    def __init__(self, workload: OwnerRef, namespace: str, name: str, lock: threading.RLock) -> None:
        super().__init__(workload.uid, growth_path(namespace, name), None)
        self.workload = workload
        self.namespace = namespace
        self.name = name
        self.policy = ""
        """The TrainingPolicy whose passes remember things here."""
        self.slots: dict[str, Slot] = {}
        self.move: MoveIntent | None = None
        """A move by eviction that is under way (`evictions.py`)."""
        self.seen = False
        """The watch has shown the object: from then on its absence means that it was deleted."""
        self.missed = 0
        """How often the watch was looked at and did not show it yet."""
        self.lost = False
        """The object was deleted, and nobody has made it anew."""
        self.lock = lock
        self._new_face: Callable[[JobGrowthStatus], JobGrowthStatus] | None = None
        """From what is shown, what is to be shown; None: nothing has been new since the last rendering."""
        self._face = b"{}"
        self._history = b"[]"
        """As JSON, like the face: ten actions of 5,000 workloads are 15 MB like this, and ten times that as objects."""

    def lose(self) -> None:
        """The object was deleted: nothing is stored any more."""
        self.seen, self.lost, self.missed = False, True, 0
        self.forget_object()
        for slot in self.slots.values():
            slot.stored_original = None

    def show(self, jobs: Sequence[Job], view: PassView) -> None:
        """What is to be told of the workload from now on: its jobs in the order of their slots, in this pass."""
        self._render_next(lambda before: face(jobs, view, before))

    def show_departed(self, departure: Departure, now_seconds: float) -> None:
        """No policy has it any more, although a pod of it is there."""
        self._render_next(lambda before: departed_face(departure, before, now_seconds))

    def show_absent(self, absence: Absence, now_seconds: float) -> None:
        """It has no pod on a node just now."""
        self._render_next(lambda before: absent_face(absence, before, now_seconds))

    def _render_next(self, new_face: Callable[[JobGrowthStatus], JobGrowthStatus]) -> None:
        with self.lock:  # or what is shown while it is rendered would be lost
            self._new_face = new_face

    def acted(self, action: Action) -> None:
        """Something was done to the workload, or tried."""
        with self.lock:
            history = appended(_HISTORY.validate_json(self._history), action)
            self._history = _HISTORY.dump_json(history, by_alias=True)

    def render(self) -> Json:
        """What is shown, made new if there is news, and what is remembered."""
        with self.lock:
            if self._new_face is not None:
                told = self._new_face(JobGrowthStatus.model_validate_json(self._face))
                self._face = told.model_dump_json(by_alias=True, exclude_none=True, exclude=_KEPT_APART).encode()
                self._new_face = None  # or a whole snapshot would live until the workload's next news
            status: Json = json.loads(self._face)
            pods = [slot.rendered() for slot in self.slots.values()]
            move, history = self.move, json.loads(self._history)
        status["policy"] = self.policy
        if history:
            status["history"] = history
        if move is not None:
            status["move"] = move.model_dump(mode="json", by_alias=True)
        status["pods"] = [pod.model_dump(mode="json", by_alias=True, exclude_none=True) for pod in pods]
        return status

    def take_over(self, record: GrowthRecord) -> list[str]:
        """Go on with what a former leader stored. Returns what could not be read, in sentences; the rest is used."""
        status = record.read_status()
        damaged = []
        self.seen, self.policy = True, record.policy
        self.stored(record.uid, record.resource_version, status)
        self._face, self._history = _valid_face(status), _valid_history(status)
        try:
            self.move = MoveIntent.model_validate(status["move"]) if "move" in status else None
        except ValidationError as error:
            damaged.append(_sentence(record, "(all)", "a move under way is damaged and not gone on with", error))
        for raw in status.get("pods") or []:
            try:
                slot, problem = _read_slot(self.workload.uid, raw)
            except (ValidationError, ValueError) as error:
                damaged.append(_sentence(record, raw.get("slot"), "its original resources are damaged", error))
                continue
            self.slots[slot.pod.slot] = slot
            if problem is not None:
                what = "what was remembered is damaged, and starts anew"
                damaged.append(_sentence(record, slot.pod.slot, what, problem))
        return damaged

    def create(self, api: Api) -> bool:
        """Make the object, owned by its workload, or take over the one that a former leader made."""
        for name in (self.name, f"{self.workload.name}-{self.workload.kind.lower()}"):
            self.name, self.path = name, growth_path(self.namespace, name)
            found = self._create_or_get(api)
            if found["spec"]["workload"]["uid"] == self.workload.uid:
                meta = found["metadata"]
                self.stored(meta["uid"], meta["resourceVersion"], found.get("status") or {})
                self.lost = False
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
        # Not a controlling reference, and one that blocks no deletion: the workload is somebody else's.
        owner = {**workload, "controller": False, "blockOwnerDeletion": False}
        return {
            "apiVersion": API_VERSION,
            "kind": "JobGrowth",
            "metadata": {"name": self.name, "namespace": self.namespace, "ownerReferences": [owner]},
            "spec": {"workload": workload},
        }


def _valid_face(status: Json) -> bytes:
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
    original = None if pod.original is None else pod.original.allocation()
    problem = None
    try:
        memory = _MEMORY.validate_json(pod.memory or "{}")
    except ValidationError as error:
        memory, problem = JobMemory(), error
    known = replace(memory, original=original)
    there = pod.model_copy(update={"memory": ""})
    return Slot(f"{workload_uid}:{pod.slot}", known, stored_original=original, pod=there), problem


def _sentence(record: GrowthRecord, slot: object, what: str, error: Exception) -> str:
    first = str(error).splitlines()[0]
    return f"JobGrowth {record.namespace}/{record.name}, pod {slot}: {what} ({first})."
