"""FlowCon's published fixed run, simulated through the real pass under the reading that fits Fig. 6.5."""

from __future__ import annotations

import pytest
from support.outcomes import a_run_outcome

from replication.claims import Candidate
from replication.run import Runs, with_variant
from replication.settings_flowcon import FITS, FIXED, cpu_percent
from slopewise.simulator.world.model import RunOutcome, TraceEvent


@pytest.fixture(scope="module")
def fixed_run() -> RunOutcome:
    """α = 5 %, itval = 20 s."""
    candidate = Candidate("flowcon", {"alpha": 0.05}, 20.0)
    return Runs(FIXED.scenario, 1, FITS.scenario, trace=True).of(with_variant(candidate, FITS))


def test_vae_is_below_alpha_at_20_s_and_at_40_s(fixed_run: RunOutcome) -> None:
    classes = [(e.at_seconds, e.detail["class"]) for e in fixed_run.events if (e.kind, e.job) == ("class", "vae")]
    listed = [each for each in classes if each[1] is not None]
    assert [(at, name) for at, name in listed if at >= 20][:2] == [(20.0, "WL"), (40.0, "CL")]


def test_from_the_newcomers_first_loss_on_vae_has_a_quarter_beside_three_quarters(fixed_run: RunOutcome) -> None:
    """The newcomer arrives at 40 s, its loss is seen at 42 s, and its limit is 1 beside 0.25 until it is measured."""
    shares = [cpu_percent(fixed_run, name, 42.5, 60.0) for name in ("vae", "mnist-pytorch")]
    assert shares == pytest.approx([25.0, 75.0], abs=0.1)


def test_cpu_between_two_times_is_the_mean_of_its_rates() -> None:
    rates = ((10.0, 0.5), (20.0, 1.0), (30.0, 0.0))
    events = [TraceEvent(at, "cpu", "a", "n1", {"cores": cores, "speed": cores}) for at, cores in rates]
    run = a_run_outcome(events=tuple(events))
    assert cpu_percent(run, "a", 15.0, 25.0) == pytest.approx(75.0)
    assert cpu_percent(run, "a", 0.0, 40.0) == pytest.approx(37.5)
    assert cpu_percent(run, "b", 0.0, 40.0) == 0.0
