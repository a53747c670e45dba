"""Step ``trusted``: a proof counts for exactly these CAs of exactly this Cluster; all others are looked up."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from signer.authority import IssuingSet, load_certificate_authority
from signer.decision.authority_trust import NO_TRUST_PROOF, NoTrustProof, TrustProof
from signer.decision.request_decision import RequestDecision
from signer.model.decision import Deferred
from signer.model.reasons import Reason
from signer.rules.plan import PROCEED
from signer.testing.certificates import EncryptionAlgorithm, new_cluster_certificate_authority
from tests.unit.signer.builders import cluster_view

ONE, OTHER = (
    IssuingSet.of(load_certificate_authority(made.secret_data, now=datetime.now(UTC)))
    for made in (new_cluster_certificate_authority(EncryptionAlgorithm.ECDSA_P256) for _ in range(2))
)


class Refusing:
    """An AuthorityTrust whose lookups find nothing."""

    def __init__(self, proof: TrustProof | NoTrustProof) -> None:
        self.proof = proof

    async def require_trusted(self, authority: IssuingSet) -> None:
        raise Deferred(Reason.CERTIFICATE_AUTHORITY_NOT_PROVEN, "looked up")


async def decide(proof: TrustProof | NoTrustProof) -> object:
    decision = RequestDecision(
        cast("Any", SimpleNamespace(trust=Refusing(proof))), cast("Any", None), cast("Any", None)
    )
    decision.ca = ONE
    decision.snapshot = cast("Any", SimpleNamespace(cluster=cluster_view(uid="c-1")))
    return await decision.trusted(lambda compares: None)


async def test_what_is_proven_is_not_looked_up() -> None:
    assert await decide(TrustProof(ONE, "c-1")) is PROCEED


@pytest.mark.parametrize(
    "proof",
    [NO_TRUST_PROOF, TrustProof(OTHER, "c-1"), TrustProof(ONE, "c-2")],
    ids=["nothing proven", "another CA", "another Cluster of that name"],
)
async def test_anything_else_is_looked_up(proof: TrustProof | NoTrustProof) -> None:
    with pytest.raises(Deferred, match="looked up"):
        await decide(proof)
