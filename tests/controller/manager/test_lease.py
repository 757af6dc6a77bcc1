"""No write is made without the lease: by what an API server receives, for every kind of write there is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest
from support.requests_made import WRITES, Office, Right

from slopewise.adapters.kube.client.fencing import NotLeadingError


@pytest.fixture
def office() -> Iterator[Office]:
    with Office() as office:
        yield office


@pytest.mark.parametrize("right", WRITES, ids=" ".join)
def test_with_the_lease_it_is_written_and_without_it_nothing_is(office: Office, right: Right) -> None:
    before, write = WRITES[right]
    before(office)
    office.server.requests.clear()

    office.leads = False
    with suppress(NotLeadingError):
        write(office)
    assert office.writes() == set()

    office.leads = True
    write(office)
    assert right in office.writes()
