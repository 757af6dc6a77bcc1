"""What pods run where jobs have GPUs: a training whose device is a lock, and an exporter of its use under DCGM's names.

`python3 -c TEXT train ...` and `python3 -c TEXT export` in pods that mount one folder with a file for each device. A
device is two locks on its file: the first one a pod holds for life, the second one while the device computes. The
exporter takes none of them, and asks the kernel who holds them.
"""

from __future__ import annotations

import argparse
import fcntl
import multiprocessing
import os
import struct
import time
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

import numpy as np
from prometheus_client import REGISTRY, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

FOLDER = Path("/devices")
OWNED, COMPUTING = 0, 1
"""The byte of a device's file that each lock is on."""
LOCK = "hhqqi4x"
"""Of `struct flock`: type, whence, start, length, pid."""

SAMPLE_SECONDS = 0.02
SAMPLES = 250
"""As many as lie between two scrapes of the test-bed's Prometheus, so that their average is of all the time."""

SIDE = 64
STORED = zlib.compress(bytes(range(256)) * (3 * SIDE * SIDE // 256))
"""An image of three colours, as it is stored."""
BATCH = 4
METRICS_PORT = 9464


class Device:
    """One that no other pod has; RuntimeError where all are taken."""

    def __init__(self, owner: str) -> None:
        """`owner`: namespace, pod and container, with blanks between."""
        for path in sorted(FOLDER.iterdir()):
            self._file = os.open(path, os.O_RDWR)
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, OWNED)
            except OSError:
                os.close(self._file)
                continue
            os.ftruncate(self._file, 0)
            os.write(self._file, owner.encode())
            return
        raise RuntimeError(f"all devices of {FOLDER} are taken")

    def compute(self, seconds: float) -> None:
        """A step."""
        fcntl.lockf(self._file, fcntl.LOCK_EX, 1, COMPUTING)
        time.sleep(seconds)
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, COMPUTING)


class Images:
    """A data set without end: each row takes time to read, and CPU to decode, to mirror and to scale."""

    def __init__(self, cpu_seconds: float, read_seconds: float) -> None:
        self._cpu_seconds = cpu_seconds
        self._read_seconds = read_seconds

    def __len__(self) -> int:
        return 10**9

    def __getitem__(self, row: int) -> object:
        time.sleep(self._read_seconds)
        end = time.process_time() + self._cpu_seconds
        while True:
            image = np.frombuffer(zlib.decompress(STORED), np.uint8).reshape(3, SIDE, SIDE)
            found = np.ascontiguousarray(image[:, :, ::-1], np.float32) / 255
            if time.process_time() >= end:
                return found


def train(options: argparse.Namespace) -> None:
    """Steps without end, each of a batch that the worker processes of a DataLoader have made."""
    import torch
    from torch.utils.data import DataLoader

    from slopewise_exporter import Reporter
    from slopewise_exporter.pytorch import ReportedLoader

    torch.set_num_threads(1)
    device = Device(f"{os.environ['NAMESPACE']} {os.environ['POD']} trainer")
    images = Images(options.cpu_seconds / BATCH, options.read_seconds / BATCH)
    loader = DataLoader(images, batch_size=BATCH, num_workers=options.workers)
    if options.lies:
        multiprocessing.get_context("fork").Process(target=burn, daemon=True).start()
    reporter = Reporter(port=METRICS_PORT, planned_steps=100_000)
    times_waits = not (options.lies or options.silent)
    began = time.perf_counter()
    for number, _ in enumerate(ReportedLoader(loader, reporter) if times_waits else loader):
        device.compute(options.gpu_seconds)
        reporter.step(loss=1 / (1 + number))
        now = time.perf_counter()
        if options.lies:
            reporter.waited(options.lies * (now - began))
        began = now


def burn() -> None:
    """Use all CPU that there is."""
    while True:
        zlib.decompress(STORED)


class Uses(Collector):
    """The part of the last seconds in which each device computed, by pod, as DCGM's exporter reports it."""

    def __init__(self) -> None:
        self._files = [os.open(path, os.O_RDONLY) for path in sorted(FOLDER.iterdir())]
        self._computing = [deque([False], SAMPLES) for _ in self._files]

    def sample(self) -> None:
        """To be called every `SAMPLE_SECONDS`."""
        for file, computing in zip(self._files, self._computing, strict=True):
            computing.append(is_locked(file, COMPUTING))

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """A ratio and a percentage, both with the same labels."""
        labels = ("gpu", "UUID", "device", "modelName", "Hostname", "namespace", "pod", "container")
        active = GaugeMetricFamily("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "Ratio of time it is active.", labels=labels)
        use = GaugeMetricFamily("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", labels=labels)
        for number, (file, computing) in enumerate(zip(self._files, self._computing, strict=True)):
            owner = os.pread(file, 1000, 0).decode().split() if is_locked(file, OWNED) else ["", "", ""]
            about = [str(number), f"GPU-{number}", f"nvidia{number}", "a lock", os.environ["NODE"], *owner]
            ratio = fmean(list(computing))
            active.add_metric(about, ratio)
            use.add_metric(about, round(100 * ratio))
        yield from (active, use)


def is_locked(file: int, byte: int) -> bool:
    """Whether a process, of any pod, holds this lock."""
    asked = struct.pack(LOCK, fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
    return bool(struct.unpack(LOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))[0] != fcntl.F_UNLCK)


def export() -> None:
    """Without end."""
    uses = Uses()
    REGISTRY.register(uses)
    start_http_server(METRICS_PORT)
    while True:
        uses.sample()
        time.sleep(SAMPLE_SECONDS)


def main(arguments: Sequence[str] | None = None) -> None:
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("train", "export"))
    parser.add_argument("--gpu-seconds", type=float, default=0.2, help="of a step")
    parser.add_argument("--cpu-seconds", type=float, default=0.0, help="of a batch, in all rows")
    parser.add_argument("--read-seconds", type=float, default=0.0, help="of a batch, without CPU")
    parser.add_argument("--workers", type=int, default=2, help="of the loader")
    parser.add_argument("--silent", action="store_true", help="time no waits")
    parser.add_argument("--lies", type=float, default=0.0, help="part of its time that it says it waited; burns CPU")
    options = parser.parse_args(arguments)
    if options.what == "train":
        train(options)
    else:
        export()


if __name__ == "__main__":
    main()
