"""A training of half a minute that says nothing of Slopewise: it prints its loss, as most scripts do."""

import random

EPOCHS = 60

# Fit y = a·x + b by gradient descent; each epoch goes through 100,000 noisy points.
rng = random.Random(0)
a, b = 0.0, 0.0
for epoch in range(1, EPOCHS + 1):
    loss, slope, offset, points = 0.0, 0.0, 0.0, 100_000
    for _ in range(points):
        x = rng.uniform(-1, 1)
        error = a * x + b - (3 * x + 1 + rng.gauss(0, 0.1))
        loss += error * error / points
        slope += 2 * error * x / points
        offset += 2 * error / points
    a, b = a - 0.1 * slope, b - 0.1 * offset
    print(f"epoch {epoch}/{EPOCHS} loss={loss:.4f}")
