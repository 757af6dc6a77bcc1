"""How a training ends: finished or failed, with or without close(), and what the last scrape sees."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from support.pipes import piped
from support.training_fixtures import InBackground, MakeReporter, Scrape, StartTraining

from slopewise_exporter import Reporter, lifecycle

PROMISED_RETURN_SECONDS = 30.0
"""Long enough for a loaded machine, short against a linger of 600 s: a call that lingers has not returned."""


def refuses_connections(port: int | None) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def scrape_the_end(scrape: Scrape, port: int | None, state: str) -> None:
    """Scrape until `state` is seen, and once more: that one may have begun just before the end."""
    while scrape(port)[f'training_state{{state="{state}"}}'] == 0:
        pass
    with suppress(OSError):
        scrape(port)


def read_port(process: subprocess.Popen[str]) -> int:
    line = piped(process.stdout).readline()
    assert line, piped(process.stderr).read()
    return int(line)


def test_close_waits_for_one_scrape_of_the_end_and_then_frees_the_port(
    make_reporter: MakeReporter, scrape: Scrape, in_background: InBackground
) -> None:
    reporter = make_reporter(linger_seconds=600)
    port = reporter.port
    reporter.step(loss=1.0)
    scrape(port)
    closing = in_background(reporter.close)
    scrape_the_end(scrape, port, "finished")
    closing.join(PROMISED_RETURN_SECONDS)
    assert not closing.is_alive()
    assert refuses_connections(port)
    assert reporter.port is None


@pytest.mark.parametrize("ends", ["close", "leave"])
def test_the_last_losses_are_handed_over_where_the_environment_says_unless_the_training_goes_on(
    make_reporter: MakeReporter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    monkeypatch.setenv("SLOPEWISE_EXPORTER_END_FILE", str(tmp_path / "end"))
    reporter = make_reporter()
    reporter.step(loss=2.0)
    reporter.evaluate(0.1 + 0.2)
    getattr(reporter, ends)()
    handed = {path.name: path.read_text().splitlines() for path in tmp_path.iterdir()}
    assert handed == ({"end": ["train 2.0", "train_ema 2.0", "eval 0.30000000000000004"]} if ends == "close" else {})


@pytest.mark.parametrize("at_a_prompt", [False, True], ids=["nobody ever scraped", "a cell of a notebook"])
def test_close_does_not_wait_for_a_scrape_that_nobody_makes_nor_in_a_notebook(
    make_reporter: MakeReporter,
    scrape: Scrape,
    in_background: InBackground,
    monkeypatch: pytest.MonkeyPatch,
    at_a_prompt: bool,
) -> None:
    reporter = make_reporter(linger_seconds=600)
    port = reporter.port
    if at_a_prompt:
        monkeypatch.setattr(sys, "ps1", "In [1]: ", raising=False)
        scrape(port)
    closing = in_background(reporter.close)
    closing.join(PROMISED_RETURN_SECONDS)
    assert not closing.is_alive()
    assert refuses_connections(port)


def test_close_gives_up_waiting_after_the_linger(make_reporter: MakeReporter, scrape: Scrape) -> None:
    reporter = make_reporter(linger_seconds=0.01)
    port = reporter.port
    scrape(port)
    reporter.close()
    assert refuses_connections(port)


def test_at_a_prompt_a_push_takes_the_place_of_the_wait_for_a_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [lifecycle.patience(20.0, pushes=pushes) for pushes in (False, True)] == [20.0, 20.0]
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    assert [lifecycle.patience(20.0, pushes=pushes) for pushes in (False, True)] == [0.5, 0.0]
    assert lifecycle.patience(0.25, pushes=False) == 0.25


def test_closing_twice_is_closing_once_even_at_the_same_time(
    make_reporter: MakeReporter, scrape: Scrape, in_background: InBackground
) -> None:
    reporter = make_reporter(linger_seconds=600)
    port = reporter.port
    scrape(port)
    closings = [in_background(reporter.close) for _ in range(2)]
    while all(closing.is_alive() for closing in closings):
        pass
    scrape_the_end(scrape, port, "finished")
    reporter.close()
    for closing in closings:
        closing.join(PROMISED_RETURN_SECONDS)
        assert not closing.is_alive()


def test_calls_after_the_end_do_nothing(reporter: Reporter) -> None:
    reporter.close()
    reporter.step(loss=1.0, samples=1)
    reporter.epoch()
    reporter.evaluate(1.0)
    with reporter.checkpoint():
        saved = True
    assert saved
    assert reporter.port is None


@pytest.mark.parametrize(("error", "state"), [(ValueError("diverged"), "failed"), (None, "finished")])
def test_the_last_scrape_sees_how_the_block_ended(
    make_reporter: MakeReporter, scrape: Scrape, in_background: InBackground, error: ValueError | None, state: str
) -> None:
    reporter = make_reporter(linger_seconds=600)
    port = reporter.port
    scrape(port)

    def train() -> None:
        with suppress(ValueError), reporter:
            if error is not None:
                raise error

    training = in_background(train)
    scrape_the_end(scrape, port, state)
    training.join(PROMISED_RETURN_SECONDS)
    assert not training.is_alive()


@pytest.mark.parametrize("error", [ValueError("diverged"), KeyboardInterrupt(), SystemExit(3)])
def test_what_is_raised_inside_goes_on_up(reporter: Reporter, error: BaseException) -> None:
    with pytest.raises(type(error)), reporter:
        raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(0)])
def test_whoever_wants_the_process_gone_does_not_wait_for_a_scrape(
    make_reporter: MakeReporter, scrape: Scrape, in_background: InBackground, error: KeyboardInterrupt | SystemExit
) -> None:
    reporter = make_reporter(linger_seconds=600)
    scrape(reporter.port)

    def train() -> None:
        with pytest.raises(type(error)), reporter:
            raise error

    training = in_background(train)
    training.join(PROMISED_RETURN_SECONDS)
    assert not training.is_alive()


FORGETFUL = """
import sys
from slopewise_exporter import Reporter
reporter = Reporter(linger_seconds=120)
reporter.step(loss=1.0)
print(reporter.port, flush=True)
sys.stdin.readline()
{last_output_lines}
"""


@pytest.mark.parametrize(
    ("last_output_lines", "state", "exit_code"),
    [("pass", "finished", 0), ("raise ValueError('diverged')", "failed", 1), ("sys.exit(5)", "finished", 5)],
)
def test_a_training_that_forgets_close_still_shows_how_it_ended(
    start_training: StartTraining, scrape: Scrape, last_output_lines: str, state: str, exit_code: int
) -> None:
    training = start_training(FORGETFUL.format(last_output_lines=last_output_lines))
    port = read_port(training)
    scrape(port)
    piped(training.stdin).write("\n")
    piped(training.stdin).flush()
    scrape_the_end(scrape, port, state)
    assert training.wait(PROMISED_RETURN_SECONDS) == exit_code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_the_process_as_they_would_without_a_reporter(
    start_training: StartTraining, scrape: Scrape, number: signal.Signals
) -> None:
    training = start_training(FORGETFUL.format(last_output_lines=""))
    scrape(read_port(training))
    training.send_signal(number)
    assert training.wait(PROMISED_RETURN_SECONDS) == -number


def test_ctrl_c_ends_a_close_that_waits(start_training: StartTraining) -> None:
    training = start_training("""
import os, signal, sys, threading
from urllib.request import urlopen
from slopewise_exporter import Reporter
reporter = Reporter()
urlopen(f"http://127.0.0.1:{reporter.port}/metrics").read()
main_thread = threading.get_ident()
def callers(frame):
    return [] if frame is None else [frame.f_code.co_name, *callers(frame.f_back)]
def interrupt():
    names = []
    while names[:1] != ["wait"] or "close" not in names:
        names = callers(sys._current_frames()[main_thread])
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
try:
    reporter.close()
except KeyboardInterrupt:
    print("interrupted, port", reporter.port)
""")
    output, _ = training.communicate(timeout=PROMISED_RETURN_SECONDS)
    assert (output, training.returncode) == ("interrupted, port None\n", 0)


def test_a_signal_handler_may_save_a_checkpoint_in_the_middle_of_a_step(start_training: StartTraining) -> None:
    training = start_training("""
import signal
from slopewise_exporter import Reporter
reporter = Reporter()
saved = 0
def save(*_):
    global saved
    with reporter.checkpoint():
        saved += 1
signal.signal(signal.SIGALRM, save)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
while saved < 200:
    reporter.step(loss=1.0)
signal.setitimer(signal.ITIMER_REAL, 0)
print("saved", saved)
""")
    output, errors = training.communicate(timeout=PROMISED_RETURN_SECONDS)
    assert (output.split()[0], errors, training.returncode) == ("saved", "", 0)
