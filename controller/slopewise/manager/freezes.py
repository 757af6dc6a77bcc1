"""Freezes on the manager's side: what alerts ask for, their state and events, and the end of those left behind.

Any replica takes the notifications of Alertmanager, and each alert that asks for a Freeze gets it stored, or ended.
These writes are not fenced by the lease: another replica leads, and reads the Freeze before its next write.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

import structlog

from slopewise.adapters.kube.cache.records import API_VERSION
from slopewise.adapters.kube.cache.reflector import Reflector
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.protocol import Api
from slopewise.adapters.kube.events import About, Event
from slopewise.adapters.kube.state.freezes import FreezeDocument, FreezeRecord, freeze_path, is_stored, store
from slopewise.adapters.pauses import FREEZE_SECONDS
from slopewise.config.alerts import KEPT_SECONDS, Alert, AlertFreeze, asks, freeze_of, read_notification
from slopewise.crds.freezes import FreezeState
from slopewise.errors import UsageError
from slopewise.manager.shared import SharedState
from slopewise.text import bounded
from slopewise.tracking import OncePerChange, TtlMap

MAX_ENDED = 1000
"""Ended Freezes of alerts that are kept; the oldest go first."""

DELETES_A_TICK = 20
"""Two ticks a second: a thousand are gone after half a minute, at 40 requests a second."""


class FreezeController:
    """Called by the leader's thread, twice a second."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self._shown = OncePerChange[str, FreezeState]()
        """By uid: what was reported."""
        self._deleted = TtlMap[str, None](FREEZE_SECONDS, time.monotonic)
        self._log = structlog.get_logger("slopewise")

    def tick(self) -> None:
        """Report each Freeze that has begun or ended, and delete those of alerts that ended long ago."""
        store, now = self._shared.watches.freezes, self._shared.clock.now()
        if store is None or self._shared.options.dry_run:
            return
        records = store.items()
        over = list(self._over(records, now))
        going = {record.uid for record in over}
        for record in records:
            if record.uid not in going:  # a write of its status would come in the way of its deletion
                self._show(record, "InForce" if record.is_in_force(now) else "Ended", now)
        self._shown.forget_all_but({record.uid for record in records})
        for record in [each for each in over if each.uid not in self._deleted][:DELETES_A_TICK]:
            self._delete(record)

    def _show(self, record: FreezeRecord, state: FreezeState, now_seconds: float) -> None:
        """Write a new state; with an event, unless a former leader has written it."""
        if not self._shown.is_new(record.uid, state) or record.state == state:
            return
        shared, message = self._shared, record.spec.message(record.name)
        shared.writer.submit(FreezeDocument(record, state, now_seconds), transition=True)
        about = About(API_VERSION, "Freeze", record.name, record.uid)
        if state == "InForce":
            self._log.warning("freeze begun", name=record.name, scope=record.spec.subject, reason=message)
            shared.events.emit(Event(about, "Frozen", message, warning=True, action="Freeze"))
        elif record.state is not None:
            self._log.info("freeze ended", name=record.name, scope=record.spec.subject, reason=message)
            shared.events.emit(Event(about, "Unfrozen", f"it has ended: {message}", action="Freeze"))

    def _over(self, records: Iterable[FreezeRecord], now_seconds: float) -> Iterator[FreezeRecord]:
        """The Freezes of alerts that are to be deleted, oldest end first."""
        ended = [each for each in records if each.made_by_alert and not each.is_in_force(now_seconds)]
        ended.sort(key=_ended_at)
        for number, record in enumerate(ended):
            old = now_seconds - _ended_at(record) > KEPT_SECONDS or len(ended) - number > MAX_ENDED
            if old and not record.deleting:
                yield record

    def _delete(self, record: FreezeRecord) -> None:
        self._deleted.put(record.uid, None)
        with suppress(ApiError):  # tried again
            self._shared.fail_fast.delete(
                freeze_path(record.name),
                {"preconditions": {"uid": record.uid, "resourceVersion": record.resource_version}},
            )


def _ended_at(record: FreezeRecord) -> float:
    return record.resolved_at_seconds or record.spec.until_seconds or record.created_at_seconds


def counted(records: Iterable[FreezeRecord], now: Callable[[], float]) -> dict[tuple[str, str], int]:
    """The Freezes in force by scope and effect, for the metrics."""
    found: dict[tuple[str, str], int] = {}
    moment = now()
    for record in records:
        if record.is_in_force(moment):
            key = (record.spec.scope, record.spec.effect)
            found[key] = found.get(key, 0) + 1
    return found


WRITERS = 8
"""Requests to the API server at the same time: a thousand new alerts take a few seconds."""

_FEW = 3
"""Mistakes and scopes that are named."""


@dataclass(eq=False)
class AlertHandler:
    """Handles the bodies that the webhook has accepted. Shape: `adapters.http.alert_webhook.Handle`."""

    api: Api
    """Writes without the lease."""
    freezes: Reflector[FreezeRecord]
    now: Callable[[], float]
    on_alert: Callable[[str], None] = lambda _: None
    """Gets the result of each alert, for the metrics."""

    def __call__(self, body: bytes) -> str:
        """Store what a body asks for, and return what was done.

        UsageError for a body or an alert that cannot be used, after the other alerts are stored; ApiError when one
        cannot be stored.
        """
        now, alerts = self.now(), read_notification(body).alerts
        wanted, mistakes = _wanted([each for each in alerts if asks(each)], now)
        done = Counter({"ignored": sum(not asks(each) for each in alerts), "refused": len(mistakes)})
        try:
            with ThreadPoolExecutor(WRITERS) as pool:
                for result in pool.map(lambda each: self._store(each, now), wanted):
                    done[result] += 1
        finally:
            for result in done.elements():
                self.on_alert(result)
            if done["stored"] or done["ended"]:
                few = [each.spec.subject for each in wanted[:_FEW]]
                structlog.get_logger("slopewise").info(
                    "alerts handled", scopes=few, **{name: count for name, count in done.items() if count}
                )
        if mistakes:
            more = len(mistakes) - _FEW
            raise UsageError(" ".join(mistakes[:_FEW]) + (f" And {more} more." if more > 0 else ""))
        return ", ".join(f"{count} {result}" for result, count in done.items() if count) or "no alerts"

    def _store(self, wanted: AlertFreeze, now_seconds: float) -> str:
        known = self.freezes.get("", wanted.name)
        if is_stored(known, wanted, now_seconds):
            return "unchanged"
        result, written = store(self.api, wanted, now_seconds, is_new=known is None)
        if written is not None:
            self.freezes.observe(written)
        return result


def _wanted(alerts: Sequence[Alert], now_seconds: float) -> tuple[list[AlertFreeze], list[str]]:
    """What the alerts ask for, one for each object, and the messages of those that cannot be used."""
    wanted: dict[str, AlertFreeze] = {}
    mistakes: list[str] = []
    for alert in alerts:
        try:
            found = freeze_of(alert, now_seconds)
        except UsageError as error:
            mistakes.append(bounded(error, 300))
        else:
            wanted[found.name] = found
    return list(wanted.values()), mistakes
