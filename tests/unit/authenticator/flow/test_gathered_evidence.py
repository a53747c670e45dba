"""What becomes of evidence that a agent plugin makes, and that no controller could read."""

from __future__ import annotations

from typing import Any, cast

import pytest

from attestors.contract import AttestorDescription, Freshness, GatherRequest, Security
from attestors.wire.binding import CACertHash
from attestors.wire.evidence import Evidence
from attestors.wire.names import PROVIDER_ID_OID, Purpose
from authenticator.flow.evidence import Attestation
from authenticator.model.attempt import PendingRequest, Subject
from authenticator.model.failures import NoEvidence
from tests.unit.authenticator.builders import key_pem

HASH = "sha256:" + "ab" * 32
MINE = AttestorDescription("mine", Security.SECURE, ("v1",), Freshness.TIMESTAMP)


class Gathering:
    """A agent plugin that gathers whatever a test says."""

    def __init__(self, found: object) -> None:
        self._found = found

    def provider_id(self) -> str:
        raise NotImplementedError

    def gather(self, request: GatherRequest) -> Evidence:
        return cast("Evidence", self._found)


def made_of(found: object) -> PendingRequest:
    return Attestation(MINE, Gathering(found), "mine://1", PROVIDER_ID_OID).pending_request(
        Subject("mine", "worker-1", "mine://1", HASH),
        key_pem(),
        purpose=Purpose.CLIENT,
        evidence_version="v1",
        tried=(),
        challenge="",
    )


def evidence(*, version: str = "v1", cluster: Any = None, **fields: Any) -> Evidence:
    return Evidence(version, CACertHash(HASH) if cluster is None else cluster, fields)


def test_evidence_that_can_be_read() -> None:
    assert made_of(evidence(field="text")).evidence_version == "v1"


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (None, "it returned NoneType instead of Evidence"),
        ({"version": "v1"}, "it returned dict instead of Evidence"),
        (evidence(field=b"bytes"), "every field of the evidence must be a str"),
        (evidence(field="\ud800"), "the evidence holds a lone surrogate"),
        (evidence(cluster=HASH), "the evidence's cluster must be a CACertHash"),
        (evidence(version="v2"), "it made evidence 'v2' instead of v1"),
        (evidence(**{f"field{number}": "" for number in range(31)}), "the evidence has more than 32 keys"),
        (evidence(caCertHash=HASH), "a field may not be called version or caCertHash"),
        (evidence(field="x" * 70_000), "larger than 65536 bytes"),
    ],
)
def test_unreadable_evidence_is_not_sent(found: object, says: str) -> None:
    """A controller denies it for good, and the node would pause."""
    with pytest.raises(NoEvidence, match=f"^attestor mine: .*{says}"):
        made_of(found)
