import numpy as np
import xgboost

x = np.random.default_rng(0).standard_normal((64, 4))
rows = xgboost.DMatrix(x, x.sum(1))
parameters = {"objective": "reg:squarederror"}
