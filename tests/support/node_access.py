"""Host certificates and the text that carries them, for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from attestors.wire.node_access import NodeAccess, Trust, render
from attestors.wire.ssh.certificate import NONCE_BYTES, Certificate, CertificateKind, SignedCertificate
from attestors.wire.ssh.keys import HostKey
from attestors.wire.ssh.principals import HostName
from attestors.wire.ssh.signatures import PrivateKey, public_key_of, sign
from tests.support.openssh import private_key

NOW: Final = 1_790_000_000
DAY: Final = 86_400
HOST_AUTHORITY: Final = private_key("ed25519", 100)
USER_AUTHORITY: Final = private_key("ed25519", 200)


def certificate(
    key: HostKey, *, node: str = "worker-1", authority: PrivateKey = HOST_AUTHORITY, now: int = NOW, **changes: Any
) -> SignedCertificate:
    """A host certificate as a controller issues it."""
    made = Certificate(
        **{
            "public_key": key,
            "kind": CertificateKind.HOST,
            "serial": 4711,
            "key_id": node,
            "principals": (HostName(node), HostName(f"{node}.prod.team-a")),
            "valid_after": now - 60,
            "valid_before": now + 30 * DAY,
            "authority": public_key_of(authority),
            "nonce": bytes(NONCE_BYTES),
            **changes,
        }
    )
    return signed(made, authority)


def signed(made: Certificate, authority: PrivateKey) -> SignedCertificate:
    """Signed by that key, whatever the certificate says of it."""
    return SignedCertificate(made, sign(authority, made.signed_bytes))


def trust(*, version: int = 7, **changes: Any) -> Trust:
    """The trust of a cluster."""
    plain = Trust((public_key_of(USER_AUTHORITY),), (), (public_key_of(HOST_AUTHORITY),), version)
    return replace(plain, **changes)


def text_of(*certificates: SignedCertificate, version: int = 7, **changes: Any) -> bytes:
    """The text behind a certificate."""
    return render(NodeAccess(certificates, trust(version=version, **changes)))
