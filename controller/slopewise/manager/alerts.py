"""Carries out the notifications of Alertmanager: each alert that asks for a Freeze gets it stored, or ended.

Any replica takes them. Its writes are not fenced by the lease: another replica leads, and reads the Freeze before its
next write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import structlog

from slopewise.adapters.kube.cache.reflector import Reflector
from slopewise.adapters.kube.client.protocol import Api
from slopewise.adapters.kube.state.alert_freezes import is_stored, store
from slopewise.adapters.kube.state.freezes import FreezeRecord
from slopewise.config.alerts import Alert, AlertFreeze, asks, freeze_of, read_notification
from slopewise.errors import UsageError
from slopewise.text import bounded

WRITERS = 8
"""Requests to the API server at the same time: a thousand new alerts take a few seconds."""

_FEW = 3
"""Mistakes and scopes that are named."""


class AlertHandler:
    """Handles the bodies that the webhook has accepted. Shape: `adapters.http.alert_webhook.Handle`."""

    def __init__(
        self,
        api: Api,
        freezes: Reflector[FreezeRecord],
        now: Callable[[], float],
        on_alert: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`api` writes without the lease. `on_alert` gets what became of each alert, for the metrics."""
        self._api = api
        self._freezes = freezes
        self._now = now
        self._on_alert = on_alert
        self._log = structlog.get_logger("slopewise")

    def __call__(self, body: bytes) -> str:
        """Store what a body asks for, and return what was done.

        UsageError for a body or an alert that cannot be used, after the other alerts are stored; ApiError when one
        cannot be stored.
        """
        now, alerts = self._now(), read_notification(body).alerts
        wanted, mistakes = _wanted([each for each in alerts if asks(each)], now)
        done = Counter({"ignored": sum(not asks(each) for each in alerts), "refused": len(mistakes)})
        try:
            with ThreadPoolExecutor(WRITERS) as pool:
                for result in pool.map(lambda each: self._store(each, now), wanted):
                    done[result] += 1
        finally:
            for result in done.elements():
                self._on_alert(result)
            if done["stored"] or done["ended"]:
                few = [each.spec.subject for each in wanted[:_FEW]]
                self._log.info("alerts handled", scopes=few, **{name: count for name, count in done.items() if count})
        if mistakes:
            more = len(mistakes) - _FEW
            raise UsageError(" ".join(mistakes[:_FEW]) + (f" And {more} more." if more > 0 else ""))
        return ", ".join(f"{count} {result}" for result, count in done.items() if count) or "no alerts"

    def _store(self, wanted: AlertFreeze, now_seconds: float) -> str:
        known = self._freezes.get("", wanted.name)
        if is_stored(known, wanted, now_seconds):
            return "unchanged"
        result, written = store(self._api, wanted, now_seconds, is_new=known is None)
        if written is not None:
            self._freezes.observe(written)
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
