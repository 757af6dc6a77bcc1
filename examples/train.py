"""A training of half a minute with the two lines that Slopewise needs: the Reporter, and step()."""

import argparse
import random

from slopewise_exporter import Reporter

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=800)
steps = parser.parse_args().steps

# Fit y = a·x + b by stochastic gradient descent; each step looks at 20,000 noisy points.
rng = random.Random(0)
a, b = 0.0, 0.0
with Reporter(planned_steps=steps) as reporter:
    for _ in range(steps):
        rate, loss, slope, offset, points = 0.002, 0.0, 0.0, 0.0, 20_000
        for _ in range(points):
            x = rng.uniform(-1, 1)
            error = a * x + b - (3 * x + 1 + rng.gauss(0, 0.1))
            loss += error * error / points
            slope += 2 * error * x / points
            offset += 2 * error / points
        a, b = a - 10 * rate * slope, b - 10 * rate * offset
        reporter.step(loss=loss, samples=points)
