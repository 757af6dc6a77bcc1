from pathlib import Path

import pytest

from controller.adapters.prometheus_server import PrometheusBinaries


@pytest.fixture(scope="session")
def promtool(prometheus_binaries: PrometheusBinaries) -> Path:
    if prometheus_binaries.promtool is None:
        pytest.skip("Prometheus is here without promtool; install the package that has it")
    return prometheus_binaries.promtool
