"""Policies that are deleted, and what policies that are gone have left changed: their pods get their originals back.

`leading.py` begins an Ending for each; it has a thread of its own, because 5,000 pods take a minute and nothing else
may wait for them. A policy that is deleted goes once its pods have what they came with, or after a while without: pods
and nodes may be gone. What is left then, or was left by a policy whose finalizer somebody took away, is tried on and
on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection

import structlog

from controller.adapters.kube.events import About, Event
from controller.adapters.kube.policies import PolicyRecord, remove_finalizer
from controller.adapters.kube.records import FINALIZER
from controller.adapters.kube.reporting import StatusReporter
from controller.cluster.undoing import Announcer, Undoing
from controller.cluster.world import World
from controller.errors import SlopewiseError
from controller.restoring import GivenBack
from controller.settings import TrainingPolicy

TRY_AGAIN_SECONDS = 3.0
"""Between two tries, while a policy waits for them."""

CONFIRM_SECONDS = 0.5
"""From what was just accepted to the look at whether it is in effect: most kubelets need no longer."""

ORPHANS_SECONDS = 30.0
"""Between two tries when no policy waits, and between two looks for pods whose policy is gone."""


class Ending:
    """One policy's. `record` is None when there is no such policy any more."""

    def __init__(self, world: World, name: str, record: PolicyRecord | None) -> None:
        self.uid = None if record is None else record.uid
        self.over = False
        """Nothing is left to do here; for a policy, that its finalizer is off."""
        self._world = world
        self._name = name
        self._record = record
        self._pause_seconds = ORPHANS_SECONDS if record is None else TRY_AGAIN_SECONDS
        self._give_up_at = time.monotonic() + world.options.restore_deadline_seconds
        document = record.document if record is not None and record.document is not None else TrainingPolicy()
        self._undoing = Undoing(
            name, world.api, world.watches, world.owners, world.book, world.may_write, world.buckets,
            document.spec.resources,
        )  # fmt: skip
        reporter = StatusReporter(
            name, document.spec, world.book, self._undoing.roster, world.events, policy_uid=self.uid or ""
        )
        self._announcer = Announcer(name, world.metrics, reporter, self._undoing.name_of)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"ending {name}", daemon=True)
        self._said = ""
        self._pause = 0.0
        self._accepted: Collection[str] = frozenset()
        """Jobs that the last try found accepted and not in effect."""
        self._log = structlog.get_logger("slopewise")

    def start(self) -> None:
        """Begin to give back."""
        self._thread.start()

    def stop(self, patience_seconds: float = 0.0) -> bool:
        """No further try; True once none is under way. May be called again."""
        self._stopping.set()
        self._thread.join(patience_seconds)
        return not self._thread.is_alive()

    def forget(self) -> None:
        """It is told no more."""
        self._announcer.forget()

    def _run(self) -> None:
        while not self.over and not self._stopping.wait(self._pause):
            self._pause = self._pause_seconds
            try:
                self.over = self._try()
            except SlopewiseError as error:
                self._say(str(error))
            except Exception as error:
                # A mistake of ours about one policy: told in full, and tried again, since a finalizer waits for it.
                self._say(repr(error), error)

    def _try(self) -> bool:
        """Once; True when nothing is left to do."""
        given_back = self._undoing.give_back()
        self._announcer.tell(given_back)
        if given_back.accepted.keys() != self._accepted:
            self._accepted, self._pause = given_back.accepted.keys(), CONFIRM_SECONDS
        if self._record is None:
            self._undoing.retire()
            return not self._undoing.leaves_anything()
        if not given_back.settled and time.monotonic() < self._give_up_at:
            return False
        self._say_what_stays(self._record, given_back)
        self._undoing.retire()
        if FINALIZER in self._record.finalizers:
            remove_finalizer(self._world.api, self._name, self._world.may_write)
        return True

    def _say_what_stays(self, record: PolicyRecord, given_back: GivenBack) -> None:
        stays = given_back.not_back
        if not stays:
            return
        uid, why = next(iter(stays.items()))
        note = (
            f"the policy goes although pods do not have their original resources back ({len(stays)}), "
            f"for example {self._undoing.name_of(uid)}: {why}"
        )
        if self._say(note):
            about = About.policy(record.name, record.uid)
            self._world.events.emit(Event(about, "RestoreFailed", note, warning=True, action="Restore"))

    def _say(self, what: str, error: Exception | None = None) -> bool:
        """Log it unless it was said before."""
        if what == self._said:
            return False
        self._said = what
        self._log.warning("policy ends", name=self._name, reason=what, exc_info=error)
        return True


class Endings:
    """All of them, by the policy's name: one name is never ended twice at the same time. Called by one thread."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._endings: dict[str, Ending] = {}
        self._look_at = float("-inf")

    def of(self, record: PolicyRecord) -> None:
        """This policy is being deleted, and has no passes any more: see to its pods, if nobody does yet."""
        ending = self._endings.get(record.name)
        if ending is not None and ending.uid == record.uid:
            return
        if self.stop(record.name):
            self._begin(record.name, record)

    def stop(self, name: str) -> bool:
        """Whoever has this name now is none of those that end; True once nothing is under way for it."""
        ending = self._endings.get(name)
        if ending is None:
            return True
        if not ending.stop():
            return False
        ending.forget()
        del self._endings[name]
        return True

    def look_for_orphans(self, names: Collection[str]) -> None:
        """See to pods whose policy is none of `names`, and forget what is over."""
        for name, ending in list(self._endings.items()):
            if name not in names and (ending.over or ending.uid is not None):
                self.stop(name)
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + ORPHANS_SECONDS
        self._world.book.refresh()
        for name in self._world.book.policies():
            if name and name not in names and name not in self._endings:
                self._begin(name, None)

    def stop_all(self, patience_seconds: float) -> None:
        """No further try."""
        deadline = time.monotonic() + patience_seconds
        for ending in self._endings.values():
            ending.stop()
        for ending in self._endings.values():
            ending.stop(max(0.0, deadline - time.monotonic()))

    def _begin(self, name: str, record: PolicyRecord | None) -> None:
        ending = self._endings[name] = Ending(self._world, name, record)
        ending.start()
