"""The CA certificates of a bundle, read strictly."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from attestors.wire import pem
from attestors.wire.binding import CACertHash
from attestors.wire.statement.signatures import AuthorityKey, UnsupportedKey, authority_key

_MAXIMUM_BYTES: Final = 32 * 1024
_MAXIMUM_CERTIFICATES: Final = 8


class BadAuthority(ValueError):
    """A certificate is no CA that nodes may trust; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Authority:
    """A CA certificate with an accepted key."""

    der: bytes = field(repr=False)
    key: AuthorityKey = field(repr=False, compare=False)
    key_hash: CACertHash
    not_before: int
    """Unix time."""
    not_after: int
    """Unix time."""

    def is_valid(self, now: int) -> bool:
        """Whether ``now`` (Unix time) is in its validity."""
        return self.not_before <= now < self.not_after


def parse_bundle(bundle: str) -> tuple[Authority, ...]:
    """The CAs of a PEM bundle, in its order: strict PEM, and nothing but different CA certificates.

    Raises:
        BadAuthority: anything else.
    """
    try:
        blocks = pem.split(bundle.encode("ascii"), maximum_bytes=_MAXIMUM_BYTES, maximum_blocks=_MAXIMUM_CERTIFICATES)
    except (pem.MalformedPEM, UnicodeEncodeError) as error:
        raise BadAuthority(f"the bundle is not strict PEM: {error}") from None
    authorities: list[Authority] = []
    for position, block in enumerate(blocks, start=1):
        if block.label != "CERTIFICATE":
            raise BadAuthority(f"block {position} is not a CERTIFICATE")
        try:
            authorities.append(parse_authority(block.content))
        except BadAuthority as error:
            raise BadAuthority(f"certificate {position} {error}") from None
    if len({authority.key_hash for authority in authorities}) != len(authorities):
        raise BadAuthority("two certificates have one key")
    return tuple(authorities)


def parse_authority(der: bytes) -> Authority:
    """Read one CA certificate.

    Cluster API gives its CAs serial number 0, about which the library warns; the warning is suppressed.

    Raises:
        BadAuthority: it is unreadable, no CA, or has a key of another kind.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            certificate = x509.load_der_x509_certificate(der)
            extensions = {extension.oid: extension.value for extension in certificate.extensions}
            public_key = certificate.public_key()
            not_before, not_after = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        except (
            ValueError,
            TypeError,
            UnsupportedAlgorithm,
            x509.InvalidVersion,
            x509.DuplicateExtension,
            x509.UnsupportedGeneralNameType,
        ):
            raise BadAuthority("is unreadable") from None
    constraints = extensions.get(x509.BasicConstraints.oid)
    if not isinstance(constraints, x509.BasicConstraints) or not constraints.ca:
        raise BadAuthority("is no CA: it lacks CA:TRUE")
    usage = extensions.get(x509.KeyUsage.oid)
    if isinstance(usage, x509.KeyUsage) and not usage.key_cert_sign:
        raise BadAuthority("may not sign certificates")
    try:
        key = authority_key(public_key)
    except UnsupportedKey as error:
        raise BadAuthority(f"has an unsupported key: {error}") from None
    spki = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return Authority(der, key, CACertHash.of(spki), int(not_before.timestamp()), int(not_after.timestamp()))
