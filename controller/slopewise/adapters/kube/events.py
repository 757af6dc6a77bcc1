"""Sends Kubernetes Events about pods, workloads and policies, as `kubectl describe` shows them.

`events.k8s.io/v1` counts a repeated event as a series with one small patch, and keeps action and reason apart. Events
never block or fail a pass: one thread sends them from a bounded queue at a limited rate, and counts what it drops. The
decision record has every decision.
"""

from __future__ import annotations

import queue
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import structlog

from slopewise.adapters.kube.cache.records import API_VERSION, ManagedPod, OwnerRef
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.fencing import NotLeadingError
from slopewise.adapters.kube.client.protocol import MERGE_PATCH, PARAMS, Api, Json, path_of
from slopewise.text import bounded, printable

REPORTING_CONTROLLER = "slopewise.dev/controller"
_EVENTS_API_VERSION = "events.k8s.io/v1"

EVENTS_PER_SECOND = 10.0
MAX_WAITING = 1_000
SERIES_SECONDS = 600.0
"""A repetition within ten minutes counts in the series of the first event."""

PATCH_SECONDS = 60.0
"""A series' count is written at most once a minute."""

_MAX_NOTE = 1000
"""The API server takes 1,024 bytes. `…` has three of them, and other letters may have too: it is cut as bytes again."""


@dataclass(frozen=True, slots=True)
class About:
    """The object that an event is about."""

    api_version: str
    kind: str
    name: str
    uid: str
    namespace: str = ""

    @classmethod
    def of(cls, owner: OwnerRef, namespace: str) -> About:
        """A workload."""
        return cls(owner.api_version, owner.kind, owner.name, owner.uid, namespace)

    @classmethod
    def pod(cls, managed: ManagedPod) -> About:
        """A job's pod."""
        pod = managed.pod
        return cls("v1", "Pod", pod.name, pod.uid, pod.namespace)

    @classmethod
    def policy(cls, name: str, uid: str) -> About:
        """A TrainingPolicy."""
        return cls(API_VERSION, "TrainingPolicy", name, uid)


@dataclass(frozen=True, slots=True)
class Event:
    """One event: `reason` and `action` are single words in CamelCase, `note` is a message."""

    about: About
    reason: str
    note: str
    warning: bool = False
    action: str = "Resize"


@dataclass(slots=True)
class _Series:
    path: str
    first_at: float
    count: int = 1
    written_at: float = field(default=0.0)


class EventRecorder:
    """Queues events from any thread and sends them from its own."""

    def __init__(
        self,
        api: Api,
        *,
        instance: str,
        events_per_second: float = EVENTS_PER_SECOND,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`instance`: which replica reports."""
        self._api = api
        self._instance = instance[:128]
        self._pause_seconds = 1.0 / events_per_second
        self._clock = clock
        self._queue: queue.Queue[Event] = queue.Queue(MAX_WAITING)
        self._series: dict[tuple[str, str, str], _Series] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)
        self._log = structlog.get_logger("slopewise")
        self.dropped = 0
        """Events that found the queue full, or that the API server refused."""

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def stop(self, flush_seconds: float = 2.0) -> None:
        """Send queued events for at most `flush_seconds`, then end the thread."""
        deadline = time.monotonic() + flush_seconds
        while not self._queue.empty() and self._thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.02)
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(flush_seconds)

    def emit(self, event: Event) -> None:
        """Queue an event; returns at once and never raises."""
        try:
            self._queue.put_nowait(event)
        except queue.Full:
            self.dropped += 1

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                event = self._queue.get(timeout=0.2)
            except queue.Empty:
                continue
            self._send(event)
            self._stopping.wait(self._pause_seconds)

    def _send(self, event: Event) -> None:
        try:
            self._write(event)
        except NotLeadingError:
            return
        except ApiError as error:
            self.dropped += 1
            if self.dropped == 1:
                self._log.warning("event write failed", reason=str(error))
        except Exception as error:
            # An error in one event must not stop the others.
            self._log.error("event write failed", exc_info=error)

    def _write(self, event: Event) -> None:
        now = self._clock()
        self._series = {key: each for key, each in self._series.items() if now - each.first_at < SERIES_SECONDS}
        key = (event.about.uid, event.reason, event.note)
        series = self._series.get(key)
        if series is None:
            namespace = event.about.namespace or "default"
            collection = path_of(_EVENTS_API_VERSION, "events", namespace)
            name = f"{event.about.name[:200].rstrip('-.')}.{uuid.uuid4().hex[:16]}"
            self._api.create(collection, self._body(event, name, namespace, now), PARAMS)
            self._series[key] = _Series(f"{collection}/{name}", now, written_at=now)
            return
        series.count += 1
        if series.count == 2 or now - series.written_at >= PATCH_SECONDS:
            series.written_at = now
            counted = {"series": {"count": series.count, "lastObservedTime": _micro_time(now)}}
            self._api.patch(series.path, counted, MERGE_PATCH, PARAMS)

    def _body(self, event: Event, name: str, namespace: str, now: float) -> Json:
        about = event.about
        regarding = {"apiVersion": about.api_version, "kind": about.kind, "name": about.name, "uid": about.uid}
        if about.namespace:
            regarding["namespace"] = about.namespace
        return {
            "apiVersion": _EVENTS_API_VERSION,
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": _micro_time(now),
            "reportingController": REPORTING_CONTROLLER,
            "reportingInstance": self._instance,
            "action": event.action,
            "reason": event.reason,
            "note": bounded(printable(event.note), _MAX_NOTE).encode()[:1020].decode(errors="ignore"),
            "type": "Warning" if event.warning else "Normal",
            "regarding": regarding,
        }


def _micro_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
