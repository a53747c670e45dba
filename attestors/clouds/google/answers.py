"""Typed answers of Compute Engine: the resources ``Instance`` and ``ShieldedInstanceIdentity`` of its API v1.

Only used fields are parsed. An answer that is not in the documented form, or about another object, is an
:class:`InvalidObject`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeAlias

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

from attestors.clouds.google.provider_id import InvalidGCEName, check_instance_id, check_instance_name
from attestors.clouds.json_objects import InvalidObject, objects_of, optional_text_of, text_of
from attestors.contract import IPAddress

RUNNING: Final = "RUNNING"
INSTANCE_FIELDS: Final = (
    "kind,id,name,zone,selfLink,status,creationTimestamp,hostname,"
    "networkInterfaces(networkIP,ipv6Address,accessConfigs(natIP),ipv6AccessConfigs(externalIpv6))"
)
"""The requested fields (``fields``, partial response): an instance's metadata may hold secrets that are not needed."""

_STATUS: Final = re.compile(r"[A-Z][A-Z_]{0,31}")
_HOSTNAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*")
_MAXIMUM_INTERFACES: Final = 64
_MAXIMUM_PEM_CHARACTERS: Final = 4096
_MAXIMUM_CERTIFICATE_CHARACTERS: Final = 32768
_PEM: Final = re.compile(r"-----BEGIN PUBLIC KEY-----\n[A-Za-z0-9+/=\n]+-----END PUBLIC KEY-----\n?")
_MINIMUM_RSA_BITS: Final = 2048
_MAXIMUM_RSA_BITS: Final = 4096


@dataclass(frozen=True, slots=True)
class Instance:
    """One virtual machine, according to Compute Engine."""

    project: str
    zone: str
    name: str
    instance_id: str
    """The numeric ID, in digits; unlike the name it is never reused."""
    status: str
    created: datetime
    hostname: str
    """The custom host name; empty if the instance has the internal DNS names of its project."""
    internal_addresses: tuple[IPAddress, ...]
    external_addresses: tuple[IPAddress, ...]

    @property
    def running(self) -> bool:
        """Whether the instance is running, as a node that sends requests must be."""
        return self.status == RUNNING

    @classmethod
    def read(cls, document: Mapping[str, Any], project: str, zone: str, name_or_id: str) -> Instance:
        """Parse the answer about the instance with this name or numeric ID.

        Raises:
            InvalidObject: not in the documented form, or about another instance.
        """
        _require_kind(document, "compute#instance")
        try:
            name = check_instance_name(text_of(document, "name"))
            instance_id = check_instance_id(text_of(document, "id"))
        except InvalidGCEName as error:
            raise InvalidObject(str(error)) from None
        if name_or_id not in (name, instance_id):
            raise InvalidObject("about an instance with another name")
        scope = f"/projects/{project}/zones/{zone}"
        if not text_of(document, "selfLink").endswith(f"{scope}/instances/{name}"):
            raise InvalidObject("about an instance in another project or zone")
        if not text_of(document, "zone").endswith(scope):
            raise InvalidObject("about an instance in another zone")
        interfaces = objects_of(document, "networkInterfaces", maximum=_MAXIMUM_INTERFACES)
        return cls(
            project,
            zone,
            name,
            instance_id,
            _matching(text_of(document, "status"), _STATUS, "status"),
            _time(text_of(document, "creationTimestamp")),
            _hostname(optional_text_of(document, "hostname")),
            tuple(_addresses(interfaces, "networkIP", "ipv6Address")),
            tuple(address for interface in interfaces for address in _external_addresses(interface)),
        )


@dataclass(frozen=True, slots=True)
class EncryptionKey:
    """An endorsement key of a virtual TPM, reported by the platform that made the TPM."""

    subject_public_key_info: bytes
    """DER."""
    certificate_pem: str = field(repr=False)
    """The endorsement key certificate; empty if there is none."""


@dataclass(frozen=True, slots=True)
class NoKey:
    """The virtual TPM has no such key, or the instance has no virtual TPM."""


@dataclass(frozen=True, slots=True)
class ShieldedInstanceIdentity:
    """The endorsement keys of an instance's virtual TPM."""

    rsa: EncryptionKey | NoKey
    """``encryptionKey``: RSA-2048."""
    elliptic: EncryptionKey | NoKey
    """``eccP256EncryptionKey``."""

    @property
    def keys(self) -> tuple[EncryptionKey, ...]:
        """The existing keys."""
        return tuple(key for key in (self.rsa, self.elliptic) if isinstance(key, EncryptionKey))

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> ShieldedInstanceIdentity:
        """Parse the answer of ``getShieldedInstanceIdentity``, which does not name its instance.

        Raises:
            InvalidObject: not in the documented form, or a key is invalid or of another kind than its field says.
        """
        _require_kind(document, "compute#shieldedInstanceIdentity")
        return cls(_rsa_key(document, "encryptionKey"), _elliptic_key(document, "eccP256EncryptionKey"))


def _require_kind(document: Mapping[str, Any], kind: str) -> None:
    if document.get("kind") != kind:
        raise InvalidObject(f"not a {kind}")


def _matching(text: str, grammar: re.Pattern[str], what: str) -> str:
    if not grammar.fullmatch(text):
        raise InvalidObject(f"{what} is malformed")
    return text


def _hostname(text: str) -> str:
    return _matching(text, _HOSTNAME, "hostname") if text else ""


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidObject("creationTimestamp is not a time") from None
    if time.tzinfo is None:
        raise InvalidObject("creationTimestamp has no time zone")
    return time


def _addresses(holders: tuple[Mapping[str, Any], ...], *names: str) -> Iterator[IPAddress]:
    for holder in holders:
        for name in names:
            text = optional_text_of(holder, name, maximum_characters=64)
            if text:
                try:
                    # An IPv6 address may be a prefix's first address, without the prefix length.
                    yield ipaddress.ip_address(text)
                except ValueError:
                    raise InvalidObject(f"{name} is not an IP address") from None


def _external_addresses(interface: Mapping[str, Any]) -> Iterator[IPAddress]:
    yield from _addresses(objects_of(interface, "accessConfigs", maximum=_MAXIMUM_INTERFACES), "natIP")
    yield from _addresses(objects_of(interface, "ipv6AccessConfigs", maximum=_MAXIMUM_INTERFACES), "externalIpv6")


_PublicKey: TypeAlias = rsa.RSAPublicKey | ec.EllipticCurvePublicKey


def _rsa_key(document: Mapping[str, Any], name: str) -> EncryptionKey | NoKey:
    found = _key(document, name)
    if isinstance(found, NoKey):
        return found
    key, certificate = found
    if not isinstance(key, rsa.RSAPublicKey) or not _MINIMUM_RSA_BITS <= key.key_size <= _MAXIMUM_RSA_BITS:
        raise InvalidObject(f"{name} is not an RSA key of {_MINIMUM_RSA_BITS} to {_MAXIMUM_RSA_BITS} bits")
    return _encryption_key(key, certificate)


def _elliptic_key(document: Mapping[str, Any], name: str) -> EncryptionKey | NoKey:
    found = _key(document, name)
    if isinstance(found, NoKey):
        return found
    key, certificate = found
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise InvalidObject(f"{name} is not a key on P-256")
    return _encryption_key(key, certificate)


def _key(document: Mapping[str, Any], name: str) -> tuple[Any, str] | NoKey:
    entry = document.get(name, {})
    if not isinstance(entry, dict):
        raise InvalidObject(f"{name} is not an object")
    pem = optional_text_of(entry, "ekPub", maximum_characters=_MAXIMUM_PEM_CHARACTERS)
    if not pem:
        return NoKey()
    try:
        key = load_pem_public_key(_matching(pem, _PEM, f"ekPub of {name}").encode("ascii"))
    except (ValueError, UnsupportedAlgorithm):
        raise InvalidObject(f"ekPub of {name} is not a public key") from None
    return key, optional_text_of(entry, "ekCert", maximum_characters=_MAXIMUM_CERTIFICATE_CHARACTERS)


def _encryption_key(key: _PublicKey, certificate: str) -> EncryptionKey:
    # Encoded again, so that equal keys have equal bytes.
    return EncryptionKey(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo), certificate)
