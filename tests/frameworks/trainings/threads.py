"""Shows the number of threads of one library, asked of the library itself, while the CPU changes between its steps."""

import json
import multiprocessing
import os
import re
import sys

from slopewise_exporter import Reporter
from slopewise_exporter.threads import following as module
from slopewise_exporter.threads.cpu import Reading

os.environ["SLOPEWISE_THREADS"] = "follow"
CORES = (2.0, 1.0, 1.0, 2.0)
cores = [CORES[0]]
seen = []
module.affinity_cores = lambda: 2
module.following._read = lambda: Reading(cores[0], cores[0], 0.0)
module.following._interval_seconds = 0


def give(each):
    """So much CPU from the next step on."""
    cores[0] = each
    module.following.look()


def torch():
    import torch

    torch.set_num_threads(2)  # also where there is one physical core
    with Reporter() as reporter:
        for each in CORES:
            give(each)
            reporter.step(loss=torch.ones(3).sum())
            seen.append(torch.get_num_threads())


def torch_by_hand():
    import torch

    with Reporter() as reporter:
        reporter.step()
        torch.set_num_threads(2)
        for each in CORES:
            give(each)
            reporter.step()
            seen.append(torch.get_num_threads())


def torch_compiled():
    """A model is compiled for the number of that time: what runs is what was compiled for the number of now."""
    import torch

    torch.set_num_threads(2)

    def compile_it(graph, _):
        number = torch.get_num_threads()

        def run(*arguments):
            seen.append(number)
            return graph.forward(*arguments)

        return run

    train = torch.compile(torch.nn.Linear(3, 1), backend=compile_it)
    with Reporter() as reporter, torch.no_grad():
        for each in CORES:
            give(each)
            reporter.step(loss=0.0)
            train(torch.ones(3))


def xgboost(**given):
    import numpy as np
    import xgboost

    from slopewise_exporter.xgboost import ReportCallback

    class Show(xgboost.callback.TrainingCallback):
        def after_iteration(self, model, epoch, evals_log):
            generic = json.loads(model.save_config())["learner"]["generic_param"]
            seen.append(int(generic["nthread"]))
            give(CORES[(epoch + 1) % len(CORES)])
            return False

    rows = np.random.default_rng(0).normal(size=(200, 4))
    data = xgboost.DMatrix(rows, rows.sum(1))
    xgboost.train(given, data, len(CORES), evals=[(data, "train")], callbacks=[ReportCallback(), Show()])


def lightgbm(**given):
    import lightgbm
    import numpy as np
    from threadpoolctl import threadpool_info

    from slopewise_exporter.lightgbm import ReportCallback

    def show(env):
        given = int(re.search(r"\[num_threads: (\d+)\]", env.model.model_to_string())[1])
        seen.append(given or max(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "openmp"))
        give(CORES[(env.iteration + 1) % len(CORES)])

    show.order = 40
    rows = np.random.default_rng(0).normal(size=(200, 4))
    data = lightgbm.Dataset(rows, rows.sum(1))
    lightgbm.train(
        {"verbose": -1, **given}, data, len(CORES), valid_sets=[data], valid_names=["train"],
        callbacks=[ReportCallback(), show],
    )  # fmt: skip


def lightgbm_under_run():
    """Born with one thread, which rises to two: with linear trees it would crash, had it begun with one."""
    import lightgbm as library
    import numpy as np

    from slopewise_exporter import lightgbm as ours
    from slopewise_exporter.instrument import startup

    os.environ["SLOPEWISE_EXPORTER"] = "1"
    ours.affinity_cores = lambda: 2
    startup.start()
    cores[0] = 1.0

    def show(env):
        seen.append(int(re.search(r"\[num_threads: (\d+)\]", env.model.model_to_string())[1]))
        give(CORES[env.iteration % len(CORES)])

    show.order = 40
    rows = np.random.default_rng(0).normal(size=(3000, 8))
    data = library.Dataset(rows, rows.sum(1))
    library.train({"verbose": -1, "linear_tree": True}, data, 40, valid_sets=[data], callbacks=[show])
    del seen[8:]


def loader():
    import torch

    from slopewise_exporter.pytorch import ReportedLoader

    rows = torch.utils.data.TensorDataset(torch.ones(16, 2))
    with Reporter() as reporter:
        reported = ReportedLoader(torch.utils.data.DataLoader(rows, batch_size=2, num_workers=2), reporter)
        reporter.step()
        for each in CORES:
            give(each)
            workers = set()
            for _ in reported:
                workers.update(child.pid for child in multiprocessing.active_children())
                reporter.step()
            seen.append(len(workers))


if __name__ == "__main__":
    {
        "torch": torch,
        "torch by hand": torch_by_hand,
        "torch compiled": torch_compiled,
        "xgboost": xgboost,
        "xgboost by hand": lambda: xgboost(nthread=1),
        "lightgbm": lightgbm,
        "lightgbm that began with one": lambda: lightgbm(linear_tree=True),
        "lightgbm under run": lightgbm_under_run,
        "lightgbm by hand": lambda: lightgbm(num_threads=1),
        "loader": loader,
    }[sys.argv[1]]()
    print("SEEN", seen, flush=True)
