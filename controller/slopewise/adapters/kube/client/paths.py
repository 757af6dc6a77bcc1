"""Builds paths of the API server, and parses them for metrics."""

from __future__ import annotations


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
