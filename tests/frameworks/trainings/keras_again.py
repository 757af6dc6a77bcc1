"""A Keras training that fails, and after it, in the same process, one that ends well and one that SIGTERM ends."""

import os
import signal
import sys

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np

from slopewise_exporter import Reporter
from slopewise_exporter.keras import SlopewiseCallback

inputs = np.random.default_rng(1).standard_normal((64, 4), dtype=np.float32)
targets = inputs.sum(1, keepdims=True)


class At(keras.callbacks.Callback):
    def __init__(self, batch, act):
        super().__init__()
        self.batch = batch
        self.act = act

    def on_train_batch_end(self, batch, logs=None):
        if batch == self.batch:
            self.act()


def fail():
    raise ZeroDivisionError


def tell():
    signal.raise_signal(signal.SIGTERM)


def fit(*callbacks):
    model.fit(inputs, targets, batch_size=8, epochs=1, verbose=0, callbacks=[*callbacks, callback])


def say(what):
    print(what, signal.getsignal(signal.SIGTERM).name, callback.steps, reporter.steps, flush=True)


model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile("adam", "mse")
reporter = Reporter(framework="keras")
callback = SlopewiseCallback(sys.argv[1], reporter=reporter)
try:
    with callback:
        fit(At(3, fail))
except ZeroDivisionError:
    say("failed")
fit()
say("ended")
fit(At(1, tell))
