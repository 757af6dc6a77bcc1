"""Thanos before two replicas of a Prometheus, which tests ask in the place of Prometheus itself.

With `SLOPEWISE_TEST_QUERIER=thanos` all that ask through `Scraped.asked` do so: our queries must mean the same there.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import yaml
from support.programs import built, is_ok
from support.waiting import eventually

from slopewise.adapters.local.prometheus_install import PrometheusBinaries
from slopewise.adapters.local.prometheus_server import PrometheusServer, TargetGroup, free_loopback_port
from testbed.builds import thanos_build

REPLICA_LABEL = "replica"
_READY_SECONDS = 60.0


def through_thanos() -> bool:
    """Whether tests are to ask through Thanos; else they ask Prometheus itself."""
    return os.environ.get("SLOPEWISE_TEST_QUERIER") == "thanos"


class Replica(PrometheusServer):
    """One of several that scrape the same; a label that goes out with every series distinguishes them."""

    def __init__(self, binaries: PrometheusBinaries, folder: Path, name: str, scrape_seconds: float) -> None:
        super().__init__(binaries, folder / name, scrape_interval_seconds=scrape_seconds)
        self._name = name

    def _write_configuration(self) -> None:
        super()._write_configuration()
        path = self.data_dir / "prometheus.yml"
        document = yaml.safe_load(path.read_text())
        document["global"]["external_labels"] = {"cluster": "test", REPLICA_LABEL: self._name}
        path.write_text(yaml.safe_dump(document))


class Program:
    """One of Thanos' components, which runs until it is killed, with its log beside it."""

    def __init__(self, folder: Path, name: str, *arguments: str | Path) -> None:
        self.port, self.grpc_address = free_loopback_port(), f"127.0.0.1:{free_loopback_port()}"
        addresses = (f"--http-address=127.0.0.1:{self.port}", f"--grpc-address={self.grpc_address}")
        self._log = folder / f"{name}-{self.port}.log"
        with self._log.open("wb") as output:
            command = [str(each) for each in (built(thanos_build()) / "thanos", name, *addresses, *arguments)]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def wait_until_ready(self, url: str) -> None:
        """Until `url` says yes."""
        ready = eventually(lambda: self._process.poll() is not None or is_ok(url), _READY_SECONDS)
        assert ready, self._log.read_text()
        assert self._process.poll() is None, self._log.read_text()

    def kill(self) -> None:
        """At once, as a crash would."""
        self._process.kill()
        self._process.wait(10)


class Thanos:
    """A Querier, and a sidecar beside each replica. A context manager: everything is gone on exit."""

    def __init__(self, folder: Path, replicas: Sequence[PrometheusServer], *options: str) -> None:
        """`options` are further ones of the Querier."""
        self._folder, self._replicas, self._options = folder, replicas, options
        self._programs: list[Program] = []
        self.sidecars: list[Program] = []

    def __enter__(self) -> Self:
        try:
            self.sidecars = [
                self._start("sidecar", f"--prometheus.url={each.url}", f"--tsdb.path={self._folder}")
                for each in self._replicas
            ]
            for sidecar in self.sidecars:
                sidecar.wait_until_ready(f"http://127.0.0.1:{sidecar.port}/-/ready")
            querier = self.query(*(sidecar.grpc_address for sidecar in self.sidecars), options=self._options)
            self.url = f"http://127.0.0.1:{querier.port}"
            querier.wait_until_ready(f"{self.url}/-/ready")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def query(self, *stores: str, options: Sequence[str] = ()) -> Program:
        """Start one more Querier, of these stores."""
        strictly = [f"--endpoint-strict={store}" for store in stores]
        return self._start("query", f"--query.replica-label={REPLICA_LABEL}", *strictly, *options)

    def close(self) -> None:
        for program in reversed(self._programs):
            program.kill()

    def _start(self, name: str, *arguments: str) -> Program:
        program = Program(self._folder, name, *arguments)
        self._programs.append(program)
        return program


class Asked:
    """What tests ask, and the further servers that must learn of targets."""

    def __init__(self, url: str, replicas: Sequence[PrometheusServer] = ()) -> None:
        self.url = url
        self._replicas = replicas

    def set_targets(self, targets: Sequence[TargetGroup]) -> None:
        for each in self._replicas:
            each.set_targets(targets)


@contextmanager
def prometheus_and_asked(
    binaries: PrometheusBinaries, folder: Path, scrape_seconds: float
) -> Iterator[tuple[PrometheusServer, Asked]]:
    """A Prometheus, and what is asked about what it scrapes: itself, or Thanos before it and a replica."""
    if not through_thanos():
        with PrometheusServer(binaries, folder / "data", scrape_interval_seconds=scrape_seconds) as server:
            yield server, Asked(server.url)
        return
    replicas = [Replica(binaries, folder, name, scrape_seconds) for name in ("a", "b")]
    with replicas[0], replicas[1], Thanos(folder, replicas) as thanos:
        yield replicas[0], Asked(thanos.url, replicas[1:])
