"""What moving a running job costs, in seconds: saving a checkpoint, starting elsewhere, repeating lost steps.

`guards/move_gain.py` weighs it against the gain of a move; `policies/shared/need_policy.py` takes it from the time
that is left until a deadline, and moves the cheapest job first.
"""

from __future__ import annotations

from dataclasses import dataclass

from slopewise.model import Job, JobMemory

UNMEASURED_SAVING_SECONDS = 5.0
"""What a checkpoint takes where it was never measured: SpeCon's containers took up to 5 s."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one or several migrations cost, in seconds; `weight` is what a second of these jobs is worth."""

    saving_seconds: float
    starting_seconds: float
    repeating_seconds: float
    weight: float

    @property
    def unweighted_seconds(self) -> float:
        """For how long the job does nothing new."""
        return self.saving_seconds + self.starting_seconds + self.repeating_seconds

    @property
    def total_seconds(self) -> float:
        """In seconds of one job training at full speed."""
        return self.weight * self.unweighted_seconds


def cost_of(job: Job, known: JobMemory, weight: float, now_seconds: float) -> Cost:
    """What moving one job costs: all the time in which it does not train, at full speed, and what it does again.

    Saving is its checkpoint as it was measured; starting is what the platform takes, and what the job itself took up
    to its first step when it was last moved. Worked example: a checkpoint of 2 s, a platform that takes 2 s, and 9 s
    from its last signal to end to its next step: saving 2 s, starting 7 s. Without a checkpoint on SIGTERM
    the last one's age comes on top. A served model saves nothing.
    """
    checkpoint, movability = job.checkpoint, job.movability
    duration = checkpoint.duration_seconds if checkpoint else None
    saving = UNMEASURED_SAVING_SECONDS if duration is None else duration
    if job.only_serves:
        saving = 0.0
    pause = next((each.pause_seconds for each in reversed(known.moves) if each.pause_seconds is not None), 0.0)
    starting = max(movability.restart_seconds if movability else 0.0, pause - saving)
    repeating = 0.0
    if checkpoint is not None and not checkpoint.on_sigterm and checkpoint.saved_at_seconds is not None:
        repeating = max(0.0, now_seconds - checkpoint.saved_at_seconds)
    return Cost(saving, starting, repeating, weight)
