"""Paths of the API server: made of what they are about, and read back.

Before it: whoever asks for objects (`watching.py`, `actuator.py`, the documents). After it: `api.py`, which sends, and
tells of each request by its resource.
"""

from __future__ import annotations


def path_of(api_version: str, plural: str, namespace: str | None = None, name: str | None = None) -> str:
    """Of a collection, or with a name of one object, e.g. `/apis/batch/v1/namespaces/a/jobs/train`.

    Nothing is quoted: text that a tenant may choose freely has to be quoted before.
    """
    root = "/api/v1" if api_version == "v1" else f"/apis/{api_version}"
    collection = f"{root}/{plural}" if namespace is None else f"{root}/namespaces/{namespace}/{plural}"
    return collection if name is None else f"{collection}/{name}"


def resource_of(path: str) -> tuple[str, bool]:
    """What a path is about, and whether it names one object: `/api/v1/namespaces/n/pods/p/resize` is `pods/resize`."""
    parts = path.strip("/").split("/")
    below = parts[2:] if parts[0] == "api" else parts[3:] if parts[0] == "apis" else parts
    if below[:1] == ["namespaces"] and len(below) > 2:
        below = below[2:]
    return "/".join([*below[:1], *below[2:3]]), len(below) > 1
