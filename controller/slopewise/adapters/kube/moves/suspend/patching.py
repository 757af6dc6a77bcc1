"""Patches a Job once; where the response is lost, reads the Job to see whether the patch was carried out."""

from __future__ import annotations

from collections.abc import Callable

from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.meanings import Refused
from slopewise.adapters.kube.client.protocol import MERGE_PATCH, PARAMS, Api, Json


def patch_once(
    api: Api, path: str, body: Json, is_done: Callable[[Json], bool], on_written: Callable[[Json], None]
) -> Refused | None:
    """None once the patch is carried out; ApiError where nothing was done.

    `is_done`: whether a Job that is read has what the patch writes. `on_written` gets the Job as it is then.
    """
    try:
        on_written(api.patch(path, body, MERGE_PATCH, PARAMS))
    except ApiError as error:
        if not error.maybe_done:
            raise
        return _find_out(api, path, is_done, on_written, error)
    return None


def _find_out(
    api: Api, path: str, is_done: Callable[[Json], bool], on_written: Callable[[Json], None], error: ApiError
) -> Refused | None:
    try:
        found = api.get(path)
    except ApiError:
        reason = f"not known whether it was done ({error.message}); the next pass will see"
        return Refused("failed", reason, "trouble", maybe_done=True)
    if not is_done(found):
        return Refused("failed", f"it was not done ({error.message})", "trouble")
    on_written(found)
    return None
