"""Checks an issued certificate before it is stored: it must be for this key, in this node's name, for this use and
these names, and not expired."""

from __future__ import annotations

from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from attestors.wire.certificate_request import node_subject
from attestors.wire.names import NODE_USER_PREFIX, Purpose
from authenticator.model.chain import alternative_names_of, issuer_of, load_chain, name_of, public_key_info_of
from authenticator.model.pair import Pair, UnreadablePair, parse_pair

MAXIMUM_CERTIFICATE_BYTES: Final = 48 * 1024
CLOCK_SKEW: Final = timedelta(minutes=5)
"""How far this node's clock may be behind the controller's."""

_USAGES: Final = {
    Purpose.CLIENT: ExtendedKeyUsageOID.CLIENT_AUTH,
    Purpose.SERVING: ExtendedKeyUsageOID.SERVER_AUTH,
}


class UnusableCertificate(ValueError):
    """The issued certificate is not the requested one; the message says how it differs."""


def new_key() -> str:
    """A new private key, PEM (PKCS#8): ECDSA on P-256, like the kubelet's own."""
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode("ascii")


def load_key(pem: str) -> ec.EllipticCurvePrivateKey:
    """Parse a key that :func:`new_key` made.

    Raises:
        ValueError: it is not such a key.
    """
    try:
        key = load_pem_private_key(pem.encode("ascii"), password=None)
    except UnsupportedAlgorithm as error:
        raise ValueError("a key of an unknown kind") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("not an elliptic-curve key")
    return key


def public_key_info(key: ec.EllipticCurvePrivateKey) -> bytes:
    """The key's SubjectPublicKeyInfo, DER."""
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def accept(
    issued: bytes,
    key_pem: str,
    *,
    node_name: str,
    purpose: Purpose,
    dns_names: tuple[str, ...],
    ip_addresses: tuple[str, ...],
    now: datetime,
) -> Pair:
    """The pair of the issued certificate and the key, if they belong together.

    ``issued`` is ``status.certificate``: PEM, the node's certificate first. The pair is encoded again from the parsed
    certificates, so nothing else from ``issued`` is stored.

    Raises:
        UnusableCertificate: another key, subject or use, or other alternative names; expired, not valid yet by more
            than :data:`CLOCK_SKEW`, or not a certificate.
    """
    if len(issued) > MAXIMUM_CERTIFICATE_BYTES:
        raise UnusableCertificate(f"it is larger than {MAXIMUM_CERTIFICATE_BYTES} bytes")
    try:
        chain = load_chain(issued)
        certificate = chain[0]
        public, subject = public_key_info_of(certificate), name_of(certificate)
        issuer_of(certificate)  # must be parsable: `status` shows it
        usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        names = alternative_names_of(certificate)
        # The library parses the validity on access too, and it may be invalid.
        not_before, not_after = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    except (ValueError, x509.ExtensionNotFound, x509.DuplicateExtension, x509.UnsupportedGeneralNameType) as error:
        raise UnusableCertificate("it is unreadable, or does not state its use") from error
    try:
        own = public_key_info(load_key(key_pem))
    except ValueError as error:
        raise UnusableCertificate("the stored key of the request is unreadable") from error
    if public != own:
        raise UnusableCertificate("it is for another key")
    if set(subject) != set(node_subject(node_name)):
        raise UnusableCertificate(f"its subject is not that of node {node_name}")
    if _USAGES[purpose] not in usages:
        raise UnusableCertificate(f"it is not for {purpose.value} authentication")
    # The controller signs the requested names or nothing. Other names would be requested again at every turn.
    if names != {*dns_names, *map(ip_address, ip_addresses)}:
        raise UnusableCertificate("it is for other names or addresses than requested")
    if now >= not_after:
        raise UnusableCertificate("it has expired already; is this node's clock right?")
    if now + CLOCK_SKEW < not_before:
        raise UnusableCertificate(
            f"it is not valid before {not_before:%Y-%m-%dT%H:%M:%SZ}; is this node's clock right?"
        )
    text = "".join(one.public_bytes(Encoding.PEM).decode("ascii") for one in chain)
    return _pair(text, key_pem)


def is_of_node(pair: Pair, node_name: str) -> bool:
    """Whether the certificate is in that node's name.

    Raises:
        UnusableCertificate: it is unreadable.
    """
    try:
        return set(name_of(load_chain(pair.certificate.encode("ascii"))[0])) == set(node_subject(node_name))
    except ValueError as error:
        raise UnusableCertificate("the certificate is unreadable") from error


def node_name_of(pair: Pair) -> str:
    """The node's name in the certificate; the whole subject if it is not a node's.

    Raises:
        UnusableCertificate: it is unreadable.
    """
    try:
        subject = name_of(load_chain(pair.certificate.encode("ascii"))[0])
    except ValueError as error:
        raise UnusableCertificate("the certificate is unreadable") from error
    names = [str(one.value) for one in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if len(names) == 1 and names[0].startswith(NODE_USER_PREFIX):
        return names[0].removeprefix(NODE_USER_PREFIX)
    return subject.rfc4514_string()


def check_pair(pair: Pair) -> None:
    """Check that certificate and key of a stored pair belong together.

    Raises:
        UnusableCertificate: they do not; no crash of this program leaves such a pair.
    """
    try:
        public = public_key_info_of(load_chain(pair.certificate.encode("ascii"))[0])
        same = public == public_key_info(load_key(pair.key))
    except ValueError as error:
        raise UnusableCertificate("certificate or key is unreadable") from error
    if not same:
        raise UnusableCertificate("certificate and key do not belong together")


def _pair(certificate: str, key: str) -> Pair:
    try:
        return parse_pair(certificate + key)
    except UnreadablePair as error:
        raise UnusableCertificate(f"it cannot be stored: {error}") from error
