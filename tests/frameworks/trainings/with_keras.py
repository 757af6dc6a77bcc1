"""A Keras model with dropout and Adam, whose data begin at the step at which the last life ended."""

import hashlib
import os
import sys

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
import torch

from slopewise_exporter import Reporter
from slopewise_exporter.keras import SlopewiseCallback
from slopewise_exporter.order import BatchOrder

STEPS = 100

torch.set_num_threads(1)
keras.utils.set_random_seed(0)
inputs = np.random.default_rng(1).standard_normal((512, 16), dtype=np.float32)
targets = (inputs**2).sum(1, keepdims=True)


class Batches(keras.utils.PyDataset):
    def __init__(self, first_step):
        super().__init__()
        self.first_step = first_step
        self.order = BatchOrder(len(inputs), 32, seed=5)

    def __len__(self):
        return STEPS - self.first_step

    def __getitem__(self, number):
        rows = self.order.batch(self.first_step + number)
        return inputs[rows], targets[rows]


class Printer(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        print("step", first_step + batch + 1, flush=True)


model = keras.Sequential(
    [
        keras.layers.Input((16,)),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dropout(0.2),
        keras.layers.Dense(1),
    ]
)
model.compile(optimizer=keras.optimizers.Adam(1e-2), loss="mse")
callback = SlopewiseCallback(sys.argv[1], reporter=Reporter(planned_steps=STEPS, framework="keras"), every_steps=8)
first_step = callback.steps
print("resumed", first_step, flush=True)
if first_step < STEPS:
    model.fit(Batches(first_step), epochs=1, verbose=0, shuffle=False, callbacks=[Printer(), callback])
else:
    callback.restore(model)
weights = b"".join(np.asarray(keras.ops.convert_to_numpy(each)).tobytes() for each in model.weights)
print("result", hashlib.sha256(weights).hexdigest(), flush=True)
