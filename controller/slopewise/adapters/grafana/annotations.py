"""Writes an annotation into a Grafana for each decision that was carried out, so that its panels show when and why.

A thread of its own sends them, so that a Grafana that is slow, gone or refuses never holds a pass. What cannot be sent
is dropped, counted and logged once for each reason.
"""

from __future__ import annotations

import html
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice

import structlog

from slopewise.adapters.grafana.client import connect, message_of
from slopewise.adapters.pauses import ANNOTATION
from slopewise.errors import SlopewiseError
from slopewise.model import Arrival, Job, JobView, Migrate, PassReport, Place, Resize, ResizeMemory, Stop
from slopewise.text import bounded
from slopewise.tracking import OncePerChange

MAX_OF_A_PASS = 20
"""A pass over 5,000 jobs may change hundreds, which no reader of a panel tells apart."""
MAX_WAITING = 200
MAX_TEXT = 500
MAX_TAG = 100
"""Characters: what Grafana's database has for a tag."""

_TIMEOUT_SECONDS = 5.0
_CLOSE_SECONDS = 2.0
_JOIN_SECONDS = 0.2
TAG = "slopewise"


@dataclass(frozen=True, slots=True)
class GrafanaAccess:
    """Which Grafana, with the token of a service account with the role Editor."""

    url: str
    token: str


@dataclass(frozen=True, slots=True)
class Annotation:
    """One mark in time. `text` is shown as HTML, and is escaped."""

    at_seconds: float
    text: str
    tags: tuple[str, ...]


def annotations_of(report: PassReport, document: str) -> Iterator[Annotation]:
    """Those of one pass: each resize, move and stop that was tried, each new stage of a move; none of a held pass.

    After `MAX_OF_A_PASS` one more says how many there are besides.
    """
    found = _all_of(report, document)
    yield from islice(found, MAX_OF_A_PASS)
    if others := sum(1 for _ in found):
        yield Annotation(report.taken_at_seconds, f"and {others} more decisions", (TAG, _tag("policy", document)))


def _all_of(report: PassReport, document: str) -> Iterator[Annotation]:
    if report.held or report.snapshot is None:
        return
    there: tuple[Job | Arrival, ...] = (*report.snapshot.jobs, *report.snapshot.waiting)
    names = {job.uid: (job.namespace, job.name) for job in there}
    for uid, view in report.by_job.items():
        namespace, name = names.get(uid, ("", view.name))
        for kind, text in _decisions(view):
            tags = (TAG, kind, _tag("job", name), _tag("namespace", namespace), _tag("policy", document))
            shown = html.escape(bounded(f"{view.name} {text}", MAX_TEXT))
            yield Annotation(report.taken_at_seconds, shown, tags)


def _decisions(view: JobView) -> Iterator[tuple[str, str]]:
    """Kind and text of each decision on a job."""
    if (resized := view.outcome(Resize)) is not None:
        change = f"{resized.decision.from_millicores}m to {resized.decision.to_millicores}m {resized.result}"
        yield "resize", f"{change}: {resized.detail or resized.decision.reason}"
    if (memory := view.outcome(ResizeMemory)) is not None:
        yield "memory", f"memory {memory.decision.bound} {memory.result}: {view.message_of(ResizeMemory)}"
    if (moved := view.outcome(Place, Migrate)) is not None:
        yield "move", f"to {moved.decision.node} {moved.result}: {moved.detail or moved.decision.reason}"
    for event in view.results.events:
        if event.stage != "begun":  # the move itself says so
            yield "move", event.message
    if (stopped := view.outcome(Stop)) is not None:
        yield "stop", f"{stopped.result}: {stopped.detail or stopped.decision.reason}"


def _tag(key: str, value: str) -> str:
    return bounded(f"{key}:{value}", MAX_TAG)


class DecisionAnnotations:
    """Sends annotations in the order of the decisions. `sink` is what a policy's reports go to."""

    def __init__(
        self,
        access: GrafanaAccess,
        *,
        timeout_seconds: float = _TIMEOUT_SECONDS,
        pause: Callable[[int], float] = ANNOTATION.after,
    ) -> None:
        """UsageError when the address or the token cannot be used. `pause`: seconds after so many failures in a row."""
        self._url = access.url
        self._timeout_seconds = timeout_seconds
        self._grafana = connect(access.url, access.token, timeout_seconds)
        self._pause = pause
        self._waiting: queue.Queue[Annotation] = queue.Queue(MAX_WAITING)
        self._closing = threading.Event()
        self._complaints: OncePerChange[str, str] = OncePerChange()
        self.sent = 0
        self.dropped = 0
        self._log = structlog.get_logger("slopewise")
        self._thread = threading.Thread(target=self._run, name="annotations", daemon=True)
        self._thread.start()

    def sink(self, document: str) -> Callable[[PassReport], None]:
        """For the reports of the policy of this name; it neither waits nor raises."""
        return partial(self._take, document=document)

    def close(self, timeout_seconds: float = _CLOSE_SECONDS) -> None:
        """Send what waits, as far as that is done in time. May be called again."""
        deadline = time.monotonic() + timeout_seconds
        while not self._closing.is_set() and self._waiting.unfinished_tasks and time.monotonic() < deadline:
            time.sleep(0.02)
        self._closing.set()
        self._thread.join(_JOIN_SECONDS)  # a request that hangs ends with the process

    def _take(self, report: PassReport, document: str) -> None:
        for annotation in annotations_of(report, document):
            try:
                self._waiting.put_nowait(annotation)
            except queue.Full:
                self.dropped += 1

    def _run(self) -> None:
        failures = 0
        while not self._closing.is_set():
            try:
                annotation = self._waiting.get(timeout=0.2)
            except queue.Empty:
                continue
            failures = 0 if self._send(annotation) else failures + 1
            self._waiting.task_done()
            if failures:
                self._closing.wait(self._pause(failures))

    def _send(self, annotation: Annotation) -> bool:
        try:
            with message_of(self._url, self._timeout_seconds):
                answer = self._grafana.annotations.add_annotation(
                    time_from=round(1000 * annotation.at_seconds), tags=list(annotation.tags), text=annotation.text
                )
                if not isinstance(answer, Mapping) or "id" not in answer:
                    raise ValueError("an annotation has an id")
        except SlopewiseError as error:
            self.dropped += 1
            if self._complaints.is_new("annotation", str(error)):
                self._log.warning("annotation not written", reason=str(error), dropped=self.dropped)
            return False
        self._complaints.forget("annotation")
        self.sent += 1
        return True
