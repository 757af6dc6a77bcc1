"""`slopewise top` against an API server and against a controller on this machine, in a pipe and on a terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.api_server import ApiServer
from support.command_line import slopewise
from support.instances import a_sim_job, a_sim_node, an_instance
from support.recorded_runs import a_document, record_run
from support.stored import put_growth, put_lease
from support.terminals import on_a_terminal
from support.waiting import eventually

from slopewise.adapters.health import HealthServer
from slopewise.adapters.kube.connection import Connection
from slopewise.adapters.kube.state.job_growth_object import growth_path
from slopewise.model import Pace, PassReport
from slopewise.operate.growth_watch import GrowthWatch
from slopewise.telemetry.metrics import Instruments, Telemetry

HOSTILE = "why\x1b[2J\u202e<b>[red]x"


@pytest.fixture
def server(server: ApiServer) -> ApiServer:
    put_lease(server)
    return server


def put(server: ApiServer, name: str, namespace: str = "team-a", loss: float = 0.5, growth: float = 0.1) -> None:
    cpu = {"cpuMillicores": 500, "cpuWantedMillicores": 1000}
    put_growth(
        server, name, namespace, state="Training", job_class="NL", loss=loss, growth=growth, reason=HOSTILE, **cpu
    )


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
        put(server, "train")
        colour = re.compile(r"\x1b\[[0-9;]*3[0-9]m")
        _, text = on_a_terminal(("top", *reach, "--count", "1"), width=120)
        assert colour.search(text)
        _, text = on_a_terminal(("top", *reach, "--count", "1"), width=120, NO_COLOR="1")
        assert "team-a/train" in text
        assert not colour.search(text)


def _growths(report: PassReport) -> list[object]:
    """Of the jobs of a pass; None: not measured yet."""
    if report.snapshot is None or report.decisions is None:
        return []
    return [report.decisions.memory.jobs[job.uid].growth for job in report.snapshot.jobs]


class TestMachine:
    @pytest.fixture
    def measured(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PassReport:
        """A pass in which the growth of two jobs is measured."""
        jobs = [a_sim_job("one", 150.0), a_sim_job("two", 150.0, 20.0)]
        document = a_document("flowcon")
        reports = record_run(monkeypatch, an_instance(jobs, [a_sim_node()]), document, tmp_path / "record.jsonl")
        return next(each for each in reports if len(_growths(each)) == 2 and all(_growths(each)))

    @pytest.fixture
    def controller(self, measured: PassReport) -> Iterator[HealthServer]:
        instruments = Instruments()
        telemetry = Telemetry(control="requests", interval_seconds=20.0, instruments=instruments)
        telemetry.record(measured)
        with HealthServer(instruments.registry, lambda: True, "127.0.0.1", 0) as running:
            yield running

    def test_steps_that_cost_more_than_they_did_are_a_note(self, measured: PassReport) -> None:
        decisions = measured.decisions
        assert decisions is not None
        uid = next(iter(decisions.memory.jobs))
        dear = decisions.memory.jobs[uid].altered(paces=(Pace(0.0, 4.0, 1.0),) * 3, least_step_cpu_seconds=2.0)
        memory = replace(decisions.memory, jobs={**decisions.memory.jobs, uid: dear})
        instruments = Instruments()
        telemetry = Telemetry(control="requests", interval_seconds=20.0, instruments=instruments)
        telemetry.record(replace(measured, decisions=replace(decisions, memory=memory)))
        with HealthServer(instruments.registry, lambda: True, "127.0.0.1", 0) as controller:
            found = json.loads(slopewise("top", "--local", "--port", str(controller.port), "-o", "json").stdout)
        notes = {each["note"] for each in found["jobs"]}
        assert notes >= {"a step costs 2.0 times the CPU of its least"}

    def test_a_controller_on_this_machine_is_read_by_its_metrics(
        self, controller: HealthServer, measured: PassReport
    ) -> None:
        ended = slopewise("top", "--local", "--port", str(controller.port), "-o", "json")
        assert ended.returncode == 0, ended.stderr
        found = {each["name"]: each for each in json.loads(ended.stdout)["jobs"]}
        snapshot, decisions = measured.snapshot, measured.decisions
        assert snapshot is not None
        assert decisions is not None
        assert set(found) == {f"{job.namespace}/{job.name}" for job in snapshot.jobs}
        for job in snapshot.jobs:
            row, known = found[f"{job.namespace}/{job.name}"], decisions.memory.jobs[job.uid]
            assert row["class"] == known.job_class
            assert job.evaluation is not None
            assert row["loss"] == job.evaluation.level
            assert known.growth is not None
            assert row["growth"] == known.growth.cpu_efficiency
            assert row["cpuUsedCores"] == known.growth.cpu_cores
        table = slopewise("top", "--local", "--port", str(controller.port)).stdout
        assert "USED" in table
        assert "2 training" in table.splitlines()[0]

    def test_without_a_controller_it_ends_with_4_and_says_what_to_do(self, server: ApiServer) -> None:
        ended = slopewise("top", "--local", "--port", "9")
        assert ended.returncode == 4
        assert "no controller answers (connection refused); start one (slopewise run --local)" in ended.stderr
        other = slopewise("top", "--local", "--port", server.url.rpartition(":")[2])
        assert other.returncode == 4
        assert "name the port of a controller" in other.stderr
