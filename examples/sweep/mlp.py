"""One trial of a sweep: a network of scikit-learn learns to read digits. Its loss is that of digits it has not seen."""

import argparse

from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from slopewise_exporter import Reporter


def train(width: int, lr: float, activation: str, epochs: int) -> float:
    """The loss after the last epoch."""
    images, digits = load_digits(return_X_y=True)
    seen, unseen, labels, truth = train_test_split(images / 16, digits, test_size=0.4, random_state=0, stratify=digits)
    network = MLPClassifier(
        (width,), activation=activation, solver="sgd", learning_rate_init=lr, alpha=0.1, random_state=0
    )
    loss = float("nan")
    with Reporter(planned_steps=epochs) as reporter:
        for _ in range(epochs):
            network.partial_fit(seen, labels, classes=range(10))
            loss = float(log_loss(truth, network.predict_proba(unseen)))
            reporter.step(loss=loss, samples=len(seen))
    return loss


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--activation", default="relu")
    parser.add_argument("--epochs", type=int, default=2500)
    train(**vars(parser.parse_args()))
