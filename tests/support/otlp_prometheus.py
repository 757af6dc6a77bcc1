"""A Prometheus that takes OTLP. Debian's is too old for that, so it is the test-bed's, built from its Go module."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from slopewise.adapters.local.prometheus_install import PrometheusBinaries
from slopewise.adapters.local.prometheus_server import PrometheusServer
from slopewise.errors import MissingToolError
from testbed.builds import bring, prometheus_build
from testbed.progress import Progress
from testbed.settings import read_settings


def otlp_binaries() -> PrometheusBinaries:
    """Built now when the cache has none; the test is skipped where it cannot be."""
    try:
        folder = bring(prometheus_build(), read_settings().cache_folder, Progress(sys.stderr))
    except MissingToolError as error:
        pytest.skip(str(error))
    return PrometheusBinaries(folder / "prometheus", None, "3")


class OtlpPrometheus(PrometheusServer):
    """With its OTLP receiver, and nothing to scrape. `settings` are those of its `otlp` section."""

    def __init__(self, data_dir: Path, settings: Mapping[str, object] | None = None) -> None:
        super().__init__(otlp_binaries(), data_dir)
        self._settings = settings

    @property
    def endpoint(self) -> str:
        """For OTEL_EXPORTER_OTLP_ENDPOINT."""
        return f"{self.url}/api/v1/otlp"

    def _write_configuration(self) -> None:
        super()._write_configuration()
        if self._settings is not None:
            path = self._data_dir / "prometheus.yml"
            path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "otlp": dict(self._settings)}))

    def _flags(self) -> list[str]:
        return [*super()._flags(), "--web.enable-otlp-receiver"]
