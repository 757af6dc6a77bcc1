"""Accelerate and JAX: plans, seldom logs, losses on a device."""

import sys
import time

import torch
from scraping import show

from slopewise_exporter import Reporter

rows = torch.randn(64, 4)


def accelerate():
    from accelerate import Accelerator

    from slopewise_exporter.accelerate import SlopewiseTracker

    with Reporter(linger_seconds=0):
        accelerator = Accelerator(cpu=True, log_with=SlopewiseTracker())
        accelerator.init_trackers("job", config={"max_train_steps": 40, "lr": 0.1})
        for step in range(10, 41, 10):
            accelerator.log({"train_loss": torch.tensor(2.0), "lr": 0.1}, step=step)
            if step == 20:
                accelerator.log({"epoch": 1, "eval_loss": 0.5}, step=step)
                show("accelerate half")
        accelerator.end_training()
        show("accelerate")
    with Reporter(linger_seconds=0):
        accelerator = Accelerator(cpu=True, log_with=SlopewiseTracker())
        accelerator.init_trackers("job")
        for _ in range(3):
            accelerator.log({"loss": 2.0})
        show("accelerate bare")


def jax():
    import jax
    import jax.numpy as jnp

    inputs, targets = jnp.asarray(rows.numpy()), jnp.asarray(rows.numpy().sum(1))

    @jax.jit
    def step(weights):
        loss, gradient = jax.value_and_grad(lambda w: jnp.mean((inputs @ w - targets) ** 2))(weights)
        return weights - 0.05 * gradient, loss

    weights = jnp.zeros(4)
    with Reporter(linger_seconds=0) as reporter:
        for _ in reporter.epochs(2, range(20)):
            for _ in range(20):
                weights, loss = step(weights)
                reporter.step(loss)
        last = float(loss)
        reporter.step(jnp.float32("nan"))
        time.sleep(1.1)
        reporter.step(loss)
        show("jax")
        print("LAST", last, flush=True)


{"accelerate": accelerate, "jax": jax}[sys.argv[2]]()
