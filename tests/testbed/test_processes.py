import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.waiting import eventually, runs

from slopewise.errors import SlopewiseError
from testbed import leftovers
from testbed.processes import Component, Processes, Program

SLEEP = Program("sleeper", ("sleep", "600"))


def test_a_component_outlives_the_command_that_started_it_and_is_found_again(processes: Processes) -> None:
    started = processes.start(SLEEP)

    found = Processes.load(processes.log("x").parent.parent)

    assert found is not None
    assert found.state.components["sleeper"].pid == started.pid
    assert found.state.components["sleeper"].life() == "running"


def test_a_pid_that_belongs_to_another_process_now_is_never_signalled(processes: Processes) -> None:
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        processes.state.components["old"] = Component(
            name="old", pid=bystander.pid, started_ticks=1, arguments=("sleep",), environment={}
        )

        processes.end(["old"], at_once=True)

        assert processes.state.components["old"].life() == "dead"
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_after_a_boot_no_remembered_process_is_taken_for_ours(processes: Processes) -> None:
    started = processes.start(SLEEP)
    folder = processes.log("x").parent.parent
    processes.state.boot_id = "another-boot"
    processes.save()

    found = Processes.load(folder)

    assert found is not None
    assert found.state.components == {}
    processes.state.boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    processes.save()
    assert runs(started.pid)


def test_a_component_that_ignores_politeness_is_killed(processes: Processes) -> None:
    stubborn = Program("stubborn", ("sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"))
    processes.start(stubborn)

    processes.end(["stubborn"])

    assert processes.state.components["stubborn"].life() == "dead"


def test_a_component_gets_none_of_our_secrets_and_proxies(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")

    processes.start(Program("shown", ("env",), {"GIVEN": "yes"}))

    assert eventually(lambda: "GIVEN=yes" in processes.tail("shown", 20))
    assert "proxy.example" not in processes.tail("shown", 20)


def test_a_state_that_cannot_be_read_is_named(processes: Processes) -> None:
    folder = processes.log("x").parent.parent
    kept = (folder / "state.json").read_text()
    (folder / "state.json").write_text("{}")

    with pytest.raises(SlopewiseError, match=r"state\.json: not a state of this version"):
        Processes.load(folder)

    (folder / "state.json").write_text(kept)


def test_strays_are_programs_of_ours_in_a_folder_of_ours_and_nothing_else(tmp_path: Path) -> None:
    programs, folder = tmp_path / "programs", tmp_path / "run"
    programs.mkdir()
    folder.mkdir()
    ours = shutil.copy2(str(shutil.which("sleep")), programs / "sleep")
    here = subprocess.Popen([ours, "600"], cwd=folder)
    elsewhere = subprocess.Popen([ours, "600"], cwd=tmp_path)
    foreign = subprocess.Popen(["sleep", "600"], cwd=folder)
    try:
        assert eventually(lambda: Path(f"/proc/{here.pid}/exe").resolve() == ours)

        assert leftovers.kill_strays(programs, folder) == 1

        assert here.wait() == -9
        assert elsewhere.poll() is None
        assert foreign.poll() is None
    finally:
        for process in (here, elsewhere, foreign):
            process.kill()
            process.wait()


@pytest.mark.cgroups
def test_mounts_below_the_folder_go_and_others_stay(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    folder = tmp_path / "run with space"
    (folder / "inner").mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "test", folder / "inner"], check=True)
    (folder / "inner" / "deeper").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "test", folder / "inner" / "deeper"], check=True)

    assert leftovers.unmount(folder) == 2

    assert not os.path.ismount(folder / "inner")
