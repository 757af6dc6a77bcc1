import lightgbm
import numpy as np

x = np.random.default_rng(0).standard_normal((64, 4))
rows = lightgbm.Dataset(x, x.sum(1))
parameters = {"objective": "regression", "verbose": -1}
