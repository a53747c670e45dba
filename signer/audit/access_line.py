"""Access grants in the audit log: a line for each issuance of certificates, and one for each end.

A line is written before its certificates leave the controller, or before the end takes effect. It is verified offline:
names, options and key id follow from what the line says of the grant, and so do the certificates' bytes, but for the
nonces, which take the controller key. sshd logs key id and serial number at each login, which lead to the line.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import IPv4Network, IPv6Network
from typing import Any, Final, TypeVar

from attestors.wire.ssh.certificate import SignedCertificate, parse_certificate_line
from attestors.wire.ssh.container_names import Container
from attestors.wire.ssh.errors import SSHRefused
from attestors.wire.ssh.key_line import parse_key_line
from signer.audit.errors import Inconsistent
from signer.audit.values import InvalidValue, read, write
from signer.authority.ssh.errors import SSHAuthorityRefused
from signer.authority.ssh.requests import Nonce, Serial
from signer.model.access.creator import Creator
from signer.rules.access_certificates import (
    GrantAccess,
    Hop,
    HopSources,
    certificate_request,
    grant_key_id,
    unsigned,
)

_TOLERANCE: Final = timedelta(minutes=5)
"""Between the times that certificates name and the line."""
_LineT = TypeVar("_LineT")


@dataclass(frozen=True, slots=True)
class LoggedApproval:
    """One person who approved the grant."""

    username: str
    uid: str
    """Of the AccessApproval."""


@dataclass(frozen=True, slots=True)
class LoggedCertificate:
    """The certificate of one hop."""

    hop: Hop
    serial_number: int
    source_addresses: tuple[IPv4Network | IPv6Network, ...]
    principals: tuple[str, ...]
    certificate: str
    """``type base64``."""


@dataclass(frozen=True, slots=True)
class IssuanceLine:
    """The fields of the line other than those of the chain."""

    cluster: str
    """``namespace/name`` of the Cluster."""
    time: datetime
    key_id: str
    """As sshd logs it."""
    access: GrantAccess
    creator: Creator
    reason: str
    ticket: str
    spec_digest: str
    """What approvals are about."""
    approvals: tuple[LoggedApproval, ...]
    key_fingerprint: str
    issued: datetime
    not_after: datetime
    authority: str
    """Fingerprint of the user authority."""
    certificates: tuple[LoggedCertificate, ...]

    def encode(self) -> bytes:
        """The line as a JSON object."""
        return write(self)


@dataclass(frozen=True, slots=True)
class EndLine:
    """The fields of the line other than those of the chain."""

    cluster: str
    """``namespace/name`` of the Cluster."""
    time: datetime
    key_id: str
    """It is revoked, unless every certificate with it has ended."""
    name: str
    """Of the AccessGrant."""
    uid: str
    creator: str
    epoch: int
    cause: str
    message: str
    serial_numbers: tuple[int, ...]
    """Of its certificates that the journal still has."""

    def encode(self) -> bytes:
        """The line as a JSON object."""
        return write(self)


def logged_certificate(hop: HopSources, certificate: str) -> LoggedCertificate:
    """A hop's certificate for the line.

    Raises:
        SSHRefused: it is no certificate.
    """
    made = parse_certificate_line(certificate).certificate
    return LoggedCertificate(hop.hop, made.serial, hop.source_addresses, tuple(map(str, made.principals)), certificate)


def read_issuance_line(content: Mapping[str, Any]) -> IssuanceLine:
    """Read and check the fields of a line other than those of the chain.

    Raises:
        InvalidValue: they are not exactly those of an issuance.
        Inconsistent: they contradict each other, or a certificate is not the one that they give.
    """
    line = _read(IssuanceLine, content)
    _require_right_access(line)
    _require_other_people(line)
    if not timedelta(0) <= line.time - line.issued <= _TOLERANCE:
        raise Inconsistent("the certificates were not issued when the line was written")
    hops = {one.hop for one in line.certificates}
    last = Hop.CONTAINER if isinstance(line.access.target, Container) else Hop.NODE
    if not hops or len(hops) < len(line.certificates) or last not in hops:
        raise Inconsistent("there is not one certificate for each hop")
    if len({one.serial_number for one in line.certificates}) < len(line.certificates):
        raise Inconsistent("two certificates have one serial number")
    for one in line.certificates:
        if one.hop is Hop.BASTION and not one.source_addresses:
            raise Inconsistent("the bastion's certificate counts from anywhere")
        _require_derived(line, one)
    return line


def read_end_line(content: Mapping[str, Any]) -> EndLine:
    """Read and check the fields of a line other than those of the chain.

    Raises:
        InvalidValue: they are not exactly those of an end.
        Inconsistent: they contradict each other.
    """
    line = _read(EndLine, content)
    try:
        key_id = grant_key_id(_namespace(line.cluster), line.name, line.uid, line.creator, line.epoch)
    except SSHRefused as refused:
        raise Inconsistent(str(refused)) from refused
    if line.key_id != str(key_id):
        raise Inconsistent("the key id is not that of the grant")
    return line


def _read(kind: type[_LineT], content: Mapping[str, Any]) -> _LineT:
    line = read(kind, content, "line")
    if not isinstance(line, kind):
        raise InvalidValue("line is of another kind")
    return line


def _namespace(cluster: str) -> str:
    return cluster.partition("/")[0]


def _require_right_access(line: IssuanceLine) -> None:
    access = line.access
    try:
        key_id, fingerprint = str(access.key_id), parse_key_line(access.public_key).fingerprint
    except SSHRefused as refused:
        raise Inconsistent(str(refused)) from refused
    if line.cluster != str(access.cluster):
        raise Inconsistent("the grant is of another Cluster than the line")
    if line.creator.username != access.creator:
        raise Inconsistent("the certificates name another creator than the line")
    if line.key_id != key_id:
        raise Inconsistent("the key id is not that of the grant")
    if line.key_fingerprint != fingerprint:
        raise Inconsistent("the fingerprint is not that of the key")


def _require_other_people(line: IssuanceLine) -> None:
    """Approvals count once for each person, and never the creator's."""
    names = [one.username for one in line.approvals]
    if line.creator.username in names or len(set(names)) < len(names):
        raise Inconsistent("an approval is the creator's, or one person's second one")


def _require_derived(line: IssuanceLine, one: LoggedCertificate) -> None:
    """The certificate is, byte for byte, what the line gives, with its own nonce."""
    try:
        signed = _parsed(one.certificate)
        made = signed.certificate
        request = certificate_request(
            line.access,
            HopSources(one.hop, one.source_addresses),
            Serial(one.serial_number),
            Nonce(made.nonce),
            line.issued,
            line.not_after - line.issued,
        )
        planned = unsigned(request, made.authority)
    except (SSHRefused, SSHAuthorityRefused) as refused:
        raise Inconsistent(f"there can be no such certificate for hop {one.hop.value}: {refused}") from refused
    if planned.signed_bytes != made.signed_bytes:
        raise Inconsistent(f"the certificate for hop {one.hop.value} is not the one that the line gives")
    if made.authority.fingerprint != line.authority:
        raise Inconsistent(f"the certificate for hop {one.hop.value} is of another authority")
    if one.principals != tuple(map(str, made.principals)):
        raise Inconsistent(f"the certificate for hop {one.hop.value} has other principals than the line says")


def _parsed(certificate: str) -> SignedCertificate:
    signed = parse_certificate_line(certificate)
    signed.verify()
    return signed


@dataclass(slots=True)
class GrantsSoFar:
    """What the lines so far say, for what no single line shows. A log holds some ten thousand of them."""

    ended: set[str]
    """Key ids."""
    serials: dict[int, bytes]
    """Digest of the certificate with each serial number."""

    @classmethod
    def none(cls) -> GrantsSoFar:
        """Before the first line."""
        return cls(set(), {})

    def issued(self, line: IssuanceLine) -> tuple[str, ...]:
        """Take an issuance; returns what is worth knowing about it.

        Raises:
            Inconsistent: a serial number is another certificate's.
        """
        for one in line.certificates:
            digest = hashlib.sha256(one.certificate.encode("ascii")).digest()
            if self.serials.setdefault(one.serial_number, digest) != digest:
                raise Inconsistent("another certificate has the same serial number")
        if line.key_id not in self.ended:
            return ()
        # The line of an end is written before the end. If the write of the end fails, its cause may be gone meanwhile.
        return ("certificates were issued with a key id of which an earlier line says that it ends",)

    def end(self, line: EndLine) -> None:
        """Take an end. It may be logged again, after a crash."""
        self.ended.add(line.key_id)


__all__ = [
    "EndLine",
    "GrantsSoFar",
    "IssuanceLine",
    "LoggedApproval",
    "LoggedCertificate",
    "logged_certificate",
    "read_end_line",
    "read_issuance_line",
]
