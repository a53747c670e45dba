"""Which of two CAs the certificate chain of a server ends at.

`cryptography.x509.verification` does not fit: it loads trust anchors with the library's own reader, which is about to
refuse the serial number 0 of Cluster API's CAs (see `signer.authority.lenient_certificate`).

The checks are at least as strict as those of Go's ``crypto/x509`` and OpenSSL: a chain that one of both refuses must
not be taken for accepted. A wrong link beside a good certificate is ignored, as in Go and OpenSSL; GnuTLS and Java may
refuse such a chain. API servers of kubeadm have certificates that the CA signed directly, so no chain has another CA
between the server's certificate and the old or the new CA.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from signer.authority.certificate_authority import is_processed
from signer.authority.errors import CertificateAuthorityUnavailable
from signer.authority.lenient_certificate import (
    CACertificate,
    CertificateUnreadable,
    NotIssuedBy,
    parse_ca_certificate,
)
from signer.authority.private_key import require_supported_public_key

__all__ = ["Presented", "presented_by"]

_MAXIMUM_CERTIFICATES: Final = 8
_MAXIMUM_BYTES: Final = 16 * 1024
"""A chain comes from a server that may be hostile."""


class Presented(StrEnum):
    """What a server presents, by the clients that accept it. Host names are not considered."""

    OLD = "Old"
    """The old CA signed it. Clients that know only the old CA accept it."""
    OLD_LINKED = "OldLinked"
    """The old CA signed it, and a valid OldWithNew is in the chain: clients that know only one of both CAs accept it,
    whichever they know."""
    NEW = "New"
    """The new CA signed it. Clients that know only the new CA accept it."""
    NEW_LINKED = "NewLinked"
    """The new CA signed it, and a valid NewWithOld is in the chain: clients that know only one of both CAs accept it,
    whichever they know."""
    FOREIGN = "Foreign"
    """Neither of both CAs signed it, or no client accepts it."""


class _NotAccepted(Exception):
    """A client refuses the chain."""


def presented_by(chain: Sequence[bytes], *, old: CACertificate, new: CACertificate, now: datetime) -> Presented:
    """Verify the chain that a server presented, once for clients of each CA.

    Signatures, validity, CA flags, key usages, extended key usages, path lengths, name constraints and key identifiers
    are verified. The order of the certificates after the first one does not matter, and others may be among them.

    Args:
        chain: DER as in the TLS handshake, the server's certificate first. At most 8 certificates of 16 KiB each;
            beyond that, the chain is foreign.
        old: the CA that is replaced.
        new: its successor.
        now: timezone-aware.

    Raises:
        ValueError: both CAs have the same key: a bug in the caller.
    """
    if old.subject_public_key_info == new.subject_public_key_info:
        raise ValueError("both CAs have the same key")
    if not 1 <= len(chain) <= _MAXIMUM_CERTIFICATES or any(len(der) > _MAXIMUM_BYTES for der in chain):
        return Presented.FOREIGN
    try:
        leaf, *others = [parse_ca_certificate(der) for der in chain]
        _require_server(leaf, now)
    except (CertificateUnreadable, _NotAccepted):
        return Presented.FOREIGN
    if _accepts(new, leaf, (), now):
        return Presented.NEW_LINKED if _is_linked(leaf, others, new, old, now) else Presented.NEW
    if _accepts(old, leaf, (), now):
        return Presented.OLD_LINKED if _is_linked(leaf, others, old, new, now) else Presented.OLD
    return Presented.FOREIGN


def _is_linked(
    leaf: CACertificate, others: Iterable[CACertificate], signer: CACertificate, anchor: CACertificate, now: datetime
) -> bool:
    """Whether one of the certificates is the anchor's link to the CA that signed the leaf."""
    return any(
        other.subject_public_key_info == signer.subject_public_key_info and _accepts(anchor, leaf, (other,), now)
        for other in others
    )


def _accepts(anchor: CACertificate, leaf: CACertificate, links: tuple[CACertificate, ...], now: datetime) -> bool:
    """Whether a client that knows only the anchor accepts the leaf by way of the links, the leaf's issuer first."""
    issued = leaf
    try:
        for depth, issuer in enumerate((*links, anchor)):
            _require_issuer(issuer, leaf, depth, now)
            _require_issued(issued, issuer)
            issued = issuer
    except (_NotAccepted, NotIssuedBy):
        return False
    return True


def _require_server(leaf: CACertificate, now: datetime) -> None:
    """It is a server's certificate and valid."""
    constraints, usage, purposes = leaf.basic_constraints, leaf.key_usage, leaf.extended_key_usage
    if constraints is not None and constraints.ca:
        raise _NotAccepted("the server presents a CA certificate")
    if usage is not None and not usage.digital_signature:
        raise _NotAccepted("the key usage excludes TLS 1.3")
    _require_for_servers(purposes)
    _require_valid(leaf, now)
    _require_processed(leaf)


def _require_issuer(issuer: CACertificate, leaf: CACertificate, depth: int, now: datetime) -> None:
    """It is a valid CA for servers, with ``depth`` CAs between itself and the leaf."""
    constraints = issuer.basic_constraints
    if constraints is None or not issuer.may_sign_certificates:
        raise _NotAccepted("not a CA")
    if constraints.path_length is not None and constraints.path_length < depth:
        raise _NotAccepted("the path length is exceeded")  # Go counts self-issued certificates too
    try:
        require_supported_public_key(issuer.public_key, "tls.crt")
    except CertificateAuthorityUnavailable:
        raise _NotAccepted("the CA's key is not supported") from None
    _require_for_servers(issuer.extended_key_usage)
    _require_valid(issuer, now)
    _require_processed(issuer)
    _require_names(issuer, leaf)


def _require_for_servers(purposes: x509.ExtendedKeyUsage | None) -> None:
    """OpenSSL does not take anyExtendedKeyUsage for serverAuth."""
    if purposes is not None and ExtendedKeyUsageOID.SERVER_AUTH not in purposes:
        raise _NotAccepted("the extended key usage excludes servers")


def _require_valid(certificate: CACertificate, now: datetime) -> None:
    if not certificate.not_before <= now < certificate.not_after:
        raise _NotAccepted("not valid now")


def _require_processed(certificate: CACertificate) -> None:
    for extension in certificate.extensions:
        if extension.critical and not is_processed(extension):
            raise _NotAccepted("a critical extension is not processed")


def _require_issued(issued: CACertificate, issuer: CACertificate) -> None:
    """Names, signature, and the authority key identifier, which OpenSSL compares."""
    for extension in issued.extensions:
        if isinstance(extension.value, x509.AuthorityKeyIdentifier):
            _require_identified(extension.value, issuer)
    issued.require_directly_issued_by(issuer)


def _require_identified(identifier: x509.AuthorityKeyIdentifier, issuer: CACertificate) -> None:
    expected, serial_number = issuer.subject_key_identifier, identifier.authority_cert_serial_number
    if identifier.key_identifier is not None and expected is not None and identifier.key_identifier != expected.digest:
        raise NotIssuedBy("the authority key identifier is another CA's")
    if serial_number is not None and serial_number != issuer.serial_number:
        raise NotIssuedBy("the authority key identifier names another certificate of the CA")


def _require_names(issuer: CACertificate, leaf: CACertificate) -> None:
    """The issuer's name constraints permit all host names and addresses of the server (RFC 5280 4.2.1.10)."""
    for extension in issuer.extensions:
        if isinstance(extension.value, x509.NameConstraints):
            permitted, excluded = extension.value.permitted_subtrees or (), extension.value.excluded_subtrees or ()
            for kind in {type(subtree) for subtree in (*permitted, *excluded)}:
                if kind not in (x509.DNSName, x509.IPAddress):
                    raise _NotAccepted("programs differ over this kind of name constraint")
            for name in _alternative_names(leaf):
                _require_permitted(name, permitted, excluded)


def _alternative_names(leaf: CACertificate) -> tuple[x509.GeneralName, ...]:
    return tuple(
        name
        for extension in leaf.extensions
        if isinstance(extension.value, x509.SubjectAlternativeName)
        for name in extension.value
    )


def _require_permitted(
    name: x509.GeneralName, permitted: Iterable[x509.GeneralName], excluded: Iterable[x509.GeneralName]
) -> None:
    """A kind of name without a permitted subtree is not limited."""
    if any(_is_within(name, subtree) for subtree in excluded):
        raise _NotAccepted("a name is excluded")
    of_its_kind = [subtree for subtree in permitted if type(subtree) is type(name)]
    if of_its_kind and not any(_is_within(name, subtree) for subtree in of_its_kind):
        raise _NotAccepted("a name is not permitted")


def _is_within(name: x509.GeneralName, subtree: x509.GeneralName) -> bool:
    if isinstance(name, x509.DNSName) and isinstance(subtree, x509.DNSName):
        host, domain = name.value.lower(), subtree.value.lower()
        return not domain or host == domain or host.endswith("." + domain.removeprefix("."))
    if isinstance(name, x509.IPAddress) and isinstance(subtree, x509.IPAddress):
        address, network = name.value, subtree.value
        return (
            isinstance(address, ipaddress.IPv4Address | ipaddress.IPv6Address)
            and isinstance(network, ipaddress.IPv4Network | ipaddress.IPv6Network)
            and address in network
        )
    return False
