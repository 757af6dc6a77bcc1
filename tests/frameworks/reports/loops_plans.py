"""Ignite, fastai, Accelerate, JAX and scikit-learn: early ends, waits, searches for a learning rate, seldom logs."""

import pickle
import sys
import time

import torch
from scraping import show

from slopewise_exporter import Reporter

rows = torch.randn(64, 4)
pairs = torch.utils.data.TensorDataset(rows, rows.sum(1, keepdim=True))
mse = torch.nn.functional.mse_loss


def ignite():
    from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
    from ignite.handlers import EarlyStopping
    from ignite.metrics import Loss

    from slopewise_exporter.ignite import ReportHandler

    def make():
        network = torch.nn.Linear(4, 1)
        trainer = create_supervised_trainer(network, torch.optim.SGD(network.parameters(), lr=0.05), mse)
        return trainer, create_supervised_evaluator(network, metrics={"loss": Loss(mse)})

    def slow():
        for batch in torch.utils.data.DataLoader(pairs, batch_size=8):
            time.sleep(0.01)
            yield batch

    loader = torch.utils.data.DataLoader(pairs, batch_size=8)
    with Reporter(linger_seconds=0):
        trainer, evaluator = make()
        ReportHandler().attach(trainer, evaluator)
        evaluator.add_event_handler(Events.COMPLETED, EarlyStopping(1, lambda engine: -engine.state.epoch, trainer))
        trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run(loader))
        trainer.add_event_handler(Events.ITERATION_COMPLETED(once=2), lambda: show("ignite early first"))
        trainer.run(loader, max_epochs=50)
        show("ignite early")
    with Reporter(linger_seconds=0):
        trainer, _ = make()
        ReportHandler(loss=lambda output: output).attach(trainer)
        trainer.add_event_handler(Events.ITERATION_COMPLETED(once=2), lambda: show("ignite stream first"))
        trainer.run(slow(), max_epochs=1)
        show("ignite stream")
    with Reporter(linger_seconds=0):
        trainer, _ = make()
        ReportHandler().attach(trainer)
        trainer.run(loader, max_iters=11)
        show("ignite iterations")


def fastai():
    from fastai.callback.schedule import lr_find  # noqa: F401 - patches the learner
    from fastai.callback.tracker import EarlyStoppingCallback
    from fastai.data.core import DataLoaders
    from fastai.data.load import DataLoader
    from fastai.learner import Learner

    from slopewise_exporter.fastai import ReportCallback

    items = list(pairs)
    learner = Learner(
        DataLoaders(DataLoader(items, bs=8), DataLoader(items, bs=32)),
        torch.nn.Linear(4, 1),
        loss_func=mse,
        cbs=ReportCallback(),
        path=sys.argv[1],
    )
    with Reporter(linger_seconds=0):
        learner.lr_find(num_it=10, show_plot=False, suggest_funcs=())
        learner.get_preds()
        show("fastai search")
        learner.fit(2)
        show("fastai fit")
        learner.fit(50, cbs=EarlyStoppingCallback(monitor="train_loss", comp=lambda new, best: False, patience=2))
        show("fastai early")
        pickle.dumps(learner)


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


{"ignite": ignite, "fastai": fastai, "accelerate": accelerate, "jax": jax}[sys.argv[2]]()
