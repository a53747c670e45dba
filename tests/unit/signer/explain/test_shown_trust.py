"""A dry run takes what the canary found from the policy's status."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from signer.authority import IssuingSet, load_certificate_authority
from signer.explain.shown_trust import ShownTrust
from signer.kube.client import JsonObject
from signer.kube.errors import Forbidden
from signer.model.decision import Deferred
from signer.testing.certificates import EncryptionAlgorithm, new_cluster_certificate_authority
from tests.unit.signer.builders import CLUSTER

MADE = new_cluster_certificate_authority(EncryptionAlgorithm.ECDSA_P256)
AUTHORITY = IssuingSet.of(load_certificate_authority(MADE.secret_data, now=datetime.now(UTC)))


class Management:
    def __init__(self, *conditions: Any) -> None:
        self.conditions = conditions

    async def get(self, path: str) -> JsonObject:
        assert path.endswith(f"/namespaces/{CLUSTER.namespace}/nodeattestationpolicies/{CLUSTER.name}")
        return {"status": {"conditions": list(self.conditions)}}


class Refusing:
    async def get(self, path: str) -> JsonObject:
        raise Forbidden(path, status=403)


def condition(status: str, reason: str, kind: str = "CertificateAuthorityTrusted") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": "because"}


@pytest.mark.parametrize("reason", ["CertificateAuthorityNotTrusted", "CertificateAuthorityNotProven"])
async def test_what_the_canary_has_not_proven_waits(reason: str) -> None:
    shown = ShownTrust(Management(condition("False", reason)), CLUSTER)
    with pytest.raises(Deferred) as raised:
        await shown.require_trusted(AUTHORITY)
    assert (raised.value.defer.reason, raised.value.defer.message) == (reason, "because")


@pytest.mark.parametrize(
    "conditions",
    [
        (),
        (condition("True", "Trusted"),),
        (condition("Unknown", "NotTried"),),
        (condition("False", "CertificateAuthorityNotTrusted", "Ready"),),
        ("no object", None),
    ],
)
async def test_anything_else_passes(conditions: tuple[Any, ...]) -> None:
    await ShownTrust(Management(*conditions), CLUSTER).require_trusted(AUTHORITY)


async def test_a_policy_that_cannot_be_read_passes() -> None:
    """Other steps of the explanation say so."""
    await ShownTrust(Refusing(), CLUSTER).require_trusted(AUTHORITY)
