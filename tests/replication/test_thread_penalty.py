"""What threads cost: the arithmetic from steps to penalties and to simulated CPU-seconds, and the page."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from replication import thread_penalty, threads
from replication.thread_penalty import (
    app,
    compared,
    load,
    margin,
    missing_windows,
    plan,
    save,
    section,
    simulated_cpu_seconds,
    table,
)
from replication.thread_windows import AROUND, HELD_OUT, ONE_IN, Due, Measured, Window
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
    assert "| lib | spin | 2.0 | ×5.00 | ×0.200 | 1 | 2.0 | 2.5 (+25% ± inf%) | 6 |" in section(load())
    assert section(load()).endswith(
        "\n\nMissed: 0 of 3 are within 15 %. With the whole interval 0 within, 0 beyond; too few windows to say: 3. "
        "`--minutes 10` would most likely decide 3 rows more.\n"
    )


def test_how_far_two_sides_are_apart_is_known_as_well_as_windows_of_one_side_are_alike() -> None:
    one, other = ([Window(0, 1, steps, 1.0, 1.0, 1.0) for steps in sides] for sides in ((98, 102), (49, 51)))
    assert margin(one, other) == pytest.approx(4.3027 * 0.02 * 2**0.5, rel=1e-4)
    assert margin(one * 4, other * 4) < margin(one, other) / 2
    assert margin(one[:1], other[:1]) == margin(one, []) == float("inf")


@pytest.mark.parametrize(
    ("others", "verdict"),
    [
        ((5.0,) * 4, "Passed: 1 of 1 are within 15 %. With the whole interval 1 within, 0 beyond"),
        ((4.0,) * 4, "Missed: 0 of 1 are within 15 %. With the whole interval 0 within, 1 beyond"),
        ((2.0, 8.0) * 2, "Missed: 0 of 1 are within 15 %. With the whole interval 0 within, 0 beyond"),
        ((5.0,) * 3, "Missed: 1 of 1 are within 15 %. With the whole interval 0 within, 0 beyond"),
    ],
)
def test_a_row_passes_with_all_of_its_interval_alone(others: tuple[float, ...], verdict: str) -> None:
    table_windows = [a_window(number, 1, 5.0, 1.0) for number in (0, 1, 2, 4)]
    found = measured(*table_windows, *(a_window(HELD_OUT, 1, cpu_ratio, 1.0) for cpu_ratio in others))
    assert f"\n{verdict}; too few" in section({"lib": {"spin": found}})


NOISY = [Window(number, 1, 5.5 if number in (1, 4, 6, 7) else 4.5, 1.0, 1.0, 2.0) for number in range(8)]
"""Six of the table and two beside it, 10 % above and below their mean."""

QUIET = [NOISY[0]._replace(round=number, steps=4.5) for number in range(16)]
"""Twelve and four, all alike."""


def test_the_windows_that_a_row_misses_make_both_sides_equal_and_its_interval_small() -> None:
    (row,) = compared(measured(*NOISY))
    assert row.half == pytest.approx(2.4469 * (0.08 / 6 * (1 / 6 + 1 / 2)) ** 0.5, rel=0.001)
    assert (row.is_decided, row.missing) == (False, (13, 17))
    (alike,) = compared(measured(*(window._replace(steps=4.5) for window in NOISY)))
    assert (alike.is_decided, alike.missing) == (False, (0, 2))
    (told,) = compared(measured(*QUIET))
    assert (told.is_decided, told.missing) == (True, (0, 0))


def test_minutes_are_for_the_rows_that_take_least() -> None:
    several = [window._replace(at_once=2, cores=1.0) for window in NOISY]  # of 3 s and not of 0.8
    kept = {"lib": {"spin": measured(*NOISY), "wait": measured(*several)}}

    def rows(seconds: float, *only: str) -> dict[tuple[str, str], list[int]]:
        return {key: [each.around for each in found] for key, found in plan(kept, seconds, only).items()}

    assert rows(30) == {}
    assert rows(60) == {("lib", "spin"): [1]}
    assert rows(600) == rows(600, "lib") == {("lib", "spin"): [1], ("lib", "wait"): [2]}
    assert rows(600, "other") == {}


def test_the_windows_of_both_sides_are_measured_evenly_over_the_time() -> None:
    found = measured(*NOISY)
    dues = missing_windows(found, list(compared(found)))
    held_out = [due.round % ONE_IN == HELD_OUT for due in dues]
    assert (held_out.count(False), held_out.count(True)) == (13, 17)
    assert held_out[:15].count(True) in (8, 9)
    assert len(set(dues)) == len(dues)
    assert all(due.round >= len(NOISY) and due[1:] == (1, 2) for due in dues)
    assert missing_windows(measured(), []) == []


def test_minutes_add_windows_of_their_rows_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_penalty, "KEPT", tmp_path / "kept.json")
    monkeypatch.setattr(thread_penalty, "TABLE", tmp_path / "table.csv")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    asked = []

    def stand_in(library: str, python: str, behaviour: str, dues: list[Due]) -> list[Window]:
        asked.append((library, behaviour))
        return [NOISY[0]._replace(round=due.round) for due in dues]

    monkeypatch.setattr(thread_penalty, "measured", stand_in)
    save({"openblas": {"spin": measured(*NOISY), "wait": measured(*QUIET)}})
    result = CliRunner().invoke(app, ["--only", "openblas", "--minutes", "1"])
    assert result.exit_code == 0, result.output
    assert asked == [("openblas", "spin")]
    assert {name: len(found.windows) for name, found in load()["openblas"].items()} == {"spin": 38, "wait": 16}


def test_a_library_that_is_not_installed_is_left_out_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_penalty, "KEPT", tmp_path / "kept.json")
    monkeypatch.setattr(thread_penalty, "TABLE", tmp_path / "table.csv")
    result = CliRunner().invoke(app, ["--frameworks", str(tmp_path / "none"), "--only", "lightgbm"])
    assert result.exit_code == 0
    assert "lightgbm: left out, there is no" in result.stderr
    assert load() == {}
    assert not thread_penalty.TABLE.exists()


@pytest.mark.parametrize("option", ["--render", "--minutes=10"])
def test_without_windows_there_is_none_to_be_added_and_the_table_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    monkeypatch.setattr(thread_penalty, "KEPT", tmp_path / "kept.json")
    monkeypatch.setattr(thread_penalty, "TABLE", tmp_path / "table.csv")
    result = CliRunner().invoke(app, [option])
    assert result.exit_code == 2
    assert "kept.json has no windows yet" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_windows_of_another_number_of_threads_are_not_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_penalty, "KEPT", tmp_path / "kept.json")
    monkeypatch.setattr(thread_penalty, "TABLE", tmp_path / "table.csv")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    save({"openblas": dict.fromkeys(thread_penalty.BEHAVIOURS, measured(*NOISY))})
    kept = load()
    result = CliRunner().invoke(app, ["--only", "openblas"])
    assert result.exit_code == 2
    assert "kept.json is of 2 cores, and here are 16" in result.stderr
    assert load() == kept
    assert CliRunner().invoke(app, ["--render"]).exit_code == 0


def test_a_library_that_there_is_not_is_refused() -> None:
    result = CliRunner().invoke(app, ["--only", "lightgmb"])
    assert result.exit_code == 2
    assert "--only lightgmb: there is no such library" in result.stderr


def test_the_page_has_every_policy_under_every_behaviour() -> None:
    study, library = threads.STUDIES[0], libraries()[0]
    found = list(threads.rows(study, library, [1, 2]))
    assert {(row.way, row.policy) for row in found} == {
        (way, policy) for way in threads.WAYS for policy in ("fair", *study.policies)
    }
    (base,) = (row for row in found if (row.way, row.policy) == ("one thread", "fair"))
    assert base.ratios == [1.0, 1.0]
    assert len(threads.table(found).splitlines()) == 1 + len(found)
    assert "over 2 seeds of each" in threads.policies([threads.table(found)])
    more = [row._replace(seconds=[*row.seconds, 1.0]) for row in found]
    assert "over 2 to 3 seeds of each" in threads.policies([threads.table(found), threads.table(more)])
    page = list(threads.summary([threads.table(found), threads.table(row._replace(ratios=[4.0]) for row in found)]))
    assert page[0].endswith("| 2.00 (1.00–4.00) |")
    assert len(page) == 1 + len(study.policies)
