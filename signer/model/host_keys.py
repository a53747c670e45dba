"""The host keys of an attested node's sshd, as the node's record keeps them, and what a request for certificates got.

The record is written before a host certificate is signed. All that a certificate holds follows from the record, its
place and the controller key: after a crash, the controller signs the same bytes again.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, TypeAlias

from signer.model.fields import format_time, required_text, required_time

_MAXIMUM_SERIAL_NUMBER: Final = 2**63 - 1
_MAXIMUM_HOST_KEYS: Final = 3
_KEYS_OF_REPORT: Final = frozenset({"trustVersion", "attestedTime"})


class HostCertificateReason(StrEnum):
    """Why a request gets no host certificates. Each has a heading in docs/troubleshooting.md.

    The kubelet gets its certificate all the same.
    """

    HOST_KEYS_MALFORMED = "HostKeysMalformed"
    """The extension is not of its form, or a key is of a kind or length that is not certified."""
    HOST_KEY_NOT_PROVEN = "HostKeyNotProven"
    """A proof is by another key, over other bytes or in another namespace."""
    HOST_KEY_IN_USE = "HostKeyInUse"
    """Another node, of any cluster, has the host key."""
    HOST_KEY_IS_AUTHORITY = "HostKeyIsAuthority"
    """The host key is one of the authorities that nodes or clients trust."""
    HOST_NAME_TAKEN = "HostNameTaken"
    """The node name is what another node's name is with cluster and namespace."""
    ATTESTOR_NOT_SECURE = "AttestorNotSecure"
    """The attestor only asserts which machine the node is."""
    AUTHORITIES_NOT_AVAILABLE = "AuthoritiesNotAvailable"
    """The policy turns SSH on, and its authorities may not sign now; condition SSHAuthoritiesAvailable says why."""
    NOT_JOURNALED = "NotJournaled"
    """A certificate that the node already had is published again, and no host certificates were issued with it, or they
    cannot be made again. The node's next request gets new ones.
    """
    SIGNING_FAILED = "SigningFailed"
    """The host authority did not sign, or the text would be too long."""


@dataclass(frozen=True, slots=True)
class AttestedHostKey:
    """One host key, which its holder proved to hold, and its certificate's serial number."""

    public_key: str
    """``type base64``."""
    serial_number: int
    """From 1 to 2^63 - 1."""

    @property
    def key_type(self) -> str:
        """As ``ssh-ed25519``."""
        return self.public_key.partition(" ")[0]

    @property
    def fingerprint(self) -> str:
        """As ``ssh-keygen -l`` prints it."""
        return _fingerprint(self.public_key)


@dataclass(frozen=True, slots=True)
class FormerHostCertificates:
    """Certificates of another authority, which the node may still present."""

    authority: str
    """Fingerprint of the authority of the last of them."""
    not_after: datetime
    """When all of them have ended."""


@dataclass(frozen=True, slots=True)
class NoFormerHostCertificates:
    """The node presents no certificate of another authority: it got none before, or could read a newer one."""


NO_FORMER: Final = NoFormerHostCertificates()


@dataclass(frozen=True, slots=True)
class AttestedHostKeys:
    """What the node's last attested request for host certificates showed, and which certificates it got."""

    trust_version: int
    """Of the trust that the files of the node's sshd held at its last attested request; 0 for none."""
    attested: datetime
    """When the request was decided."""
    host_keys: tuple[AttestedHostKey, ...]
    principals: tuple[str, ...]
    """Of each of the certificates, in their order."""
    not_before: datetime
    not_after: datetime
    authority: str
    """Fingerprint of the host authority that signs."""
    nonce_key: str
    """Identifies the controller key under which nonces are made."""
    former: FormerHostCertificates | NoFormerHostCertificates = NO_FORMER
    """An entry that changes the authority has them, until the workload API server has taken an answer with its
    certificates: an entry alone does not show that the node got any."""

    def has(self, public_keys: frozenset[str]) -> bool:
        """Whether these are the host keys."""
        return frozenset(one.public_key for one in self.host_keys) == public_keys


@dataclass(frozen=True, slots=True)
class ReportedTrust:
    """The node never got a host certificate. An attested request named host keys all the same, and the trust that it
    has: it takes that from the trust bundle, too.
    """

    trust_version: int
    """Of the trust that the files of the node's sshd held; 0 for none, and where the request does not show it."""
    attested: datetime
    """When the request was decided."""


@dataclass(frozen=True, slots=True)
class NoHostKeys:
    """No attested request of the node named host keys."""


NO_HOST_KEYS: Final = NoHostKeys()
RecordedHostKeys: TypeAlias = AttestedHostKeys | ReportedTrust | NoHostKeys


def with_reported(recorded: RecordedHostKeys, trust_version: int, attested: datetime) -> RecordedHostKeys:
    """After an attested request with host keys that gets no host certificate. Those that the node has stay."""
    if isinstance(recorded, AttestedHostKeys):
        return replace(recorded, trust_version=trust_version)
    return ReportedTrust(trust_version, attested.replace(microsecond=0))


def host_keys_object(host_keys: AttestedHostKeys | ReportedTrust) -> dict[str, Any]:
    """``spec.ssh`` of an AttestedNode."""
    if isinstance(host_keys, ReportedTrust):
        return {"trustVersion": host_keys.trust_version, "attestedTime": format_time(host_keys.attested)}
    former = host_keys.former
    return {
        "trustVersion": host_keys.trust_version,
        "attestedTime": format_time(host_keys.attested),
        "hostKeys": [
            {
                "publicKey": one.public_key,
                "fingerprint": one.fingerprint,
                "certificateSerialNumber": str(one.serial_number),
            }
            for one in host_keys.host_keys
        ],
        "principals": list(host_keys.principals),
        "notBefore": format_time(host_keys.not_before),
        "notAfter": format_time(host_keys.not_after),
        "authorityFingerprint": host_keys.authority,
        "nonceKey": host_keys.nonce_key,
        **(
            {"former": {"authorityFingerprint": former.authority, "notAfter": format_time(former.not_after)}}
            if isinstance(former, FormerHostCertificates)
            else {}
        ),
    }


def parse_host_keys(value: Any) -> AttestedHostKeys | ReportedTrust:
    """Read ``spec.ssh``. One without ``former`` may be of a release that did not write it.

    Raises:
        KeyError, TypeError, ValueError: a field is missing or malformed.
    """
    if not isinstance(value, Mapping):
        raise TypeError("ssh is no object")
    version = value["trustVersion"]
    if type(version) is not int or not 0 <= version <= _MAXIMUM_SERIAL_NUMBER:
        raise ValueError("trustVersion is out of range")
    if value.keys() == _KEYS_OF_REPORT:
        return ReportedTrust(version, required_time(value, "attestedTime"))
    host_keys = tuple([_host_key(one) for one in _list(value["hostKeys"])])
    if not 0 < len(host_keys) <= _MAXIMUM_HOST_KEYS:
        raise ValueError("the number of host keys is out of range")
    principals = tuple(_list(value["principals"]))
    if not principals or not all(isinstance(one, str) and one for one in principals):
        raise ValueError("principals are missing")
    return AttestedHostKeys(
        trust_version=version,
        attested=required_time(value, "attestedTime"),
        host_keys=host_keys,
        principals=principals,
        not_before=required_time(value, "notBefore"),
        not_after=required_time(value, "notAfter"),
        authority=required_text(value, "authorityFingerprint"),
        nonce_key=required_text(value, "nonceKey"),
        former=_former(value["former"]) if "former" in value else NO_FORMER,
    )


def _former(value: Any) -> FormerHostCertificates:
    if not isinstance(value, Mapping):
        raise TypeError("former is no object")
    return FormerHostCertificates(required_text(value, "authorityFingerprint"), required_time(value, "notAfter"))


def _host_key(value: Any) -> AttestedHostKey:
    serial_number = required_text(value, "certificateSerialNumber")
    if not serial_number.isascii() or not serial_number.isdecimal() or serial_number.startswith("0"):
        raise ValueError("a serial number is no number")
    if int(serial_number) > _MAXIMUM_SERIAL_NUMBER:
        raise ValueError("a serial number is out of range")
    host_key = AttestedHostKey(required_text(value, "publicKey"), int(serial_number))
    if host_key.fingerprint != required_text(value, "fingerprint"):
        raise ValueError("a fingerprint is that of another key")
    return host_key


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("a field is no list")
    return value


@functools.lru_cache(maxsize=1024)
def _fingerprint(public_key: str) -> str:
    try:
        blob = base64.b64decode(public_key.partition(" ")[2], validate=True)
    except binascii.Error as error:
        raise ValueError("a host key is not `type base64`") from error
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode("ascii").rstrip("=")


@dataclass(frozen=True, slots=True)
class NotAsked:
    """The request names no host keys, or the policy does not turn SSH on."""


@dataclass(frozen=True, slots=True)
class HostCertificatesRefused:
    """The request gets no host certificates; the kubelet gets its certificate all the same."""

    reason: HostCertificateReason
    message: str


@dataclass(frozen=True, slots=True)
class HostCertificatesIssued:
    """The request gets host certificates."""

    recorded: AttestedHostKeys
    certificates: tuple[str, ...]
    """Certificate lines, ``type base64``, in the order of the host keys."""
    text: bytes = field(repr=False)
    """What follows the kubelet's certificate in ``status.certificate``."""


HostCertificates: TypeAlias = NotAsked | HostCertificatesRefused | HostCertificatesIssued
NOT_ASKED: Final = NotAsked()
