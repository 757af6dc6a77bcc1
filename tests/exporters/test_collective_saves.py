"""Saves in which every rank must take part: one that fails in one rank must not leave another waiting.

The ranks are threads, and what they do together is a barrier that breaks when one of them stays away.
"""

from __future__ import annotations

import importlib
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.training_fixtures import StandIn

from slopewise_exporter import Checkpoints, Ranks

RANKS = 2
GIVEN_UP_AFTER_SECONDS = 60.0


class Group:
    """What connects the ranks: one question that all answer, one save that all make."""

    def __init__(self) -> None:
        self._together = threading.Barrier(RANKS, timeout=GIVEN_UP_AFTER_SECONDS)
        self._answers = [False] * RANKS

    @property
    def left_alone(self) -> bool:
        """One has waited for another that did not come."""
        return self._together.broken

    def ranks(self, rank: int) -> Ranks:
        def agree(mine: bool) -> bool:
            self._answers[rank] = mine
            self._together.wait()
            answer = any(self._answers)
            self._together.wait()
            return answer

        return Ranks(first=rank == 0, agree=agree, save_together=True)

    def save(self, path: Path, works: Callable[[], bool]) -> None:
        """As Lightning's `save_checkpoint` with our `_save` around it: all meet at its end, whether theirs worked."""
        try:
            if not works():
                raise OSError(28, "No space left on device")
            path.write_text("weights")
        finally:
            self._together.wait()


def run(folder: Path, life: Callable[[int, Checkpoints], object], works: Callable[[int], bool]) -> list[object]:
    """What `life` returns in each rank, none of which was ever left alone."""
    group = Group()

    def one(rank: int) -> object:
        with Checkpoints(
            folder,
            save=lambda path, _: group.save(path, lambda: works(rank)),
            ranks=group.ranks(rank),
            every_seconds=None,
        ) as checkpoints:
            return life(rank, checkpoints)

    with ThreadPoolExecutor(RANKS) as threads:
        lives = [future.result() for future in [threads.submit(one, rank) for rank in range(RANKS)]]
    assert not group.left_alone
    return lives


@pytest.mark.parametrize("failing", range(RANKS))
def test_a_save_that_fails_in_one_rank_is_tried_again_by_all(tmp_path: Path, failing: int) -> None:
    tries = [0] * RANKS

    def works(rank: int) -> bool:
        tries[rank] += 1
        return rank != failing or tries[rank] > 1

    def life(_rank: int, checkpoints: Checkpoints) -> list[bool]:
        checkpoints.step(object)
        return [checkpoints.save(object) for _ in range(3)]

    assert run(tmp_path, life, works) == [[False, True, True]] * RANKS
    assert tries == [2] * RANKS


def test_the_first_rank_takes_part_also_where_it_could_not_even_begin(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    gone = threading.Event()

    def life(rank: int, checkpoints: Checkpoints) -> list[bool]:
        checkpoints.step(object)
        if rank == 0:
            shutil.rmtree(folder)
            folder.write_text("no folder any more")
            gone.set()
        # Otherwise the other rank may write its part into the folder while it is removed.
        assert gone.wait(GIVEN_UP_AFTER_SECONDS)
        return [checkpoints.save(object) for _ in range(2)]

    assert run(folder, life, lambda _: True) == [[False, False]] * RANKS


def test_ranks_of_lightning_with_other_numbers_of_validation_batches_do_not_wait_for_each_other(
    stand_in: StandIn, tmp_path: Path
) -> None:
    hook = {"on_validation_start": lambda *_: None}
    stand_in("lightning", torch={}, lightning={}, **{"lightning.pytorch": {"Callback": type("Callback", (), hook)}})
    lightning = importlib.import_module("slopewise_exporter.lightning")
    group = Group()

    def validate(rank: int, batches: int, none_allowed: bool) -> None:
        ranks = group.ranks(rank)
        callback = lightning.SlopewiseCallback(tmp_path)
        callback._checkpoints = Checkpoints(tmp_path, ranks=ranks)
        strategy = SimpleNamespace(
            broadcast=lambda _: [3], reduce_boolean_decision=lambda mine: not ranks.agree(not mine)
        )
        module = SimpleNamespace(allow_zero_length_dataloader_with_multiple_devices=none_allowed)
        trainer = SimpleNamespace(world_size=RANKS, num_val_batches=[batches], strategy=strategy, datamodule=None)
        if batches > 0:  # else Lightning calls no hook
            callback.on_validation_start(trainer, module)
        for _ in range(batches):
            callback.on_validation_batch_end(trainer)

    for numbers, none_allowed in (((3, 3), False), ((3, 5), False), ((3, 0), True)):
        with ThreadPoolExecutor(RANKS) as pool:
            list(pool.map(validate, range(RANKS), numbers, [none_allowed] * RANKS))
    assert not group.left_alone
