"""Pauses before what failed is tried again, in seconds: the list of them, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass

_MOST_DOUBLINGS = 60
"""`2.0 ** 1024` is an OverflowError: a webhook that denies a resize every five minutes comes there in four days."""


@dataclass(frozen=True, slots=True)
class Doubling:
    """A pause that doubles with each failure in a row, up to a bound."""

    first_seconds: float
    most_seconds: float

    def after(self, failures: int) -> float:
        """Worked example: from 1 s up to 60 s it is 1, 2, 4, 8, 16, 32, 60 and 60 s after 1 to 8 failures in a row."""
        return min(self.most_seconds, self.first_seconds * 2.0 ** min(failures - 1, _MOST_DOUBLINGS))


FIRST_BACKOFF_SECONDS = 30.0
"""A pass is every 20 s or so."""
MAX_BACKOFF_SECONDS = 300.0
"""A refusal that only a person can change is tried again every five minutes at the latest."""

BACKOFF = Doubling(FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS)
"""A move after an error of the API server; a resize that something unwatched, such as a webhook, has refused."""

RESTORE = Doubling(5.0, 80.0)
"""Original resources that could not be given back."""

JOB_START = Doubling(10.0, 600.0)
"""A job of this machine that has failed and is to be started again."""

STATUS_WRITE = Doubling(1.0, 60.0)
"""A status that was not written."""

ANNOTATION = Doubling(2.0, 60.0)
"""Annotations after one that Grafana did not take."""

POD_SECONDS = 5.0
"""Releasing, or evicting, the same pod."""

GRANT_SECONDS = 60.0
"""Reading an owner that was refused, which a granted right or a new claim changes; restoring a request that found no
room, and takes it from other pods while it waits; asking Prometheus why a job has no evaluation."""

FINALIZER_SECONDS = 3.0
"""Setting or removing a finalizer, and giving resources back while a policy waits for them."""

FREEZE_SECONDS = 10.0
"""Deleting an ended Freeze."""

QUEUE_SECONDS = 10.0
"""Writing the queue of this machine, for instance to a full disk."""
