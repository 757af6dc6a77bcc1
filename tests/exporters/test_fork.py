"""Forked children, such as the workers of a data loader: they hold no port and report nothing."""

from __future__ import annotations

import socket

from support.pipes import piped
from support.training_fixtures import Scrape, StartTraining


def test_a_forked_child_reports_nothing_and_the_parent_goes_on(start_training: StartTraining, scrape: Scrape) -> None:
    training = start_training("""
import os, sys
from slopewise_exporter import Reporter
with Reporter(linger_seconds=0) as reporter:
    reporter.step(loss=1.0)
    child = os.fork()
    if child == 0:
        assert reporter.port is None
        reporter.step(loss=9.0, samples=9)
        reporter.close()
        os._exit(7)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    reporter.step(loss=0.5)
    print(reporter.port, status, flush=True)
    sys.stdin.readline()
""")
    port, status = piped(training.stdout).readline().split()
    now = scrape(int(port))
    assert status == "7"
    assert now["training_steps_total"] == 2
    assert now["training_samples_total"] == 0
    assert now['training_loss{stage="train"}'] == 0.5


def test_a_child_that_outlives_its_parent_does_not_keep_the_port(start_training: StartTraining, scrape: Scrape) -> None:
    training = start_training("""
import os, sys, time
from slopewise_exporter import Reporter
reporter = Reporter(linger_seconds=0)
port = reporter.port
ready, told = os.pipe()
if os.fork() == 0:
    os.write(told, b"x")
    sys.stdin.readline()
    os._exit(0)
os.read(ready, 1)
reporter.close()
print(port, flush=True)
""")
    port = int(piped(training.stdout).readline())
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0
    training.communicate("\n", timeout=30)
    assert training.returncode == 0


def test_a_child_forked_while_threads_report_never_waits_for_their_lock(start_training: StartTraining) -> None:
    training = start_training("""
import os, threading, time
from slopewise_exporter import Reporter
reporter = Reporter(linger_seconds=0)
stop = threading.Event()
def train():
    while not stop.is_set():
        reporter.step(loss=1.0)
thread = threading.Thread(target=train)
thread.start()
for _ in range(30):
    with reporter.checkpoint():
        time.sleep(0.001)  # the thread gets its turn, and loses it anywhere, mostly with the lock held
        child = os.fork()
        if child == 0:
            break
        os.waitpid(child, 0)
if child == 0:
    os._exit(0)
stop.set()
thread.join()
reporter.close()
print("done")
""")
    output, _ = training.communicate(timeout=60)
    assert (output, training.returncode) == ("done\n", 0)


def test_a_child_may_open_a_reporter_of_its_own(start_training: StartTraining, scrape: Scrape) -> None:
    training = start_training(
        """
import os, sys
from slopewise_exporter import Reporter
parent = Reporter(linger_seconds=0)
if os.fork() == 0:
    with Reporter(linger_seconds=0) as own:
        own.step(samples=3)
        print(own.port, flush=True)
        sys.stdin.readline()
    os._exit(0)
os.wait()
""",
        SLOPEWISE_EXPORTER_LINGER_SECONDS="0",
    )
    assert scrape(int(piped(training.stdout).readline()))["training_samples_total"] == 3
    training.communicate("\n", timeout=30)
    assert training.returncode == 0


def test_a_fork_waits_until_the_first_scrape_has_loaded_what_answers_it(start_training: StartTraining) -> None:
    training = start_training(
        """
import os, sys, threading
from urllib.request import urlopen
from slopewise_exporter import Reporter

loads, goes_on = threading.Event(), threading.Event()

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "prometheus_client" and threading.current_thread() is not threading.main_thread():
            loads.set()
            goes_on.wait()

reporter = Reporter()
sys.meta_path.insert(0, Slow())
url = f"http://127.0.0.1:{reporter.port}/metrics"
scraper = threading.Thread(target=lambda: urlopen(url).read())
scraper.start()
loads.wait()
threading.Timer(0.2, goes_on.set).start()
child = os.fork()
if child == 0:
    import prometheus_client  # a module that is half imported would never be there
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), goes_on.is_set())
scraper.join()
reporter.close()
""",
        SLOPEWISE_EXPORTER_LINGER_SECONDS="0",
    )
    output, _ = training.communicate(timeout=60)
    assert output == "7 True\n"
