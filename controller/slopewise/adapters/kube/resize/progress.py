"""Measures how long each pod's kubelet has not carried out accepted CPU, by this process's own clock.

`watches.py` reports every change of a managed pod here; the observer, the actuator and the metrics read it. A
running kubelet needs 0.2 to 1.5 s; one that is down leaves a pod's cgroup as it was, whatever the pod's spec says.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from slopewise.adapters.kube.cache.records import ManagedPod, PodRecord
from slopewise.model import CpuAllocation, Unconfirmed

WaitedSeconds = Callable[[str], float | None]
"""`ResizeProgress.waited_seconds`."""

BEHIND_SECONDS = 60.0
"""From then on a kubelet is late. A restart of it takes some 20 s, and a node counts as lost after 50 s."""


class ResizeProgress:
    """Fed by the watch of the pods. Safe from any thread."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._awaited: dict[str, tuple[str, float]] = {}
        """Node and since when, by the pod's uid."""

    def note(self, old: PodRecord | None, new: PodRecord | None) -> None:
        """A pod changed; None: it is not there, or not watched."""
        with self._lock:
            if old is not None and (new is None or new.uid != old.uid):
                self._awaited.pop(old.uid, None)
            if new is None:
                return
            if new.awaits_kubelet:
                self._awaited.setdefault(new.uid, (new.node or "", self._monotonic()))
            else:
                self._awaited.pop(new.uid, None)

    def waited_seconds(self, pod_uid: str) -> float | None:
        """Since when accepted CPU is not in effect; None: it is, or its kubelet has reported a result."""
        with self._lock:
            found = self._awaited.get(pod_uid)
        return None if found is None else self._monotonic() - found[1]

    def by_node(self) -> Mapping[str, Sequence[float]]:
        """How long each pod has waited, by its node."""
        now, waited = self._monotonic(), defaultdict(list)
        with self._lock:
            for node, since in self._awaited.values():
                waited[node].append(now - since)
        return waited


def unconfirmed(managed: ManagedPod, waited_seconds: float | None, *, node_is_ready: bool = True) -> Unconfirmed:
    """The message about accepted CPU that is not in effect, and whether its kubelet is late."""
    node, late = managed.pod.node, (waited_seconds or 0.0) >= BEHIND_SECONDS
    detail = f"the API server has accepted {in_words(managed.container.desired)}; {node} "
    if not node_is_ready:
        detail += "is not ready"
    elif late:
        detail += "does not carry it out; see whether its kubelet runs"
    else:
        detail += "has not reported it in effect yet"
    return Unconfirmed(f"{detail} ({_reported(managed)})", late)


def _reported(managed: ManagedPod) -> str:
    has = managed.container.reported
    if has is None:
        return "it reports nothing"
    if not managed.container.memory_matches_spec:
        return f"it reports {in_words(has)}, and not the accepted memory"
    if managed.container.matches_spec:
        return "it has not seen the last change" if managed.pod.unobserved else "another container's is not"
    return f"it reports {in_words(has)}"


def in_words(cpu: CpuAllocation) -> str:
    """As people read it: `limit 500m, request 250m`."""
    limit = "no limit" if cpu.limit_millicores is None else f"limit {cpu.limit_millicores}m"
    return f"{limit}, request {cpu.request_millicores}m"
