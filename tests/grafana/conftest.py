from pathlib import Path

import pytest

from controller.adapters.prometheus_server import find_prometheus
from controller.errors import MissingToolError


@pytest.fixture(scope="session")
def promtool() -> Path:
    try:
        found = find_prometheus().promtool
    except MissingToolError as error:
        pytest.skip(str(error))
    if found is None:
        pytest.skip("Prometheus is here without promtool; install the package that has it")
    return found
