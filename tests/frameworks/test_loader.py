"""A real DataLoader behind the wrapper: its waits are most of the steps' time where its rows are slow."""

from __future__ import annotations


def test_a_slow_loader_is_seen(run_training):
    done = run_training("input_bound")
    assert done.returncode == 0, done.stderr
    lines = [line.rpartition(" ") for line in done.stdout.splitlines() if line and not line.startswith("#")]
    now = {name: float(value) for name, _, value in lines}
    assert (now["training_steps_planned"], now["training_steps_total"], now["training_epochs_total"]) == (16, 16, 2)
    waited = now["training_wait_seconds_total"]
    assert waited >= 16 * 4 * 0.002
    assert waited / (waited + now["training_step_duration_seconds_sum"]) > 0.3
