"""The nodes in whose name a CSR speaks, also if it cannot be read, was decided, or is hostile."""

from __future__ import annotations

from typing import Any

import pytest

from attestors.wire.names import PROVIDER_ID_OID
from signer.model.requested_node import requested_node_names
from signer.testing.nodes import SimulatedNode

NODE = SimulatedNode("worker-1", "test:///worker-1", "sha256:" + "0" * 64, "insecure")
OIDS = (PROVIDER_ID_OID,)


def names(manifest: dict[str, Any], username: str = "system:bootstrap:abcdef", **spec: Any) -> frozenset[str]:
    posted = {
        **manifest,
        "metadata": {**manifest["metadata"], "uid": "1"},
        "spec": {**manifest["spec"], "username": username, **spec},
    }
    return requested_node_names(posted, frozenset({"insecure"}), OIDS)


def test_the_subject_and_the_node_that_asks() -> None:
    request = NODE.client_request("join")
    assert names(request) == {"worker-1"}
    assert names(request, "system:node:worker-2") == {"worker-1", "worker-2"}
    decided = {**request, "status": {"certificate": "x", "conditions": [{"type": "Denied"}]}}
    assert names(decided) == {"worker-1"}


@pytest.mark.parametrize("request_text", [None, "", "not base64", "AAAA", 7, ["AAAA"]])
def test_an_unreadable_request_of_a_node(request_text: Any) -> None:
    request = NODE.client_request("join")
    assert names(request, "system:node:worker-2", request=request_text) == {"worker-2"}
    assert names(request, request=request_text) == frozenset()


def test_requests_to_other_signers() -> None:
    request = NODE.client_request("join")
    assert names(request, signerName="example.com/signer") == frozenset()
    assert requested_node_names({"spec": None}, frozenset(), OIDS) == frozenset()
