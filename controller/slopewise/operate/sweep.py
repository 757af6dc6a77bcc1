"""`slopewise sweep`: frees gated pods and suspended or pinned Jobs where no controller runs.

A CronJob runs it each minute, with an account of its own. It needs no lease, no Prometheus and no JobGrowth, only what
is written on the pods and Jobs themselves. It frees

- pods that have waited behind our gate for more than 60 s: released, without a node;
- pods that we pinned and that find no room: evicted, so that the replacement is released without a node;
- Jobs that we suspended more than 60 s ago and that have no pod left: resumed, with their owner's affinity;
- Jobs that are pinned and whose pods find no room, or whose node is deleted: unpinned (`suspend/state_machine.py`).

It never works against a running controller, which does all of it sooner: it releases gates after 30 s, unpins after 20
s, and resumes within 0.5 s of the last pod's end. So except for gates, whose age is known, everything is checked twice,
5 s apart (20 s where room is missing), and freed only if no client has written to it in between: each patch holds for
the resource version of both checks. What is younger than 60 s is checked again within the same run, so that nothing
waits for more than two minutes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Concatenate, ParamSpec

from rich.table import Table

from slopewise.adapters.kube.cache.parsing import parse_pod
from slopewise.adapters.kube.cache.records import PodRecord
from slopewise.adapters.kube.cache.reflector import objects
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.protocol import MERGE_PATCH, PARAMS, Api, path_of
from slopewise.adapters.kube.connection import Connection, connect
from slopewise.adapters.kube.moves.eviction import evict
from slopewise.adapters.kube.moves.gated_pods import STRANDED_SECONDS, is_stranded
from slopewise.adapters.kube.moves.scheduling_gate import GateReleaser
from slopewise.adapters.kube.moves.suspend.annotation import JobMove, move_on
from slopewise.adapters.kube.moves.suspend.begin import job_path, read_live
from slopewise.adapters.kube.moves.suspend.state_machine import freed, is_held
from slopewise.reports.columns import listing_of
from slopewise.signals import StopSignal
from slopewise.telemetry.metrics import configure_logging
from slopewise.tracking import FirstSeen

P = ParamSpec("P")

AGAIN_SECONDS = (5.0, 20.0, 5.0, 5.0)
"""Pauses before further checks of a run, while something waits. The third check frees what has found no room for 20 s;
the last two resume what that has suspended. With them a run takes 35 s, and the next one begins after 60 s."""

UNWRITTEN_SECONDS = 5.0
"""An object must be unwritten for so long before it is freed: a running controller is ten times as fast."""


@dataclass(slots=True)
class Swept:
    """Freed, failed and waiting objects of one run; by kind, namespace and name."""

    freed: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    young: dict[str, str] = field(default_factory=dict)

    def note(self, what: str, *, freed: str = "", failed: str = "", young: str = "") -> None:
        """Record one object's result in this check, which replaces that of an earlier one."""
        results = ((self.freed, freed), (self.failed, failed), (self.young, young))
        for kind, details in results:
            kind.pop(what, None)
            if details:
                kind[what] = details


def listing(swept: Swept) -> Table:
    """A line for each pod and Job."""
    results = (("freed", swept.freed), ("NOT freed", swept.failed), ("waits", swept.young))
    rows = [(what, became, detail) for became, details in results for what, detail in details.items()]
    nothing = ("nothing", "", "no pod waits behind our gate, and no move is under way")
    return listing_of(("object", "result", "detail"), rows or [nothing])


def sweep(connection: Connection, older_than_seconds: float, stop: StopSignal) -> Swept:
    """One run, of 35 s where anything waits. ApiError when the cluster cannot be read."""
    configure_logging()
    with closing(connect(connection)) as api:
        return Sweeper(api, connection.namespace, older_than_seconds, stop.wait).run()


@dataclass(slots=True)
class Sweeper:
    """One run."""

    api: Api
    namespace: str | None
    older_than_seconds: float
    wait: Callable[[float], bool]
    """So many seconds; True: a signal came, and the run ends."""
    now: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    _first_seen: FirstSeen[tuple[str, str]] = field(init=False, default_factory=FirstSeen)
    """Since when something needs help, by uid and resource version."""
    _let_go: set[str] = field(init=False, default_factory=set)
    """Uids of Jobs that this run has suspended to unpin them: no other process works on them."""
    _swept: Swept = field(init=False, default_factory=Swept)

    def run(self) -> Swept:
        """Check until nothing waits any more, five times at most."""
        self._check()
        for pause in AGAIN_SECONDS:
            if not self._swept.young or self.wait(pause):
                break
            self._check()
        return self._swept

    def _check(self) -> None:
        self._swept.young.clear()
        without_room: set[tuple[str, str]] = set()
        """Namespace and uid of owners; a uid alone may be named by a pod of another namespace."""
        for pod in self._unplaced_pods():
            if pod.owner is not None and pod.unschedulable_since_seconds is not None:
                without_room.add((pod.namespace, pod.owner.uid))
            if pod.waits_for_us:
                self._safely(f"pod {pod.namespace}/{pod.name}", self._release, pod)
            elif is_stranded(pod):
                self._safely(f"pod {pod.namespace}/{pod.name}", self._unpin, pod)
        # An annotation that cannot be read was not written by us.
        jobs = objects(self.api, path_of("batch/v1", "jobs", self.namespace), metadata_only=True)
        moves = [move for raw in jobs if (move := move_on(raw)) is not None]
        nodes = self._nodes() if moves else frozenset()
        for move in moves:
            gone = bool(nodes) and move.to_node not in nodes
            lacks_room = (move.namespace, move.workload_uid) in without_room
            if gone or lacks_room or move.step in ("leaving", "unpinning"):
                self._safely(
                    f"Job {move.namespace}/{move.name}", self._free_job, move, gone=gone, lacks_room=lacks_room
                )

    def _safely(self, what: str, free: Callable[Concatenate[str, P], None], *about: P.args, **flags: P.kwargs) -> None:
        """An error about one object must not delay the others."""
        try:
            free(what, *about, **flags)
        except (ApiError, ValueError) as error:
            self._swept.note(what, failed=str(error))
        except Exception as error:
            # An error about one object must not end the sweep: the others are freed all the same.
            self._swept.note(what, failed=f"an error of the sweeper: {error!r}")

    # --- pods ------------------------------------------------------------------------------------------------

    def _release(self, what: str, pod: PodRecord) -> None:
        age = self.now() - pod.created_at_seconds
        if age <= self.older_than_seconds:
            self._swept.note(what, young=f"has waited behind our gate for {age:.0f} s")
            return
        release = GateReleaser(self.api).release(pod)
        if release.result == "applied":
            self._swept.note(what, freed=f"its gate is off; it had waited for {age:.0f} s")
        elif not release.over:
            self._swept.note(what, failed=release.detail)

    def _unpin(self, what: str, pod: PodRecord) -> None:
        if not self._seen_for(pod.uid, "stranded", STRANDED_SECONDS):
            self._swept.note(what, young="finds no room where it is pinned")
            return
        if (refused := evict(self.api, pod)) is None:
            self._swept.note(what, freed="evicted, as there is no room where it was pinned; its next pod runs anywhere")
        elif not refused.gone:
            self._swept.note(what, failed=refused.detail)

    # --- Jobs ------------------------------------------------------------------------------------------------

    def _free_job(self, what: str, seen: JobMove, *, gone: bool, lacks_room: bool) -> None:
        try:
            self._free_seen_job(what, seen, gone=gone, lacks_room=lacks_room)
        except ApiError as error:
            if error.is_conflict:
                self._swept.note(what, young="another client has just written to it")
            elif error.is_not_found:  # deleted, and then nothing of it waits any more
                self._swept.note(what)
            else:
                raise

    def _free_seen_job(self, what: str, seen: JobMove, *, gone: bool, lacks_room: bool) -> None:
        path = job_path(seen.namespace, seen.name)
        job = self.api.get(path)
        meta, move = job["metadata"], move_on(job)
        if move is None:
            return
        live = read_live(self.api, seen.namespace, meta["uid"])
        # A pod that is ending may be on a silent node: the controller waits for it, and so does this.
        lost = gone or (lacks_room and not any(pod.deleting for pod in live))
        if (body := freed(job, live_pods=len(live), lost=lost, now_seconds=self.now())) is None:
            if meta["uid"] in self._let_go:
                self._swept.note(what, young="its pods end, and then it may run anywhere")
            elif is_held(job):
                self._swept.note(what, young="suspended for a move, until its pods have ended")
            return
        age = self.now() - move.step_since_seconds
        if meta["uid"] not in self._let_go:
            wait_seconds = STRANDED_SECONDS if lost else UNWRITTEN_SECONDS
            unwritten = self._seen_for(meta["uid"], meta["resourceVersion"], wait_seconds)
            if age <= self.older_than_seconds or not unwritten:
                self._swept.note(what, young=f"{move.step} for {age:.0f} s")
                return
        self.api.patch(path, body, MERGE_PATCH, PARAMS)
        if move.step in ("leaving", "unpinning"):
            self._swept.note(what, freed="resumed; it may run anywhere")
        else:
            self._let_go.add(meta["uid"])
            self._swept.note(what, young=f"{move.to_node} does not take it; its pods end, and then it may run anywhere")

    def _seen_for(self, uid: str, version: str, seconds: float) -> bool:
        """Whether it has been in the same state for so long."""
        now = self.monotonic()
        return now - self._first_seen.at((uid, version), now) >= seconds

    # --- reading ---------------------------------------------------------------------------------------------

    def _unplaced_pods(self) -> Iterator[PodRecord]:
        """All pods without a node, also those without a label of ours: a gate alone holds them."""
        for raw in objects(self.api, path_of("v1", "pods", self.namespace), {"fieldSelector": "spec.nodeName="}):
            try:
                yield parse_pod(raw)
            except ValueError as error:
                meta = raw.get("metadata") or {}
                self._swept.note(f"pod {meta.get('namespace')}/{meta.get('name')}", failed=str(error))

    def _nodes(self) -> frozenset[str]:
        """The names of all nodes; none where they may not be read, and then none counts as deleted."""
        try:
            nodes = objects(self.api, path_of("v1", "nodes"), metadata_only=True)
            return frozenset(each["metadata"]["name"] for each in nodes)
        except ApiError as error:
            if not error.is_forbidden:
                raise
            return frozenset()
