"""`slopewise top` against an API server and against a session on this machine, in a pipe and on a terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.answering import answering, with_jobs
from support.api_server import ApiServer
from support.command_line import slopewise
from support.stored import put_growth, put_lease
from support.terminals import on_a_terminal
from support.waiting import eventually

from slopewise.adapters.kube.connection import Connection
from slopewise.adapters.kube.state.job_growth_object import growth_path
from slopewise.adapters.local.session_requests import JobAnswer
from slopewise.operate.growth_watch import GrowthWatch

HOSTILE = "why\x1b[2J\u202e<b>[red]x"


@pytest.fixture
def server(server: ApiServer) -> ApiServer:
    put_lease(server)
    return server


def put(server: ApiServer, name: str, namespace: str = "team-a", **more: Any) -> None:
    cpu = {"cpuMillicores": 500, "cpuWantedMillicores": 1000}
    status = {"state": "Training", "loss": 0.5, "growth": 0.1, **cpu, **more}
    put_growth(server, name, namespace, job_class="NL", reason=HOSTILE, **status)


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

    def test_a_cluster_that_does_not_answer_ends_with_4(self, server: ApiServer, reach: tuple[str, str]) -> None:
        server.stop()
        assert slopewise("top", *reach).returncode == 4
        server.restart()

    def test_changes_arrive_by_the_watch_and_trouble_is_said(self, server: ApiServer, reach: tuple[str, str]) -> None:
        put(server, "train", loss=0.5)
        with GrowthWatch(Connection(Path(reach[1])), ("slopewise-system",)) as watch:
            (row,) = watch.view().rows
            assert (row.loss, watch.view().trouble) == (0.5, "")
            put(server, "train", loss=0.25)
            assert eventually(lambda: watch.view().rows[0].loss == 0.25)
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

        code, text = on_a_terminal(("top", *reach, "--interval", "1"), width=50, act=change)
        assert code == 0, text
        assert "\x1b[?1049h" in text, "the screen is put back at the end"
        assert text.rindex("\x1b[?1049l") > text.index("0.125")
        assert HOSTILE not in text
        last = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text[text.rindex("\x1b[?1049l") :])
        assert "team-a/train" in last, "the last table stays"
        assert max(map(len, last.replace("\r", "").splitlines())) <= 50

    @pytest.mark.processes
    def test_no_color_switches_colours_off(self, server: ApiServer, reach: tuple[str, str]) -> None:
        put(server, "train", state="Finished")
        colour = re.compile(r"\x1b\[[0-9;]*3[0-9]m")
        _, text = on_a_terminal(("top", *reach, "--count", "1"), width=120)
        assert colour.search(text)
        _, text = on_a_terminal(("top", *reach, "--count", "1"), width=120, NO_COLOR="1")
        assert "team-a/train" in text
        assert not colour.search(text)


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
