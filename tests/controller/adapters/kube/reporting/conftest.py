"""A policy whose passes a test makes up."""

from __future__ import annotations

import pytest
from support.api_server import ApiServer
from support.pass_reports import ReportedPasses


@pytest.fixture
def passes(server: ApiServer) -> ReportedPasses:
    return ReportedPasses(server)
