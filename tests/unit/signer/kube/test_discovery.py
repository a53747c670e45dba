"""API discovery, whatever the response."""

from __future__ import annotations

from typing import Any

import pytest

from signer.kube.client import Client
from signer.kube.discovery import served_plurals, served_versions
from signer.kube.errors import ResourceNotServed
from signer.testing.api.embedded import EmbeddedAPI


class Answers:
    """One document, at one path."""

    def __init__(self, path: str, document: dict[str, Any]) -> None:
        self._path = path
        self._document = document

    async def get(self, path: str) -> dict[str, Any]:
        assert path == self._path
        return self._document


async def test_an_api_server() -> None:
    with EmbeddedAPI() as api:
        async with Client(api.connection()) as client:
            assert await served_versions(client, "certificates.k8s.io") == {"v1"}
            assert "certificatesigningrequests" in await served_plurals(client, "certificates.k8s.io", "v1")
            with pytest.raises(ResourceNotServed):
                await served_versions(client, "cluster.x-k8s.io")
            with pytest.raises(ResourceNotServed):
                await served_plurals(client, "certificates.k8s.io", "v2")


@pytest.mark.parametrize("entries", [None, {}, "v1", 7, [], [None, 7, "v1", []]])
async def test_malformed_discovery_documents(entries: Any) -> None:
    assert await served_versions(Answers("/apis/g", {"versions": entries}), "g") == frozenset()
    assert await served_plurals(Answers("/apis/g/v1", {"resources": entries}), "g", "v1") == frozenset()
