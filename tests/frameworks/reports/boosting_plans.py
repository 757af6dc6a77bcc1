"""XGBoost, LightGBM and CatBoost: early stopping, their scikit-learn classes, cross-validation, copies."""

import pickle

import numpy as np
from catboost import CatBoostClassifier
from scraping import show
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from slopewise_exporter import Reporter

x = np.random.default_rng(0).standard_normal((200, 4))
y = (x[:, 0] > 0).astype(int)
worse = 1 - y


def xgboost():
    import xgboost
    from xgboost.callback import TrainingCallback

    from slopewise_exporter.xgboost import ReportCallback

    class Show(TrainingCallback):
        def after_iteration(self, model, epoch, evals_log):
            if epoch == 1:
                show("xgboost early first")
            return False

    rows, other = xgboost.DMatrix(x, y), xgboost.DMatrix(x, worse)
    binary = {"objective": "binary:logistic", "eval_metric": ["auc", "logloss"]}
    evals = [(rows, "mine"), (other, "other")]
    with Reporter(linger_seconds=0):
        callbacks = [ReportCallback(), Show()]
        xgboost.train(binary, rows, 300, evals, early_stopping_rounds=3, callbacks=callbacks, verbose_eval=False)
        show("xgboost early")
    with Reporter(linger_seconds=0):
        xgboost.cv(binary, rows, 7, nfold=3, callbacks=[ReportCallback()])
        show("xgboost folds")
    with Reporter(linger_seconds=0):
        model = xgboost.XGBClassifier(n_estimators=9, callbacks=[ReportCallback()])
        cross_val_score(clone(model), x, y, cv=3)
        show("xgboost search")
        pickle.dumps(model.fit(x, y))


def lightgbm():
    import lightgbm

    from slopewise_exporter.lightgbm import ReportCallback

    def look(env):
        if env.iteration == 1:
            show("lightgbm early first")

    look.order = 90
    rows = lightgbm.Dataset(x, y)
    other = lightgbm.Dataset(x, worse, reference=rows)
    with Reporter(linger_seconds=0):
        lightgbm.train(
            {"objective": "binary", "verbose": -1},
            rows,
            300,
            valid_sets=[rows, other],
            valid_names=["train", "other"],
            callbacks=[lightgbm.early_stopping(3, verbose=False), ReportCallback(), look],
        )
        show("lightgbm early")
    with Reporter(linger_seconds=0):
        lightgbm.cv({"objective": "binary", "verbose": -1}, rows, 7, nfold=3, callbacks=[ReportCallback()])
        show("lightgbm folds")
        model = lightgbm.LGBMClassifier(n_estimators=9, verbose=-1)
        model.fit(x, y, eval_set=[(x, y)], callbacks=[ReportCallback()])
        show("lightgbm class")


def catboost():
    from slopewise_exporter.catboost import ReportCallback

    class Show:
        def after_iteration(self, info):
            if info.iteration == 2:
                show("catboost early first")
            return True

    with Reporter(linger_seconds=0):
        model = CatBoostClassifier(n_estimators=300, verbose=0, allow_writing_files=False)
        callbacks = [ReportCallback(), Show()]
        model.fit(x, y, eval_set=(x, worse), early_stopping_rounds=3, callbacks=callbacks)
        show("catboost early")
    with Reporter(linger_seconds=0):
        model = CatBoostClassifier(n_estimators=9, verbose=0, allow_writing_files=False)
        callback = ReportCallback()
        for _ in range(2):
            model.fit(x, y, callbacks=[callback])
        show("catboost twice")


xgboost()
lightgbm()
catboost()
