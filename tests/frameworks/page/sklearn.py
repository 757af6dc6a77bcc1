import numpy as np
from sklearn.neural_network import MLPClassifier

x = np.random.default_rng(0).standard_normal((64, 4))
y = (x[:, 0] > 0).astype(int)
batches = [(x[at : at + 8], y[at : at + 8]) for at in range(0, len(x), 8)]
model = MLPClassifier((8,), random_state=0)
