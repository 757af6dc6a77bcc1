"""A Prometheus that takes OTLP. Debian's is too old for that, so it is the test-bed's, built from its Go module."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml
from support.programs import built

from slopewise.adapters.local.prometheus_install import PrometheusBinaries
from slopewise.adapters.local.prometheus_server import PrometheusServer
from testbed.builds import prometheus_build


class OtlpPrometheus(PrometheusServer):
    """With its OTLP receiver, and nothing to scrape. `settings` are those of its `otlp` section."""

    def __init__(self, data_dir: Path, settings: Mapping[str, object] | None = None) -> None:
        super().__init__(PrometheusBinaries(built(prometheus_build()) / "prometheus", None, "3"), data_dir)
        self._settings = settings

    @property
    def endpoint(self) -> str:
        """For OTEL_EXPORTER_OTLP_ENDPOINT."""
        return f"{self.url}/api/v1/otlp"

    def _write_configuration(self) -> None:
        super()._write_configuration()
        if self._settings is not None:
            path = self.data_dir / "prometheus.yml"
            path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "otlp": dict(self._settings)}))

    def _flags(self) -> list[str]:
        return [*super()._flags(), "--web.enable-otlp-receiver"]
