"""Requests found by fuzzing: each ended a cluster's task repeatedly for as long as it existed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from attestors.wire import provider_id as provider_id_format
from signer.controller.requests import pending as pending_module
from signer.decision import decider as decider
from signer.model.signing_request import Parsed, parse_signing_request
from signer.testing.world import WorldCluster
from tests.integration.fixtures import Harness, node_of, pending, provider_id
from tests.integration.requests import blocks_of, manifest_of
from tests.unit.signer.builders import ec_key, node_subject, pkcs10, provider_id_extension

CLAIM = b"\x0c\x88" + b"\xff" * 8 + provider_id("m").encode()
pytestmark = pytest.mark.slow


def post(harness: Harness) -> WorldCluster:
    """A cluster, its controller, and the request."""
    cluster = harness.cluster()
    cluster.add_machine("m", provider_id=provider_id("m"))
    harness.run()
    der = pkcs10(ec_key(), subject=node_subject("m"), extensions=[provider_id_extension(CLAIM)])
    cluster.submit_with_token(manifest_of("endless", b"".join(blocks_of(node_of(cluster, "m"), der))))
    return cluster


def test_an_oversized_provider_id_length_is_denied_and_others_join(harness: Harness) -> None:
    cluster = post(harness)
    verdict = cluster.wait_until_decided("endless")
    assert (verdict.condition, verdict.reason) == ("Denied", "InvalidProviderID"), verdict
    harness.join(cluster)


def test_a_fault_in_parsing_one_request_delays_no_other(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """As before it was found: the next such fault must cost its own request only."""
    decode = provider_id_format.decode

    def faulty(value: bytes) -> str:
        if value == CLAIM:
            raise OverflowError
        return decode(value)

    monkeypatch.setattr(provider_id_format, "decode", faulty)
    cluster = post(harness)
    harness.join(cluster)
    pending(cluster, "endless")


@pytest.mark.prompt
def test_a_fault_in_parsing_one_request_beyond_the_request_budget_delays_no_other(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch itself parses requests to choose one to evict."""
    parse = parse_signing_request

    def faulty(manifest: Mapping[str, Any], *arguments: Any) -> Parsed:
        if manifest["metadata"]["name"] == "endless":
            raise OverflowError
        return parse(manifest, *arguments)

    monkeypatch.setattr(decider, "parse_signing_request", faulty)
    monkeypatch.setattr(pending_module, "MAXIMUM_REQUESTS", 1)
    cluster = post(harness)
    harness.join(cluster)
    pending(cluster, "endless")
