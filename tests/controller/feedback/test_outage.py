"""When original resources are restored because no pass observes."""

from __future__ import annotations

import pytest

from slopewise.feedback.restore import Outage
from slopewise.model import PassReport

HELD = "Prometheus did not answer; nothing is changed meanwhile."


def a_report(at: float, *, held: str | None = None, failed: bool = False, requeue_at: float = 0.0) -> PassReport:
    return PassReport(at, "las", {}, requeue_at or at + 20, held=held, policy_failed=failed)


def an_outage(*, restores: bool = True) -> Outage:
    outage = Outage(20.0, 0.0, restores=restores)
    outage.note(a_report(100))
    return outage


@pytest.mark.parametrize(("at", "lasts"), [(159, False), (160, True), (165, True)])
def test_it_lasts_from_three_intervals_on(at: float, lasts: bool) -> None:
    outage = an_outage()
    report = outage.note(a_report(at, held=HELD))
    assert outage.lasts is lasts
    restored = f" No observation for {at - 100} s, {(at - 100) // 20} intervals: original resources are restored."
    assert report.held == ("Prometheus did not answer." + restored if lasts else HELD)


def test_it_ends_with_the_first_pass_that_observes() -> None:
    outage = an_outage()
    outage.note(a_report(200, held=HELD))
    outage.note(a_report(220))
    assert not outage.lasts
    outage.note(a_report(240, held=HELD))
    assert not outage.lasts


def test_a_pause_that_a_policy_planned_is_no_outage() -> None:
    outage = an_outage()
    outage.note(a_report(120, requeue_at=400))
    outage.note(a_report(400, held=HELD))
    assert not outage.lasts
    outage.note(a_report(440, held=HELD))
    assert outage.lasts


def test_a_policy_that_fails_has_observed() -> None:
    outage = an_outage()
    outage.note(a_report(150, held="the policy failed", failed=True))
    outage.note(a_report(200, held=HELD))
    assert not outage.lasts


def test_a_controller_that_never_observed_counts_from_its_start() -> None:
    outage = Outage(20.0, 100.0, restores=True)
    outage.note(a_report(160, held=HELD))
    assert outage.lasts


def test_a_policy_that_changes_nothing_restores_nothing() -> None:
    outage = an_outage(restores=False)
    assert outage.note(a_report(900, held=HELD)).held == HELD
    assert not outage.lasts
