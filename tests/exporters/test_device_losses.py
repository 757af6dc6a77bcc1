"""Losses on an accelerator: kept there, and read together about once a second. A fake device counts the reads."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from support.training_fixtures import InBackground, MakeReporter, Scrape

from slopewise_exporter import Reporter, device_losses
from slopewise_exporter.device_losses import MAX_HELD, READ_EVERY_SECONDS


class Device:
    """Counts how often somebody waits for it."""

    type = "cuda"

    def __init__(self) -> None:
        self.waits = 0
        self.fails = False

    def __hash__(self) -> int:
        return 0

    def wait(self) -> None:
        self.waits += 1
        if self.fails:
            raise RuntimeError("device-side assert")


class Tensor:
    """One number, or several, on a device; as of PyTorch, what this package calls."""

    dtype = "float32"

    def __init__(self, device: Device, *numbers: float) -> None:
        self.device = device
        self.numbers = list(numbers)

    def numel(self) -> int:
        return len(self.numbers)

    def detach(self) -> Tensor:
        return self

    def reshape(self, shape: tuple[int, ...]) -> Tensor:
        return self

    def clone(self) -> Tensor:
        return Tensor(self.device, *self.numbers)

    def item(self) -> float:
        self.device.wait()
        (number,) = self.numbers
        return number

    def tolist(self) -> list[float]:
        self.device.wait()
        return self.numbers


def stack(tensors: Sequence[Tensor]) -> Tensor:
    return Tensor(tensors[0].device, *(number for each in tensors for number in each.numbers))


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(device_losses, "monotonic", clock)
    return clock


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Tensor=Tensor, stack=stack))
    return Device()


def train(reporter: Reporter, device: Device, losses: Sequence[float]) -> None:
    for loss in losses:
        reporter.step(loss=Tensor(device, loss))  # type: ignore[arg-type]  # a tensor


def test_no_step_waits_for_the_device_between_two_reads(
    reporter: Reporter, scrape: Scrape, device: Device, clock: Clock
) -> None:
    train(reporter, device, [8.0])
    assert device.waits == 1  # the first is seen at once
    train(reporter, device, [7.0] * 500)
    assert device.waits == 1
    now = scrape(reporter.port)
    assert (now["training_steps_total"], now['training_loss{stage="train"}']) == (501, 8.0)
    assert device.waits == 1  # a scrape reads nothing either
    clock.now += READ_EVERY_SECONDS
    train(reporter, device, [3.0])
    assert device.waits == 2
    assert scrape(reporter.port)['training_loss{stage="train"}'] == 3.0


def test_the_average_and_the_counters_are_those_of_losses_that_were_read_one_by_one(
    make_reporter: MakeReporter, scrape: Scrape, device: Device, clock: Clock
) -> None:
    losses = [5.0 - number / 100 for number in range(300)]
    losses[100], losses[200] = math.nan, 1e12
    at_once, held = make_reporter(), make_reporter()
    for loss in losses:
        at_once.step(loss=loss)
    train(held, device, losses)
    clock.now += READ_EVERY_SECONDS
    for reporter in (at_once, held):
        reporter.step(loss=Tensor(device, 2.0))  # type: ignore[arg-type]  # a tensor
    clock.now += READ_EVERY_SECONDS
    for reporter in (at_once, held):
        reporter.step(loss=Tensor(device, 2.0))  # type: ignore[arg-type]  # a tensor
    names = ('training_loss{stage="train_ema"}', "training_nonfinite_loss_total", "training_outlier_loss_total")
    first, second = scrape(at_once.port), scrape(held.port)
    assert [second[name] for name in names] == [pytest.approx(first[name]) for name in names]
    assert second["training_nonfinite_loss_total"] == second["training_outlier_loss_total"] == 1


def test_fast_steps_hold_no_more_than_so_many_losses(reporter: Reporter, device: Device, clock: Clock) -> None:
    train(reporter, device, [1.0] * (1 + 3 * MAX_HELD))
    assert device.waits == 1 + 3


def test_what_a_cuda_graph_overwrites_was_copied_before(
    reporter: Reporter, scrape: Scrape, device: Device, clock: Clock
) -> None:
    loss = Tensor(device, 4.0)
    for number in (4.0, 6.0, 100.0):
        loss.numbers[0] = number
        reporter.step(loss=loss)  # type: ignore[arg-type]  # a tensor
    loss.numbers[0] = 0.0
    reporter.close()
    assert scrape_of(reporter) == 100.0


def scrape_of(reporter: Reporter) -> float | None:
    """The loss of the last scrape, had there been one; the port is closed."""
    return reporter._record.snapshot().train_loss


def test_the_last_losses_are_read_when_the_training_ends_and_not_when_it_failed(
    make_reporter: MakeReporter, device: Device, clock: Clock
) -> None:
    for failed, loss in ((False, 2.0), (True, 9.0)):
        reporter = make_reporter()
        train(reporter, device, [9.0, 2.0])
        reporter.end(failed=failed)
        assert scrape_of(reporter) == loss


def test_a_device_that_has_failed_costs_its_losses_and_one_line(
    reporter: Reporter, scrape: Scrape, device: Device, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    train(reporter, device, [2.0])
    device.fails = True
    for _ in range(3):
        clock.now += READ_EVERY_SECONDS
        train(reporter, device, [1.0])
    now = scrape(reporter.port)
    assert (now["training_steps_total"], now['training_loss{stage="train"}']) == (4, 2.0)
    assert [record.getMessage() for record in caplog.records] == [
        "losses cannot be read from their device (device-side assert); they are left out"
    ]


def test_a_tensor_of_several_numbers_is_no_loss_and_is_not_held(
    reporter: Reporter, scrape: Scrape, device: Device, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    reporter.step(loss=Tensor(device, 1.0, 2.0))  # type: ignore[arg-type]  # a mistake
    assert scrape(reporter.port)["training_steps_total"] == 1
    assert "loss: a Tensor is not a number" in caplog.text


@pytest.mark.parametrize("place", ["cpu", "meta"])
def test_a_tensor_on_the_cpu_is_read_at_once(reporter: Reporter, scrape: Scrape, device: Device, place: str) -> None:
    device.type = place
    train(reporter, device, [3.0, 2.0])
    assert device.waits == 2
    assert scrape(reporter.port)['training_loss{stage="train"}'] == 2.0


class Array:
    """Of JAX, whose work goes on in the background on a CPU as well."""

    size = 1

    def __init__(self, device: Device, number: float, *, ready: bool) -> None:
        self.device = device
        self.number = number
        self.ready = ready

    def is_ready(self) -> bool:
        return self.ready

    def item(self) -> float:
        self.device.wait()
        return self.number


def test_an_array_of_jax_is_read_at_once_when_it_is_ready_and_held_otherwise(
    reporter: Reporter, scrape: Scrape, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def device_get(arrays: list[Array]) -> list[float]:
        arrays[0].device.wait()
        return [each.number for each in arrays]

    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(device_get=device_get))
    device = Device()
    steps: list[Any] = [Array(device, 5.0, ready=True), *(Array(device, 4.0, ready=False) for _ in range(9))]
    for loss in steps:
        reporter.step(loss=loss)
    assert device.waits == 2  # that which was ready, and the first that was not
    clock.now += READ_EVERY_SECONDS
    reporter.step(loss=Array(device, 3.0, ready=False))  # type: ignore[arg-type]  # an array
    assert device.waits == 3
    assert scrape(reporter.port)['training_loss{stage="train"}'] == 3.0


def test_several_threads_lose_no_loss(make_reporter: MakeReporter, device: Device, in_background: InBackground) -> None:
    reporter = make_reporter()
    threads = [in_background(lambda: train(reporter, device, [math.nan] * 3000)) for _ in range(3)]
    for thread in threads:
        thread.join(60)
    reporter.close()
    assert reporter._record.snapshot().nonfinite_losses == 9000
