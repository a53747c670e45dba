"""Whether an API server serves admission policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest

from signer.admission.discovery import NotServed, served_admission
from signer.admission.manifests import AdmissionVersion
from signer.kube.client import Client
from signer.kube.errors import ApiError, ResourceNotServed, ServerError
from signer.testing.api import EmbeddedAPI

BOTH: Final = ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
OLDER: Final = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")


class Discovery:
    """Resources by version of the group; an error in place of one is raised."""

    def __init__(self, versions: Mapping[str, tuple[str, ...] | ApiError]) -> None:
        self._versions = versions

    async def get(self, path: str) -> dict[str, Any]:
        found = self._versions.get(path.removeprefix("/apis/admissionregistration.k8s.io/"))
        if found is None:
            raise ResourceNotServed("not served", status=404)
        if isinstance(found, ApiError):
            raise found
        return {"resources": [{"name": name} for name in found]}


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ({"v1": (*OLDER, *BOTH)}, AdmissionVersion.V1),
        ({"v1": BOTH, "v1beta1": BOTH}, AdmissionVersion.V1),
        ({"v1": OLDER, "v1beta1": BOTH}, AdmissionVersion.V1BETA1),
        ({"v1": OLDER, "v1beta1": OLDER}, NotServed()),
        ({"v1": OLDER, "v1alpha1": BOTH}, NotServed()),
        ({"v1": BOTH[:1]}, NotServed()),
        ({"v1": BOTH[1:]}, NotServed()),
        ({}, NotServed()),
    ],
)
async def test_the_best_version(versions: dict[str, tuple[str, ...]], expected: AdmissionVersion | NotServed) -> None:
    assert await served_admission(Discovery(versions)) == expected


async def test_an_api_server_that_does_not_say_is_no_older_one() -> None:
    with pytest.raises(ServerError):
        await served_admission(Discovery({"v1": ServerError("busy", status=503), "v1beta1": BOTH}))


async def test_the_embedded_api_serves_none() -> None:
    with EmbeddedAPI() as api:
        async with Client(api.connection()) as client:
            assert await served_admission(client) == NotServed()
