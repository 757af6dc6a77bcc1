import numpy as np

x = np.random.default_rng(0).standard_normal((64, 4))
y = x.sum(1)
x_valid, y_valid = x[:16], y[:16]
