"""Which of several controllers may write: the holder of a Lease, and only while it can prove it in time.

Every write asks `Elector.may_write` first. The proof is this process's own clock: a renewal counts from when it was
*sent*, so whatever hangs afterwards (the API server, the network, this process), writing ends `renew_deadline_seconds`
after the last renewal that went through was sent, and nobody else may take the lease until `lease_seconds` after it
was written. Clocks of other machines are never compared: how old a lease is, is how long we have seen it unchanged.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import structlog

from controller.adapters.kube.api_error import ApiError
from controller.adapters.kube.contracts import Api, Json
from controller.adapters.kube.paths import path_of
from controller.errors import UsageError

_LEASE_API_VERSION = "coordination.k8s.io/v1"
_MOST_JITTER = 1.3
_STOP_SECONDS = 5.0
_SUSPENDED_SECONDS = 1.0
"""A wait that ends so much too late was one of the whole process; a busy thread is late by milliseconds."""


def clock_with_sleep() -> float:
    """Seconds that never go back and count while the machine is suspended, which Python's monotonic clock does not:
    a laptop that was closed for a minute must not wake up believing that its lease is fresh."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class Terms:
    """The times of an election, in seconds; Kubernetes' own controllers use the same."""

    lease_seconds: float = 15.0
    """How long others wait, from when they see the lease renewed, before they take it."""
    renew_deadline_seconds: float = 10.0
    """How long after the last good renewal was sent we still write. The 5 s in between are for what is under way."""
    retry_seconds: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.retry_seconds * _MOST_JITTER < self.renew_deadline_seconds < self.lease_seconds:
            raise UsageError(
                f"Leader election with a lease of {self.lease_seconds:g} s, renewed every {self.retry_seconds:g} s and "
                f"given up after {self.renew_deadline_seconds:g} s cannot be safe; each must be well below the former."
            )

    @classmethod
    def within(cls, lease_seconds: float) -> Terms:
        """The same proportions for a shorter or longer lease, e.g. 6 s: renewed every 0.8 s, given up after 4 s."""
        return cls(lease_seconds, lease_seconds * 10 / 15, lease_seconds * 2 / 15)


class Elector:
    """Tries to become leader and to stay it, in threads of its own. `start` it once, `stop` it once.

    A lost lease is never taken again by the same Elector: what was decided under it is stale, so the process ends.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        name: str,
        identity: str,
        *,
        terms: Terms | None = None,
        on_started_leading: Callable[[], None] = lambda: None,
        on_lost: Callable[[str], None] = lambda reason: None,
        clock: Callable[[], float] = clock_with_sleep,
    ) -> None:
        """`api` should give up on a request well before the deadline (`KubeApi.with_timeout(3)`).

        `identity` must be new for each process (a pod's name plus a random part): a container that was restarted is
        not the one that held the lease. `on_lost` is told why, in words. Both callbacks come from a thread that does
        not renew, so that they may take their time.
        """
        self.terms = terms or Terms()
        self.identity = identity
        self._api = api
        self._collection = path_of(_LEASE_API_VERSION, "leases", namespace)
        self._path = path_of(_LEASE_API_VERSION, "leases", namespace, name)
        self._name = name
        self._on_started_leading = on_started_leading
        self._on_lost = on_lost
        self._clock = clock
        self._lease: Json | None = None
        """The lease as we last wrote it; None: read it first."""
        self._seen: tuple[object, float] | None = None
        """A foreign record and when we first saw it."""
        self._state = threading.Condition()
        self._renewed_at: float | None = None
        self._lost: str | None = None
        self._stopping = False
        self._threads = [
            threading.Thread(target=self._renew_until_stopped, name="elector", daemon=True),
            threading.Thread(target=self._tell, name="elector-tell", daemon=True),
        ]
        self._log = structlog.get_logger("slopewise")
        self.holder: str | None = None
        """Who holds the lease, as far as we know."""
        self.failure: str | None = None
        """Why the lease could not be read or written the last time, in words."""

    def start(self) -> None:
        """Begin to ask for the lease; returns at once."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the threads, and hand the lease back if it is ours. Stop whatever writes before."""
        with self._state:
            self._stopping = True
            self._state.notify_all()
        for thread in self._threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(_STOP_SECONDS)
        # A thread that still hangs shows that nobody would hear us.
        if self.holder == self.identity and not self._threads[0].is_alive():
            with suppress(ApiError):  # then it runs out
                self._release()

    @property
    def is_leader(self) -> bool:
        """True from the first good renewal until the lease is lost or handed back."""
        with self._state:
            return self._renewed_at is not None and self._lost is None and not self._stopping

    def may_write(self) -> bool:
        """True while nobody else can hold the lease. Ask before each write; it costs no request."""
        with self._state:
            return self._remaining_seconds() > 0

    def _remaining_seconds(self) -> float:
        """For how long we may still write; called with `_state` held."""
        if self._renewed_at is None or self._lost is not None or self._stopping:
            return 0.0
        return self._renewed_at + self.terms.renew_deadline_seconds - self._clock()

    def _renew_until_stopped(self) -> None:
        while True:
            self._attempt()
            with self._state:
                # Replicas that ask at the same moments would all be refused at the same moments.
                wait = self.terms.retry_seconds * random.uniform(1.0, _MOST_JITTER)  # noqa: S311
                if self._state.wait_for(lambda: self._stopping or self._lost is not None, wait):
                    return

    def _attempt(self) -> None:
        sent_at = self._clock()
        try:
            is_ours = self._take_or_renew()
        except ApiError as error:
            self._lease, self.failure = None, str(error)
        except Exception as error:  # a lease that somebody wrote by hand must not end the elections
            self._log.exception("leader election failed")
            self._lease, self.failure = None, f"{self._path}: {type(error).__name__}: {error}"
        else:
            self.failure = None
            self._judge(is_ours, sent_at)

    def _judge(self, is_ours: bool, sent_at: float) -> None:
        with self._state:
            if self._lost is not None or self._stopping:
                return
            if is_ours:
                self._renewed_at = sent_at
            elif self._renewed_at is not None:
                self._lost = f"{self.holder} holds the lease {self._name} now"
            self._state.notify_all()

    def _tell(self) -> None:
        """Tells of the beginning, waits for the end, and tells of that: in time, also while a renewal hangs."""
        with self._state:
            self._state.wait_for(lambda: self._renewed_at is not None or self._stopping)
            if self._stopping:
                return
        self._on_started_leading()
        reason = self._wait_until_lost()
        if reason is not None:
            self._on_lost(reason)

    def _wait_until_lost(self) -> str | None:
        """Why it was lost, in words; None: it was handed back."""
        late = 0.0
        with self._state:
            while (remaining := self._remaining_seconds()) > 0:
                until = self._clock() + remaining
                self._state.wait(remaining)
                late = self._clock() - until
            if self._stopping:
                return None
            if self._lost is None:
                self._lost = (
                    f"the lease {self._name} could not be renewed for {self.terms.renew_deadline_seconds:g} s "
                    f"({self._why_not_renewed(late)})"
                )
                self._state.notify_all()
            return self._lost

    def _why_not_renewed(self, late_seconds: float) -> str:
        """`late_seconds`: how much later than asked for the wait for the deadline ended."""
        if late_seconds >= _SUSPENDED_SECONDS:
            return f"this process did not run for at least {late_seconds:.0f} s: it was suspended, or had no CPU"
        return self.failure or "the API server did not answer"

    def _take_or_renew(self) -> bool:
        """One try; True when the lease is ours, written by this try."""
        if self._lease is not None:
            try:
                return self._write(self._lease)
            except ApiError as error:
                if not (error.is_conflict or error.is_gone):
                    raise
                self._lease = None
        try:
            lease = self._api.get(self._path)
        except ApiError as error:
            if not error.is_gone:
                raise
            lease = {"metadata": {"name": self._name}}
        return self._may_take(_spec(lease)) and self._written_first(lease)

    def _written_first(self, lease: Json) -> bool:
        """Write it, unless somebody else was faster: then it is theirs until we see otherwise."""
        try:
            return self._write(lease)
        except ApiError as error:
            if error.is_conflict or error.already_exists:
                return False
            raise

    def _may_take(self, spec: Mapping[str, Any]) -> bool:
        """True when it is ours or free, or has not changed for as long as its holder said."""
        now = self._clock()  # before the holder is told: whoever knows of it knows that its time is running
        self.holder = spec.get("holderIdentity") or None
        if self.holder in (None, self.identity):
            return True
        record = tuple(str(spec.get(field)) for field in ("holderIdentity", "renewTime", "leaseTransitions"))
        if self._seen is None or self._seen[0] != record:
            self._seen = (record, now)
        stated = spec.get("leaseDurationSeconds")
        patience = max(self.terms.lease_seconds, float(stated) if isinstance(stated, int) else 0.0)
        return now - self._seen[1] >= patience

    def _write(self, lease: Json) -> bool:
        written = self._with_spec(lease, self._our_spec(_spec(lease)))
        if "resourceVersion" in written["metadata"]:
            self._lease = self._api.replace(self._path, written)
        else:
            self._lease = self._api.create(self._collection, written)
        self.holder = self.identity
        return True

    def _our_spec(self, former: Mapping[str, Any]) -> Json:
        now = _timestamp()
        is_renewal = former.get("holderIdentity") == self.identity
        transitions = former.get("leaseTransitions") or 0
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": round(self.terms.lease_seconds),
            "acquireTime": former.get("acquireTime", now) if is_renewal else now,
            "renewTime": now,
            "leaseTransitions": transitions if is_renewal or not former else transitions + 1,
        }

    def _release(self) -> None:
        """Nobody needs to wait for a lease that is handed back."""
        lease = self._api.get(self._path)
        spec = _spec(lease)
        if spec.get("holderIdentity") != self.identity:
            return
        now = _timestamp()
        freed = {**spec, "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": now, "acquireTime": now}
        self._api.replace(self._path, self._with_spec(lease, freed))

    @staticmethod
    def _with_spec(lease: Json, spec: Json) -> Json:
        return {"apiVersion": _LEASE_API_VERSION, "kind": "Lease", **lease, "spec": spec}


def _spec(lease: Json) -> Mapping[str, Any]:
    spec = lease.get("spec")
    return spec if isinstance(spec, dict) else {}


def _timestamp() -> str:
    """Now, as a MicroTime. Only for people: no elector decides by it."""
    return datetime.now(tz=UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
