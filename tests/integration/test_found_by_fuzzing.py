"""Requests that fuzzing found: each once ended a cluster's task again and again, for as long as it was there."""

from __future__ import annotations

import pytest

from tests.integration.house import House, node_of, provider_id
from tests.integration.requests import blocks_of, manifest_of
from tests.unit.signer.builders import ec_key, node_subject, pkcs10, provider_id_extension

pytestmark = pytest.mark.slow


def test_a_provider_id_of_a_length_beyond_all_memory_is_denied_and_others_join(house: House) -> None:
    cluster = house.cluster()
    cluster.add_machine("m", provider_id=provider_id("m"))
    house.run()
    claim = provider_id_extension(b"\x0c\x88" + b"\xff" * 8 + provider_id("m").encode())
    der = pkcs10(ec_key(), subject=node_subject("m"), extensions=[claim])
    cluster.submit_with_token(manifest_of("endless", b"".join(blocks_of(node_of(cluster, "m"), der))))
    verdict = cluster.wait_until_decided("endless")
    assert (verdict.condition, verdict.reason) == ("Denied", "InvalidProviderID"), verdict
    house.join(cluster)
