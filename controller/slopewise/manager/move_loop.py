"""The leader's thread that advances moves: suspended Jobs, evicted pods, scheduling gates.

A pass only begins a move (`Actuator.carry_out`), and a later pass observes the result. A pass is every 20 to 60 s and a
move takes 2 s, so a thread of its own advances it; a slow API server then delays no lease, no pass and no finalizer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

import structlog

from slopewise.adapters.kube.events import About, Event
from slopewise.adapters.kube.moves.suspend.annotation import JobMove
from slopewise.adapters.kube.moves.suspend.controller import SuspendedJobController
from slopewise.adapters.kube.moves.suspend.state_machine import MoveEnd
from slopewise.crds import history
from slopewise.errors import ObservationError, SlopewiseError
from slopewise.manager.shared import SharedState
from slopewise.tracking import OncePerChange

TICK_SECONDS = 0.5

STALLED_SECONDS = 1800.0
"""Without progress for so long the thread hangs: no Job, pod or gate was handled, and no part of a tick has ended. A
restart makes nothing faster, so no correct work may take so long. A request takes 20 s at most (10 s to the response,
10 s for its body). One Job, pod or gate takes three to eight requests: 160 s. The longest single wait is for a pass
that begins to evict a workload of 50 pods (`give_up_node`): 100 requests, 200 s at 2 s each, 1,000 s at 10 s. A long
limit costs little: without any answer the lease is lost sooner, a dead thread is detected at once, and the sweeper
frees what waits meanwhile."""

TRIGGERED_SECONDS = 0.05
"""Between two ticks that changes of pods trigger: the 50 pods of a Job end within a second."""


class MoveController:
    """Runs all controllers of moves while this replica leads. `trigger` may be called from any thread."""

    def __init__(self, shared: SharedState, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._shared = shared
        self._monotonic = monotonic
        self._progress_at = monotonic()
        self._ticks: Mapping[str, Callable[[Callable[[], None]], None]] = {
            "suspended Jobs": self._suspended_job_controller().tick,
            "evicted pods": shared.evictions.tick,
            "gates": shared.gates.tick,
        }
        self._triggered = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="moves", daemon=True)
        self._reported = OncePerChange[str, str]()
        self._log = structlog.get_logger("slopewise")

    def start(self) -> None:
        """Start the thread, once."""
        if self._thread.ident is None:
            self._progressed()
            self._thread.start()

    def is_alive(self) -> bool:
        """False once its thread has died or hangs; true before its start and after its stop."""
        if self._thread.ident is None or self._stopping.is_set():
            return True
        return self._thread.is_alive() and self._monotonic() - self._progress_at < STALLED_SECONDS

    def trigger(self) -> None:
        """A pod changed: do not wait for the next tick."""
        self._triggered.set()

    def stop(self, timeout_seconds: float = 0.0) -> bool:
        """No further tick; True once none is under way. Another replica continues the moves."""
        self._stopping.set()
        self._triggered.set()
        if self._thread.ident is None:
            return True
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def tick(self) -> None:
        """Run each controller once. An error in one is logged, and stops no other."""
        for part, tick in self._ticks.items():
            if not self._shared.api.may_write():
                self._progressed()
                return
            try:
                tick(self._progressed)
            except SlopewiseError as error:
                self._log_once(part, str(error))
            except Exception as error:
                self._log_once(part, repr(error), error)
            else:
                self._reported.forget(part)
            self._progressed()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._triggered.clear()
                self.tick()
                if not self._stopping.wait(TRIGGERED_SECONDS):
                    self._triggered.wait(TICK_SECONDS - TRIGGERED_SECONDS)
        except BaseException as error:
            # A SystemExit ends a thread without a word, and the restart that follows would have no reason.
            self._log.critical("move loop stopped", reason=repr(error), exc_info=error)
            raise

    def _progressed(self) -> None:
        self._progress_at = self._monotonic()

    def _log_once(self, part: str, reason: str, error: Exception | None = None) -> None:
        if self._reported.is_new(part, reason):
            self._log.warning("move loop failed", part=part, reason=reason, exc_info=error)

    def _suspended_job_controller(self) -> SuspendedJobController:
        shared = self._shared
        return SuspendedJobController(
            shared.api, shared.watches.jobs, shared.watches.pods, shared.watches.nodes, shared.clock,
            self._report, shared.watches.jobs.observe,
        )  # fmt: skip

    def _report(self, move: JobMove, message: str, ended: MoveEnd | None, *, warning: bool) -> None:
        """In the log, as an Event of the Job, since its pods are replaced meanwhile, and in its history."""
        log, event = (self._log.warning, "move interrupted") if warning else (self._log.info, "move advanced")
        log(event, job=f"{move.namespace}/{move.name}", source=move.from_node, target=move.to_node, reason=message)
        about = About("batch/v1", "Job", move.name, move.workload_uid, move.namespace)
        reason = "MoveTroubled" if warning else "Moving"
        self._shared.events.emit(Event(about, reason, message, warning=warning, action="Move"))
        if ended is not None:
            change = f"{move.from_node} to {move.to_node}" if ended == "cancelled" else f"{move.to_node} to any node"
            action = history.move_ended(move.job_uids[0], change, ended, message, self._shared.clock.now())
            with suppress(ObservationError):  # not read yet: then only the Event reports it
                self._shared.job_growths.refresh()
            self._shared.job_growths.act(move.workload_uid, action)


def finish_moves(shared: SharedState, timeout_seconds: float, pause: Callable[[float], bool]) -> bool:
    """Finish the moves that a process has begun before it ends. False after a timeout, or when `pause` returns True."""
    controller, deadline = MoveController(shared), time.monotonic() + timeout_seconds
    controller.tick()  # also without moves: it releases gated pods that a pass has not placed
    while shared.moves_under_way():
        if time.monotonic() > deadline or pause(TICK_SECONDS):
            return False
        controller.tick()
    return True
