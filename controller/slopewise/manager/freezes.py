"""What the leader does about Freezes: their state and events, and the end of those that alerts have left behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import structlog

from slopewise.adapters.kube.cache.records import API_VERSION
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.events import About, Event
from slopewise.adapters.kube.state.freezes import FreezeDocument, FreezeRecord, freeze_path
from slopewise.config.alerts import KEPT_SECONDS
from slopewise.crds.freezes import FreezeState
from slopewise.manager.shared import SharedState
from slopewise.tracking import OncePerChange, TtlMap

MAX_ENDED = 1000
"""Ended Freezes of alerts that are kept; the oldest go first."""

DELETES_A_TICK = 20
"""Two ticks a second: a thousand are gone after half a minute, at 40 requests a second."""

TRY_AGAIN_SECONDS = 10.0


class FreezeController:
    """Called by the leader's thread, twice a second."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self._shown = OncePerChange[str, FreezeState]()
        """By uid: what was reported."""
        self._deleted = TtlMap[str, None](TRY_AGAIN_SECONDS, time.monotonic)
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
