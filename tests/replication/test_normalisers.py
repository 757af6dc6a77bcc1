"""The study of what growth is divided by: its choices differ, and its page is written by it."""

from __future__ import annotations

import re

import pytest

from replication.normalisers import (
    DIVISORS,
    ENDS,
    HEAD,
    PAGE,
    SCENARIO,
    SEEDS,
    TEXT,
    UNITS,
    Choice,
    ending,
    of_seed,
)
from slopewise.estimators.growth import MIN_RANGE_RATIO
from slopewise.simulator.scenario.scenario import load_scenario
from slopewise.simulator.workload import draw

PAGE_TEXT = PAGE.read_text(encoding="utf-8")


def test_losses_end_at_each_fraction_in_turn() -> None:
    instance = draw(load_scenario(SCENARIO), 1)
    assert {job.loss_best for job in ending(instance, ENDS["0.5"]).jobs} == {0.5}
    mixed = [job.loss_best for job in ending(instance, ENDS["mixed"]).jobs]
    assert mixed[:4] == [0.3, 0.6, 0.9, 0.0]


def test_every_choice_of_a_divisor_has_figures_of_its_own() -> None:
    found = of_seed(DIVISORS, "mixed", 1)
    assert len(set(found)) == len(DIVISORS)
    assert all(len(row) == len(HEAD) and None not in row for row in found)


def test_per_interval_of_a_minute_is_per_minute_and_the_rest_differ() -> None:
    by_interval, by_minute = (Choice(per, alpha_per=per, interval_seconds=60.0) for per in ("interval", "minute"))
    same, also, other = of_seed([by_interval, by_minute, Choice("s", alpha_per="second")], "0", 1)
    assert same == also
    assert other != same


@pytest.mark.parametrize("choice", [*DIVISORS, *UNITS], ids=lambda choice: choice.name)
def test_the_page_has_a_row_of_every_choice_for_every_ending(choice: Choice) -> None:
    found = re.findall(rf"^\| ([\d.a-z]+) \| {re.escape(choice.name)} \|(.*)\|$", PAGE_TEXT, re.MULTILINE)
    assert [ends for ends, _ in found] == list(ENDS), "run `python -m replication.normalisers`"
    assert all(len(cells.split("|")) == len(HEAD) for _, cells in found)


def test_the_page_is_todays_text_and_names_what_is_taken() -> None:
    tables = re.findall(r"(?:^\|.*\n)+", PAGE_TEXT, re.MULTILINE)
    divisors, units = (table.rstrip("\n") for table in tables)
    assert TEXT.format(seeds=SEEDS, divisors=divisors, units=units) == PAGE_TEXT
    (taken,) = [choice for choice in DIVISORS if "(taken)" in choice.name]
    assert (taken.normaliser, taken.min_range_ratio) == ("range", MIN_RANGE_RATIO)
