"""Values that the tests of attestors share."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import settings

from attestors.contract import AttestationRequest
from attestors.wire import binding as binding_format
from attestors.wire.binding import Binding, CACertHash
from attestors.wire.evidence import Evidence
from attestors.wire.names import Purpose, SignerName

PATIENT: Final = settings(deadline=None)
"""For property tests: a busy machine is no failure."""

PROVIDER_ID: Final = "example://rack-7/machine-12"
CLUSTER: Final = CACertHash("sha256:" + "0f" * 32)
NOW: Final = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@functools.cache
def machine_key_pair() -> ec.EllipticCurvePrivateKey:
    """A node's key; one for all tests whose key does not matter."""
    return ec.generate_private_key(ec.SECP256R1())


def subject_public_key_info(key: ec.EllipticCurvePrivateKey) -> bytes:
    """DER of the public half."""
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def binding_for(
    *,
    purpose: Purpose = Purpose.CLIENT,
    provider: str = "keyed-mac",
    cluster: CACertHash = CLUSTER,
    key: ec.EllipticCurvePrivateKey | None = None,
) -> Binding:
    """The binding of a request."""
    return binding_format.compute(
        evidence_version="v1",
        cluster=cluster,
        signer_name=SignerName(purpose, provider),
        subject_public_key_info=subject_public_key_info(key or machine_key_pair()),
    )


def evidence_of(fields: Mapping[str, str], cluster: CACertHash = CLUSTER) -> Evidence:
    """Evidence of the newest version with these fields."""
    return Evidence("v1", cluster, MappingProxyType(dict(fields)))


def attestation_request(
    evidence: Evidence, *, binding: Binding | None = None, provider_id: str = PROVIDER_ID, now: datetime = NOW
) -> AttestationRequest:
    """A request as the core hands it to an attestor's server plugin."""
    return AttestationRequest(
        provider_id=provider_id,
        evidence=evidence,
        binding=binding or binding_for(),
        cluster_namespace="team-a",
        cluster_name="workload",
        cluster_uid="0f0c2b1e-1111-4c0a-9b46-0f6a3f0f7a22",
        csr_uid="7c1c0f3e-7d1e-4c0a-9b46-0f6a3f0f7a11",
        dns_names=(),
        ip_addresses=(),
        now=now,
    )
