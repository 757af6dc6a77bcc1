"""Keras: early stopping, data of no length, a later epoch, a second fit, and a thread of its own for callbacks."""

import sys
import threading

import keras
import numpy as np
from scraping import show

from slopewise_exporter import Reporter
from slopewise_exporter.keras import ReportCallback, SlopewiseCallback

x = np.random.default_rng(0).standard_normal((64, 4), dtype=np.float32)
y = x.sum(1, keepdims=True)


class Show(keras.callbacks.Callback):
    def __init__(self, check):
        super().__init__()
        self.check = check

    def on_epoch_begin(self, epoch, logs=None):
        show(f"{self.check} epoch {epoch}")


class Threads(ReportCallback):
    seen = set()

    def on_train_batch_end(self, batch, logs=None):
        self.seen.add(threading.current_thread() is threading.main_thread())
        super().on_train_batch_end(batch, logs)


def batches():
    for at in range(0, 64, 8):
        yield x[at : at + 8], y[at : at + 8]


def fit(check, *callbacks, data=None, **arguments):
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    given = {"x": x, "y": y, "batch_size": 8} if data is None else {"x": data}
    model.fit(**given, verbose=0, callbacks=[*callbacks, Show(check)], **arguments)
    show(check)


never_better = keras.callbacks.EarlyStopping("loss", patience=1, mode="max")
with Reporter(linger_seconds=0):
    fit("early", ReportCallback(), never_better, epochs=50, validation_data=(x, y))
with Reporter(linger_seconds=0):
    fit("stream", ReportCallback(), data=batches(), epochs=1)
with Reporter(linger_seconds=0):
    fit("later", ReportCallback(), epochs=5, initial_epoch=3)
    fit("second", ReportCallback(), epochs=2)
with Reporter(linger_seconds=0):
    fit("threads", Threads(), epochs=4)
    print("THREADS", sorted(Threads.seen), flush=True)
with Reporter(linger_seconds=0) as reporter, SlopewiseCallback(sys.argv[1], reporter=reporter) as saving:
    fit("checkpoints", saving, never_better, epochs=50)
