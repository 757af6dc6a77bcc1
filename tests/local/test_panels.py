"""The dashboards over a real run on this machine: every panel has rows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from local.conftest import a_policy, observed, running, tiny
from support.panel_rows import PanelRows, all_queries, of_a_local_run
from support.waiting import eventually

from slopewise.local.workshop import Workshop
from slopewise.model import CpuControl, Objectives

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("nothing_left")]

ASKED = Objectives(qoe_seconds=0.05, deliverable_level=0.5, target_level=0.1, study="s")


@pytest.mark.parametrize("control", [None, pytest.param("limits", marks=pytest.mark.long)])
def test_every_panel_has_rows_against_the_prometheus_of_a_run_but_those_of_clusters(
    workshop: Workshop, control: CpuControl | None
) -> None:
    control = control or workshop.best_control
    # Light: jobs that use no CPU have nothing to take turns for. The panels of promises need a job that has some.
    asked = replace(tiny("a", 90, light=True), objectives=ASKED, deadline_seconds=600)
    with running(workshop, a_policy("marginal", control=control), asked, tiny("b", 90, light=True)) as session:
        assert eventually(lambda: any(report.count("applied") for report in observed(session)))
        PanelRows(session.prometheus.url, of_a_local_run(all_queries("20s"))).wait(seconds=180)
