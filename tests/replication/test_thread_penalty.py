"""What threads cost: the arithmetic from steps to penalties and to simulated CPU-seconds, and the page."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from replication import thread_penalty, threads
from replication.thread_penalty import (
    AROUND,
    HELD_OUT,
    Measured,
    Window,
    app,
    load,
    save,
    section,
    simulated_cpu_seconds,
    table,
)
from slopewise.simulator.scenario import csv_tables
from slopewise.simulator.scenario.parts import libraries

STEP = 0.1
"""CPU-seconds of a step of one thread."""


def a_window(round_number: int, at_once: int, cpu_ratio: float, cores: float, seconds: float = 2.0) -> Window:
    """Of trainings that use all of their CPU."""
    cpu_seconds = at_once * cores * seconds
    return Window(round_number, at_once, round(cpu_seconds / (STEP * cpu_ratio)), cpu_seconds, seconds, cores)


def measured(*windows: Window) -> Measured:
    alone = [Window(0, 1, 10, 10 * STEP, 1.0, 1.0)] * 3
    return Measured(2, windows, alone)


def test_a_step_that_takes_five_times_the_cpu_is_done_at_a_fifth_of_the_speed_and_threads_that_sleep_are_slower() -> (
    None
):
    window = a_window(0, 2, 5.0, 1.0)
    assert (window.steps, window.cpu_seconds) == (8, 4.0)
    assert measured(window).penalty(window) == pytest.approx((2.0, 5.0, 0.2))
    asleep = Window(0, 1, 8, 1.0, 2.0, 1.0)  # half of the CPU in effect is used, for steps of 1.25 times the CPU
    assert measured(asleep).penalty(asleep) == pytest.approx((2.0, 1.25, 0.4))


def test_a_window_counts_for_the_row_that_is_nearest_and_one_round_in_four_for_none() -> None:
    near, two, far, other = (a_window(0, 1, 5.0, cores) for cores in (1.9, 1.1, 0.4, 0.02))
    held_out = a_window(HELD_OUT, 1, 5.0, 1.0)
    found = measured(near, two, far, other, held_out)
    assert found.around(held_out=False) == {1: [near], 2: [two], 4: [far]}
    assert found.around(held_out=True) == {2: [held_out]}
    assert [row.threads_per_core for row in found.penalties()] == pytest.approx([2 / 1.9, 2 / 1.1, 5.0])
    assert AROUND[-1] < 2 / 0.02


@pytest.mark.parametrize("at_once", [1, 4])
def test_the_simulator_gives_the_cpu_seconds_of_a_window_that_is_as_the_table_has_it(at_once: int) -> None:
    window = a_window(HELD_OUT, at_once, 8.0, 0.5, 4.0)
    found = measured(a_window(0, at_once, 2.0, 2.0), a_window(0, at_once, 8.0, 0.5), window)
    assert simulated_cpu_seconds(found.penalties(), window, found) == pytest.approx(window.cpu_seconds)


def test_what_is_kept_is_read_again_and_makes_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_penalty, "KEPT", tmp_path / "kept.json")
    assert load() == {}
    windows = [a_window(0, 2, 5.0, 1.0), a_window(HELD_OUT, 2, 4.0, 1.0)]
    found = Measured(2, windows, [Window(0, 1, 10, 10 * STEP, 1.0, 1.0)])
    kept = {"lib": {"spin": found, "wait": found}, "half": {"spin": found}}
    save(kept)
    assert load() == kept
    spin, wait = csv_tables.entries("table", ("library", "behaviour"), table(load()))
    assert spin == {"library": "lib", "behaviour": "spin", "threads_per_core": 2, "cpu_ratio": 5, "speed_ratio": 0.2}
    assert wait == {**spin, "behaviour": "wait"}
    assert "| lib | spin | 2.0 | ×5.00 | ×0.200 | 1 | 2.0 | 2.5 (+25% ± inf%) |" in section(load())
    assert section(load()).endswith(
        "\n\nMissed: 0 of 3 are within 15 %. With the whole interval 0 within, 0 beyond; too few windows to say: 3.\n"
    )


@pytest.mark.parametrize(
    ("others", "verdict"),
    [
        ((5.0, 5.0), "Passed: 1 of 1 are within 15 %. With the whole interval 1 within, 0 beyond"),
        ((4.0, 4.0), "Missed: 0 of 1 are within 15 %. With the whole interval 0 within, 1 beyond"),
        ((2.0, 8.0), "Missed: 0 of 1 are within 15 %. With the whole interval 0 within, 0 beyond"),
    ],
)
def test_a_row_passes_with_all_of_its_interval_alone(others: tuple[float, ...], verdict: str) -> None:
    table_windows = [a_window(number, 1, 5.0, 1.0) for number in range(HELD_OUT)]
    found = measured(*table_windows, *(a_window(HELD_OUT, 1, cpu_ratio, 1.0) for cpu_ratio in others))
    assert f"\n{verdict}; too few" in section({"lib": {"spin": found}})


def test_a_library_that_is_not_installed_is_left_out_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_penalty, "KEPT", tmp_path / "kept.json")
    monkeypatch.setattr(thread_penalty, "TABLE", tmp_path / "table.csv")
    result = CliRunner().invoke(app, ["--frameworks", str(tmp_path / "none"), "--only", "lightgbm"])
    assert result.exit_code == 0
    assert "lightgbm: left out, there is no" in result.stderr
    assert load() == {}


def test_the_page_has_every_policy_under_every_behaviour() -> None:
    study, library = threads.STUDIES[0], libraries()[0]
    found = list(threads.rows(study, library, [1, 2]))
    assert {(row.way, row.policy) for row in found} == {
        (way, policy) for way in threads.WAYS for policy in ("fair", *study.policies)
    }
    (base,) = (row for row in found if (row.way, row.policy) == ("one thread", "fair"))
    assert base.ratios == [1.0, 1.0]
    assert len(threads.table(found).splitlines()) == 1 + len(found)
    page = list(threads.summary([threads.table(found), threads.table(row._replace(ratios=[4.0]) for row in found)]))
    assert page[0].endswith("| 2.00 (1.00–4.00) |")
    assert len(page) == 1 + len(study.policies)
