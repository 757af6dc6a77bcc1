"""Keras on JAX: several batches in one execution, whose callbacks run in other threads than the training."""

import keras
import numpy as np
from scraping import show

from slopewise_exporter import Reporter
from slopewise_exporter.keras import ReportCallback

x = np.random.default_rng(0).standard_normal((80, 4), dtype=np.float32)
y = x.sum(1, keepdims=True)
print("BACKEND", keras.backend.backend(), flush=True)
for at_once in (1, 4, 5, 16):
    with Reporter(linger_seconds=0):
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", steps_per_execution=at_once)
        model.fit(x, y, batch_size=8, epochs=5, verbose=0, validation_data=(x, y), callbacks=[ReportCallback()])
        show(f"{at_once} at once")
