"""The CPU in effect from files, the number of threads from that, and the variables at the start."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from slopewise_exporter.threads import at_start as starting
from slopewise_exporter.threads.at_start import GENERAL, NUMBERS, OURS_VARIABLE, at_start, is_by_hand, waiting
from slopewise_exporter.threads.cpu import CpuReader, Reading, affinity_cores, in_effect_cores, limit_cores
from slopewise_exporter.threads.following import INTERVAL_SECONDS
from slopewise_exporter.threads.number import ThreadNumber
from slopewise_exporter.values import Checker

Write = Callable[[dict[str, str]], str]
SHORT, ENOUGH = 0.5, 0.02
"""Shares of waits: of two threads on one core, and of the daemons of an idle machine."""


@pytest.fixture
def many_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slopewise_exporter.threads.cpu.affinity_cores", lambda: 16)
    monkeypatch.setattr(starting, "affinity_cores", lambda: 16)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Files below a folder, which is returned."""

    def files(texts: dict[str, str]) -> str:
        for name, text in texts.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return str(tmp_path)

    return files


V2 = {"cgroup.controllers": "cpu", "proc/cgroup": "0::/pods/job\n"}


def limit(folder: str) -> float:
    return limit_cores(folder, f"{folder}/proc")


JOB, PODS = "pods/job/cpu.max", "pods/cpu.max"


def quota(folder: str, quota: str) -> dict[str, str]:
    """The two files of version 1."""
    return {f"{folder}/cpu.cfs_quota_us": f"{quota}\n", f"{folder}/cpu.cfs_period_us": "100000\n"}


@pytest.mark.usefixtures("many_cores")
@pytest.mark.parametrize(
    ("files", "cores"),
    [
        # the least up the tree counts
        ({**V2, JOB: "max 100000\n", PODS: "250000 100000\n"}, 2.5),
        ({**V2, JOB: "50000 100000\n", PODS: "250000 100000\n"}, 0.5),
        ({**V2, JOB: "50000 100000\n", "cpu.max": "10000 100000\n"}, 0.1),
        # version 1
        (
            {
                "proc/cgroup": "4:memory:/job\n3:cpu,cpuacct:/pods/job\n0::/\n",
                **quota("cpu,cpuacct/pods/job", "-1"),
                **quota("cpu,cpuacct/pods", "150000"),
            },
            1.5,
        ),
        # a container that sees the path of its host
        ({"proc/cgroup": "3:cpu:/kubepods/pod1/abc\n", **quota("cpu", "200000")}, 2),
        ({"proc/cgroup": "3:cpu:/../other\n", **quota("cpu", "200000")}, 2),
        # the root of a namespace
        ({**V2, "proc/cgroup": "0::/\n", "cpu.max": "150000 100000\n"}, 1.5),
        ({**V2, "proc/cgroup": "0::/../beside\n", "cpu.max": "150000 100000\n"}, 1.5),
        ({**V2, "proc/cgroup": "0::/a..b\n", "cpu.max": "150000 100000\n", "a..b/cpu.max": "50000 100000\n"}, 0.5),
        # a hybrid host, whose quotas are in version 1
        (
            {
                "proc/cgroup": "3:cpu,cpuacct:/job\n1:name=systemd:/job\n0::/job\n",
                **quota("cpu,cpuacct/job", "150000"),
                "unified/cgroup.controllers": "",
                "unified/job/cgroup.type": "domain\n",
            },
            1.5,
        ),
    ],
)
def test_the_limit_of_a_process_is_read_from_its_cgroups(write: Write, files: dict[str, str], cores: float) -> None:
    assert limit(write(files)) == cores


@pytest.mark.parametrize("text", ["", "max", "x y", "0 100000", "-5 100000", "1 2 3"])
def test_what_cannot_be_read_limits_nothing(write: Write, text: str) -> None:
    assert limit(write({**V2, "pods/job/cpu.max": text})) == affinity_cores()
    assert limit("/no/such/folder") == affinity_cores()


def reader(folder: str, seconds: list[float], used: list[float]) -> CpuReader:
    return CpuReader(folder, f"{folder}/proc", now=lambda: seconds.pop(0), used=lambda: used.pop(0))


def test_pressure_is_the_time_in_which_some_waited(write: Write) -> None:
    own = {**V2, "pods/job/cgroup.type": "domain"}
    folder = write({**own, "pods/job/cpu.pressure": "some avg10=99.00 avg60=0 avg300=0 total=1000000\nfull total=9\n"})
    cpu = reader(folder, [10, 15], [1, 4.5])
    assert cpu.read()[1:3] == (None, None)
    write({"pods/job/cpu.pressure": "some avg10=0.00 avg60=0 avg300=0 total=3500000\n"})
    assert cpu.read()[1:3] == (0.7, 0.5)


def test_pressure_counts_where_the_kernel_says_nothing_of_threads_also_on_a_hybrid_host(write: Write) -> None:
    folder = write({
        "proc/cgroup": "1:cpu:/job\n0::/job\n",
        "proc/task/7/schedstat": "0 0 0\n",
        "cpu/job/cpu.cfs_quota_us": "-1\n",
        "unified/job/cgroup.type": "domain\n",
        "unified/job/cpu.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=1000000\n",
    })  # fmt: skip
    cpu = reader(folder, [0, 5], [0, 1])
    cpu.read()
    write({"unified/job/cpu.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=2000000\n"})
    assert cpu.read().waited_share == 0.2


def test_the_pressure_of_the_whole_machine_says_nothing_of_this_process(write: Write) -> None:
    root = {"cgroup.controllers": "cpu", "proc/cgroup": "0::/\n", "cpu.pressure": "some avg10=0 total=1\n"}
    folder = write({**root, "proc/task/7/schedstat": "1000000000 1000000000 5\n"})
    cpu = reader(folder, [0, 5], [0, 1])
    assert cpu.read()[1:3] == (None, 0.5)  # since the process began
    write({"proc/task/7/schedstat": "2000000000 1500000000 9\n", "proc/task/8/schedstat": "1000000000 500000000 1\n"})
    (Path(folder) / "cpu.pressure").write_text("some avg10=0 total=9000000\n")
    assert cpu.read().waited_share == pytest.approx(1 / 3)


def test_this_machine_can_be_read() -> None:
    cpu = CpuReader()
    assert 0 < cpu.read().limit_cores <= affinity_cores()
    assert cpu.read().used_cores is not None


def test_what_is_used_counts_only_while_the_process_waits_for_more() -> None:
    assert in_effect_cores(Reading(8, 1.3, SHORT)) == 1.3
    assert in_effect_cores(Reading(8, 1.3, ENOUGH)) == 8
    assert in_effect_cores(Reading(8, 1.3, None)) == 8
    assert in_effect_cores(Reading(8, None, SHORT)) == 4  # its imports have waited half of their time
    assert in_effect_cores(Reading(8, 3.0, ENOUGH), ranks=4) == 2


def test_the_number_falls_at_once_and_rises_by_one_an_interval() -> None:
    number = ThreadNumber(16)
    assert [number.next(Reading(cores, 0.0, ENOUGH)) for cores in (4, 0.5, 3.05, 3.05, 3.2, 3.2)] == [4, 1, 2, 3, 4, 4]
    assert number.next(Reading(1.5, 1.5, SHORT)) == 2


def test_it_never_rises_above_what_the_libraries_had_and_never_while_the_process_waits() -> None:
    number = ThreadNumber(2)
    assert [number.next(Reading(cores, 1.0, ENOUGH)) for cores in (1, 8, 8, 8)] == [1, 2, 2, 2]
    number = ThreadNumber(8)
    assert [number.next(Reading(cores, 1.0, 0.12)) for cores in (1, 8, 8, 8)] == [1, 1, 1, 1]


def test_ranks_share_the_limit_and_each_has_one_thread_at_least() -> None:
    assert ThreadNumber(16, ranks=4).next(Reading(8.0)) == 2
    assert ThreadNumber(16, ranks=16).next(Reading(8.0)) == 1


class Neighbours:
    """Trainings with as many threads as wanted on so many cores, shared evenly among them."""

    def __init__(self, cores: float, jobs: int, shown: dict[int, tuple[float, float]] | None = None) -> None:
        self.cores = cores
        self.shown = shown or {}
        self.numbers = [ThreadNumber(int(cores)) for _ in range(jobs)]
        self.threads = [number.next(Reading(cores)) for number in self.numbers]

    def interval(self) -> list[int]:
        runnable = sum(self.threads)
        got = min(1.0, self.cores / runnable)
        readings = [
            Reading(self.cores, threads * got, 1 - got, self.shown.get(threads, (None,))[0]) for threads in self.threads
        ]
        self.threads = [number.next(reading) for number, reading in zip(self.numbers, readings, strict=True)]
        return list(self.threads)


@pytest.mark.parametrize(("cores", "jobs"), [(2, 2), (4, 2), (8, 3), (2, 4)])
def test_two_neighbours_do_not_swing(cores: int, jobs: int) -> None:
    neighbours = Neighbours(cores, jobs)
    runs = [neighbours.interval() for _ in range(400)]
    late = runs[200:]
    even = max(1, cores // jobs)
    assert all(abs(threads - even) <= 1 for run in late for threads in run)
    changes = sum(one != other for before, after in pairwise(late) for one, other in zip(before, after, strict=True))
    assert changes <= 2 * jobs * len(late) / 33  # a try up and down again once in 33 intervals


def test_an_end_of_a_neighbour_is_noticed() -> None:
    neighbours = Neighbours(2, 2)
    for _ in range(200):
        neighbours.interval()
    neighbours.numbers.pop()
    neighbours.threads.pop()
    for _ in range(34):
        neighbours.interval()
    assert neighbours.threads == [2]


def test_a_resize_up_is_followed_at_once_whatever_was_tried_before() -> None:
    number = ThreadNumber(4)
    for _ in range(20):
        number.next(Reading(2, 1.0, SHORT))
        number.next(Reading(2, 1.0, ENOUGH))
    assert number.next(Reading(2, 1.0, SHORT)) == 1
    assert [number.next(Reading(4, 1.0, ENOUGH)) for _ in range(3)] == [2, 3, 4]


def test_the_second_reading_after_a_resize_up_raises_it_and_the_first_one_after_a_resize_down_lowers_it() -> None:
    """Until the resize it was throttled, which the first reading still shows; 15 s are what a user may have to wait."""
    number = ThreadNumber(16)
    resized = [Reading(0.5, 0.5, SHORT), Reading(2, 0.8, 0.3), Reading(2, 1.0, ENOUGH), Reading(0.5, 1.0, SHORT)]
    assert [number.next(reading) for reading in resized] == [1, 1, 2, 1]
    assert 2 * INTERVAL_SECONDS < 15


WAKES = {1: (400.0, 1.0), 2: (50.0, 0.8)}
"""Steps a second and cores by threads: histogram gradient boosting of 3,000 rows on two free virtual cores, waiting."""

PYTHON = {1: (100.0, 1.0), 4: (100.0, 1.0)}
SCALES = {1: (400.0, 1.0), 2: (760.0, 1.95), 3: (1100.0, 2.9), 4: (1450.0, 3.8)}
UP_TO_TWO = {1: (400.0, 1.0), 2: (700.0, 1.9), 3: (690.0, 2.6), 4: (300.0, 1.5)}


def course(shown: dict[int, tuple[float, float]], begins_with: float, intervals: int) -> list[int]:
    """The numbers of a training alone on four cores, which had so many cores at its start."""
    number = ThreadNumber(max(shown))
    threads = [number.next(Reading(begins_with))]
    for _ in range(intervals):
        steps, cores = shown[threads[-1]]
        threads.append(number.next(Reading(4.0, cores, ENOUGH, steps)))
    return threads


@pytest.mark.parametrize(
    ("shown", "begins_with", "numbers"),
    [
        (WAKES, 4, [2, 1, 1, 2, 1, 1, 1]),  # what it uses is tried, then one more
        (WAKES, 1, [1, 2, 1, 1, 1, 1, 1]),
        (SCALES, 4, [4, 4, 4, 4, 4, 4, 4]),
        (SCALES, 1, [1, 2, 2, 3, 3, 4, 4]),  # what is tried is decided before the next is
        (UP_TO_TWO, 4, [4, 2, 2, 3, 2, 2, 2]),
        (PYTHON, 4, [4, 1, 4, 4, 4, 4, 4]),  # no dearer with four: they may be for something else
    ],
)
def test_threads_that_make_steps_dearer_and_no_faster_go_again(
    shown: dict[int, tuple[float, float]], begins_with: float, numbers: list[int]
) -> None:
    assert course(shown, begins_with, len(numbers) - 1) == numbers


def test_what_did_not_pay_is_tried_again_once_in_33_intervals() -> None:
    late = course(WAKES, 4, 400)[10:]
    assert 0 < late.count(2) <= len(late) / 33 + 1


def test_what_did_not_pay_is_remembered_and_no_more_are_useful() -> None:
    number = ThreadNumber(2)
    useful: list[int] = []
    for threads in (1, 1, 2, 1, 1):
        number.next(Reading(2.0, WAKES[threads][1], ENOUGH, WAKES[threads][0]) if useful else Reading(1.0))
        useful.append(number.useful)
    assert useful == [2, 2, 1, 1, 1]
    assert number.next(Reading(4.0, 1.0, ENOUGH, 400.0)) == 1  # also after a resize: it says nothing about that


def test_what_did_not_pay_is_forgotten_where_the_limit_lets_no_more_be_tried() -> None:
    number = ThreadNumber(2)
    for reading in (Reading(1.0), Reading(2.0, 1.0, ENOUGH, 400.0), Reading(2.0, 0.8, ENOUGH, 50.0)):
        number.next(reading)
    useful = []
    for _ in range(33):
        number.next(Reading(1.0, 1.0, ENOUGH, 400.0))
        useful.append(number.useful)
    assert useful == [1] * 31 + [2] * 2


def test_nothing_is_decided_while_it_waits_for_cpu() -> None:
    number = ThreadNumber(2)
    readings = [Reading(1.0), Reading(2.0, 1.0, ENOUGH, 400.0), Reading(2.0, 0.8, 0.12, 50.0)]
    assert [number.next(reading) for reading in readings] == [1, 2, 2]
    assert number.useful == 2


def test_a_number_is_tried_until_enough_steps_have_ended_or_half_a_minute_has_passed() -> None:
    slow = Reading(2.0, 0.8, ENOUGH)
    for told, left in ((slow._replace(steps_per_second=0.06), 1), (slow._replace(steps_per_second=0.9), 2), (slow, 2)):
        number = ThreadNumber(2)
        assert [number.next(reading) for reading in (Reading(1.0), Reading(2.0, 1.0, ENOUGH, 0.5))] == [1, 2]
        for _ in range(29):
            assert number.next(slow) == 2
            assert number.tries
        assert number.next(told) == left
        assert not number.tries


@pytest.mark.parametrize(("steps_per_second", "tried"), [(None, 4), (0.08, 4), (0.2, 1)])
def test_fewer_threads_are_tried_only_where_enough_steps_end_in_half_a_minute(
    steps_per_second: float | None, tried: int
) -> None:
    number = ThreadNumber(4)
    number.next(Reading(4.0))
    assert number.next(Reading(4.0, 1.0, ENOUGH, steps_per_second)) == tried
    assert number.tries == (tried == 1)


def test_two_neighbours_whose_second_thread_does_not_pay_do_not_swing() -> None:
    neighbours = Neighbours(2, 2, WAKES)
    late = [neighbours.interval() for _ in range(400)][200:]
    assert sum(run.count(2) for run in late) <= 2 * len(late) / 33


FOLLOWS = {"SLOPEWISE_THREADS": "follow"}


@pytest.mark.usefixtures("many_cores")
class TestAtStart:
    @pytest.fixture(autouse=True)
    def quota(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(starting, "limit_cores", lambda: 3.5)

    def test_waiting_does_not_spin_and_the_number_is_that_of_the_cpu(self) -> None:
        added = at_start(FOLLOWS, Checker())
        assert (added["OMP_WAIT_POLICY"], added["GOMP_SPINCOUNT"], added["KMP_BLOCKTIME"]) == ("passive", "0", "0")
        assert {added[name] for name in NUMBERS} == {"4"}

    @pytest.mark.parametrize("environ", [{}, {"SLOPEWISE_THREADS": "wait"}])
    def test_where_nothing_else_is_said_only_waiting_changes(self, environ: dict[str, str]) -> None:
        assert at_start(environ, Checker()) == waiting({})

    def test_what_the_user_has_set_stays(self) -> None:
        added = at_start({**FOLLOWS, "OMP_WAIT_POLICY": "active", "TF_NUM_INTEROP_THREADS": "7"}, Checker())
        assert "OMP_WAIT_POLICY" not in added
        assert "TF_NUM_INTEROP_THREADS" not in added
        assert added["OMP_NUM_THREADS"] == "4"
        general = at_start({**FOLLOWS, "OMP_NUM_THREADS": "7"}, Checker())  # which all libraries read
        assert not set(NUMBERS) & set(general)
        assert general["GOMP_SPINCOUNT"] == "0"

    def test_a_process_that_inherits_our_variables_does_not_take_them_for_the_users(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        inherited = at_start(FOLLOWS, Checker()) | {**FOLLOWS, "MKL_NUM_THREADS": "7"}
        assert is_by_hand(inherited, "MKL_NUM_THREADS")
        assert not any(is_by_hand(inherited, name) for name in NUMBERS)
        rank = {**inherited, "LOCAL_WORLD_SIZE": "2"}
        assert at_start(rank, Checker())["OMP_NUM_THREADS"] == "2"
        monkeypatch.setattr(starting, "limit_cores", lambda: 16.0)
        assert at_start(inherited, Checker())["OMP_NUM_THREADS"] == "16"

    def test_a_variable_that_has_another_value_since_is_the_trainings_own(self) -> None:
        own = {**FOLLOWS, **at_start(FOLLOWS, Checker()), GENERAL: "2"}
        assert is_by_hand(own, GENERAL)
        added = at_start(own, Checker())  # of a process that it starts
        assert GENERAL not in added
        assert is_by_hand({**own, **added}, GENERAL)

    def test_without_a_limit_libraries_count_the_cores_themselves(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(starting, "limit_cores", lambda: 16.0)
        assert not set(NUMBERS) & set(at_start(FOLLOWS, Checker()))

    def test_a_number_is_taken_as_it_is(self) -> None:
        added = at_start({"SLOPEWISE_THREADS": "6", "LOCAL_WORLD_SIZE": "2"}, Checker())
        assert {added[name] for name in NUMBERS} == {"6"}

    @pytest.mark.parametrize("environ", [{"SLOPEWISE_THREADS": "off"}, {"SLOPEWISE_EXPORTER_DISABLED": "1"}])
    def test_off_adds_nothing(self, environ: dict[str, str]) -> None:
        assert at_start(environ, Checker()) == {}
        assert waiting(environ) == {}

    @pytest.mark.parametrize("text", ["0", "-1", "1.5", "many", "٣x"])
    def test_other_text_is_one_sentence_in_the_log_and_changes_nothing(
        self, caplog: pytest.LogCaptureFixture, text: str
    ) -> None:
        caplog.set_level(logging.WARNING)
        environ = {"SLOPEWISE_THREADS": text}
        added = at_start(environ, Checker())
        assert added == {OURS_VARIABLE: ""}
        assert at_start({**environ, **added}, Checker()) == {}  # of the processes that it starts
        assert waiting(environ) == {}
        (told,) = {record.getMessage() for record in caplog.records}
        assert told.startswith(f"SLOPEWISE_THREADS: {text!r} is not `wait`, `follow`, `off` or a number of 1 or more")

    def test_a_machine_that_cannot_be_read_does_not_stop_a_training(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail() -> float:
            raise PermissionError("/sys/fs/cgroup")

        monkeypatch.setattr(starting, "limit_cores", fail)
        assert at_start(FOLLOWS, Checker()) == {}
