"""What is known of a watched kind: the newest of each object, and which callbacks receive it."""

from __future__ import annotations

from typing import Any

import pytest

from slopewise.adapters.kube.cache.store import Collection, Kept, Key

Json = dict[str, Any]


def thing(name: str, version: int, value: object = 1, namespace: str = "n") -> Json:
    return {"metadata": {"name": name, "namespace": namespace, "resourceVersion": str(version)}, "value": value}


class Recorded:
    """A collection of `name=value` texts, and what it reported."""

    def __init__(self) -> None:
        self.changes: list[tuple[str | None, str | None]] = []
        self.of = Collection("things", self.parse, lambda old, new: self.changes.append((old, new)))

    @staticmethod
    def parse(obj: Json) -> str:
        return f"{obj['metadata']['name']}={int(obj['value'])}"

    def listing(self, version: int, *things: Json) -> None:
        self.of.begin_listing()
        listed: dict[Key, Kept[str]] = self.of.read_all(things)
        self.of.replace(listed, version)


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


def test_objects_are_in_the_order_of_namespace_and_name(recorded: Recorded) -> None:
    recorded.listing(9, thing("b", 1), thing("a", 2), thing("z", 3, namespace="a"))
    assert recorded.of.items() == ("z=1", "a=1", "b=1")
    assert recorded.of.get("n", "b") == "b=1"
    assert recorded.of.get("n", "z") is None


def test_only_real_changes_are_reported(recorded: Recorded) -> None:
    recorded.listing(9, thing("a", 1), thing("b", 2))
    recorded.of.apply("MODIFIED", thing("a", 10, 5))
    recorded.of.apply("MODIFIED", thing("b", 11))
    recorded.of.apply("DELETED", thing("b", 12))
    recorded.of.apply("DELETED", thing("b", 12))
    recorded.of.apply("BOOKMARK", {"metadata": {"resourceVersion": "13"}})
    assert recorded.changes == [(None, "a=1"), (None, "b=1"), ("a=1", "a=5"), ("b=1", None)]


def test_an_older_event_does_not_undo_what_was_observed(recorded: Recorded) -> None:
    recorded.listing(9, thing("a", 9))
    recorded.of.observe(thing("a", 100, 2))
    recorded.of.apply("MODIFIED", thing("a", 99, 3))
    assert recorded.of.items() == ("a=2",)
    recorded.of.apply("MODIFIED", thing("a", 101, 4))
    assert recorded.of.items() == ("a=4",)
    recorded.of.apply("DELETED", thing("a", 112))
    recorded.of.observe(thing("a", 111, 2))
    assert recorded.of.items() == (), "a deletion is undone only by what is newer"
    recorded.of.observe(thing("a", 113, 3))
    recorded.of.apply("DELETED", thing("a", 112))
    assert recorded.of.items() == ("a=3",)


def test_what_is_observed_during_a_list_outlives_it(recorded: Recorded) -> None:
    recorded.of.begin_listing()
    listed = recorded.of.read_all([thing("a", 5)])
    recorded.of.observe(thing("a", 8, 2))
    recorded.of.observe(thing("new", 9))
    recorded.of.replace(listed, 7)
    assert recorded.of.items() == ("a=2", "new=1")


def test_a_list_wins_over_everything_that_was_known_before_it(recorded: Recorded) -> None:
    recorded.listing(900, thing("a", 900, 2), thing("gone", 899))
    recorded.of.observe(thing("a", 901, 3))
    recorded.listing(100, thing("a", 90, 1))  # a backup was restored
    assert recorded.of.items() == ("a=1",)


def test_an_unreadable_object_is_gone_and_reported_once(recorded: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    recorded.listing(9, thing("a", 1), thing("b", 2, "rubbish"))
    assert (recorded.of.items(), recorded.of.unreadable) == (("a=1",), 1)
    recorded.of.apply("MODIFIED", thing("b", 10, 3))
    assert (recorded.of.items(), recorded.of.unreadable) == (("a=1", "b=3"), 0)
    recorded.of.apply("MODIFIED", thing("b", 11, "rubbish"))
    recorded.of.apply("MODIFIED", thing("b", 12, "rubbish"))
    assert (recorded.of.items(), recorded.changes[-1]) == (("a=1",), ("b=3", None))
    recorded.of.apply("DELETED", thing("b", 13, "rubbish"))
    assert recorded.of.unreadable == 0
    assert capsys.readouterr().out.count("object skipped") == 2, "once each time it becomes so"
