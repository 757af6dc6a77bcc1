"""What is done when a time is over, and not done when the block was faster."""

from __future__ import annotations

import threading

from slopewise.adapters.http.timeouts import Deadlines

SOON, LATE, PATIENCE = 0.02, 60.0, 10.0


def watchers() -> int:
    return sum(thread.name == "deadlines" for thread in threading.enumerate())


def test_a_block_that_takes_too_long_is_acted_on_once() -> None:
    acted = threading.Semaphore(0)
    deadlines = Deadlines()
    with deadlines.acting(SOON, acted.release) as deadline:
        assert acted.acquire(timeout=PATIENCE)
    assert deadline.missed
    assert not acted.acquire(timeout=5 * SOON)


def test_a_block_that_is_over_in_time_is_left_alone() -> None:
    acted, later = threading.Event(), threading.Event()
    deadlines = Deadlines()
    with deadlines.acting(SOON, acted.set) as deadline:
        pass
    with deadlines.acting(2 * SOON, later.set):
        assert later.wait(PATIENCE)
    assert not deadline.missed
    assert not acted.is_set()


def test_an_earlier_deadline_does_not_wait_for_a_later_one() -> None:
    late, soon = threading.Event(), threading.Event()
    deadlines = Deadlines()
    with deadlines.acting(LATE, late.set), deadlines.acting(SOON, soon.set):
        assert soon.wait(PATIENCE)
        assert not late.is_set()


def test_many_threads_share_one() -> None:
    deadlines = Deadlines()
    acted: list[int] = []
    before = watchers()

    def run(number: int) -> None:
        done = threading.Event()

        def act() -> None:
            acted.append(number)
            done.set()

        with deadlines.acting(SOON, act):
            done.wait(PATIENCE)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(acted) == list(range(20))
    assert watchers() == before + 1
