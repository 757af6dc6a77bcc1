"""The rule of Freezes: what they hold back, and which writes begin something.

What has begun before a Freeze goes on: a suspended Job has to be resumed, and the replacement of an evicted pod to be
released.
"""

from __future__ import annotations

from collections.abc import Iterator

from testbed.histories.cpu import READ_SECONDS, Found, is_resize
from testbed.histories.events import Contradiction, Event, Json, World, Write
from testbed.histories.objects import cpu_of, freezes_of, named_nodes, pods_of, stored, suspends


class FreezesHold:
    """Nothing is changed under a freeze that was stored before the write could begin."""

    def check(self, event: Event, world: World) -> Found:
        """Of resizes, suspensions, evictions, and gated pods that get a node: of what begins with this write."""
        if not isinstance(event, Write) or not (event.ours and event.accepted):
            return
        for pod in _begun_with(event, world):
            known = stored(world, pod["metadata"]["uid"])
            restores = (
                is_resize(event)
                and known is not None
                and known.original is not None
                and cpu_of(event.after, known.container) == known.original
            )
            for freeze, written in freezes_of(world, pod, known.policy if known else "", event.at_seconds):
                allowed = freeze["spec"].get("effect") == "Recommend" and restores
                if not allowed and written.until_seconds + READ_SECONDS < event.at_seconds:
                    yield Contradiction("freeze", f"{freeze['metadata']['name']} is in force", (written, event))
                    return


def _begun_with(write: Write, world: World) -> Iterator[Json]:
    """The pods that a write changes, or begins to move, to stop or to place; also as they are to be on their node."""
    before = world.get(*write.key)
    if write.kind == "jobs" and suspends(before, write.after):
        yield from pods_of(world, write.after)
    elif write.kind == "jobgrowths/status":
        move = _move(write.after)
        leaving = set() if _move(before) else {each["uid"] for each in move.get("pods") or ()}
        for pod, _ in world.of("pods", write.namespace):
            if pod["metadata"]["uid"] in leaving:
                yield from (pod, _on(pod, move["node"]))
    elif before and (write.kind == "pods/resize" or _begins_eviction(write, before, world)):
        yield before
    elif before and write.kind == "pods" and not _replaces(before, world):
        yield from (_on(before, node) for node in named_nodes(write.after) - named_nodes(before))


def _begins_eviction(write: Write, pod: Json, world: World) -> bool:
    if write.kind != "pods/eviction" or "nodeName" not in pod["spec"]:
        return False
    return not any(each["uid"] == pod["metadata"]["uid"] for each in _leaving(world, write.namespace))


def _replaces(pod: Json, world: World) -> bool:
    """It is of a move by eviction, which has begun."""
    owners = {each["uid"] for each in pod["metadata"].get("ownerReferences") or ()}
    return any(each["owner"]["uid"] in owners for each in _leaving(world, pod["metadata"].get("namespace", "")))


def _leaving(world: World, namespace: str) -> Iterator[Json]:
    """The pods of all moves by eviction that are under way."""
    for growth, _ in world.of("jobgrowths", namespace):
        yield from _move(growth).get("pods") or ()


def _move(growth: Json) -> Json:
    return (growth.get("status") or {}).get("move") or {}


def _on(pod: Json, node: str) -> Json:
    return {**pod, "spec": {**pod["spec"], "nodeName": node}}
