"""A scrape of the controller of 10,000 jobs under `marginal`: CPU of its page, beside the client library's page.

Gate: the page, packed, takes at most 0.4 of the CPU that the client library takes to write the same samples, which is
the baseline of the same run. Prometheus scrapes every 15 s, so a page costs as much as several passes together.
"""

from __future__ import annotations

import gzip
import sys

from bench_decide import INTERVAL_SECONDS, SIZES, seconds_of, with_curves, world
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from slopewise.loop import calm_garbage_collector
from slopewise.model import PassReport
from slopewise.policies import Setting, build, find
from slopewise.telemetry.families import page
from slopewise.telemetry.job_metrics import LastPasses

BOUND_RATIO = 0.4
"""Runs of 0.27 (beside a load of 10) and 0.31, on two cores."""
ACCEPT = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8"
"""What Prometheus 3 asks for."""


def a_registry() -> CollectorRegistry:
    """With the metrics of a pass."""
    snapshot, memory = with_curves(*world(*SIZES[-1]))
    policy = build("marginal", find("marginal").parameters(), Setting(INTERVAL_SECONDS, "limits"))
    decisions, registry, last = policy.decide(snapshot, memory), CollectorRegistry(), LastPasses()
    last.replace_pass(
        "bench",
        PassReport(snapshot.taken_at_seconds, "marginal", {}, 0.0, snapshot=snapshot, decisions=decisions),
        "limits",
    )
    registry.register(last)
    return registry


def main() -> int:
    """Print the figures; 1 when the bound is missed."""
    calm_garbage_collector()  # as `slopewise run` does
    registry = a_registry()
    encode, _ = choose_encoder(ACCEPT)
    library, *_ = seconds_of(lambda: gzip.compress(encode(registry)))
    own, *_ = seconds_of(lambda: page(registry, ACCEPT, "gzip"))
    held = own <= BOUND_RATIO * library
    print(f"{SIZES[-1][0]} jobs: {own:.2f} s of CPU a scrape; as the client library writes it {library:.2f} s")
    print(f"bound {BOUND_RATIO:.2f} of that: {'held' if held else 'MISSED'}")
    return int(not held)


if __name__ == "__main__":
    sys.exit(main())
