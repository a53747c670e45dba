"""Requests and authorities for tests."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from cryptography.hazmat.primitives.asymmetric import rsa

from attestors.wire.ssh.keys import host_key
from attestors.wire.ssh.principals import HostName, PlainPrincipal
from signer.authority.ssh.authorities import HostAuthority, UserAuthority
from signer.authority.ssh.key_id import KeyID
from signer.authority.ssh.private_key import AuthorityPrivateKey
from signer.authority.ssh.requests import HostCertificateRequest, Nonce, Serial, UserCertificateRequest
from tests.support.openssh import private_key, public_keys

NOW: Final = 1_800_000_000
NONCE: Final = Nonce.of_entry(bytes(32), b"entry")


def authority_key(name: str, seed: int = 1) -> AuthorityPrivateKey:
    """An authority's private key: ``ed25519`` or ``nistp384``."""
    key = private_key(name, seed)
    assert not isinstance(key, rsa.RSAPrivateKey)
    return key


USERS: Final = UserAuthority(authority_key("ed25519", 1))
HOSTS: Final = HostAuthority(authority_key("ed25519", 2))
FOR_USER: Final = UserCertificateRequest(
    public_key=public_keys()["ed25519"],
    key_id=KeyID.of("grant", "team-a", "night", "alice"),
    principals=(PlainPrincipal("root"),),
    serial=Serial(7),
    nonce=NONCE,
    now=NOW,
    lifetime=timedelta(hours=1),
)
FOR_HOST: Final = HostCertificateRequest(
    public_key=host_key(public_keys()["ed25519"]),
    key_id=KeyID.of("host", "worker-1"),
    principals=(HostName("worker-1"),),
    serial=Serial(8),
    nonce=NONCE,
    now=NOW,
    lifetime=timedelta(days=30),
)
