# ruff: noqa: PLC0415 - each framework is imported where it is used; most of them are not there
"""Makes the samples of this folder with the real frameworks; run it again when one of them writes something else.

In the environment of the frameworks, and in one with wandb and mlflow:

    python tests/exporters/samples/make_samples.py tests/exporters/samples keras transformers lightning
    python tests/exporters/samples/make_samples.py tests/exporters/samples wandb mlflow mlflow-files

Each training is the same: 200 rows, batches of 20, 3 epochs of 10 steps, a validation after each. Its console is kept
as a terminal would get it, with `\\r`. Losses differ from run to run, counts do not; tests assert on counts. Those of
today: Keras 3.15, Transformers 5.23, Lightning 2.6, MLflow 3.17, Weights & Biases 0.31.
"""

from __future__ import annotations

import math
import os
import pty
import re
import shutil
import site
import sqlite3
import subprocess
import sys
from pathlib import Path

EPOCHS, BATCHES, ROWS = 3, 10, 200


def keras(folder: Path) -> None:
    """Console, CSVLogger and event files of Keras 3."""
    os.environ.setdefault("KERAS_BACKEND", "torch")
    import keras as framework
    import numpy as np

    framework.utils.set_random_seed(0)
    rows = np.random.default_rng(0).normal(size=(ROWS, 4))
    model = framework.Sequential([framework.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    model.fit(
        rows,
        rows.sum(axis=1),
        batch_size=ROWS // BATCHES,
        epochs=EPOCHS,
        validation_split=0.0,
        validation_data=(rows[:40], rows[:40].sum(axis=1)),
        callbacks=[framework.callbacks.CSVLogger(str(folder / "keras.csv"))],
        verbose=int(os.environ.get("VERBOSE", "1")),
    )
    model.evaluate(rows[:100], rows[:100].sum(axis=1))


def transformers(folder: Path) -> None:
    """Console and event files of the Trainer of Transformers."""
    os.chdir(folder)
    import torch
    from transformers import Trainer, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, rows, labels):  # type: ignore[no-untyped-def]
            guess = self.layer(rows)
            return {"loss": torch.nn.functional.mse_loss(guess.squeeze(-1), labels), "logits": guess}

    generator = torch.Generator().manual_seed(0)
    data = [{"rows": row, "labels": row.sum()} for row in torch.randn(ROWS, 4, generator=generator)]
    os.environ["TENSORBOARD_LOGGING_DIR"] = str(folder / "transformers-events")
    arguments = TrainingArguments(
        output_dir="transformers-output",
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=ROWS // BATCHES,
        per_device_eval_batch_size=20,
        eval_strategy="epoch",
        logging_steps=2,
        save_strategy="no",
        report_to=["tensorboard"],
        use_cpu=True,
    )
    Trainer(model=Model(), args=arguments, train_dataset=data, eval_dataset=data[:60]).train()


def lightning(folder: Path) -> None:
    """Console, CSVLogger and event files of Lightning."""
    import lightning as framework
    import torch
    from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger

    class Model(framework.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def _loss(self, batch):  # type: ignore[no-untyped-def]
            (rows,) = batch
            return torch.nn.functional.mse_loss(self.layer(rows).squeeze(-1), rows.sum(dim=1))

        def training_step(self, batch, _index):  # type: ignore[no-untyped-def]
            loss = self._loss(batch)
            self.log("train_loss", loss, prog_bar=True)
            return loss

        def validation_step(self, batch, _index):  # type: ignore[no-untyped-def]
            self.log("val_loss", self._loss(batch), prog_bar=True)

        def configure_optimizers(self):  # type: ignore[no-untyped-def]
            return torch.optim.SGD(self.parameters(), lr=0.01)

    torch.manual_seed(0)
    rows = torch.randn(ROWS, 4)
    loaders = [torch.utils.data.DataLoader(torch.utils.data.TensorDataset(part), 20) for part in (rows, rows[:60])]
    trainer = framework.Trainer(
        max_epochs=EPOCHS,
        log_every_n_steps=2,
        accelerator="cpu",
        logger=[CSVLogger(str(folder), "lightning-csv", ""), TensorBoardLogger(str(folder), "lightning-events", "")],
        enable_checkpointing=False,
        enable_model_summary=False,
    )
    trainer.fit(Model(), *loaders)


def wandb(folder: Path) -> None:
    """The run file of an offline run of Weights & Biases."""
    os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_DIR=str(folder))
    import wandb as framework

    settings = framework.Settings(x_disable_stats=True, x_disable_meta=True, save_code=False, host="host")
    run = framework.init(project="sample", config={"max_steps": EPOCHS * BATCHES}, settings=settings)
    for step in range(EPOCHS * BATCHES):
        values = {"train/loss": _loss(step), "epoch": step // BATCHES}
        if step == 17:
            values["train/loss"] = math.nan
        if step % BATCHES == BATCHES - 1:
            values["eval/loss"] = _loss(step) * 1.1
        run.log(values, step=step)
    run.finish()


def mlflow(folder: Path, uri: str = "sqlite:///mlflow.db") -> None:
    """The database that MLflow writes by default."""
    os.environ.update(MLFLOW_DISABLE_TELEMETRY="true", MLFLOW_ALLOW_FILE_STORE="true", USER="user")
    os.chdir(folder)
    import mlflow as framework

    framework.set_tracking_uri(uri)
    with framework.start_run(run_name="sample"):
        framework.log_params({"max_steps": EPOCHS * BATCHES, "epochs": EPOCHS})
        for step in range(EPOCHS * BATCHES):
            framework.log_metric("train_loss", math.nan if step == 17 else _loss(step), step=step)
            if step % BATCHES == BATCHES - 1:
                framework.log_metrics({"val_loss": _loss(step) * 1.1, "epoch": step // BATCHES}, step=step)


def mlflow_files(folder: Path) -> None:
    """The folder `mlruns` of MLflow before version 3, which newer ones still write when they are asked to."""
    mlflow(folder, "file:./mlruns")


def _loss(step: int) -> float:
    return 2.0 * math.exp(-step / 20)


def tidy(folder: Path) -> None:
    """Small, and without the names of the machine: of MLflow's 40 tables the three that hold runs."""
    for run_file in folder.glob("wandb/offline-run-*/*.wandb"):
        shutil.copy(run_file, folder / "run-sample.wandb")
    shutil.rmtree(folder / "wandb", ignore_errors=True)
    shutil.rmtree(folder / "transformers-output", ignore_errors=True)
    for event_file in folder.glob("*-events/events.*"):
        event_file.rename(event_file.parent / "events.out.tfevents.1.host")
    for other in (*folder.glob("*-events/hparams.yaml"), *folder.glob("mlruns/**/tags"), *folder.glob("mlruns/.trash")):
        shutil.rmtree(other) if other.is_dir() else other.unlink()
    database = folder / "mlflow.db"
    if database.exists():
        with sqlite3.connect(database) as connection:
            lines = [line for line in connection.iterdump() if _of_runs(line)]
        (folder / "mlflow.sql").write_text("\n".join(lines) + "\n")
        database.unlink()
    for text in (*folder.glob("*.console"), *folder.glob("mlruns/**/meta.yaml"), *folder.glob("mlflow.sql")):
        content = text.read_bytes().decode()
        for place in (*site.getsitepackages(), str(folder)):
            content = content.replace(place, "/folder")
        content = re.sub(r"https?://[^\s)]*", "https://example.invalid", content)
        text.write_bytes(content.encode())
        if not content:
            text.unlink()


def _of_runs(line: str) -> bool:
    return any(
        line.startswith(f'{verb} "{table}"')
        for verb in ("CREATE TABLE", "INSERT INTO")
        for table in ("runs", "params", "metrics")
    )


MAKERS = {
    "keras": keras,
    "transformers": transformers,
    "lightning": lightning,
    "wandb": wandb,
    "mlflow": mlflow,
    "mlflow-files": mlflow_files,
}


def main() -> None:
    """Each in a process of its own, whose terminal is kept."""
    folder = Path(sys.argv[1]).absolute()
    if len(sys.argv) == 4 and sys.argv[3] == "--here":
        MAKERS[sys.argv[2]](folder)
        return
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:]:
        ours, theirs = pty.openpty()
        command = [sys.executable, __file__, str(folder), name, "--here"]
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs)
        os.close(theirs)
        with (folder / f"{name}.console").open("wb") as console:
            try:
                while part := os.read(ours, 65536):
                    console.write(part)
            except OSError:  # the terminal has gone
                pass
        print(name, "ended with", child.wait())
    tidy(folder)


if __name__ == "__main__":
    main()
