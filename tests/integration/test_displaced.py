"""A secure attestor displaces an insecure one's pair while the certificate for that pair is being created."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Final

import pytest

from signer.authority import IssuanceRequest, IssuingSet
from signer.decision.certificates import Certificate, SigningByKey
from signer.testing.nodes import SimulatedNode
from tests.integration.fixtures import Harness, node_of, provider_id

pytestmark = pytest.mark.slow

NAMES: Final = ("one.example", "two.example")
"""Host names of the Machine: its node may have either."""


@pytest.mark.parametrize("secure_name", NAMES)
def test_displaced_before_it_is_journaled(harness: Harness, monkeypatch: pytest.MonkeyPatch, secure_name: str) -> None:
    """Under one node name the record lets in one of the two; under two names nothing but another look does."""
    reserved, displaced = threading.Event(), threading.Event()
    sign = SigningByKey.sign

    async def slowly(self: SigningByKey, issuance: IssuanceRequest, authority: IssuingSet) -> Certificate:
        if not reserved.is_set():
            reserved.set()
            await asyncio.to_thread(displaced.wait)
        return await sign(self, issuance, authority)

    monkeypatch.setattr(SigningByKey, "sign", slowly)
    policy: dict[str, Any] = {"nodeNameReuse": "Immediate"}
    cluster = harness.cluster(attestors=("keyed-mac", "insecure"), policy=policy)
    cluster.add_machine("m", provider_id=provider_id("m"), addresses=[("Hostname", name) for name in NAMES])
    harness.run(insecure_enabled=True, insecure_namespaces=frozenset({"default"}))
    pretender = SimulatedNode(
        NAMES[0], provider_id("m"), cluster.ca_cert_hash, "insecure", {"provider-id": provider_id("m")}
    )
    try:
        cluster.submit_with_token(pretender.client_request("insecure"))
        assert reserved.wait(timeout=30)
        cluster.submit_with_token(node_of(cluster, "m", secure_name).client_request("secure"))
        assert cluster.wait_until_decided("secure").reason == "Attested"
    finally:
        displaced.set()
    verdict = cluster.wait_until_decided("insecure")
    assert (verdict.condition, verdict.reason) == ("Denied", "IdentityConflict"), verdict
    assert [record["spec"]["nodeName"] for record in harness.records(cluster)] == [secure_name]
