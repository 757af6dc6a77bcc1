"""The shapes that the parts of this package hand to each other, so that each can be tested without the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from controller.adapters.kube.records import ManagedPod

Json = dict[str, Any]
T_co = TypeVar("T_co", covariant=True)

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"


class Api(Protocol):
    """One bounded conversation with the API server (`api.KubeApi`). Every call has a timeout and is sent once.

    Paths are absolute (`/api/v1/namespaces/n/pods/p/resize`). Failures are `api.ApiError`: `status` (0: no answer),
    `reason`, `message`, `causes`, and `maybe_done` (a write that timed out may have been carried out).
    """

    def server_version(self) -> tuple[int, int]:
        """Major and minor, e.g. (1, 36); asked once."""
        ...

    def get(self, path: str, params: Mapping[str, str] | None = None, *, metadata_only: bool = False) -> Json: ...

    def create(self, path: str, body: Json, params: Mapping[str, str] | None = None) -> Json: ...

    def patch(
        self, path: str, body: Json | list[Json], content_type: str, params: Mapping[str, str] | None = None
    ) -> Json: ...

    def replace(self, path: str, body: Json, params: Mapping[str, str] | None = None) -> Json: ...

    def delete(self, path: str, body: Json | None = None, params: Mapping[str, str] | None = None) -> Json: ...

    def watch(
        self, path: str, params: Mapping[str, str], *, read_timeout_seconds: float, metadata_only: bool = False
    ) -> Events:
        """Watch events (`{"type": …, "object": …}`) until the server ends the stream; ApiError when it breaks."""
        ...


class Events(Protocol):
    """An open watch (`api.Watch`)."""

    def __iter__(self) -> Iterator[Json]: ...

    def __next__(self) -> Json: ...

    def close(self) -> None:
        """End it, from any thread."""
        ...


class Store(Protocol[T_co]):
    """A watched kind of object (`watching.Reflector`), always whole: the last list plus what came since."""

    @property
    def synced(self) -> bool:
        """True once the first list is in."""
        ...

    def silent_seconds(self) -> float:
        """Seconds since the API server was last heard of: an event, a bookmark, a list. Infinite before the first."""
        ...

    def items(self) -> Sequence[T_co]:
        """All objects now, in the order of namespace and name."""
        ...

    def get(self, namespace: str, name: str) -> T_co | None: ...


class Roster(Protocol):
    """Who the jobs of the last snapshot are (`observer.KubeObserver`)."""

    def find(self, job_uid: str) -> ManagedPod | None:
        """The newest that is known of a job's pod; None: it is gone."""
        ...


MayWrite = Callable[[], bool]
"""False once leadership is lost, or is about to be: asked before each write."""

TakeTurn = Callable[[str, str], str | None]
"""Who may write to the pods of a node (first) and a namespace now (`buckets.Buckets.take`): None: go ahead; else a
sentence, which says when there is another turn."""
