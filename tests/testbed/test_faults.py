import pytest

from slopewise.errors import UsageError
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
