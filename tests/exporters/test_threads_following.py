"""Between two steps the libraries get the number of threads: asked of OpenBLAS and OpenMP themselves."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from textwrap import dedent
from threading import Semaphore, current_thread
from types import ModuleType, SimpleNamespace

import pytest
from support.training_fixtures import InBackground, MakeReporter
from threadpoolctl import threadpool_info, threadpool_limits

from slopewise_exporter import lifecycle
from slopewise_exporter import reporter as reporter_module
from slopewise_exporter.threads import following as following_module
from slopewise_exporter.threads import libraries
from slopewise_exporter.threads.cpu import Reading
from slopewise_exporter.threads.following import Following
from slopewise_exporter.threads.work import MIN_STEPS, Work

RUN = (sys.executable, "-m", "slopewise_exporter", "run", "--")
TWO_CORES = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")

Limit = Callable[[float], None]


@pytest.fixture(autouse=True)
def numbers_come_back(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(libraries, "_torch_by_hand", False)
    monkeypatch.setenv("SLOPEWISE_THREADS", "follow")
    numbers()  # a library that a test loads itself has not the limit below
    with threadpool_limits(2):
        yield


def numbers() -> set[int]:
    """What the loaded libraries say that they have."""
    import sklearn.utils._openmp_helpers  # noqa: F401, PLC0415 - with numpy's OpenBLAS two kinds are loaded

    return {pool["num_threads"] for pool in threadpool_info()}


@pytest.fixture
def cores() -> list[float]:
    """The CPU of the intervals to come; the last one stays."""
    return [1.0]


@pytest.fixture
def followed(cores: list[float], monkeypatch: pytest.MonkeyPatch) -> Following:
    """Instead of that of this process, without a thread of its own."""
    monkeypatch.setattr(following_module, "affinity_cores", lambda: 2)
    following = Following(lambda: Reading(cores[0], cores[0], 0.0), interval_seconds=0)
    monkeypatch.setattr(reporter_module, "following", following)
    return following


def test_a_step_sets_the_number_that_is_wanted(
    followed: Following, cores: list[float], make_reporter: MakeReporter
) -> None:
    reporter = make_reporter()
    assert numbers() == {2}
    reporter.step(loss=1.0)
    assert numbers() == {1}
    assert (followed.threads, followed.wanted, followed.cores) == (1, 1, 1.0)
    cores[0] = 2.0
    reporter.step(loss=1.0)
    assert numbers() == {1}  # the interval has not ended
    followed.look()
    assert numbers() == {1}
    reporter.step(loss=1.0)
    assert numbers() == {2}


def test_a_number_that_the_training_sets_meanwhile_stays(followed: Following, cores: list[float]) -> None:
    cores[0] = 2.0
    followed.apply()
    with threadpool_limits(1):
        cores[0] = 1.0
        followed.look()
        followed.apply()
        cores[0] = 2.0
        followed.look()
        followed.apply()
        assert numbers() == {1}


def test_what_is_logged_while_the_number_is_set_may_come_back_here(
    followed: Following, cores: list[float], monkeypatch: pytest.MonkeyPatch, make_reporter: MakeReporter
) -> None:
    """A log line goes to the standard error, whose reader takes a line for the end of a step."""
    monkeypatch.setitem(sys.modules, "catboost", ModuleType("catboost"))
    came_back = []

    class Reader(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            came_back.append(record.getMessage())
            followed.apply()

    logger, reader = logging.getLogger("slopewise_exporter"), Reader()
    logger.addHandler(reader)
    try:
        reporter = make_reporter()
        for cores[0] in (2.0, 1.0):
            followed.look()
            reporter.step(loss=1.0)
    finally:
        logger.removeHandler(reader)
    assert came_back == ["threads: catboost cannot change their number after its start"]
    assert numbers() == {1}


def test_only_waiting_changes_where_nothing_is_said(followed: Following, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLOPEWISE_THREADS")
    followed.apply()
    assert (followed.wanted, followed.threads, numbers()) == (0, None, {2})


def test_a_library_never_gets_more_than_it_had(followed: Following, cores: list[float]) -> None:
    cores[0] = 2.0
    with threadpool_limits(1):
        followed.apply()
        assert numbers() == {1}


@pytest.mark.parametrize(("name", "left"), [("OMP_NUM_THREADS", {2}), ("OPENBLAS_NUM_THREADS", {1, 2})])
def test_a_number_from_the_environment_stays(
    followed: Following, monkeypatch: pytest.MonkeyPatch, name: str, left: set[int]
) -> None:
    numbers()
    monkeypatch.setenv(name, "2")
    followed.apply()
    assert numbers() == left
    assert (followed.threads, followed.wanted) == (2, 1)


def test_a_number_is_fixed(followed: Following, cores: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOPEWISE_THREADS", "3")
    followed.apply()
    assert numbers() == {3}
    cores[0] = 2.0
    followed.look()
    assert followed.wanted == followed.applied == 3


@pytest.mark.parametrize("text", ["off", "several"])
def test_off_and_bad_text_change_nothing(followed: Following, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("SLOPEWISE_THREADS", text)
    followed.apply()
    assert numbers() == {2}
    assert (followed.wanted, followed.applied, followed.cores) == (0, 0, None)


def test_a_library_that_is_loaded_later_gets_the_number_too(followed: Following) -> None:
    followed.apply()
    followed.look()
    sys.modules["loaded_later"] = ModuleType("loaded_later")
    try:
        with threadpool_limits(2):  # what a library that counts the cores has
            followed.look()
            assert followed.wanted != followed.applied
    finally:
        del sys.modules["loaded_later"]


def test_what_setting_the_number_has_loaded_itself_is_no_reason_to_set_it_again(
    followed: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loads(_: object) -> list[object]:
        monkeypatch.setitem(sys.modules, "loaded_by_it", ModuleType("loaded_by_it"))
        return []

    monkeypatch.setattr(libraries, "_pools", loads)
    followed.apply()
    assert "loaded_by_it" in sys.modules
    followed.look()
    assert followed.wanted == followed.applied


def test_a_library_that_cannot_change_says_so_once(
    followed: Following, cores: list[float], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    monkeypatch.setitem(sys.modules, "tensorflow", ModuleType("tensorflow"))
    for each in (2.0, 1.0, 2.0, 1.0):
        cores[0] = each
        followed.look()
        followed.apply()
    told = [record.getMessage() for record in caplog.records]
    assert told == ["threads: tensorflow cannot change their number after its start"]


class Torch(ModuleType):
    """What is used of PyTorch."""

    def __init__(self) -> None:
        super().__init__("torch")
        self.number = 2

        def set_num_threads(number: int) -> None:
            self.number = number

        self.set_num_threads = set_num_threads
        self.get_num_threads = lambda: self.number


def test_pytorch_is_asked_by_its_own_function(
    followed: Following, cores: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = Torch()
    monkeypatch.setitem(sys.modules, "torch", torch)
    followed.apply()
    assert torch.number == 1
    cores[0] = 2.0
    followed.look()
    followed.apply()
    assert torch.number == 2
    torch.set_num_threads(2)  # by the training, which gave it the same number
    cores[0] = 1.0
    followed.look()
    followed.apply()
    assert torch.number == 2


def test_a_fork_and_a_failure_leave_all_as_it_is(followed: Following, caplog: pytest.LogCaptureFixture) -> None:
    followed.apply()
    followed.abandon_after_fork()
    assert followed.wanted == followed.applied == 0

    def fail() -> Reading:
        raise PermissionError("/sys/fs/cgroup")

    caplog.set_level(logging.WARNING)
    following = Following(fail, interval_seconds=0)
    following.apply()
    following.look()
    assert following.wanted == following.applied
    assert [record.getMessage() for record in caplog.records] == [
        "threads stay as they are (PermissionError: /sys/fs/cgroup)"
    ]


def test_a_step_that_another_thread_reports_waits_for_the_trainings_own(
    followed: Following, in_background: InBackground
) -> None:
    followed.thread = current_thread()
    in_background(followed.apply).join(60)
    assert numbers() == {2}
    followed.apply()
    assert numbers() == {1}


@pytest.mark.parametrize(
    ("variables", "machine", "useful"),
    [
        ({}, 8, 2),  # what it had at its start, whatever it has of them now
        ({}, 2, None),  # it may use fewer, and more on a larger machine
        ({"OMP_NUM_THREADS": "1"}, 2, 1),
        ({"SLOPEWISE_THREADS": "4"}, 8, 4),
        ({"SLOPEWISE_THREADS": "4"}, 4, None),
        ({"LOCAL_WORLD_SIZE": "2"}, 8, None),  # of one rank
    ],
)
def test_the_useful_threads_are_no_number_that_follows_the_cpu(
    followed: Following,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    machine: int,
    useful: int | None,
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: machine)
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    followed.work = Work(lambda: False)
    followed.apply()
    assert followed.useful is None  # no interval has ended
    followed.look()
    assert followed.useful == useful


def test_others_that_compute_leave_the_useful_threads_unknown() -> None:
    reading, waits = Reading(4.0, 1.2, 0.0), Reading(4.0, 0.9, 0.5)  # 1.8 threads run or wait
    for readings, children in (([reading], True), ([waits], False), ([waits, reading], False)):
        work = Work(partial(bool, children))
        for each in readings:
            work.read(each, 1)
        assert not work.only_libraries
    work = Work(lambda: False)
    work.read(waits, 2)
    work.read(waits, 1)  # it was lowered within the interval
    assert work.only_libraries
    work.read(waits, 1)
    assert not work.only_libraries


def test_a_process_knows_whether_it_has_children() -> None:
    code = "import subprocess, sys; from slopewise_exporter.threads.work import has_children as has; print(has());"
    code += "child = subprocess.Popen(['cat'], stdin=subprocess.PIPE); print(has()); child.communicate(); print(has())"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=180).stdout
    assert told.split() == ["False", "True", "False"]


def test_steps_are_counted_by_the_reporter(make_reporter: MakeReporter) -> None:
    reporter, reading, work = make_reporter(), Reading(1.0), Work()
    assert work.read(reading, 1).steps_per_second is None
    for _ in range(MIN_STEPS):
        reporter.step()
    steps, seconds = reporter.timed_steps
    assert work.read(reading, 1).steps_per_second == pytest.approx(steps / seconds)
    reporter.step()
    assert work.read(reading, 1).steps_per_second is None  # too few
    reporter.close()
    assert work.read(reading, 1).steps_per_second is None  # no training reports


@pytest.mark.parametrize(
    ("changes_at", "timed", "speeds"),
    [
        (9, [(0, 0.0), (3, 6.0), (6, 12.0), (7, 14.0), (30, 15.0)], [None, None, 0.5, None, 8.0]),
        (1, [(0, 0.0), (5, 10.0), (6, 18.0), (8, 30.0)], [None, 0.5, None, 2 / 12]),  # without that of 8 s
        (1, [(0, 0.0), (5, 10.0), (5, 10.0), (6, 30.0), (8, 35.0)], [None, 0.5, None, None, None]),  # not yet
        (1, [(0, 0.0), (5, 10.0), (35, 12.0)], [None, 0.5, 15.0]),  # of so many it may be one
    ],
)
def test_slow_steps_are_counted_on_and_only_those_with_the_same_threads(
    monkeypatch: pytest.MonkeyPatch, changes_at: int, timed: list[tuple[int, float]], speeds: list[float | None]
) -> None:
    reporter, work = SimpleNamespace(timed_steps=(0, 0.0)), Work()
    monkeypatch.setattr(lifecycle, "newest", lambda: reporter)
    seen = []
    for at, reporter.timed_steps in enumerate(timed):
        seen.append(work.read(Reading(1.0), 1).steps_per_second)
        if at == changes_at:
            work.begin_anew()
    assert seen == speeds


def test_its_own_thread_reads(cores: list[float]) -> None:
    looks = Semaphore(0)

    def read() -> Reading:
        looks.release()
        return Reading(cores[0])

    following = Following(read, interval_seconds=0.001)
    following.apply()
    assert all(looks.acquire(timeout=180) for _ in range(3))
    following.abandon_after_fork()


TRAINING = """
    import os, sys
    import numpy as np
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.ensemble._hist_gradient_boosting import grower
    from threadpoolctl import threadpool_info

    trees, built = [], grower.TreeGrower.__init__
    def build(self, *arguments, **named):
        trees.append(named["n_threads"])
        built(self, *arguments, **named)
    grower.TreeGrower.__init__ = build

    rows = np.random.default_rng(0).normal(size=(500, 4))

    def train(step):
        model = HistGradientBoostingRegressor(max_iter=2).fit(rows, (rows @ rows.T).sum(1))
        print(f"step {step} loss={abs(model.predict(rows)).sum():.17g}")

    def asked():
        return sorted({pool["num_threads"] for pool in threadpool_info()} | {trees[-1]})
"""
OPENMP = """
    import glob, importlib.util, os, sys
    from threadpoolctl import threadpool_info

    def load_openmp():
        \"""Of scikit-learn, without the rest of it, which takes more than a second to import.\"""
        (folder,) = importlib.util.find_spec("sklearn").submodule_search_locations
        (helpers,) = glob.glob(f"{folder}/utils/_openmp_helpers*.so")
        return importlib.util.module_from_spec(importlib.util.spec_from_file_location("_openmp_helpers", helpers))
"""
LIGHT_TRAINING = f"""{OPENMP}
    import numpy as np

    helpers = load_openmp()
    rows = np.random.default_rng(0).normal(size=(500, 4))

    def train(step):
        print(f"step {{step}} loss={{np.square(rows @ rows.T).sum() / (step + 1):.17g}}")

    def asked():
        return sorted({{pool["num_threads"] for pool in threadpool_info()}})
"""
WITHOUT_WAITS = """
    from slopewise_exporter.threads import following as _module
    from slopewise_exporter.threads.cpu import CpuReader
    _module.following._interval_seconds = 0
    _read = CpuReader().read
    _module.following._read = lambda: _read()._replace(waited_share=0.0)
"""
"""A machine on which other tests run makes it wait; the quota is read from the real files."""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a script."""
    started: list[subprocess.Popen[str]] = []

    def start(script: str, *before: str, **environment: str) -> subprocess.Popen[str]:
        path = tmp_path / "train.py"
        path.write_text(script)
        surroundings = {"SLOPEWISE_EXPORTER_PORT": "0", "SLOPEWISE_EXPORTER_LINGER_SECONDS": "0"}
        started.append(
            subprocess.Popen(
                [*before, sys.executable, str(path)],
                env={**os.environ, **surroundings, **environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@TWO_CORES
@pytest.mark.processes
@pytest.mark.cgroups
def test_an_unchanged_script_follows_its_quota_up_and_down(
    run: Callable[..., subprocess.Popen[str]], cgroup: Path
) -> None:
    script = f"""{TRAINING}{WITHOUT_WAITS}
    for step in range(5):
        train(step)
        _module.following.look()
        train(step + 100)
        print("THREADS", asked(), os.environ["OMP_NUM_THREADS"], flush=True)
        sys.stdin.readline()
    """
    (cgroup / "cpu.cfs_quota_us").write_text("50000")
    joins = f'echo $$ > {cgroup}/cgroup.procs && exec "$@"'
    training = run(dedent(script), "sh", "-c", joins, "sh", *RUN)
    assert training.stdin is not None
    assert training.stdout is not None
    seen = []
    for quota in (50_000, 200_000, 200_000, 30_000, 30_000):
        line = next(line for line in training.stdout if line.startswith("THREADS"))
        seen.append(line.split(" ", 1)[1].strip())
        (cgroup / "cpu.cfs_quota_us").write_text(str(quota))
        training.stdin.write("\n")
        training.stdin.flush()
    _, errors = training.communicate(timeout=180)
    assert training.returncode == 0, errors
    assert seen == ["[1] 1", "[1] 1", "[2] 2", "[2] 2", "[1] 1"]


@TWO_CORES
@pytest.mark.processes
def test_a_second_thread_that_makes_trees_slower_is_tried_and_goes_again(
    run: Callable[..., subprocess.Popen[str]],
) -> None:
    """Of scikit-learn itself; a tree takes 11 times as long with two threads, by a clock that counts the trees."""
    script = f"""{TRAINING}{WITHOUT_WAITS}
    from types import SimpleNamespace
    from slopewise_exporter.threads import work
    from slopewise_exporter.threads.cpu import Reading

    clock = [0.0]
    work.time = SimpleNamespace(monotonic=lambda: clock[0])

    _module.affinity_cores = lambda: 2
    _module.following._read = lambda: Reading(2.0, 0.8 if trees[-1] == 2 else 1.0, 0.0)
    with_one = grower.TreeGrower.__init__
    def slower(self, *arguments, **named):
        if len(trees) % 25 == 0 and trees:
            _module.following.look()
        with_one(self, *arguments, **named)
        clock[0] += 0.11 if trees[-1] == 2 else 0.01
    grower.TreeGrower.__init__ = slower
    trees.append(2)
    HistGradientBoostingRegressor(max_iter=150).fit(rows, rows.sum(1))
    print(*trees[2::25], "useful", _module.following.useful)
    """
    output, errors = run(dedent(script), *ON_TWO_CORES, *RUN).communicate(timeout=180)
    assert output.splitlines()[-1] == "2 1 1 2 1 1 useful 1", errors


@pytest.mark.processes
def test_off_is_the_script_alone_byte_for_byte(run: Callable[..., subprocess.Popen[str]]) -> None:
    script = dedent(f"""{LIGHT_TRAINING}
    for step in range(3):
        train(step)
    ours = "SLOPEWISE_", "PYTHONPATH"  # how the package is loaded
    print(asked(), *sorted(each for each in os.environ.items() if not each[0].startswith(ours)), sep="\\n")
    """)
    alone = run(script).communicate(timeout=180)
    off = run(script, *RUN, SLOPEWISE_THREADS="off").communicate(timeout=180)
    assert off[0] == alone[0]
    assert off[1] == alone[1]


@pytest.mark.processes
def test_bad_text_is_one_sentence_and_the_training_goes_on(run: Callable[..., subprocess.Popen[str]]) -> None:
    script = "import os; print('loss=1', 'OMP_WAIT_POLICY' in os.environ)"
    output, errors = run(script, *RUN, SLOPEWISE_THREADS="all of them").communicate(timeout=180)
    assert output == "loss=1 False\n"
    assert errors.count("SLOPEWISE_THREADS") == errors.count("nothing is changed") == 1


@pytest.mark.processes
@pytest.mark.cgroups
def test_a_training_goes_on_where_cgroups_cannot_be_read(run: Callable[..., subprocess.Popen[str]]) -> None:
    hides = 'mount -t tmpfs none /sys/fs/cgroup && exec "$@"'
    if subprocess.run(["unshare", "-m", "sh", "-c", hides, "sh", "true"], capture_output=True, check=False).returncode:
        pytest.skip("cannot mount in a namespace of its own")
    script = dedent(f"""{LIGHT_TRAINING}
    for step in range(2):
        train(step)
    print(os.listdir("/sys/fs/cgroup"), os.environ["OMP_WAIT_POLICY"])
    """)
    training = run(script, "unshare", "-m", "sh", "-c", hides, "sh", *RUN)
    output, errors = training.communicate(timeout=180)
    assert (training.returncode, output.splitlines()[-1], errors) == (0, "[] passive", "")


@TWO_CORES
@pytest.mark.processes
@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"])
def test_a_variable_that_the_script_sets_itself_stays_under_run(
    run: Callable[..., subprocess.Popen[str]], name: str
) -> None:
    script = dedent(f"""
    import os
    os.environ["{name}"] = "2"
    {LIGHT_TRAINING}
    train(0)
    train(1)
    print(*sorted((pool["internal_api"], pool["num_threads"]) for pool in threadpool_info()))
    """)
    output, errors = run(script, *RUN, SLOPEWISE_THREADS="3").communicate(timeout=180)
    pools = output.splitlines()[-1]
    openmp = 2 if name == "OMP_NUM_THREADS" else 3
    assert f"('openmp', {openmp})" in pools, errors
    assert "('openblas', 2)" in pools


RANK = """
    import warnings
    from sklearn.neural_network import MLPClassifier
    from threadpoolctl import threadpool_info
    from slopewise_exporter import lifecycle
    from slopewise_exporter.threads import following as module
    from slopewise_exporter.threads.cpu import Reading

    warnings.simplefilter("ignore")
    module.following._interval_seconds = 0
    for cores in (2.0, 4.0):
        module.following._read = lambda: Reading(cores, 0.0, 0.0)
        module.following.look()
        MLPClassifier(max_iter=2).fit([[0.0], [1.0]] * 8, [0, 1] * 8)
        print("THREADS", sorted({pool["num_threads"] for pool in threadpool_info()}), lifecycle.newest())
"""


@TWO_CORES
@pytest.mark.processes
def test_each_local_rank_follows_its_share_and_opens_no_endpoint(run: Callable[..., subprocess.Popen[str]]) -> None:
    launcher = ["sh", "-c", 'RANK=1 LOCAL_WORLD_SIZE=2 exec "$@"', "sh"]
    output, errors = run(dedent(RANK), *RUN, *launcher).communicate(timeout=180)
    assert output == "THREADS [1] None\nTHREADS [2] None\n", errors


ON_TWO_CORES = (
    sys.executable,
    "-c",
    "import os, sys; os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2]); os.execv(sys.argv[1], sys.argv[1:])",
)
INHERITED = {"OMP_NUM_THREADS": "2", "SLOPEWISE_THREADS_SET": "OMP_NUM_THREADS=2"}
"""Of a parent that has set the number of two cores."""

WORKERS = f"""{OPENMP}
    from joblib import Parallel, delayed

    def asked(_):
        import numpy
        helpers = load_openmp()
        return sorted({{(pool["internal_api"], pool["num_threads"]) for pool in threadpool_info()}})

    if __name__ == "__main__":
        print(Parallel(n_jobs=2)(delayed(asked)(each) for each in range(2)))
"""


@TWO_CORES
@pytest.mark.processes
@pytest.mark.parametrize(
    ("environment", "openmp", "openblas"),
    [
        ({**INHERITED, "OPENBLAS_NUM_THREADS": "2"}, 1, 2),
        ({"SLOPEWISE_THREADS": "2"}, 2, 2),
    ],
)
def test_workers_of_joblib_share_the_number(
    run: Callable[..., subprocess.Popen[str]], environment: dict[str, str], openmp: int, openblas: int
) -> None:
    output, errors = run(dedent(WORKERS), *ON_TWO_CORES, *RUN, **environment).communicate(timeout=180)
    assert output == f"{[[('openblas', openblas), ('openmp', openmp)]] * 2}\n", errors


@pytest.mark.processes
def test_a_number_of_ones_own_stays_under_run(run: Callable[..., subprocess.Popen[str]]) -> None:
    script = dedent(f"""{LIGHT_TRAINING}
    train(0)
    train(1)
    print(asked())
    """)
    alone = run(script, OMP_NUM_THREADS="3").communicate(timeout=180)
    assert run(script, *RUN, OMP_NUM_THREADS="3").communicate(timeout=180) == alone
    assert "3" in alone[0].splitlines()[-1]
