"""Paths are those of the API server, and say what they are about."""

from __future__ import annotations

import pytest

from slopewise.adapters.kube.client.protocol import resource_of


@pytest.mark.parametrize(
    ("path", "resource", "is_object"),
    [
        ("/api/v1/namespaces", "namespaces", False),
        ("/api/v1/namespaces/n", "namespaces", True),
        ("/api/v1/namespaces/n/pods/p/eviction", "pods/eviction", True),
        ("/apis/slopewise.dev/v1alpha1/trainingpolicies/t/status", "trainingpolicies/status", True),
        ("/version", "version", False),
    ],
)
def test_a_path_says_what_it_is_about(path: str, resource: str, is_object: bool) -> None:
    assert resource_of(path) == (resource, is_object)
