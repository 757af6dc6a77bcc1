import json

import pytest
from support.waiting import eventually

from slopewise.errors import UsageError
from testbed import report
from testbed.faults import Faults
from testbed.processes import Component, Processes, Program
from testbed.settings import Settings


@pytest.fixture
def sleeper(processes: Processes) -> Component:
    return processes.start(Program("sleeper", ("sleep", "600")))


def known(settings: Settings) -> Component:
    found = Processes.load(settings.run_folder)
    assert found is not None
    return found.state.components["sleeper"]


def test_a_stopped_component_hangs_until_it_is_resumed(settings: Settings, sleeper: Component) -> None:
    faults = Faults(settings)

    faults.stop("sleeper")
    assert eventually(lambda: sleeper.life() == "stopped")

    faults.resume("sleeper")
    assert eventually(lambda: sleeper.life() == "running")


def test_a_killed_component_stays_away_until_it_is_started_with_the_same_arguments(
    settings: Settings, sleeper: Component
) -> None:
    faults = Faults(settings)

    faults.kill("sleeper")
    assert known(settings).life() == "dead"

    faults.start("sleeper")
    assert known(settings).life() == "running"
    assert known(settings).arguments == sleeper.arguments


def test_starting_what_runs_changes_nothing(settings: Settings, sleeper: Component) -> None:
    Faults(settings).start("sleeper")

    assert known(settings).pid == sleeper.pid


def test_a_restarted_component_is_another_process(settings: Settings, sleeper: Component) -> None:
    Faults(settings).restart("sleeper")

    assert known(settings).pid != sleeper.pid
    assert known(settings).life() == "running"


def test_two_sessions_do_not_forget_what_the_other_one_started(settings: Settings, processes: Processes) -> None:
    faults = Faults(settings)
    assert "sleeper" not in faults.names()

    processes.start(Program("sleeper", ("sleep", "600")))
    faults.restart("sleeper")

    assert "sleeper" in faults.names()


def test_an_unknown_name_is_reported_with_those_that_there_are(settings: Settings, sleeper: Component) -> None:
    with pytest.raises(UsageError, match=r"'nix' is no component .*; choose one of sleeper, node-a, node-b"):
        Faults(settings).kill("nix")


def test_without_a_test_bed_the_way_to_one_is_reported(settings: Settings) -> None:
    with pytest.raises(UsageError, match="start one with `make cluster`"):
        Faults(settings).stop("etcd")


def test_the_report_distinguishes_the_dead_from_the_living(
    settings: Settings, processes: Processes, sleeper: Component
) -> None:
    processes.start(Program("brief", ("true",)))
    assert eventually(lambda: processes.state.components["brief"].life() == "dead")

    shown = {one["name"]: one for one in json.loads(json.dumps(report.as_json(report.look(processes))))}

    assert (shown["sleeper"]["life"], shown["sleeper"]["pid"]) == ("running", sleeper.pid)
    assert shown["sleeper"]["memory_bytes"] > 0
    assert (shown["brief"]["life"], shown["brief"]["memory_bytes"]) == ("dead", 0)
