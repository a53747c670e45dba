"""Link certificates: one CA certifies another CA's name and public key (RFC 4210 4.4, cross-certificates).

During a rotation, some clients know only one of two CAs and some servers present certificates of the other one. A
server that appends a link certificate to its chain is accepted by both kinds of clients:

- **OldWithNew**: the new CA certifies the old one. Clients that know only the new CA accept servers whose certificate
  is still by the old one. It is for servers only: Go, OpenSSL and GnuTLS never accept a client certificate of the old
  CA by it. Java does not look at the extended key usage of a CA: a server in Java that trusts the new CA accepts
  clients of the old one by the link, until the link ends.
- **NewWithOld**: the old CA certifies the new one, for peers that know only the old CA. A CA of Cluster API has path
  length 0 and cannot issue it: Go refuses the chain, and OpenSSL too unless both CAs have the same name.

A link is public: a server sends it in every handshake. Until it ends, the certified CA's key can make servers that
clients of the issuing CA accept.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from signer.authority import der
from signer.authority.authority_certificate import (
    SIGNS_CERTIFICATES,
    AuthorityContents,
    Extension,
    key_identifier,
    sign_authority_certificate,
)
from signer.authority.certificate_authority import CertificateAuthority, KeyWithheld
from signer.authority.errors import IssuanceRefused, IssuanceRefusedReason
from signer.authority.lenient_certificate import CACertificate
from signer.authority.profiles import MINIMUM_DURATION, Validity

__all__ = [
    "LinkCertificate",
    "LinkNotPossible",
    "LinkNotPossibleReason",
    "ServerNames",
    "new_with_old",
    "old_with_new",
]

_BACKDATE: Final = timedelta(hours=1)
_SERVERS: Final = (ExtendedKeyUsageOID.SERVER_AUTH,)
_SERVERS_AND_CLIENTS: Final = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)


@dataclass(frozen=True, slots=True)
class ServerNames:
    """The servers to which a link is limited (name constraints, RFC 5280 4.2.1.10).

    A server's certificate is refused if one of its names is outside, even if clients connect by another name. So all
    names of all API servers must be known when the link is made, also those of machines that do not exist yet.

    Raises:
        ValueError: one of both is empty: names of that kind would not be limited.
    """

    dns_names: tuple[str, ...]
    """Each permits itself and all names below it."""
    networks: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]

    def __post_init__(self) -> None:
        if not self.dns_names or not self.networks:
            raise ValueError("a link must be limited in host names and in addresses")

    @property
    def constraints(self) -> x509.NameConstraints:
        """The extension."""
        names = [x509.DNSName(name) for name in self.dns_names]
        return x509.NameConstraints([*names, *(x509.IPAddress(network) for network in self.networks)], None)


@dataclass(frozen=True, slots=True)
class LinkCertificate:
    """A link certificate."""

    certificate: CACertificate
    certificate_pem: bytes = field(repr=False)
    """One CERTIFICATE block, to be appended to a server's or client's chain."""

    @property
    def not_after(self) -> datetime:
        """The end, in UTC. It may be earlier than the requested lifetime: a link never outlives one of its CAs."""
        return self.certificate.not_after


class LinkNotPossibleReason(StrEnum):
    """Why one CA cannot certify another one."""

    PATH_LENGTH = "PathLength"
    """The issuing CA's path length is 0: it may issue no CA certificate."""
    EXTENDED_KEY_USAGE = "ExtendedKeyUsage"
    """A CA's own extended key usage excludes the link's."""
    VALIDITY = "Validity"
    """One of both CAs is not valid now, or for less than ten minutes."""
    NAME_CONSTRAINTS = "NameConstraints"
    """The certified CA has name constraints of its own, which a link with others would lift."""


@dataclass(frozen=True, slots=True)
class LinkNotPossible:
    """No program would accept the link certificate, so none was made."""

    reason: LinkNotPossibleReason
    message: str


def old_with_new(
    *,
    old: CACertificate,
    new: CertificateAuthority,
    now: datetime,
    lifetime: timedelta,
    names: ServerNames | None = None,
) -> LinkCertificate | LinkNotPossible:
    """The new CA certifies the old one, for servers only.

    Args:
        old: the CA to certify.
        new: the CA that signs.
        now: timezone-aware.
        lifetime: counted from ``now``; the link ends earlier if one of the CAs does.
        names: the servers to which the link is limited; None for the old CA's own name constraints, if it has any.

    Raises:
        ValueError: ``now`` is naive, or both CAs have the same key: a bug in the caller.
        IssuanceRefused: ``KeyWithheld`` or ``SelfCheckFailed``.
    """
    return _link(new, old, now, lifetime, _SERVERS, names)


def new_with_old(
    *, new: CACertificate, old: CertificateAuthority, now: datetime, lifetime: timedelta
) -> LinkCertificate | LinkNotPossible:
    """The old CA certifies the new one, for servers and clients.

    Args:
        new: the CA to certify.
        old: the CA that signs.
        now: timezone-aware.
        lifetime: counted from ``now``; the link ends earlier if one of the CAs does.

    Raises:
        ValueError: ``now`` is naive, or both CAs have the same key: a bug in the caller.
        IssuanceRefused: ``KeyWithheld`` or ``SelfCheckFailed``.
    """
    return _link(old, new, now, lifetime, _SERVERS_AND_CLIENTS, None)


def _link(
    issuer: CertificateAuthority,
    subject: CACertificate,
    now: datetime,
    lifetime: timedelta,
    usages: tuple[x509.ObjectIdentifier, ...],
    names: ServerNames | None,
) -> LinkCertificate | LinkNotPossible:
    if now.tzinfo is None:
        raise ValueError("times must be aware")
    signing = issuer.certificate
    if signing.subject_public_key_info == subject.subject_public_key_info:
        raise ValueError("both CAs have the same key")
    if isinstance(issuer.private_key, KeyWithheld):
        raise IssuanceRefused(IssuanceRefusedReason.KEY_WITHHELD, "the CA was loaded without its private key")
    try:
        _require_possible(signing, subject, usages)
        constraints = _name_constraints(subject, names)
        validity = _validity(signing, subject, now, lifetime)
    except _Obstacle as obstacle:
        return LinkNotPossible(obstacle.reason, obstacle.message)
    extensions: list[Extension] = [
        (SIGNS_CERTIFICATES, True),
        (x509.BasicConstraints(ca=True, path_length=_path_length(signing, subject)), True),
        (x509.ExtendedKeyUsage(usages), False),
        (x509.SubjectKeyIdentifier(key_identifier(subject)), False),
        (x509.AuthorityKeyIdentifier(key_identifier(signing), None, None), False),
    ]
    extensions += [(value, True) for value in constraints]  # RFC 5280 4.2.1.10: critical
    contents = AuthorityContents(
        issuer=signing.subject,
        subject=subject.subject,
        subject_public_key_info=subject.subject_public_key_info,
        validity=validity,
        extensions=extensions,
    )
    certificate = sign_authority_certificate(contents, issuer.private_key)
    return LinkCertificate(certificate, der.encode_block("CERTIFICATE", certificate.der))


class _Obstacle(Exception):
    """No link is possible."""

    def __init__(self, reason: LinkNotPossibleReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


def _require_possible(issuer: CACertificate, subject: CACertificate, usages: tuple[x509.ObjectIdentifier, ...]) -> None:
    """The issuer can certify the subject, whatever the time."""
    constraints = issuer.basic_constraints
    if constraints is not None and constraints.path_length == 0:
        raise _Obstacle(
            LinkNotPossibleReason.PATH_LENGTH,
            "the issuing CA has path length 0, as the CAs of Cluster API have: it cannot certify another CA",
        )
    for certificate in (issuer, subject):
        permitted = certificate.extended_key_usage
        if permitted is not None and not set(usages) <= set(permitted):
            raise _Obstacle(
                LinkNotPossibleReason.EXTENDED_KEY_USAGE,
                "a CA's own extended key usage excludes server or client authentication",
            )


def _validity(issuer: CACertificate, subject: CACertificate, now: datetime, lifetime: timedelta) -> Validity:
    """Within the validity of both CAs."""
    start = now.astimezone(UTC).replace(microsecond=0)
    end = start + timedelta(seconds=lifetime // timedelta(seconds=1))
    not_before = max(start - _BACKDATE, issuer.not_before, subject.not_before)
    not_after = min(end, issuer.not_after, subject.not_after)
    if not_before > start or not_after - start < MINIMUM_DURATION:
        raise _Obstacle(
            LinkNotPossibleReason.VALIDITY,
            "one of both CAs is not yet valid, or the link would be valid for less than ten minutes (from "
            f"{not_before.isoformat()} to {not_after.isoformat()})",
        )
    return Validity(not_before, not_after)


def _name_constraints(subject: CACertificate, names: ServerNames | None) -> tuple[x509.NameConstraints, ...]:
    """At most one extension. A link must not lift the limits of the CA that it certifies."""
    own = tuple(item.value for item in subject.extensions if isinstance(item.value, x509.NameConstraints))
    if names is None:
        return own
    if own:
        raise _Obstacle(
            LinkNotPossibleReason.NAME_CONSTRAINTS,
            "the CA to certify has name constraints of its own; make the link without others",
        )
    return (names.constraints,)


def _path_length(issuer: CACertificate, subject: CACertificate) -> int | None:
    """The subject's own path length, and one less than the issuer's (RFC 5280 6.1.4 (l), (m)); None for no limit."""
    limits: list[int] = []
    if issuer.basic_constraints is not None and issuer.basic_constraints.path_length is not None:
        limits.append(issuer.basic_constraints.path_length - 1)
    if subject.basic_constraints is not None and subject.basic_constraints.path_length is not None:
        limits.append(subject.basic_constraints.path_length)
    return min(limits, default=None)
