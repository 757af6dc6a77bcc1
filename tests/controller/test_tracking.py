"""First times are kept while a thing is seen, and a message is new until it was reported."""

from __future__ import annotations

from slopewise.tracking import FirstSeen, OncePerChange, TtlMap


def test_what_is_seen_again_keeps_its_first_time() -> None:
    seen = FirstSeen[str]()
    assert [seen.at("a", now) for now in (10.0, 11.0, 9.0, 12.0)] == [10.0, 10.0, 9.0, 9.0]
    assert (seen.seconds("a", 12.0), seen.seconds("b", 12.0)) == (3.0, 0.0)


def test_what_is_not_seen_any_more_is_forgotten() -> None:
    seen = FirstSeen[str]()
    seen.keep({"a", "b"}, 10.0)
    seen.keep({"b", "c"}, 20.0)
    assert {key: seen.seconds(key, 20.0) for key in seen} == {"b": 10.0, "c": 0.0}
    seen.at("c", 30.0)
    seen.forget_before(30.0)
    assert list(seen) == ["c"]
    seen.forget("c")
    assert seen.at("c", 40.0) == 40.0


def test_a_message_is_new_once_and_again_when_it_changes() -> None:
    reported = OncePerChange[str, str]()
    assert [reported.is_new("a", message) for message in ("x", "x", "y", "x")] == [True, False, True, True]
    assert reported.is_new("b", "x")
    reported.forget("a")
    assert reported.is_new("a", "x")
    reported.forget_all_but({"b"})
    assert ("a" in reported, "b" in reported) == (False, True)


def test_a_message_that_changes_all_the_time_is_reported_after_a_pause() -> None:
    reported = OncePerChange[str, str](pause_seconds=60.0)
    assert [reported.is_new("a", message, now) for message, now in (("x", 0.0), ("y", 59.0), ("y", 60.0))] == [
        True,
        False,
        True,
    ]


def test_a_value_counts_for_a_while_and_the_oldest_makes_room() -> None:
    now, asked = [0.0], list[str]()
    kept = TtlMap[str, int](10.0, lambda: now[0], most=2)

    def ask() -> int:
        asked.append("asked")
        return len(asked)

    assert [kept.get("a", ask), kept.get("a", ask)] == [1, 1]
    now[0] = 10.0
    assert ("a" in kept, list(kept)) == (False, [])
    assert kept.get("a", ask) == 2
    kept.put("b", 7)
    kept.put("c", 8)
    assert sorted(kept) == ["b", "c"]
