"""Read, write, and after a conflict read again."""

from __future__ import annotations

import pytest

from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.retry import update

CONFLICT, TROUBLE = ApiError(409, "Conflict", "it has changed"), ApiError(500, "", "no")


class Shelf:
    """An object whose version is counted, and whose writes fail in a given order."""

    def __init__(self, *errors: ApiError) -> None:
        self.errors = list(errors)
        self.reads = 0

    def read(self) -> int:
        self.reads += 1
        return self.reads

    def write(self, version: int) -> str:
        if self.errors:
            raise self.errors.pop(0)
        return f"version {version}"


def test_what_is_known_already_is_read_only_after_a_conflict() -> None:
    assert update(Shelf().write, Shelf().read, 7) == "version 7"
    shelf = Shelf(CONFLICT)
    assert update(shelf.write, shelf.read, 7) == "version 1"


def test_the_last_conflict_is_the_callers() -> None:
    shelf = Shelf(CONFLICT, CONFLICT, CONFLICT)
    with pytest.raises(ApiError, match="it has changed"):
        update(shelf.write, shelf.read, tries=2)
    assert (shelf.reads, len(shelf.errors)) == (2, 1)


def test_another_error_is_not_tried_again_unless_it_is_asked_for() -> None:
    with pytest.raises(ApiError, match="no"):
        update(Shelf(TROUBLE).write, Shelf().read)
    shelf = Shelf(TROUBLE)
    assert update(shelf.write, shelf.read, again=lambda error: error.status == 500) == "version 2"
