"""One trial of an Optuna study as a job: it asks the study for arguments, trains, and reports the loss to it."""

import os

import optuna
from mlp import train


def objective(trial: optuna.Trial) -> float:
    """The loss of a network whose arguments Optuna chooses."""
    width = trial.suggest_int("width", 8, 256, log=True)
    lr = trial.suggest_float("lr", 1e-3, 1e-1, log=True)
    activation = trial.suggest_categorical("activation", ["relu", "logistic"])
    return float(train(width, lr, activation, epochs=2500))


study = optuna.load_study(study_name=os.environ["OPTUNA_STUDY"], storage=os.environ["OPTUNA_STORAGE"])
study.optimize(objective, n_trials=1)
