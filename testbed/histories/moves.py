"""Rules of moves and trainings: consent, no job left waiting, no step lost or done twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from slopewise.adapters.kube.cache.records import (
    AT_TARGET,
    MIGRATABLE,
    MOVE,
    MOVES_ALLOWED,
    MOVES_LABEL,
    PLACE_GATE,
    PLACED,
    STOP,
)
from slopewise.adapters.kube.moves.suspend.annotation import move_on
from testbed.histories.cpu import Found
from testbed.histories.events import Contradiction, Event, Json, Step, World, Write
from testbed.histories.objects import cpu_of, freezes_of, is_live, is_managed, pods_of, stored, suspends

PATIENCE_SECONDS = 120.0
GATE_SECONDS = 30.0
"""For so long a pod waits to be placed."""
NO_ROOM_SECONDS = 20.0
"""For so long a tied pod waits for room."""


class OwnersConsent:
    """No suspension, eviction or gate without consent: the namespace's and the pod's; a gate is its owner's to put."""

    def check(self, event: Event, world: World) -> Found:
        """A release from a node (`unpinning`, a stranded pod) was consented to when it was moved there."""
        if not isinstance(event, Write) or not (event.ours and event.accepted):
            return
        before = world.get(*event.key)
        if event.kind == "jobs" and suspends(before, event.after):
            templates = [event.after["spec"]["template"], *pods_of(world, event.after)]
            if not any(_may_stop(each) for each in templates) and not self._may_move(world, event, templates):
                yield Contradiction("consent", "its owner or namespace does not consent to a suspension", (event,))
        elif event.kind == "pods/eviction" and before and not self._may_move(world, event, [before]):
            yield Contradiction("consent", "its owner or namespace does not consent to an eviction", (event,))
        elif event.kind == "pods" and before and event.after:
            had, has = _gates(before), _gates(event.after)
            if has - had or had - has - {PLACE_GATE}:
                yield Contradiction("consent", f"gates {sorted(had)} become {sorted(has)}", (event,))

    def _may_move(self, world: World, write: Write, templates: list[Json]) -> bool:
        namespace = world.get("namespaces", "", write.namespace)
        opted_in = ((namespace.get("metadata") or {}).get("labels") or {}).get(MOVES_LABEL) == MOVES_ALLOWED
        found = [(each["metadata"].get("annotations") or {}) for each in templates]
        placed = any(PLACED in each for each in found)
        return placed or (opted_in and any(each.get(MIGRATABLE) == "true" for each in found))


def _may_stop(template: Json) -> bool:
    return (template["metadata"].get("annotations") or {}).get(AT_TARGET) == STOP


def _gates(pod: Json) -> set[str]:
    return {each["name"] for each in pod["spec"].get("schedulingGates") or ()}


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A state that is to end by itself."""

    rule: str
    message: str
    patience_seconds: float = PATIENCE_SECONDS


class NothingIsLeft:
    """Changed CPU, suspended Jobs, gates and ties do not outlast their reason by more than two minutes."""

    def __init__(self) -> None:
        self._since: dict[str, Event] = {}
        """Each state's first write."""
        self._told: set[str] = set()
        self._last: Event | None = None

    def check(self, event: Event, world: World, *, settled: bool = False) -> Found:
        """Of the world before the event, at the event's time. `settled`: nothing may be left any more."""
        if not (isinstance(event, Write) or settled):
            return
        now = dict(_waiting(world, event.at_seconds))
        self._since = {key: self._since.get(key, self._last or event) for key in now}
        self._last = event
        for key, waits in now.items():
            since = self._since[key]
            seconds = event.at_seconds - since.at_seconds
            if key not in self._told and (settled or seconds > waits.patience_seconds):
                self._told.add(key)
                yield Contradiction(waits.rule, f"{waits.message}, {seconds:.0f} s later still", (since, event))


def _waiting(world: World, now_seconds: float) -> Iterator[tuple[str, _Waiting]]:
    for job, _ in world.of("jobs"):
        move, name = move_on(job), f"job {job['metadata']['name']}"
        waits = move is not None and move.step in ("leaving", "unpinning") and job["spec"].get("suspend")
        if waits and not any(pods_of(world, job)):
            yield name, _Waiting("waiting", f"{name} is suspended by us and has no pod")
    for pod, _ in world.of("pods"):
        if is_live(pod) and "deletionTimestamp" not in pod["metadata"]:
            yield from _waiting_pod(world, pod, now_seconds)


def _waiting_pod(world: World, pod: Json, now_seconds: float) -> Iterator[tuple[str, _Waiting]]:
    name, known = f"pod {pod['metadata']['name']}", stored(world, pod["metadata"]["uid"])
    if _gates(pod) == {PLACE_GATE}:
        yield f"{name} gate", _Waiting("waiting", f"{name} is gated", GATE_SECONDS + PATIENCE_SECONDS)
    if _has_no_room(pod) and (PLACED in (pod["metadata"].get("annotations") or {}) or _is_tied(world, pod)):
        message = f"{name} is tied to a node without room"
        yield f"{name} tie", _Waiting("waiting", message, NO_ROOM_SECONDS + PATIENCE_SECONDS)
    if known and known.original and not (has := cpu_of(pod, known.container)).is_restored_to(known.original):
        frozen = any(freezes_of(world, pod, known.policy, now_seconds))
        if not frozen and not is_managed(world, pod, known.policy):
            message = f"{name} is managed no more and has {has}; its original is {known.original}"
            yield f"{name} original", _Waiting("restore", message)


def _has_no_room(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "PodScheduled" and each.get("reason") == "Unschedulable" for each in conditions)


def _is_tied(world: World, pod: Json) -> bool:
    owners = {each["uid"] for each in pod["metadata"].get("ownerReferences") or ()}
    jobs = (job["metadata"] for job, _ in world.of("jobs"))
    return any(job["uid"] in owners and MOVE in (job.get("annotations") or {}) for job in jobs)


class StepsAreDoneOnce:
    """One life of a training at a time; the next one goes on at the last step, or at its last checkpoint."""

    def __init__(self) -> None:
        self._last: dict[str, Step] = {}
        """The last line of each training that goes on or makes a step."""
        self._saved: dict[str, Step] = {}

    def check(self, event: Event, world: World) -> Found:
        """Of a training's diary."""
        if not isinstance(event, Step):
            return
        last = self._last.get(event.training)
        if event.event == "goes on" and last is not None:
            yield from self._resumed(event, last)
        elif event.event == "step" and last is not None and last.life != event.life:
            yield Contradiction("steps", "two lives train at once", (last, event))
        elif event.event == "step" and event.steps != (last.steps if last else 0) + 1:
            yield Contradiction("steps", "a step is left out or done twice", (*filter(None, [last]), event))
        if event.event in ("goes on", "step"):
            self._last[event.training] = event
        elif event.event == "saved":
            self._saved[event.training] = event

    def _resumed(self, event: Step, last: Step) -> Found:
        saved = self._saved.get(event.training)
        if event.steps > last.steps:
            yield Contradiction("steps", f"steps {last.steps + 1} to {event.steps} were not done", (last, event))
        if saved is not None and event.steps < saved.steps:
            yield Contradiction("steps", f"it goes on before its last checkpoint at {saved.steps}", (saved, event))
