"""The thread in which the leader sees moves through: Jobs that are suspended, pods that are evicted, gates.

Before it: a pass, which only begins a move (`Actuator.move`), or a leader that is no more. After it: the next pass,
which sees the job on its new node. A pass is every 20 to 60 s and a move takes 2 s, so it cannot be the pass that goes
on; and a thread of its own, so that a slow API server holds up no lease, no pass and no finalizer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

import structlog

from controller import history
from controller.adapters.kube.events import About, Event
from controller.adapters.kube.following import JobFollower
from controller.adapters.kube.job_moves import JobMove
from controller.adapters.kube.job_steps import MoveEnd
from controller.cluster.world import World
from controller.errors import ObservationError, SlopewiseError

TICK_SECONDS = 0.5

STALLED_SECONDS = 1800.0
"""Without any progress for so long it hangs: no Job, pod or gate was seen to, and no part of a tick has ended.

A restart makes nothing faster, and whoever leads next meets the same load, so no honest work may take so long. A call
takes 20 s at most (10 s to the answer, 10 s for its body). One Job, pod or gate takes three to eight calls: 160 s. The
longest wait in one piece is for a pass that begins to evict a workload of 50 pods (`give_up_node`): 100 calls, 200 s at
2 s each, 1,000 s at 10 s. Little is lost by waiting: where nobody answers at all the lease is lost sooner, a thread
that has died is known at once, and what is left behind meanwhile the sweeper frees."""

STIRRED_SECONDS = 0.05
"""Between two ticks that changes of pods ask for: of a Job with 50 pods they all end within a second."""


class MoveKeeper:
    """Ticks all that drives moves, as long as this replica leads. `wake` may be called from any thread."""

    def __init__(self, world: World, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._world = world
        self._monotonic = monotonic
        self._progress_at = monotonic()
        self._ticks: Mapping[str, Callable[[Callable[[], None]], None]] = {
            "suspended Jobs": self._follower().tick,
            "evicted pods": world.evictions.tick,
            "gates": world.gates.tick,
        }
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="moves", daemon=True)
        self._said: dict[str, str] = {}
        self._log = structlog.get_logger("slopewise")

    def start(self) -> None:
        """Begin, or do nothing where that was done."""
        if self._thread.ident is None:
            self._progressed()
            self._thread.start()

    def is_alive(self) -> bool:
        """False once its thread has died or hangs; true before it was started, and when it was told to stop."""
        if self._thread.ident is None or self._stopping.is_set():
            return True
        return self._thread.is_alive() and self._monotonic() - self._progress_at < STALLED_SECONDS

    def wake(self) -> None:
        """A pod changed: do not wait for the next tick."""
        self._woken.set()

    def stop(self, patience_seconds: float = 0.0) -> bool:
        """No further tick; True once none is under way. Moves stay as they are: another replica goes on with them."""
        self._stopping.set()
        self._woken.set()
        if self._thread.ident is None:
            return True
        self._thread.join(patience_seconds)
        return not self._thread.is_alive()

    def tick(self) -> None:
        """Everything once. What goes wrong in one part is told, and stops no other."""
        for part, tick in self._ticks.items():
            try:
                tick(self._progressed)
            except SlopewiseError as error:
                self._say(part, str(error))
            except Exception as error:
                self._say(part, repr(error), error)
            else:
                self._said.pop(part, None)
            self._progressed()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._woken.clear()
                self.tick()
                if not self._stopping.wait(STIRRED_SECONDS):
                    self._woken.wait(TICK_SECONDS - STIRRED_SECONDS)
        except BaseException as error:
            # A SystemExit ends a thread without a word, and the restart that follows would have no reason.
            self._log.critical("moves are not seen through any more", reason=repr(error), exc_info=error)
            raise

    def _progressed(self) -> None:
        self._progress_at = self._monotonic()

    def _say(self, part: str, reason: str, error: Exception | None = None) -> None:
        if self._said.get(part) != reason:
            self._said[part] = reason
            self._log.warning("moves wait", part=part, reason=reason, exc_info=error)

    def _follower(self) -> JobFollower:
        world = self._world
        return JobFollower(
            world.api, world.watches.jobs, world.watches.pods, world.watches.nodes, world.may_write, world.clock,
            self._tell, world.watches.jobs.observe,
        )  # fmt: skip

    def _tell(self, move: JobMove, sentence: str, warning: bool, ended: MoveEnd | None) -> None:
        """In the log, as an Event of the Job, since its pods come and go meanwhile, and in its history."""
        log = self._log.warning if warning else self._log.info
        log("move", job=f"{move.namespace}/{move.name}", source=move.from_node, target=move.to_node, reason=sentence)
        about = About("batch/v1", "Job", move.name, move.workload_uid, move.namespace)
        reason = "MoveTroubled" if warning else "Moving"
        self._world.events.emit(Event(about, reason, sentence, warning=warning, action="Move"))
        if ended is not None:
            change = f"{move.from_node} to {move.to_node}" if ended == "cancelled" else f"{move.to_node} to any node"
            action = history.move_ended(move.job_uids[0], change, ended, sentence, self._world.clock.now())
            with suppress(ObservationError):  # it is not read yet: then the Event alone tells it
                self._world.book.refresh()
            self._world.book.act(move.workload_uid, action)


def see_through(world: World, patience_seconds: float, pause: Callable[[float], bool]) -> bool:
    """For a process that ends: what it has begun it finishes. False when that takes too long, or `pause` says stop."""
    keeper, deadline = MoveKeeper(world), time.monotonic() + patience_seconds
    keeper.tick()  # also when nothing is under way: what a pass has seen behind our gate and not placed is let go
    while world.moves_under_way():
        if time.monotonic() > deadline or pause(TICK_SECONDS):
            return False
        keeper.tick()
    return True
