"""Labels that grow with a training are recognised by their numbers; those of ranks and attempts are left alone."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from slopewise.adapters.prometheus.moving_labels import MAX_NUMBERS, MovingLabels, SeriesRows

Series = Iterable[tuple[dict[str, str], float]]


def readings(*each: Series, moving: MovingLabels[str] | None = None, samples: float | None = 1.0) -> set[str]:
    """What is recognised of one job after these readings, whose series are labels and levels.

    `samples`: in the window of each series; None: a full one, of which Prometheus returns no number.
    """
    moving = moving or MovingLabels[str]()
    found: dict[str, frozenset[str]] = {}
    for series in each:
        count = {} if samples is None else {"samples": samples}
        target = {"pod": "p", "instance": "10.0.0.1:9464"}
        rows = [SeriesRows({**target, **labels}, {"level": at, **count}) for labels, at in series]
        found = moving.of_jobs({"job": rows})
    return set(found.get("job", ()))


def of(label: str, *values: object, level: float = 1.0) -> Series:
    return [({label: str(value)}, level) for value in values]


def test_a_label_of_which_only_the_newest_value_is_exported_is_recognised_at_its_second_rise() -> None:
    assert readings(of("it", 10), of("it", 20)) == set()
    assert readings(of("it", 10), of("it", 20), of("it", 30)) == {"it"}


def test_a_label_of_which_all_values_stay_exported_is_recognised_while_the_old_ones_stand_still() -> None:
    old = [({"ts": "1700000000.5"}, 3.0)]
    newer = [*old, ({"ts": "1700000010.5"}, 2.0)]
    assert readings(old, newer, [*newer, ({"ts": "1700000020.5"}, 1.0)]) == {"ts"}


def test_ranks_workers_attempts_words_and_addresses_are_no_steps() -> None:
    ranks = [({"rank": str(rank)}, 1.0) for rank in range(8)]
    assert readings(*[ranks] * 5) == set(), "they do not rise"
    growing = [[({"rank": str(rank)}, 9.0 - now) for rank in range(now)] for now in range(1, 6)]
    assert readings(*growing) == set(), "the losses of the others go on"
    assert readings(of("attempt", 1), of("attempt", 2), of("attempt", 2)) == set(), "one rise is a restart"
    assert readings(*[of("host", f"10.0.0.{n}") for n in range(1, 5)]) == set()
    assert readings(*[of("run", f"run-{n}") for n in range(1, 5)]) == set()


@pytest.mark.parametrize("label", ["fold", "attempt", "run", "phase"])
def test_values_that_last_longer_than_a_window_are_no_steps(label: str) -> None:
    moving = MovingLabels[str]()
    for now in range(5):
        assert readings(of(label, *range(max(0, now - 1), now + 1)), moving=moving) == set(), "the window has both"
        assert readings(of(label, now), moving=moving, samples=None) == set()


def test_a_label_that_was_taken_for_one_of_steps_is_used_once_its_newest_series_has_a_window_of_its_own() -> None:
    moving = MovingLabels[str]()
    assert readings(of("it", 1), of("it", 1, 2), of("it", 2, 3), moving=moving) == {"it"}
    assert readings(of("it", 3), moving=moving, samples=3.0) == {"it"}
    assert readings(of("it", 3), moving=moving, samples=None) == set()
    assert readings(of("it", 3, 4), moving=moving) == set()
    assert readings(of("it", 4, 5), moving=moving) == {"it"}


def test_rare_values_that_all_stay_exported_are_still_recognised() -> None:
    each = [of("epoch", *range(now)) for now in (1, 2, 3)]
    assert readings(*each, samples=None) == {"epoch"}, "the newest is not alone, and the first would be used"


def test_ranks_beside_a_growing_label_are_told_from_it() -> None:
    each = [[({"it": str(it), "rank": str(rank)}, it + rank) for rank in range(2)] for it in (5, 6, 7)]
    assert readings(*each) == {"it"}
    assert readings(*[[({"it": str(it), "ts": str(170 + it)}, 1.0)] for it in (5, 6, 7)]) == {"it", "ts"}


def test_what_was_recognised_stays_so_while_the_job_is_there_and_is_forgotten_with_it() -> None:
    moving = MovingLabels[str]()
    assert readings(of("it", 1), of("it", 2), of("it", 3), of("it", 3), moving=moving) == {"it"}
    assert moving.of_jobs({}) == {}
    assert readings(of("it", 4), moving=moving) == set()


def test_a_label_with_very_many_values_takes_bounded_memory() -> None:
    moving = MovingLabels[str]()
    assert readings(*[of("it", *range(1000 * n)) for n in (1, 2, 3)], moving=moving) == {"it"}
    (job,) = moving._known.values()
    assert [len(numbers.levels) for numbers in job.places.values()] == [MAX_NUMBERS]
