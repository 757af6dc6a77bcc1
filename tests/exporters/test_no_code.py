"""`slopewise-exporter run -- COMMAND` and SLOPEWISE_EXPORTER=1 report trainings that have no line of Slopewise."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from textwrap import dedent
from urllib.error import URLError

import prometheus_client
import psutil
import pytest
from support.training_fixtures import Samples, Scrape, StartProcess
from support.waiting import eventually

import slopewise_exporter
from slopewise.adapters.local.prometheus_server import free_loopback_port

pytestmark = pytest.mark.processes

RUN = (sys.executable, "-m", "slopewise_exporter", "run")
LOSS = 'training_loss{stage="train"}'

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def port_file(tmp_path: Path) -> Path:
    return tmp_path / "port"


@pytest.fixture
def start(start_process: StartProcess, port_file: Path) -> Start:
    """Starts a command that does not linger."""
    defaults = {"SLOPEWISE_EXPORTER_LINGER_SECONDS": "0", "SLOPEWISE_EXPORTER_PORT_FILE": str(port_file)}

    def begin(command: Sequence[str], *, environment: dict[str, str] | None = None, **more: object) -> Popen:
        return start_process(command, {**defaults, **(environment or {})}, **more)

    return begin


Popen = subprocess.Popen[bytes]


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        path = tmp_path / f"train_{len(list(tmp_path.glob('train_*')))}.py"
        path.write_text(dedent(text))
        return str(path)

    return write


@pytest.fixture
def series(port_file: Path, scrape: Scrape) -> Callable[[], Samples]:
    """One scrape of whoever reports now; empty where no process does."""

    def read() -> Samples:
        try:
            return scrape(int(port_file.read_text()))
        except (OSError, URLError):
            return {}

    return read


Series = Callable[[], Samples]
Script = Callable[[str], str]

PRINTS_AND_WAITS = """
    import sys
    for step in (1, 2, 3):
        print(f"step {step}/60 loss=0.{step}")
    sys.stdin.read()
"""


def reports(series: Series, name: str, value: float) -> None:
    assert eventually(lambda: series().get(name) == value), series()


def ended(process: Popen) -> tuple[int, bytes, bytes]:
    output, errors = process.communicate(timeout=180)
    return process.returncode, output, errors


def test_what_a_python_prints_is_reported_before_its_buffer_is_full_and_by_itself(
    start: Start, script: Script, series: Series
) -> None:
    process = start([*RUN, "--", sys.executable, script(PRINTS_AND_WAITS)])
    reports(series, LOSS, 0.3)
    seen = series()
    assert (seen["training_steps_total"], seen["training_steps_planned"]) == (3, 60)
    # No parent stands between: the process that was started is the training itself.
    assert seen["process_start_time_seconds"] == pytest.approx(psutil.Process(process.pid).create_time(), abs=0.02)
    assert psutil.Process(process.pid).cmdline()[0] == sys.executable
    assert psutil.Process(process.pid).children() == []
    assert ended(process) == (0, b"".join(b"step %d/60 loss=0.%d\n" % (n, n) for n in (1, 2, 3)), b"")


def test_a_program_that_is_no_python_is_followed_and_its_process_metrics_are_its_own(
    start: Start, series: Series
) -> None:
    process = start([*RUN, "--", "sh", "-c", "echo step 7/8 loss: 0.25; read line; exit 5"])
    reports(series, LOSS, 0.25)
    (child,) = psutil.Process(process.pid).children()
    seen = series()
    assert seen["process_start_time_seconds"] == pytest.approx(child.create_time(), abs=0.02)
    assert seen["process_resident_memory_bytes"] == pytest.approx(child.memory_info().rss, rel=0.5)
    assert ended(process) == (5, b"step 7/8 loss: 0.25\n", b"")


def test_an_option_of_the_command_is_the_plan_where_the_output_has_none(
    start: Start, script: Script, series: Series
) -> None:
    training = script("""
        import sys
        for epoch in (1, 2, 3):
            print(f"epoch {epoch} log-loss: 0.{epoch}", flush=True)
        sys.stdin.read()
    """)
    start([*RUN, "--", sys.executable, training, "--lr=0.1", "--epochs", "60"])
    reports(series, LOSS, 0.3)
    assert series()["training_steps_planned"] == 60


def test_the_end_of_a_followed_command_is_scraped_as_what_it_was(start: Start, series: Series, port_file: Path) -> None:
    process = start([*RUN, "--", "sh", "-c", "echo loss=1; read line; exit 3"], environment={LINGER: "60"})
    reports(series, LOSS, 1)
    began = series()["process_start_time_seconds"]
    assert process.stdin is not None
    process.stdin.close()
    process.stdin = None
    # The first of these scrapes that comes after the end is the last one that is waited for.
    found: list[Samples] = []

    def is_over() -> bool:
        found.append(series())
        return process.poll() is not None

    assert eventually(is_over)
    last = [each for each in found if each.get('training_state{state="failed"}') == 1]
    assert last
    assert last[0]["process_start_time_seconds"] == began  # no restart, although the process has gone
    assert process.returncode == 3


LINGER = "SLOPEWISE_EXPORTER_LINGER_SECONDS"


EXITS = "sys.exit(42)"
IS_TERMINATED = "signal.signal(signal.SIGTERM, signal.SIG_DFL); os.kill(os.getpid(), signal.SIGTERM)"


@pytest.mark.parametrize(
    ("wrap", "last", "code"),
    [
        ((), EXITS, 42),
        ((), IS_TERMINATED, -signal.SIGTERM),
        (("--wrap",), IS_TERMINATED, -signal.SIGTERM),
    ],
)
def test_it_ends_as_the_training_ends(
    start: Start, script: Script, wrap: tuple[str, ...], last: str, code: int
) -> None:
    path = script(f"import os, signal, sys\nprint('loss=1', flush=True)\n{last}\n")
    status, output, _ = ended(start([*RUN, *wrap, "--", sys.executable, path]))
    assert (status, output) == (code, b"loss=1\n")


HANDLES = """
    import signal, sys, time
    received = []
    def note(number, frame):
        received.append(signal.Signals(number).name)
        with open({log!r}, "a") as log:
            log.write(received[-1] + "\\n")
        if len(received) == {count}:
            print(*received)
            sys.exit(7)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, note)
    print("loss=1", flush=True)
    while True:
        time.sleep(0.01)
"""


def has_lines(file: Path, count: int) -> bool:
    return len(file.read_text().splitlines()) == count


@pytest.mark.parametrize("wrap", [(), ("--wrap",)], ids=["itself", "wrapped"])
def test_each_signal_reaches_the_training_once(
    start: Start, script: Script, series: Series, wrap: tuple[str, ...], tmp_path: Path
) -> None:
    log = tmp_path / "received"
    log.touch()
    sent = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGTERM]
    # Under nohup SIGHUP is ignored from the start, and the training keeps that.
    sent = [number for number in sent if signal.getsignal(number) is not signal.SIG_IGN]
    process = start([*RUN, *wrap, "--", sys.executable, script(HANDLES.format(count=len(sent), log=str(log)))])
    reports(series, LOSS, 1)
    for count, number in enumerate(sent, start=1):
        process.send_signal(number)
        # Two of one number that are pending together are one signal.
        assert eventually(partial(has_lines, log, count))
    status, output, _ = ended(process)
    assert status == 7
    assert output.split(b"\n")[1].decode().split() == [number.name for number in sent]


def test_a_followed_command_that_is_killed_is_a_failure_and_the_parent_ends_likewise(
    start: Start, series: Series
) -> None:
    process = start([*RUN, "--", "sh", "-c", "echo loss=1; read line"])
    reports(series, LOSS, 1)
    (child,) = psutil.Process(process.pid).children()
    child.kill()
    assert ended(process)[0] == -signal.SIGKILL


def test_a_signal_ends_the_wait_for_the_last_scrape(start: Start, series: Series) -> None:
    process = start([*RUN, "--", "sh", "-c", "echo loss=1; read line; exit 3"], environment={LINGER: "600"})
    reports(series, LOSS, 1)
    assert process.stdin is not None
    process.stdin.close()
    process.stdin = None
    assert eventually(lambda: not psutil.Process(process.pid).children() or _is_zombie(process))
    process.terminate()
    assert process.wait(timeout=180) == 3


def _is_zombie(process: Popen) -> bool:
    return [each.status() for each in psutil.Process(process.pid).children()] == [psutil.STATUS_ZOMBIE]


TERMINAL = (
    'exec 3>"$0"; test -t 0; a=$?; test -t 1; b=$?; test -t 2; c=$?; echo $a $b $c >&3; stty size <&1 >&3; echo hello'
)


def test_a_terminal_stays_a_terminal_of_the_same_size_and_a_pipe_stays_a_pipe(start: Start, tmp_path: Path) -> None:
    master, slave = pty.openpty()
    set_size(slave, rows=33, columns=77)
    process = start([*RUN, "--", "sh", "-c", TERMINAL, str(tmp_path / "seen")], stdin=slave, stdout=slave)
    status = process.wait(timeout=180)
    os.close(slave)
    shown = os.read(master, 100)
    os.close(master)
    assert status == 0
    assert (tmp_path / "seen").read_text() == "0 0 1\n33 77\n"
    assert shown == b"hello\r\n"


def set_size(terminal: int, *, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))


@pytest.mark.parametrize("wrap", [(), ("--wrap",)], ids=["itself", "wrapped"])
def test_hostile_output_passes_unchanged_and_what_comes_after_it_is_found(
    start: Start, script: Script, series: Series, wrap: tuple[str, ...]
) -> None:
    path = script("""
        import os, sys
        binary = bytes(range(256)) * 4000
        sys.stdout.buffer.write(binary)
        print("x" * 1_000_000)
        print("loss=" * 200_000)
        print("\\udcff\\x00" if sys.stdout.errors == "surrogateescape" else "\\x00")
        print("loss=0.125", flush=True)
        sys.stdin.read()
    """)
    process = start([*RUN, *wrap, "--", sys.executable, path])
    pieces: list[bytes] = []
    assert process.stdout is not None
    reader = threading.Thread(target=lambda: pieces.append(process.stdout.read()))  # type: ignore[union-attr]
    reader.start()
    reports(series, LOSS, 0.125)
    assert process.stdin is not None
    process.stdin.close()
    process.stdin = None
    reader.join(180)
    output = b"".join(pieces)
    start_of_text = bytes(range(256)) * 4000 + b"x" * 1_000_000 + b"\n"
    assert output.startswith(start_of_text)
    assert output.endswith(b"loss=0.125\n")
    assert process.wait(timeout=180) == 0


def test_a_parent_that_ignores_the_end_of_its_children_does_not_wait_for_it_forever(
    start: Start, script: Script
) -> None:
    starter = script(f"""
        import os, signal
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # which what is executed keeps
        os.execv({sys.executable!r}, [{sys.executable!r}, *{RUN[1:]!r}, "--", "sh", "-c", "echo loss=1; exit 3"])
    """)
    assert ended(start([sys.executable, starter]))[:2] == (3, b"loss=1\n")


def test_what_the_command_has_left_running_and_still_writes_does_not_keep_its_end_back(
    start: Start, script: Script
) -> None:
    left = script("""
        import time
        while True:
            print("still", flush=True)
            time.sleep(0.01)
    """)
    process = start([*RUN, "--", "sh", "-c", f"{sys.executable} {left} & read line; exit 3"])
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == b"still\n"
    process.stdin.close()
    process.stdin = None
    assert process.wait(timeout=60) == 3


def test_what_the_command_has_left_running_and_writes_without_pause_does_not_either(start: Start) -> None:
    process = start([*RUN, "--", "sh", "-c", "yes & exit 3"], stdout=subprocess.DEVNULL)
    assert process.wait(timeout=60) == 3


def test_two_streams_into_one_file_keep_their_order(start: Start) -> None:
    command = "for i in 1 2 3 4 5 6 7 8 9; do echo out $i; echo err $i >&2; done"
    process = start([*RUN, "--", "sh", "-c", command], stderr=subprocess.STDOUT)
    expected = "".join(f"out {i}\nerr {i}\n" for i in range(1, 10))
    assert ended(process)[:2] == (0, expected.encode())


def test_a_reader_that_has_enough_ends_the_command_as_without_a_parent(start: Start) -> None:
    process = start([*RUN, "--", "yes"])
    assert process.stdout is not None
    assert process.stdout.read(2) == b"y\n"
    process.stdout.close()
    process.stdout = None
    assert process.wait(timeout=180) == -signal.SIGPIPE


def test_nothing_is_written_to_any_folder(start: Start, script: Script, series: Series, tmp_path: Path) -> None:
    nowhere = dict.fromkeys(("HOME", "TMPDIR", "XDG_STATE_HOME", "XDG_CACHE_HOME"), "/proc/nowhere")
    command = [*RUN, "--wrap", "--", sys.executable, script(PRINTS_AND_WAITS)]
    before = set(tmp_path.rglob("*"))
    process = start(command, environment={**nowhere, "PYTHONDONTWRITEBYTECODE": "1"}, cwd="/proc")
    reports(series, LOSS, 0.3)
    assert {path.name for path in set(tmp_path.rglob("*")) - before} == {"port"}
    assert ended(process)[2] == b""


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        (["no-such-program"], 127, "no-such-program: there is no such command"),
        (["/"], 126, "/: Permission denied"),
        ([], 2, "no command"),
    ],
)
def test_a_command_that_cannot_be_started_is_one_sentence(
    start: Start, command: list[str], code: int, message: str
) -> None:
    status, _, errors = ended(start([*RUN, "--", *command]))
    (line,) = errors.decode().splitlines()
    assert status == code
    assert message in line


def test_copying_that_begins_only_after_the_command_was_refused_says_nothing(start: Start, script: Script) -> None:
    starter = script("""
        import threading
        from slopewise_exporter.instrument import channels, launch, wrapper
        refused = threading.Event()
        copy, spawn = channels.Copying._run, wrapper._start
        def copy_late(copying):
            refused.wait()
            copy(copying)
        def spawn_and_tell(*arguments):
            try:
                return spawn(*arguments)
            finally:
                refused.set()
        channels.Copying._run, wrapper._start = copy_late, spawn_and_tell
        try:
            launch.start(["/"], (), wrap=True)
        except PermissionError:
            for copying in [each for each in threading.enumerate() if each.name == "slopewise-output"]:
                copying.join()
            print("refused")
    """)
    assert ended(start([sys.executable, starter])) == (0, b"refused\n", b"")


def test_a_pattern_that_is_none_is_refused_before_anything_starts(start: Start, tmp_path: Path) -> None:
    status, _, errors = ended(start([*RUN, "--pattern", "(", "--", "touch", str(tmp_path / "started")]))
    assert (status, len(errors.decode().splitlines())) == (2, 1)
    assert not (tmp_path / "started").exists()


def test_a_pattern_of_the_environment_is_that_of_a_program_that_is_no_python(start: Start, series: Series) -> None:
    environment = {"SLOPEWISE_EXPORTER_PATTERN": "cost is (.*)"}
    process = start([*RUN, "--", "sh", "-c", "echo cost is 0.5; read line; exit 0"], environment=environment)
    reports(series, LOSS, 0.5)
    assert ended(process)[::2] == (0, b"")


def test_a_pattern_of_the_environment_that_is_none_is_logged_and_the_command_started(start: Start) -> None:
    process = start([*RUN, "--", "sh", "-c", "exit 4"], environment={"SLOPEWISE_EXPORTER_PATTERN": "("})
    status, _, errors = ended(process)
    assert (status, len(errors.decode().splitlines())) == (4, 1)


@pytest.mark.parametrize(
    "fault", ["launch.instrumented = broken", "wrapper.os.posix_spawnp = broken", "wrapper._OutputReport = broken"]
)
def test_whatever_fails_here_the_training_is_started_as_it_is(start: Start, script: Script, fault: str) -> None:
    starter = script(f"""
        from slopewise_exporter.instrument import launch, wrapper
        def broken(*_, **__):
            raise MemoryError("of ours")
        {fault}
        launch.start(["sh", "-c", "echo loss=1; kill -USR1 $$"], (), wrap=True)
    """)
    status, output, _ = ended(start([sys.executable, starter]))
    assert (status, output) == (-signal.SIGUSR1, b"loss=1\n")


@pytest.mark.parametrize(
    "fault",
    ["wrapper._attend = broken", "wrapper._OutputReport.end = broken", "channels.LineSplitter.feed = broken"],
)
def test_what_fails_while_it_runs_neither_stops_it_nor_starts_it_twice(
    start: Start, script: Script, fault: str, tmp_path: Path
) -> None:
    starter = script(f"""
        from slopewise_exporter.instrument import channels, launch, wrapper
        def broken(*_, **__):
            raise MemoryError("of ours")
        {fault}
        command = "echo started >> starts; echo loss=1; head -c 300000 /dev/zero; sleep 0.3; exit 9"
        launch.start(["sh", "-c", command], (), wrap=True)
    """)
    status, output, errors = ended(start([sys.executable, starter], cwd=str(tmp_path)))
    assert (status, output) == (9, b"loss=1\n" + bytes(300_000))
    assert (tmp_path / "starts").read_text() == "started\n"
    assert "of ours" in errors.decode()


def test_the_hooks_of_a_training_never_fail_it(start: Start, script: Script) -> None:
    path = script("""
        import slopewise_exporter.instrument.follower as follower
        def broken(*_):
            raise MemoryError("of ours")
        follower.LineParser.parse = broken
        print("loss=1")
        print("loss=2")
    """)
    status, output, errors = ended(start([*RUN, "--", sys.executable, path]))
    assert (status, output) == (0, b"loss=1\nloss=2\n")
    (line,) = errors.decode().splitlines()
    assert "the output is not followed any more (MemoryError: of ours)" in line


def test_workers_and_forked_children_do_not_report(start: Start, script: Script, series: Series) -> None:
    path = script("""
        import multiprocessing, os, sys

        def work():
            print("step 99/100 loss=9", flush=True)

        if __name__ == "__main__":
            worker = multiprocessing.get_context("spawn").Process(target=work)
            worker.start()
            worker.join()
            if os.fork() == 0:
                work()
                os._exit(0)
            os.wait()
            print("step 1/10 loss=0.5")
            sys.stdin.read()
    """)
    process = start([*RUN, "--", sys.executable, path])
    reports(series, LOSS, 0.5)
    assert series()["training_steps_planned"] == 10
    status, output, errors = ended(process)
    assert (status, errors) == (0, b"")
    assert output.count(b"loss=9") == 2


def test_a_reporter_within_a_followed_command_gets_the_port_of_the_parent(
    start: Start, script: Script, series: Series
) -> None:
    path = script("""
        import sys
        from slopewise_exporter import Reporter
        sys.stdin.readline()
        with Reporter() as reporter:
            reporter.step(loss=0.5)
            sys.stdin.read()
    """)
    environment = {"SLOPEWISE_EXPORTER_PORT": str(free_loopback_port())}
    command = f"echo loss=9; {sys.executable} {path}; exit $?"
    process = start([*RUN, "--", "sh", "-c", command], environment=environment)
    reports(series, LOSS, 9)
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()
    reports(series, LOSS, 0.5)
    assert ended(process)[::2] == (0, b"")


def test_another_sitecustomize_is_loaded_as_ever_and_ours_leaves_no_folder_on_the_path(
    start: Start, script: Script, tmp_path: Path
) -> None:
    other = tmp_path / "machine"
    other.mkdir()
    (other / "sitecustomize.py").write_text("LOADED = True\n")
    path = script("import sitecustomize, sys\nprint(sitecustomize.LOADED, [p for p in sys.path if 'bootstrap' in p])")
    process = start([*RUN, "--", sys.executable, path], environment={"PYTHONPATH": str(other)})
    assert ended(process) == (0, b"True []\n", b"")


def test_a_loop_over_partial_fits_has_no_plan_that_it_has_always_reached(
    start: Start, script: Script, series: Series
) -> None:
    path = script("""
        import sys, warnings
        from sklearn.neural_network import MLPRegressor
        model = MLPRegressor(hidden_layer_sizes=(2,), random_state=0)
        for _ in range(3):
            model.partial_fit([[0.0], [1.0]], [0.0, 1.0])
        sys.stdin.read()
    """)
    start([*RUN, "--", sys.executable, path])
    reports(series, "training_steps_total", 3)
    assert "training_steps_planned" not in series()


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a virtual environment that has no package at all."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder / "bin" / "python"


def test_a_python_without_this_package_is_lent_it_and_nothing_else(
    start: Start, script: Script, series: Series, bare_python: Path
) -> None:
    path = script("""
        import importlib.util, sys
        print("loss=0.5", [name for name in ("yaml", "pytest", "numpy") if importlib.util.find_spec(name)])
        sys.stdin.read()
    """)
    process = start([*RUN, "--", str(bare_python), path])
    reports(series, LOSS, 0.5)
    assert psutil.Process(process.pid).children() == []
    assert ended(process) == (0, b"loss=0.5 []\n", b"")


def test_what_a_python_without_this_package_prints_is_reported_before_its_buffer_is_full(
    start: Start, script: Script, series: Series
) -> None:
    process = start([*RUN, "--", sys.executable, "-S", script(PRINTS_AND_WAITS)])
    reports(series, LOSS, 0.3)
    assert ended(process)[:2] == (0, b"".join(b"step %d/60 loss=0.%d\n" % (n, n) for n in (1, 2, 3)))


def test_ranks_but_the_first_and_trainings_that_are_switched_off_are_started_as_they_are(
    start: Start, script: Script
) -> None:
    path = script("import os; print('loss=1', os.environ.get('SLOPEWISE_EXPORTER'))")
    for environment in ({"RANK": "1"}, {"SLOPEWISE_EXPORTER_DISABLED": "1"}):
        process = start([*RUN, "--", sys.executable, path], environment=environment)
        assert ended(process)[:2] == (0, b"loss=1 None\n")


@pytest.fixture(scope="module")
def installed_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a virtual environment as a wheel leaves it: the package, its dependency, its .pth file."""
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for package in (slopewise_exporter, prometheus_client):
        assert package.__file__
        source = Path(package.__file__).parent
        (site / source.name).symlink_to(source)
    assert slopewise_exporter.__file__
    pth = Path(slopewise_exporter.__file__).parents[1] / "slopewise_exporter.pth"
    (site / pth.name).write_text(pth.read_text())
    return folder / "bin" / "python"


def test_a_variable_of_the_pod_template_reports_a_command_that_is_not_changed(
    start: Start, script: Script, series: Series, installed_python: Path
) -> None:
    process = start([str(installed_python), script(PRINTS_AND_WAITS)], environment={"SLOPEWISE_EXPORTER": "1"})
    reports(series, LOSS, 0.3)
    assert ended(process)[::2] == (0, b"")


@pytest.mark.parametrize("variable", [None, "0"])
def test_without_the_variable_no_module_of_ours_is_loaded(
    start: Start, installed_python: Path, variable: str | None
) -> None:
    environment = {} if variable is None else {"SLOPEWISE_EXPORTER": variable}
    code = "import sys; print([name for name in sys.modules if 'prometheus' in name or 'instrument.training' in name])"
    assert ended(start([str(installed_python), "-c", code], environment=environment)) == (0, b"[]\n", b"")


def test_a_variable_that_is_neither_yes_nor_no_is_one_line(start: Start, installed_python: Path) -> None:
    environment = {"SLOPEWISE_EXPORTER": "perhaps"}
    status, output, errors = ended(start([str(installed_python), "-c", "print(1)"], environment=environment))
    assert (status, output) == (0, b"1\n")
    (line,) = errors.decode().splitlines()
    assert "'perhaps' is not 1 or 0" in line
