"""Leader election by a Lease: only its holder writes, and only while no other replica can hold it.

`fencing.py` checks `Elector.may_write` before each write. The deadline uses this process's own clock: a renewal counts
from when it was sent, writing ends `renew_deadline_seconds` after that, and no other replica takes the lease until
`lease_seconds` after it was written. Clocks of other machines are not compared: a lease's age is how long this process
has seen it unchanged.
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

from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.protocol import Api, Json, path_of
from slopewise.adapters.kube.client.retry import get_or_none

_LEASE_API_VERSION = "coordination.k8s.io/v1"
_MAX_JITTER = 1.3
_STOP_SECONDS = 5.0
_SUSPENDED_SECONDS = 1.0
"""A wait that ends this late means that the whole process was suspended; a busy thread is late by milliseconds."""


def clock_with_sleep() -> float:
    """Monotonic seconds that include the machine's suspension.

    Python's monotonic clock does not count suspension, and a resumed laptop would treat an expired lease as valid.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class Terms:
    """The times of an election, in seconds; Kubernetes' own controllers use the same."""

    lease_seconds: float = 15.0
    """How long other replicas wait after the last observed renewal before they take the lease."""
    renew_deadline_seconds: float = 10.0
    """How long after the last successful renewal was sent this replica writes. The 5 s until the lease expires cover
    requests in flight."""
    retry_seconds: float = 2.0

    @classmethod
    def within(cls, lease_seconds: float) -> Terms:
        """The same proportions for a shorter or longer lease, e.g. 6 s: renewed every 0.8 s, given up after 4 s."""
        return cls(lease_seconds, lease_seconds * 10 / 15, lease_seconds * 2 / 15)


class Elector:
    """Acquires and renews a Lease in threads of its own. `start` it once, `stop` it once.

    An Elector never takes a lost lease again: decisions made under it are stale, so the process ends.
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
        """`api` must time out well before the renewal deadline (`KubeApi.with_timeout(3)`).

        `identity` must be new for each process (a pod's name plus a random part): a restarted container does not hold
        the lease of the one before. `on_lost` gets the reason. Both callbacks run in a thread that does not renew, so
        they may block.
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
        """The lease as last written by this process; None: read it first."""
        self._seen: tuple[object, float] | None = None
        """Another replica's record, and when it was first seen."""
        self._state = threading.Condition()
        self._renewed_at: float | None = None
        self._lost: str | None = None
        self._stopping = False
        self._threads = [
            threading.Thread(target=self._renew_until_stopped, name="elector", daemon=True),
            threading.Thread(target=self._notify, name="elector-callbacks", daemon=True),
        ]
        self._log = structlog.get_logger("slopewise")
        self.holder: str | None = None
        """The holder of the lease, as last observed."""
        self.failure: str | None = None
        """Why the last read or write of the lease failed."""

    def start(self) -> None:
        """Start to acquire the lease; returns at once."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the threads, and release the lease if this process holds it. Stop all writers before."""
        with self._state:
            self._stopping = True
            self._state.notify_all()
        for thread in self._threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(_STOP_SECONDS)
        # A thread that still hangs shows that the API server does not answer.
        if self.holder == self.identity and not self._threads[0].is_alive():
            with suppress(ApiError):  # then it runs out
                self._release()

    @property
    def is_leader(self) -> bool:
        """True from the first successful renewal until the lease is lost or released."""
        with self._state:
            return self._renewed_at is not None and self._lost is None and not self._stopping

    def may_write(self) -> bool:
        """True while no other replica can hold the lease. Check it before each write; it sends no request."""
        with self._state:
            return self._remaining_seconds() > 0

    def _remaining_seconds(self) -> float:
        """Seconds left in which writes are allowed; called with `_state` held."""
        if self._renewed_at is None or self._lost is not None or self._stopping:
            return 0.0
        return self._renewed_at + self.terms.renew_deadline_seconds - self._clock()

    def _renew_until_stopped(self) -> None:
        while True:
            self._attempt()
            with self._state:
                # Jitter, so that replicas do not conflict at every try.
                wait = self.terms.retry_seconds * random.uniform(1.0, _MAX_JITTER)  # noqa: S311
                if self._state.wait_for(lambda: self._stopping or self._lost is not None, wait):
                    return

    def _attempt(self) -> None:
        sent_at = self._clock()
        try:
            is_ours = self._take_or_renew()
        except ApiError as error:
            self._lease, self.failure = None, str(error)
        except Exception as error:  # a lease that was edited by hand must not end the elections
            self._log.exception("leader election failed")
            self._lease, self.failure = None, f"{self._path}: {type(error).__name__}: {error}"
        else:
            self.failure = None
            self._judge(sent_at, is_ours=is_ours)

    def _judge(self, sent_at: float, *, is_ours: bool) -> None:
        with self._state:
            if self._lost is not None or self._stopping:
                return
            if is_ours:
                self._renewed_at = sent_at
            elif self._renewed_at is not None:
                self._lost = f"{self.holder} holds the lease {self._name} now"
            self._state.notify_all()

    def _notify(self) -> None:
        """Runs `on_started_leading`, waits for the end, runs `on_lost`: in time also while a renewal hangs."""
        with self._state:
            self._state.wait_for(lambda: self._renewed_at is not None or self._stopping)
            if self._stopping:
                return
        self._on_started_leading()
        reason = self._wait_until_lost()
        if reason is not None:
            self._on_lost(reason)

    def _wait_until_lost(self) -> str | None:
        """Why the lease was lost; None: it was released."""
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
                    f"({self._not_renewed_reason(late)})"
                )
                self._state.notify_all()
            return self._lost

    def _not_renewed_reason(self, late_seconds: float) -> str:
        """`late_seconds`: how much later than requested the wait for the deadline ended."""
        if late_seconds >= _SUSPENDED_SECONDS:
            return f"this process did not run for at least {late_seconds:.0f} s: it was suspended, or had no CPU"
        return self.failure or "the API server did not answer"

    def _take_or_renew(self) -> bool:
        """One try; True when this try wrote the lease for this process."""
        if self._lease is not None:
            try:
                return self._write(self._lease)
            except ApiError as error:
                if not error.is_outdated:
                    raise
                self._lease = None
        lease = get_or_none(self._api, self._path) or {"metadata": {"name": self._name}}
        if not self._may_take(_spec(lease)):
            return False
        try:
            return self._write(lease)
        except ApiError as error:
            if error.is_conflict or error.already_exists:
                return False  # another replica wrote first
            raise

    def _may_take(self, spec: Mapping[str, Any]) -> bool:
        """True when the lease is this process's or free, or unchanged for as long as its holder stated."""
        now = self._clock()  # before `holder` is set: its reader relies on a running wait
        self.holder = spec.get("holderIdentity") or None
        if self.holder in (None, self.identity):
            return True
        record = tuple(str(spec.get(field)) for field in ("holderIdentity", "renewTime", "leaseTransitions"))
        if self._seen is None or self._seen[0] != record:
            self._seen = (record, now)
        stated = spec.get("leaseDurationSeconds")
        wait_seconds = max(self.terms.lease_seconds, float(stated) if isinstance(stated, int) else 0.0)
        return now - self._seen[1] >= wait_seconds

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
        """Clear the holder, so that the next replica need not wait for the expiry."""
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


class NoElection(Elector):
    """The election of a dry run: it leads at once, and may write nothing."""

    def start(self) -> None:
        """Requests no lease."""

    def stop(self) -> None:
        """Releases none."""

    @property
    def is_leader(self) -> bool:
        """Passes are made."""
        return True

    def may_write(self) -> bool:
        """Another replica may hold the lease."""
        return False


def _spec(lease: Json) -> Mapping[str, Any]:
    spec = lease.get("spec")
    return spec if isinstance(spec, dict) else {}


def _timestamp() -> str:
    """Now, as a MicroTime. For readers only: no elector decides by it."""
    return datetime.now(tz=UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
