"""Protocols between the parts of this package, for tests of each without the others, and paths of the API server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

Json = dict[str, Any]
T_co = TypeVar("T_co", covariant=True)

COMPONENT = "apply manifests/components/moves"
"""Grants our account all rights that moves need."""

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"


class Api(Protocol):
    """A client of the API server (`client.KubeApi`). Every call has a timeout and is sent once.

    Paths are absolute (`/api/v1/namespaces/n/pods/p/resize`). Failures are `client.ApiError`: `status` (0: no answer),
    `reason`, `message`, `causes`, and `maybe_done` (a write that timed out may have been carried out).
    """

    def server_version(self) -> tuple[int, int]:
        """Major and minor, e.g. (1, 36); read once."""
        ...

    def get(self, path: str, params: Mapping[str, str] | None = None, *, metadata_only: bool = False) -> Json:
        """Read an object or a list."""
        ...

    def create(self, path: str, body: Json, params: Mapping[str, str] | None = None) -> Json:
        """Create an object in the collection at `path`."""
        ...

    def patch(
        self, path: str, body: Json | list[Json], content_type: str, params: Mapping[str, str] | None = None
    ) -> Json:
        """Change part of an object."""
        ...

    def replace(self, path: str, body: Json, params: Mapping[str, str] | None = None) -> Json:
        """Replace an object; conflicts when its resource version is not the newest."""
        ...

    def delete(self, path: str, body: Json | None = None, params: Mapping[str, str] | None = None) -> Json:
        """Delete an object."""
        ...

    def watch(
        self, path: str, params: Mapping[str, str], *, read_timeout_seconds: float, metadata_only: bool = False
    ) -> Events:
        """Watch events (`{"type": …, "object": …}`) until the server ends the stream; ApiError when it breaks."""
        ...


class Events(Protocol):
    """An open watch (`client.Watch`)."""

    def __iter__(self) -> Iterator[Json]: ...

    def __next__(self) -> Json: ...

    def close(self) -> None:
        """End it, from any thread."""
        ...


class Store(Protocol[T_co]):
    """The objects of a watched kind (`reflector.Reflector`), always whole: the last list and the events since."""

    @property
    def synced(self) -> bool:
        """True once the first list is read."""
        ...

    def silent_seconds(self) -> float:
        """Seconds since the API server's last event, bookmark or list. Infinite before the first."""
        ...

    def items(self) -> Sequence[T_co]:
        """All objects now, in the order of namespace and name."""
        ...

    def get(self, namespace: str, name: str) -> T_co | None:
        """One object by its name; None: it is not there."""
        ...


MayWrite = Callable[[], bool]
"""False once leadership is lost, or is about to be (`fencing.FencedApi` checks it before each write)."""

TakeTurn = Callable[[str, str], str | None]
"""Takes a turn to write to the pods of a node (first) and a namespace (`rate_limiter.RateLimiter.take`).

None: granted; else a message with the time of the next turn.
"""


FIELD_MANAGER = "slopewise"
PARAMS = {"fieldManager": FIELD_MANAGER}


def path_of(api_version: str, plural: str, namespace: str | None = None, name: str | None = None) -> str:
    """The path of a collection, or with a name of one object, e.g. `/apis/batch/v1/namespaces/a/jobs/train`.

    Nothing is quoted: quote text that a tenant may choose before.
    """
    root = "/api/v1" if api_version == "v1" else f"/apis/{api_version}"
    collection = f"{root}/{plural}" if namespace is None else f"{root}/namespaces/{namespace}/{plural}"
    return collection if name is None else f"{collection}/{name}"


def resource_of(path: str) -> tuple[str, bool]:
    """The resource of a path, and whether it names one object.

    Example: `/api/v1/namespaces/n/pods/p/resize` is `pods/resize`, one object.
    """
    parts = path.strip("/").split("/")
    below = parts[2:] if parts[0] == "api" else parts[3:] if parts[0] == "apis" else parts
    if below[:1] == ["namespaces"] and len(below) > 2:
        below = below[2:]
    return "/".join([*below[:1], *below[2:3]]), len(below) > 1
