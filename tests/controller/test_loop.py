"""When passes run: at the look the last pass asked for, at once after an event, never two at a time."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from support.waiting import eventually

from slopewise.loop import ControllerLoop
from slopewise.model import PassReport
from slopewise.telemetry.metrics import Telemetry

WAIT_SECONDS = 20.0


class Passes:
    """A pass that counts itself and wants to look again after `next_look` seconds."""

    def __init__(self, requeue_after: float = 3600.0, body: Callable[[], object] = lambda: None) -> None:
        self.requeue_after = requeue_after
        self.body = body
        self.count = 0
        self.running = 0
        self.most_at_once = 0
        self._changed = threading.Condition()

    def __call__(self) -> PassReport:
        with self._changed:
            self.running += 1
            self.most_at_once = max(self.most_at_once, self.running)
        try:
            self.body()
        finally:
            with self._changed:
                self.running -= 1
                self.count += 1
                self._changed.notify_all()
        now = time.time()
        return PassReport(now, "test", {}, now + self.requeue_after)

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.count >= count, WAIT_SECONDS), f"only {self.count} passes"


class HeldPasses(Passes):
    """A pass that does not end before it is asked to go on."""

    def __init__(self) -> None:
        super().__init__(body=self._hold)
        self._inside = threading.Event()
        self.go_on = threading.Event()

    def _hold(self) -> None:
        self._inside.set()
        self.go_on.wait(WAIT_SECONDS)

    def wait_until_inside(self) -> None:
        assert self._inside.wait(WAIT_SECONDS), "no pass began"


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry(control="limits", interval_seconds=1.0)


@pytest.fixture
def started(telemetry: Telemetry) -> Iterator[Callable[..., ControllerLoop]]:
    loops: list[ControllerLoop] = []

    def start(passes: Passes, interval: float = 3600.0, **more: object) -> ControllerLoop:
        loop = ControllerLoop(passes, telemetry, interval, **more)  # type: ignore[arg-type]
        loops.append(loop)
        loop.start()
        return loop

    yield start
    for loop in loops:
        loop.stop()


def test_the_next_pass_comes_when_the_last_one_asked_for_it(started: Callable[..., ControllerLoop]) -> None:
    passes = Passes(requeue_after=0.05)
    started(passes, interval=3600.0)
    passes.wait_for(4)


def test_an_event_interrupts_the_interval(started: Callable[..., ControllerLoop]) -> None:
    passes = Passes()
    loop = started(passes)
    passes.wait_for(1)
    loop.trigger()
    passes.wait_for(2)


def test_an_event_during_a_pass_is_followed_by_another_pass_and_never_a_second_at_once(
    started: Callable[..., ControllerLoop],
) -> None:
    passes = HeldPasses()
    loop = started(passes)
    passes.wait_until_inside()
    for _ in range(5):
        loop.trigger()
    passes.go_on.set()
    passes.wait_for(2)
    assert passes.most_at_once == 1


def test_a_mistake_in_a_pass_is_counted_and_the_loop_goes_on(
    started: Callable[..., ControllerLoop], telemetry: Telemetry
) -> None:
    passes = Passes(body=lambda: 1 / 0)
    loop = started(passes)
    passes.wait_for(1)
    loop.trigger()
    passes.wait_for(2)
    loop.stop()
    assert telemetry.registry.get_sample_value("slopewise_passes_total", {"result": "failed"}) == passes.count


def test_a_loop_without_a_pass_for_three_intervals_is_not_alive(started: Callable[..., ControllerLoop]) -> None:
    passes = HeldPasses()
    loop = started(passes, interval=0.05)
    assert loop.is_alive()
    assert eventually(lambda: not loop.is_alive())
    passes.go_on.set()


@pytest.mark.timeout(60)
def test_stopping_while_passes_plan_their_next_ones_never_hangs(started: Callable[..., ControllerLoop]) -> None:
    for _ in range(50):
        passes = Passes(requeue_after=0.0)
        loop = started(passes)
        loop.trigger()
        loop.stop()
        assert loop.passes == passes.count


def test_stopping_without_patience_shows_whether_a_pass_is_under_way(started: Callable[..., ControllerLoop]) -> None:
    passes = HeldPasses()
    loop = started(passes)
    passes.wait_until_inside()
    assert loop.busy
    assert not loop.stop(0.0)
    loop.trigger()
    passes.go_on.set()
    assert loop.stop()
    assert passes.count == 1


def test_a_pass_that_hangs_when_the_process_ends_does_not_hold_it_up() -> None:
    program = (
        "import threading\n"
        "from slopewise.loop import ControllerLoop\n"
        "from slopewise.telemetry.metrics import Telemetry\n"
        "inside = threading.Event()\n"
        "run_pass = lambda: (inside.set(), threading.Event().wait())\n"
        "loop = ControllerLoop(run_pass, Telemetry(control='limits', interval_seconds=1.0), 1.0)\n"
        "loop.start()\n"
        "inside.wait()\n"
        "print(loop.stop(0.0))\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "False\n"


def test_after_stop_no_pass_runs_an_event_is_no_error_and_the_loop_is_not_dead(
    started: Callable[..., ControllerLoop],
) -> None:
    seen: list[PassReport] = []
    passes = Passes()
    loop = started(passes, interval=0.05, sinks=[seen.append])
    passes.wait_for(1)
    loop.stop()
    before = passes.count
    assert len(seen) == loop.passes == before
    loop.trigger()
    time.sleep(0.3)
    assert (passes.count, loop.is_alive(), loop.stopping) == (before, True, True)
    assert loop.stop(0.0), "a second time"
