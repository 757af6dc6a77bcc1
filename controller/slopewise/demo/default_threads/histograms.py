"""A training as anybody writes it, without a number of threads: histogram gradient boosting of so many trees."""

import sys

from sklearn.datasets import make_friedman1
from sklearn.ensemble import HistGradientBoostingRegressor

rows, target = make_friedman1(3000, n_features=20, noise=1.0, random_state=0)
model = HistGradientBoostingRegressor(
    max_iter=int(sys.argv[1]),
    learning_rate=0.01,
    early_stopping=True,
    n_iter_no_change=10**6,
    scoring="loss",
    verbose=2,
)
model.fit(rows, target)
