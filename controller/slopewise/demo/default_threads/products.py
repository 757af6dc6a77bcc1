"""A training as anybody writes it, without a number of threads: so many steps of a linear network of 300 units."""

import sys

import numpy as np

steps = int(sys.argv[1])
random = np.random.default_rng(0)
rows = random.normal(size=(600, 300))
target = rows @ random.normal(size=(300, 300)) / 17
weights = np.zeros((300, 300))
for step in range(1, steps + 1):
    wrong = rows @ weights - target
    weights -= 0.5 / steps**0.5 * rows.T @ wrong / len(rows)
    if step % max(1, steps // 50) == 0 or step == steps:
        print(f"step {step}/{steps} loss={np.mean(wrong**2):.6f}", flush=True)
