"""What is worth reporting of resources that come back, and when those that did not are tried again."""

from __future__ import annotations

from slopewise.feedback.restore import RestoreReport
from slopewise.manager.finalization import NewOutcomes
from slopewise.manager.policy_runner import CONFIRM_SECONDS, Retry


def test_that_a_pod_still_waits_is_no_news() -> None:
    news = NewOutcomes()
    assert news.of(RestoreReport(waiting={"a": "tried in 57 s"})).waiting == {"a": "tried in 57 s"}
    assert news.of(RestoreReport(waiting={"a": "tried in 52 s"})) == RestoreReport()


def test_that_a_waiting_pod_fails_or_is_restored_is_news() -> None:
    news = NewOutcomes()
    news.of(RestoreReport(waiting={"a": "no room", "b": "no room"}))
    text = news.of(RestoreReport(failed={"a": "refused"}, restored={"b": ""}))
    assert (text.failed, text.restored) == ({"a": "refused"}, {"b": ""})


def test_a_pod_that_waits_again_after_it_was_restored_is_news() -> None:
    news = NewOutcomes()
    news.of(RestoreReport(waiting={"a": "no room"}))
    news.of(RestoreReport(restored={"a": ""}))
    assert news.of(RestoreReport(waiting={"a": "no room"})).waiting == {"a": "no room"}


def test_what_was_just_accepted_is_no_news_and_no_trouble_but_is_not_back() -> None:
    given_back = RestoreReport(accepted={"a": "accepted"})
    assert NewOutcomes().of(given_back) == RestoreReport()
    assert (given_back.trouble, given_back.outstanding, given_back.settled) == ({}, {"a": "accepted"}, False)


def test_tries_in_vain_come_less_and_less_often() -> None:
    pauses, retry = [], None
    for _ in range(6):
        retry = Retry.after(retry, RestoreReport(waiting={"a": "no room"}))
        pauses.append(retry.pause_seconds)
    assert pauses == [5.0, 10.0, 20.0, 40.0, 80.0, 80.0]


def test_a_try_that_helped_is_followed_soon() -> None:
    helped = RestoreReport(restored={"a": ""}, waiting={"b": "no room"})
    assert Retry.after(Retry(80.0, 0.0), helped).pause_seconds == 5.0


def test_whether_what_was_accepted_is_in_effect_is_looked_at_sooner_and_then_less_and_less_often() -> None:
    accepted = RestoreReport(accepted={"a": "accepted"})
    first = Retry.after(None, accepted)
    assert [first.pause_seconds, Retry.after(first, accepted).pause_seconds] == [CONFIRM_SECONDS, 2 * CONFIRM_SECONDS]
