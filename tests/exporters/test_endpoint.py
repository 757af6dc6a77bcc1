"""The endpoint: where it listens, who is told, and scrapers that misbehave."""

from __future__ import annotations

import socket
import struct
import sys
from pathlib import Path
from urllib.error import URLError

import prometheus_client
import pytest
from support.pipes import piped
from support.training_fixtures import MakeReporter, Scrape, StartTraining

from slopewise_exporter import Reporter
from slopewise_exporter.endpoint import MAX_CONCURRENT_SCRAPES


def hang_up(connection: socket.socket) -> None:
    """Close with a reset, as the kernel does for a killed process."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def test_a_port_in_use_is_told_once_and_the_training_goes_on(
    make_reporter: MakeReporter, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as another:
        taken = another.getsockname()[1]
        other = make_reporter(port=taken)
        other.step(loss=1.0)
        other.close()
    assert other.port is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"127.0.0.1:{taken}" in caplog.text
    assert "another program has port" in caplog.text
    assert "SLOPEWISE_EXPORTER_PORT with another one, 0 for any that is free. Training goes on" in caplog.text


@pytest.mark.parametrize("interactive", [True, False])
def test_a_new_reporter_of_the_same_process_takes_the_port_over(
    make_reporter: MakeReporter,
    scrape: Scrape,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    interactive: bool,
) -> None:
    if interactive:
        monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    earlier = make_reporter()
    port = earlier.port
    earlier.step(loss=7.0)
    scrape(port)
    later = make_reporter(port=port)
    later.step(loss=1.0)
    earlier.step(loss=7.0)
    earlier.close()
    assert (earlier.port, earlier.ended, later.port) == (None, True, port)
    seen = scrape(port)
    assert (seen['training_loss{stage="train"}'], seen["training_steps_total"]) == (1.0, 1)
    assert [record.levelname for record in caplog.records] == ([] if interactive else ["WARNING"])


@pytest.mark.parametrize("address", ["[::1]", " ::1 ", "localhost", "127.0.0.1", ""])
def test_it_listens_where_it_is_told_however_the_address_is_written(
    make_reporter: MakeReporter, caplog: pytest.LogCaptureFixture, address: str
) -> None:
    reporter = make_reporter(address=address)
    host = "::1" if "::1" in address else "127.0.0.1"
    with socket.create_connection((host, reporter.port), timeout=10):
        pass
    assert caplog.records == []


def test_where_it_listens_is_logged_for_those_who_look(
    make_reporter: MakeReporter, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="slopewise_exporter")
    reporter = make_reporter()
    assert f"metrics on http://127.0.0.1:{reporter.port}/metrics" in caplog.text


@pytest.mark.parametrize(
    "address", ["192.0.2.1", "no such host.invalid", "not::an::address", "127.0.0.1:9464", "a" * 70]
)
def test_an_address_of_another_machine_is_told_and_the_training_goes_on(
    make_reporter: MakeReporter, caplog: pytest.LogCaptureFixture, address: str
) -> None:
    reporter = make_reporter(address=address)
    reporter.step(loss=1.0)
    assert reporter.port is None
    assert len(caplog.records) == 1
    assert f"{address!r} is no address of this machine" in caplog.text
    assert "0.0.0.0 for all of them" in caplog.text


def test_what_is_no_address_at_all_is_told_and_the_training_goes_on(
    make_reporter: MakeReporter, caplog: pytest.LogCaptureFixture
) -> None:
    reporter = make_reporter(address=None)
    reporter.step(loss=1.0)
    assert reporter.port is None
    assert len(caplog.records) == 1


def test_the_same_port_can_be_taken_again_after_close(make_reporter: MakeReporter, scrape: Scrape) -> None:
    first = make_reporter()
    port = first.port
    scrape(port)
    first.close()
    second = make_reporter(port=port)
    assert second.port == port
    assert scrape(port)["training_steps_total"] == 0


def test_the_port_is_written_where_the_environment_says_and_nothing_else_is(
    make_reporter: MakeReporter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLOPEWISE_EXPORTER_PORT_FILE", str(tmp_path / "port"))
    reporter = make_reporter()
    assert (tmp_path / "port").read_text() == f"{reporter.port}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["port"]


@pytest.mark.parametrize("port_file", ["missing/port", "a folder", ".", "/"])
def test_a_port_file_that_cannot_be_written_is_told_and_the_endpoint_stays(
    make_reporter: MakeReporter,
    scrape: Scrape,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    port_file: str,
) -> None:
    (tmp_path / "a folder").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLOPEWISE_EXPORTER_PORT_FILE", port_file)
    reporter = make_reporter()
    assert scrape(reporter.port)["training_steps_total"] == 0
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert port_file in caplog.text
    assert [path.name for path in tmp_path.iterdir()] == ["a folder"], "no draft is left"


def test_a_client_library_that_is_found_and_cannot_be_used_is_told_by_the_first_scrape(
    make_reporter: MakeReporter, scrape: Scrape, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One of the training's own Python comes before the one that it is lent, and may be too old."""
    reporter = make_reporter()
    monkeypatch.delitem(sys.modules, "slopewise_exporter.exposition", raising=False)
    monkeypatch.delattr(prometheus_client, "MetricsHandler")
    for _ in range(2):
        with pytest.raises((URLError, ConnectionError)):
            scrape(reporter.port)
    (message,) = caplog.messages
    assert message.startswith("no scrape can be answered (ImportError: cannot import name 'MetricsHandler'")
    reporter.step(loss=1.0)
    assert reporter.steps == 1


@pytest.mark.parametrize("sent", [b"", b"GET /met", b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"])
def test_a_scraper_killed_in_mid_request_leaves_no_trace(
    reporter: Reporter, scrape: Scrape, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    for _ in range(2 * MAX_CONCURRENT_SCRAPES):
        connection = socket.create_connection(("127.0.0.1", reporter.port))
        connection.sendall(sent)
        hang_up(connection)
    # A slot is free again only once its hang-up was noticed, so this may take more than one attempt.
    for _ in range(100):
        try:
            now = scrape(reporter.port)
            break
        except OSError:
            continue
    assert now["training_steps_total"] == 0
    assert capfd.readouterr().err == ""
    assert caplog.records == []


def test_silent_clients_do_not_keep_a_scraper_waiting_and_cannot_take_every_thread(
    reporter: Reporter, scrape: Scrape
) -> None:
    silent = [socket.create_connection(("127.0.0.1", reporter.port)) for _ in range(MAX_CONCURRENT_SCRAPES - 1)]
    assert scrape(reporter.port)["training_steps_total"] == 0
    silent += [socket.create_connection(("127.0.0.1", reporter.port)) for _ in range(3)]
    turned_away = silent[-1]
    turned_away.settimeout(30)
    assert turned_away.recv(1) == b""
    for connection in silent:
        connection.close()


def test_a_scrape_is_answered_even_when_no_thread_can_be_started(start_training: StartTraining, scrape: Scrape) -> None:
    # As in Python 3.12 and later while the interpreter exits; here because no stack is that large. The bound of 64 GiB,
    # because a kernel that overcommits (a kubelet tells it to) would give even that one.
    training = start_training("""
import resource, sys, threading
from slopewise_exporter import Reporter
reporter = Reporter()
reporter.step(loss=1.0)
resource.setrlimit(resource.RLIMIT_AS, (1 << 36, 1 << 36))
threading.stack_size(1 << 46)
try:
    threading.Thread(target=print).start()
except RuntimeError:
    print(reporter.port, flush=True)
sys.stdin.readline()
""")
    port = int(piped(training.stdout).readline())
    assert [scrape(port)["training_steps_total"] for _ in range(2 * MAX_CONCURRENT_SCRAPES)][-1] == 1


WITHOUT_FILES = """
import os, resource, sys, time
import slopewise_exporter.endpoint, slopewise_exporter.exposition
from slopewise_exporter import Reporter

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

def take_all_files():
    taken = []
    try:
        while True:
            taken.append(os.dup(0))
    except OSError:
        return taken
"""


def test_a_scrape_that_finds_no_free_file_waits_without_burning_cpu(
    start_training: StartTraining, scrape: Scrape
) -> None:
    training = start_training(
        WITHOUT_FILES
        + """
reporter = Reporter()
taken = take_all_files()
print(reporter.port, flush=True)
sys.stdin.readline()
before = time.process_time()
time.sleep(0.5)
print(time.process_time() - before, flush=True)
for file in taken:
    os.close(file)
sys.stdin.readline()
"""
    )
    port = int(piped(training.stdout).readline())
    with socket.create_connection(("127.0.0.1", port), timeout=30) as pending:
        pending.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        print(file=training.stdin, flush=True)
        cpu_seconds = float(piped(training.stdout).readline())
        assert pending.recv(12) == b"HTTP/1.0 200"
    # CPU, not wall time, so a busy machine cannot fail it: five attempts are 1 ms, a spin all that can be had.
    assert cpu_seconds < 0.1
    assert scrape(port)["training_steps_total"] == 0


def test_an_endpoint_that_has_too_few_files_says_so_and_none_is_opened_that_is_dead(
    start_training: StartTraining, scrape: Scrape
) -> None:
    training = start_training(
        WITHOUT_FILES
        + """
reporters = []
for free in range(6):
    taken = take_all_files()
    for file in taken[:free]:
        os.close(file)
    reporters.append(Reporter())
    for file in taken[free:]:
        os.close(file)
print(*(reporter.port or 0 for reporter in reporters), flush=True)
sys.stdin.readline()
for reporter in reporters:
    reporter.end(failed=False, linger=False)
"""
    )
    ports = [int(port) for port in piped(training.stdout).readline().split()]
    served = [port for port in ports if port]
    assert [scrape(port)["training_steps_total"] for port in served] == [0] * len(served)
    _, stderr = training.communicate("\n", timeout=30)
    assert 0 < len(served) < len(ports)
    assert stderr.count("cannot serve metrics") == len(ports) - len(served)
    assert "Traceback" not in stderr
