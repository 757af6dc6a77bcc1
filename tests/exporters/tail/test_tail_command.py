"""`slopewise-exporter tail` as a process: what Prometheus sees of it, restarts, kills and ends."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest
from support.following import append
from support.training_fixtures import InBackground, Samples, Scrape, StartProcess
from support.waiting import eventually, wait_for

from slopewise_exporter.commands.tail import main

Start = Callable[..., "subprocess.Popen[bytes]"]
Until = Callable[[Callable[[Samples], bool]], Samples]

FINISHED = 'training_state{state="finished"}'
FAILED = 'training_state{state="failed"}'
TRAINING = 'training_state{state="training"}'
STEPS = "training_steps_total"
LOSS = 'training_loss{stage="train"}'


@pytest.fixture
def port_file(tmp_path: Path) -> Path:
    return tmp_path / "port"


@pytest.fixture
def start(start_process: StartProcess, port_file: Path) -> Start:
    """Starts the command."""

    def run(
        *arguments: object, stdin: int | IO[bytes] | None = subprocess.DEVNULL, **environment: str
    ) -> subprocess.Popen[bytes]:
        port_file.unlink(missing_ok=True)
        command = [sys.executable, "-m", "slopewise_exporter", "tail", "--port", "0", "--linger-seconds", "0"]
        # The option names the port: the variable would win over it.
        variables = {"SLOPEWISE_EXPORTER_PORT": "", "SLOPEWISE_EXPORTER_PORT_FILE": str(port_file), **environment}
        return start_process([*command, *map(str, arguments)], variables, stdin=stdin)

    return run


@pytest.fixture
def until(port_file: Path, scrape: Scrape) -> Until:
    """Scrapes until something is seen."""

    def look() -> Samples:
        return scrape(int(port_file.read_text())) if port_file.exists() else {}

    return lambda seen: wait_for("samples", look, lambda samples: samples and seen(samples))


def lines(start: int, stop: int, total: int = 100) -> bytes:
    return b"".join(b"step %d/%d loss=%.3f\n" % (step, total, 1 / step) for step in range(start, stop))


def end(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=180)
    return process.returncode, errors.decode()


def test_a_log_that_grows_and_begins_again(start: Start, until: Until, tmp_path: Path) -> None:
    log, started_at = tmp_path / "train.log", time.time()
    process = start(log, "--model", "mlp", "--framework", "numpy")
    seen = until(lambda samples: 'training_state{state="starting"}' in samples)
    assert [name for name in seen if name.startswith("process_")] == ["process_start_time_seconds"], "of the training"
    assert seen["process_start_time_seconds"] == pytest.approx(started_at, abs=60)
    append(log, lines(1, 11))
    seen = until(lambda samples: samples[STEPS] == 10)
    assert seen["training_steps_planned"] == 100
    assert seen[LOSS] == 0.1
    assert seen[TRAINING] == 1
    assert seen['training_info{framework="numpy",model="mlp",objective="min"}'] == 1
    time.sleep(2)
    assert until(lambda samples: True)[TRAINING] == 1, "a quiet log is no end"
    append(log, lines(11, 21) + b"val_loss=0.5\nstep 21/100 loss=nan\n")
    seen = until(lambda samples: samples[STEPS] == 21)
    assert seen["training_nonfinite_loss_total"] == 1
    assert seen['training_loss{stage="eval"}'] == 0.5
    assert seen["training_step_duration_seconds_count"] >= 10
    append(log, lines(1, 3))
    again = until(lambda samples: samples[STEPS] == 2)
    assert again["process_start_time_seconds"] > seen["process_start_time_seconds"]
    assert end(process)[0] == 0


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_restarted_sidecar_goes_on_where_it_was(
    start: Start, until: Until, tmp_path: Path, how: signal.Signals
) -> None:
    log, state = tmp_path / "train.log", tmp_path / "state"
    append(log, b"loss=0.5\n" * 40 + b"loss=0.")  # no counts in it: only the state knows that there were 40
    first = start(log, "--state", state)
    before = until(lambda samples: samples[STEPS] == 40)
    assert how is signal.SIGTERM or eventually(state.exists)
    first.send_signal(how)
    first.wait(180)
    append(log, b"499\n" + b"loss=0.499\n" * 9)
    start(log, "--state", state)
    after = until(lambda samples: samples[STEPS] == 50)
    assert after["process_start_time_seconds"] == before["process_start_time_seconds"]
    assert after['training_loss{stage="train_ema"}'] == pytest.approx(0.4997, abs=1e-4)


def test_a_state_that_is_none_is_logged_and_the_log_read_again(start: Start, until: Until, tmp_path: Path) -> None:
    log, state = tmp_path / "train.log", tmp_path / "state"
    append(log, lines(1, 11))
    state.write_text('{"version": 1, "source": "' + str(log) + '", "position": {}}')
    process = start(log, "--state", state)
    until(lambda samples: samples[STEPS] == 10)
    assert "is not used" in end(process)[1]
    assert json.loads(state.read_text())["tracker"]["steps"] == 10


def test_a_state_that_cannot_be_written_does_not_end_it(start: Start, until: Until, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    process = start(log, "--state", tmp_path / "no" / "such" / "folder")
    append(log, lines(1, 11))
    until(lambda samples: samples[STEPS] == 10)
    code, errors = end(process)
    assert code == 0
    assert errors.count("cannot write the state") == 1


@pytest.mark.parametrize(
    ("last", "options", "state"),
    [
        (b"", ("--idle-seconds", 1), FINISHED),
        (b"Traceback (most recent call last):\n  File x\nValueError: no\n", ("--idle-seconds", 1), FAILED),
        (b"", ("--pid", 2**22 - 1), FINISHED),
    ],
    ids=["silence", "silence after a traceback", "process gone"],
)
def test_how_a_training_is_known_to_have_ended(
    start: Start, until: Until, tmp_path: Path, last: bytes, options: tuple[object, ...], state: str
) -> None:
    log = tmp_path / "train.log"
    append(log, lines(1, 11) + last)
    process = start(log, *options)
    assert until(lambda samples: samples.get(state) == 1)[STEPS] == 10
    assert process.poll() is None  # goes on serving that: a sidecar that ends is started again
    if "--pid" in options:
        return
    append(log, lines(11, 13))
    assert until(lambda samples: samples.get(TRAINING) == 1)[STEPS] == 12


def test_until_finished_ends_with_the_training(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    append(log, lines(1, 11) + b"Training completed.\n")
    assert start(log, "--until-finished").wait(180) == 0


def test_standard_input_is_passed_on_and_its_end_is_the_end(start: Start, until: Until) -> None:
    process = start("-", stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(lines(1, 6) + b"loss=\xff half")
    process.stdin.flush()
    until(lambda samples: samples[STEPS] == 5)
    output, _ = process.communicate(b" a line\n", timeout=180)
    assert output == lines(1, 6) + b"loss=\xff half a line\n"
    assert process.returncode == 0


def test_a_training_in_another_rank_is_not_stopped_by_a_full_pipe(start: Start) -> None:
    process = start("-", stdin=subprocess.PIPE, RANK="1")
    output, _ = process.communicate(b"x" * 500_000, timeout=180)
    assert len(output) == 500_000
    assert process.returncode == 0


def test_a_port_in_use_says_what_to_do(start: Start, until: Until, tmp_path: Path, port_file: Path) -> None:
    start(tmp_path / "train.log")
    until(lambda samples: True)
    taken = port_file.read_text().strip()
    process = start(tmp_path / "train.log", "--port", taken)
    assert process.wait(180) == 1
    assert process.stderr is not None
    assert f"another program has port {taken}" in process.stderr.read().decode()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--pattern", "(loss"), "the pattern '(loss'"),
        (("--pattern", "loss"), "needs one group, which is the loss"),
        (("--finished", "("), "the pattern '('"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, str], reason: str
) -> None:
    assert main(["train.log", *arguments]) == 2
    errors = capsys.readouterr().err
    assert reason in errors
    assert len(errors.splitlines()) == 1


def test_patterns_from_the_environment_and_a_line_of_the_user_that_ends_it(
    start: Start, until: Until, tmp_path: Path
) -> None:
    log = tmp_path / "train.log"
    append(log, b"round 7 costs 0.25\n")
    start(
        log,
        "--finished",
        "^ALL DONE$",
        SLOPEWISE_EXPORTER_PATTERN=r"round (?P<step>\d+)" + "\n" + r"costs (?P<loss>\S+)",
    )
    assert until(lambda samples: samples[STEPS] == 7)[LOSS] == 0.25
    append(log, b"ALL DONE\n")
    until(lambda samples: samples.get(FINISHED) == 1)


def test_gigabytes_are_read_in_constant_memory(start: Start, until: Until, tmp_path: Path) -> None:
    """64 MB stand for them: a hundredth of it would be seen in the resident set."""
    log = tmp_path / "train.log"
    chatter = b"2026-01-01 10:00:00 INFO data.loader fetched shard 17 of 99 in 12.3 ms\n" * 15_000
    for part in range(1, 61):
        append(log, chatter + lines(part, part + 1))
    process = start(log)
    until(lambda samples: samples[STEPS] == 60)
    status = Path(f"/proc/{process.pid}/status").read_text()
    peak_kb = int(status.split("VmHWM:")[1].split()[0])
    assert peak_kb < 60_000


@pytest.mark.parametrize("environment", [{"RANK": "1"}, {}], ids=["another rank", "a port in use"])
def test_a_training_that_writes_into_a_named_pipe_is_not_stopped(
    start: Start, in_background: InBackground, tmp_path: Path, environment: dict[str, str]
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with socket.create_server(("0.0.0.0", 0)) as taken:
        process = start(pipe, "--port", taken.getsockname()[1], "--until-finished", **environment)
        writing = in_background(lambda: pipe.write_bytes(b"x" * 500_000))
        assert process.wait(180) == 0
        writing.join(180)
        assert not writing.is_alive()


def test_a_folder_of_what_cannot_be_read_is_one_line(start_process: StartProcess, tmp_path: Path) -> None:
    (tmp_path / "events.out.tfevents.1").write_bytes(b"x")
    without = (
        "import sys; sys.modules['tensorboard'] = None\nfrom slopewise_exporter.__main__ import main\nsys.exit(main())"
    )
    process = start_process([sys.executable, "-c", without, "tail", "--port", "0", str(tmp_path)], {}, text=True)
    _, errors = process.communicate(timeout=180)
    assert process.returncode == 2
    assert "install slopewise-exporter[tensorboard]" in errors.splitlines()[-1]
    assert "Traceback" not in errors


def test_a_reader_of_a_check_that_has_enough_is_no_error(start_process: StartProcess, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    append(log, lines(1, 20_000))
    process = start_process([sys.executable, "-m", "slopewise_exporter", "check-pattern", str(log)], {})
    assert process.stdout is not None
    assert process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    assert process.communicate(timeout=180)[1] == b""
    assert process.returncode == 0


@pytest.mark.parametrize("rank", ["0", "1"])
def test_standard_output_that_another_program_made_non_blocking_loses_nothing(
    start_process: StartProcess, in_background: InBackground, rank: str
) -> None:
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    command = [sys.executable, "-m", "slopewise_exporter", "tail", "--linger-seconds", "0", "-"]
    process = start_process(command, {"RANK": rank}, stdout=writes)
    os.close(writes)
    writing = in_background(lambda: process.stdin and [process.stdin.write(lines(1, 20_000)), process.stdin.close()])
    assert eventually(lambda: int.from_bytes(fcntl.ioctl(reads, termios.FIONREAD, bytes(4)), sys.byteorder) > 50_000)
    time.sleep(0.5)
    with os.fdopen(reads, "rb") as output:
        assert output.read() == lines(1, 20_000)
    writing.join(180)
    process.stdin = None
    assert process.wait(180) == 0
