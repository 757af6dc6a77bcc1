"""`slopewise top` against an API server and against a session on this machine, in a pipe and on a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.answering import answering, with_jobs
from support.api_server import ApiServer, refusal
from support.command_line import slopewise
from support.waiting import eventually

from slopewise.adapters.kube.client.protocol import path_of
from slopewise.adapters.kube.connection import Connection
from slopewise.adapters.kube.state.job_growth_object import growth_path
from slopewise.adapters.local.session_requests import JobAnswer
from slopewise.operate.growth_watch import GrowthWatch

HOSTILE = "why\x1b[2J\u202e<b>[red]x"


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as running:
        spec = {
            "holderIdentity": "controller-0",
            "leaseDurationSeconds": 15,
            "renewTime": datetime.now(UTC).isoformat(),
        }
        lease = {"metadata": {"name": "slopewise-controller", "namespace": "slopewise-system"}, "spec": spec}
        running.put(path_of("coordination.k8s.io/v1", "leases", "slopewise-system"), lease)
        yield running


@pytest.fixture
def reach(server: ApiServer, tmp_path: Path) -> tuple[str, str]:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(server.kubeconfig)
    return "--kubeconfig", str(kubeconfig)


def put(server: ApiServer, name: str, namespace: str = "team-a", loss: float = 0.5, growth: float = 0.1) -> None:
    status = {
        "state": "Training", "class": "NL", "loss": loss, "growth": growth, "cpuMillicores": 500,
        "cpuWantedMillicores": 1000, "reason": HOSTILE,
    }  # fmt: skip
    workload = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": "u"}
    metadata = {"name": name, "namespace": namespace}
    server.put(growth_path(namespace), {"metadata": metadata, "spec": {"workload": workload}, "status": status})


class TestCluster:
    def test_in_a_pipe_the_table_is_printed_once_without_escapes(
        self, server: ApiServer, reach: tuple[str, str]
    ) -> None:
        put(server, "slow", growth=0.1)
        put(server, "quick", growth=0.2)
        ended = slopewise("top", *reach)
        assert ended.returncode == 0, ended.stderr
        lines = [line.split() for line in ended.stdout.splitlines()]
        assert lines[0][1:4] == ["2", "workloads:", "2"]
        assert lines[1][:2] == ["leader:", "controller-0,"]
        assert [line[0] for line in lines[3:5]] == ["team-a/quick", "team-a/slow"]
        assert "\x1b" not in ended.stdout
        assert "\u202e" not in ended.stdout
        assert len(server.asked("GET", "/jobgrowths")) <= 2, "one list and one watch"

    def test_json_and_the_order(self, server: ApiServer, reach: tuple[str, str]) -> None:
        put(server, "b")
        put(server, "a")
        put(server, "c", namespace="team-b")
        found = json.loads(slopewise("top", *reach, "-o", "json", "--sort", "name").stdout)
        assert [each["name"] for each in found["jobs"]] == ["team-a/a", "team-a/b", "team-b/c"]
        assert found["jobs"][0] | {"reason": ""} == {
            "name": "team-a/a", "state": "training", "class": "NL", "loss": 0.5, "growth": 0.1, "cpuUsedCores": None,
            "tookSeconds": None, "objectiveSeconds": None, "cpuMillicores": 500, "cpuWantedMillicores": 1000,
            "reason": "", "note": "",
        }  # fmt: skip
        only = json.loads(slopewise("top", *reach, "-o", "json", "--namespace", "team-b").stdout)
        assert [each["name"] for each in only["jobs"]] == ["team-b/c"]

    def test_an_object_that_cannot_be_read_is_left_out_and_spoils_no_output(
        self, server: ApiServer, reach: tuple[str, str]
    ) -> None:
        put(server, "train")
        server.put(growth_path("team-a"), {"metadata": {"name": "odd", "namespace": "team-a"}, "spec": {}})
        found = json.loads(slopewise("top", *reach, "-o", "json").stdout)
        assert [each["name"] for each in found["jobs"]] == ["team-a/train"]

    def test_a_cluster_that_refuses_or_does_not_answer_ends_with_4(
        self, server: ApiServer, reach: tuple[str, str]
    ) -> None:
        server.fault(refusal(403, "Forbidden", "jobgrowths is forbidden"), path="/jobgrowths", times=9)
        refused = slopewise("top", *reach)
        assert (refused.returncode, refused.stdout) == (4, "")
        assert "top: the JobGrowths cannot be read" in refused.stderr
        server.stop()
        assert slopewise("top", *reach).returncode == 4
        server.restart()

    def test_changes_arrive_by_the_watch_and_trouble_is_said(self, server: ApiServer, reach: tuple[str, str]) -> None:
        put(server, "train", loss=0.5)
        with GrowthWatch(Connection(Path(reach[1])), ("slopewise-system",)) as watch:
            (row,) = watch.view().rows
            assert (row.loss, list(row.loss_history), watch.view().trouble) == (0.5, [0.5], "")
            put(server, "train", loss=0.25)
            assert eventually(lambda: watch.view().rows[0].loss == 0.25)
            assert list(watch.view().rows[0].loss_history) == [0.5, 0.25]
            server.remove(f"{growth_path('team-a')}/train")
            assert eventually(lambda: not watch.view().rows)
            server.stop()
            assert eventually(lambda: "the figures are that old" in watch.view().trouble)
        server.restart()

    @pytest.mark.processes
    def test_a_terminal_is_redrawn_until_ctrl_c_which_is_no_failure(
        self, server: ApiServer, reach: tuple[str, str]
    ) -> None:
        put(server, "train", loss=0.5)

        def change(shown: Callable[[], str]) -> None:
            assert eventually(lambda: "0.5 " in shown())
            put(server, "train", loss=0.125)
            assert eventually(lambda: "0.125" in shown())

        code, text = on_a_terminal(("top", *reach, "--interval", "1"), change, width=50)
        assert code == 0, text
        assert "\x1b[?1049h" in text, "the screen is put back at the end"
        assert text.rindex("\x1b[?1049l") > text.index("0.125")
        assert HOSTILE not in text
        last = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text[text.rindex("\x1b[?1049l") :])
        assert "team-a/train" in last, "the last table stays"
        assert max(map(len, last.replace("\r", "").splitlines())) <= 50

    @pytest.mark.processes
    def test_no_color_switches_colours_off(self, server: ApiServer, reach: tuple[str, str]) -> None:
        put(server, "train")
        colour = re.compile(r"\x1b\[[0-9;]*3[0-9]m")
        _, text = on_a_terminal(("top", *reach, "--count", "1"), lambda _: None, width=120)
        assert colour.search(text)
        _, text = on_a_terminal(("top", *reach, "--count", "1"), lambda _: None, width=120, NO_COLOR="1")
        assert "team-a/train" in text
        assert not colour.search(text)


def on_a_terminal(
    arguments: tuple[str, ...], act: Callable[[Callable[[], str]], None], width: int = 80, **environment: str
) -> tuple[int, str]:
    """Exit code and output of a command on a terminal of 24 lines; `act` gets what was shown so far, then Ctrl-C."""
    terminal, ours = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    os.set_blocking(terminal, False)
    without = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
    process = subprocess.Popen(
        [sys.executable, "-m", "slopewise", *arguments], stdin=ours, stdout=ours, stderr=ours,
        env={**without, "TERM": "xterm", **environment},
    )  # fmt: skip
    os.close(ours)
    shown = bytearray()

    def read() -> str:
        with suppress(OSError):  # nothing yet, or the other end is closed
            while part := os.read(terminal, 65_536):
                shown.extend(part)
        return shown.decode(errors="replace")

    try:
        act(read)
        if "--count" not in arguments:
            process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            read()
            time.sleep(0.05)
        return process.wait(1), read()
    finally:
        process.kill()
        process.wait()
        os.close(terminal)


class TestMachine:
    @pytest.fixture(autouse=True)
    def own_session(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def test_the_jobs_of_the_session_have_their_states_and_reasons(self) -> None:
        status = {
            "growth": 0.25,
            "cpuMillicores": 500,
            "cpuWantedMillicores": 1000,
            "class": "first",
            "state": "NoLoss",
        }
        trains = JobAnswer("one", "training", loss_last=0.5, reason="first: its end is near", status=status)
        waits = JobAnswer("two", "waiting", reason="waits for a place: 1 of 1 run")
        with answering(with_jobs(trains, waits)):
            found = json.loads(slopewise("top", "--local", "-o", "json").stdout)
            table = slopewise("top", "--local").stdout
        assert found["headings"][0].endswith("marginal, mode Auto; jobs: 1 training, 1 waiting")
        one, two = found["jobs"]
        assert (one["state"], one["reason"], one["loss"], one["growth"]) == (
            "training", "first: its end is near", 0.5, 0.25,
        )  # fmt: skip
        assert (one["cpuMillicores"], one["cpuWantedMillicores"]) == (500, 1000)
        assert (two["state"], two["reason"]) == ("waiting", "waits for a place: 1 of 1 run")
        assert "0.50 → 1.00" in table

    def test_without_a_session_it_ends_with_4_and_says_what_to_do(self) -> None:
        ended = slopewise("top", "--local")
        assert (ended.returncode, ended.stdout) == (4, "")
        assert "no session runs here; start one with `slopewise up`." in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--local", "--context", "c"], "--context is for a cluster; leave it or --local out"),
        (["-o", "json", "--count", "2"], "-o json prints one object; leave --count out"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(arguments: list[str], message: str) -> None:
    ended = slopewise("top", *arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert message in ended.stderr
