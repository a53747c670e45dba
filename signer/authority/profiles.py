"""Certificate profiles, each a closed set of constraints on the certificates that may be issued; and their validity.

`signer.authority.issuance.issue` issues a certificate only with a profile. The profile is enforced twice: on the
request, and on the parsed new certificate, by code that does not know the request. All profiles are defined in
:mod:`signer.authority`; a test lists them. This module also plans the validity of a certificate.
"""

from __future__ import annotations

import ipaddress
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from attestors.wire.names import NODE_USER_PREFIX, NODES_GROUP, Purpose
from signer.authority.der import DerError, Tag, object_identifier, read_elements, read_single
from signer.authority.errors import (
    CertificateAuthorityUnavailable,
    CertificateAuthorityUnavailableReason,
    IssuanceRefused,
    IssuanceRefusedReason,
)

__all__ = ["BACKDATE", "MINIMUM_DURATION", "Validity", "certificate_validity", "new_serial_number"]

BACKDATE: Final = timedelta(minutes=5)
"""Allowance for slow clocks; the same as in kube-controller-manager."""
MINIMUM_DURATION: Final = timedelta(minutes=10)
"""Kubernetes' minimum of ``spec.expirationSeconds``, 600."""
_SHORT: Final = timedelta(hours=8)
"""Below this, kube-controller-manager does not subtract the backdating from the duration."""
_SERIAL_NUMBER_BITS: Final = 127


@dataclass(frozen=True, slots=True)
class Validity:
    """Start and end in UTC, whole seconds, both inclusive (RFC 5280 4.1.2.5)."""

    not_before: datetime
    not_after: datetime


def certificate_validity(
    now: datetime, policy_duration: timedelta, expiration_seconds: int | None, ca_not_after: datetime
) -> Validity:
    """Plan a validity: the minimum of the policy's, the request's and the CA's remaining time, backdated by 5 minutes.

    ``not_after`` is never later than ``now`` plus that minimum. From 8 hours on, the duration includes the backdating,
    as in kube-controller-manager (``pkg/controller/certificates/authority/policies.go``), so that the whole validity is
    not longer than requested. A shorter certificate is valid for the full duration from ``now``.

    Args:
        now: timezone-aware.
        policy_duration: the duration that policy and configuration allow; at least ten minutes.
        expiration_seconds: the CSR's ``spec.expirationSeconds``; None if it is not set.
        ca_not_after: end of the CA that will sign; timezone-aware.

    Raises:
        CertificateAuthorityUnavailable: ``CertificateAuthorityExpired``, or ``CertificateAuthorityExpiring`` with less
            than ten minutes left.
        IssuanceRefused: ``ExpirationTooShort``, below 600 seconds. The API server rejects that. A longer certificate
            would exceed the request.
        ValueError: ``policy_duration`` is below ten minutes, or a time is naive: a bug in the caller.
    """
    if now.tzinfo is None or ca_not_after.tzinfo is None:
        raise ValueError("times must be aware")
    if policy_duration < MINIMUM_DURATION:
        raise ValueError(f"policy_duration must be at least {MINIMUM_DURATION}")
    start = now.astimezone(UTC).replace(microsecond=0)
    ca_end = ca_not_after.astimezone(UTC).replace(microsecond=0)
    _require_time_left(now, ca_end)
    seconds = min(policy_duration // timedelta(seconds=1), (ca_end - start + BACKDATE) // timedelta(seconds=1))
    if expiration_seconds is not None:
        if expiration_seconds < MINIMUM_DURATION.total_seconds():
            raise IssuanceRefused(
                IssuanceRefusedReason.EXPIRATION_TOO_SHORT, "spec.expirationSeconds must be at least 600"
            )
        seconds = min(seconds, expiration_seconds)
    duration = timedelta(seconds=seconds)
    not_before = start - BACKDATE
    not_after = start + duration if duration < _SHORT else not_before + duration
    return Validity(not_before=not_before, not_after=min(not_after, ca_end))


def _require_time_left(now: datetime, ca_end: datetime) -> None:
    if now >= ca_end:
        raise CertificateAuthorityUnavailable(
            CertificateAuthorityUnavailableReason.EXPIRED,
            f"the CA in tls.crt expired at {ca_end.isoformat()}; rotate the cluster's CA",
        )
    if ca_end - now < MINIMUM_DURATION:
        raise CertificateAuthorityUnavailable(
            CertificateAuthorityUnavailableReason.EXPIRING,
            f"the CA in tls.crt expires at {ca_end.isoformat()}, in less than ten minutes; rotate the cluster's CA",
        )


def new_serial_number() -> int:
    """A random positive serial number of 127 bits, 126 of them random.

    RFC 5280 4.1.2.2 allows 20 octets; the CA/Browser Forum's Baseline Requirements 7.1 require 64 random bits.
    """
    return 1 << (_SERIAL_NUMBER_BITS - 1) | secrets.randbits(_SERIAL_NUMBER_BITS - 1)


__all__ = [
    "CANARY",
    "CANARY_USER_PREFIX",
    "COMMON_NAME",
    "EXTENDED_USAGES",
    "KUBELET_CLIENT",
    "KUBELET_SERVING",
    "MAXIMUM_KUBELET_DURATION",
    "ORGANIZATION",
    "CertificateContents",
    "CertificateProfile",
    "CertificateUsage",
]

_Reason = IssuanceRefusedReason
_DNS_NAME = re.compile(
    r"(?=.{1,253}\Z)[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*\Z"
)
_NODE_NAME: Final = r"(?=.{1,253}\Z)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*\Z"
"""Kubernetes' DNS-1123 subdomain, which does not limit the length of a label."""
_CANARY_NAME: Final = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\Z"
_MAXIMUM_ALTERNATIVE_NAMES: Final = 64

CANARY_USER_PREFIX: Final = "node-attestation:ca-canary:"
MAXIMUM_KUBELET_DURATION: Final = timedelta(days=366)
"""The maximum that a policy may set."""

COMMON_NAME: Final = object_identifier("2.5.4.3")
ORGANIZATION: Final = object_identifier("2.5.4.10")

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


class CertificateUsage(StrEnum):
    """The ``spec.usages`` of a CSR (``k8s.io/api/certificates/v1`` KeyUsage) that profiles have."""

    DIGITAL_SIGNATURE = "digital signature"
    KEY_ENCIPHERMENT = "key encipherment"
    CLIENT_AUTH = "client auth"
    SERVER_AUTH = "server auth"


EXTENDED_USAGES: Final = {
    CertificateUsage.CLIENT_AUTH: ExtendedKeyUsageOID.CLIENT_AUTH,
    CertificateUsage.SERVER_AUTH: ExtendedKeyUsageOID.SERVER_AUTH,
}
_EXTENDED_USAGE_OF: Final = {identifier: usage for usage, identifier in EXTENDED_USAGES.items()}
_PLAIN_USAGES: Final = {
    CertificateUsage.DIGITAL_SIGNATURE: "digital_signature",
    CertificateUsage.KEY_ENCIPHERMENT: "key_encipherment",
}
_OTHER_PLAIN_USAGES: Final = (
    "content_commitment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
)
_NEEDED_EXTENSIONS: Final = (x509.BasicConstraints, x509.KeyUsage, x509.ExtendedKeyUsage)
_KNOWN_EXTENSIONS: Final = frozenset({*_NEEDED_EXTENSIONS, x509.AuthorityKeyIdentifier, x509.SubjectAlternativeName})


@dataclass(frozen=True, slots=True)
class CertificateContents:
    """The contents of one certificate that a profile constrains."""

    organization: str
    """Empty if the subject has none."""
    common_name: str
    usages: frozenset[CertificateUsage]
    dns_names: tuple[str, ...]
    ip_addresses: tuple[IPAddress, ...]
    not_before: datetime
    not_after: datetime


@dataclass(frozen=True, slots=True)
class CertificateProfile:
    """One kind of certificate that may be issued, with all constraints."""

    name: str
    purpose: Purpose
    """Selects the CA of an `IssuingSet`, and client or server authentication."""
    organization: str
    """The subject's organization; empty for none."""
    user_prefix: str
    """Prefix of the common name."""
    user_name: str
    """Regular expression for the rest of the common name, anchored at its end."""
    user_placeholder: str
    """The placeholder for that rest in messages."""
    optional_usages: frozenset[CertificateUsage]
    """Usages besides digital signature and the purpose's extended usage, which every certificate has."""
    maximum_alternative_names: int
    """Limit of host names and addresses together. 0: none is allowed; otherwise at least one is required."""
    maximum_duration: timedelta
    """Limit from the time of issuance. The whole validity may be longer by the backdating."""

    @property
    def extended_usage(self) -> CertificateUsage:
        """The one extended key usage."""
        return CertificateUsage.CLIENT_AUTH if self.purpose is Purpose.CLIENT else CertificateUsage.SERVER_AUTH

    def require(self, contents: CertificateContents) -> None:
        """The profile allows these contents.

        Raises:
            IssuanceRefused: it does not; the reason names the part.
        """
        self._require_subject(contents)
        self._require_usages(contents.usages)
        self._require_alternative_names(contents)
        if contents.not_before >= contents.not_after:
            raise IssuanceRefused(_Reason.VALIDITY_INVALID, "the validity ends before it begins")
        if contents.not_after - contents.not_before > self.maximum_duration + BACKDATE:
            raise IssuanceRefused(
                _Reason.VALIDITY_INVALID, f"a {self.name} certificate is valid for at most {self.maximum_duration}"
            )

    def require_certificate(self, certificate: x509.Certificate) -> None:
        """The profile allows this parsed certificate.

        Raises:
            IssuanceRefused: it does not, or the certificate has a part that no profile knows.
            ValueError: a part of it cannot be read.
        """
        organization, common_name = _subject(certificate)
        extensions = _extensions(certificate)
        dns_names, ip_addresses = _alternative_names(extensions)
        self.require(
            CertificateContents(
                organization=organization,
                common_name=common_name,
                usages=_usages(extensions),
                dns_names=dns_names,
                ip_addresses=ip_addresses,
                not_before=certificate.not_valid_before_utc,
                not_after=certificate.not_valid_after_utc,
            )
        )

    def _require_subject(self, contents: CertificateContents) -> None:
        before, prefix, name = contents.common_name.partition(self.user_prefix)
        matches = not before and prefix and re.match(self.user_name, name)
        if contents.organization != self.organization or not matches:
            organization = f"O={self.organization}, " if self.organization else ""
            raise IssuanceRefused(
                _Reason.SUBJECT_INVALID,
                f"the subject must be {organization}CN={self.user_prefix}<{self.user_placeholder}>",
            )

    def _require_usages(self, usages: frozenset[CertificateUsage]) -> None:
        if usages - self.optional_usages != {CertificateUsage.DIGITAL_SIGNATURE, self.extended_usage}:
            also = "".join(f", with or without {usage.value}" for usage in sorted(self.optional_usages))
            raise IssuanceRefused(
                _Reason.USAGES_INVALID, f"usages must be digital signature and {self.extended_usage.value}{also}"
            )

    def _require_alternative_names(self, contents: CertificateContents) -> None:
        count = len(contents.dns_names) + len(contents.ip_addresses)
        if not self.maximum_alternative_names:
            problem = f"a {self.name} certificate has none" if count else None
        elif not 1 <= count <= self.maximum_alternative_names:
            problem = f"a {self.name} certificate has 1 to {self.maximum_alternative_names}"
        elif not all(_DNS_NAME.match(name) for name in contents.dns_names):
            problem = "one is not a host name"
        elif any(getattr(address, "scope_id", None) is not None for address in contents.ip_addresses):
            problem = "an address has a zone"
        else:
            problem = None
        if problem is not None:
            raise IssuanceRefused(
                _Reason.SUBJECT_ALTERNATIVE_NAMES_INVALID, f"subject alternative names are wrong: {problem}"
            )


KUBELET_CLIENT: Final = CertificateProfile(
    name="kubelet client",
    purpose=Purpose.CLIENT,
    organization=NODES_GROUP,
    user_prefix=NODE_USER_PREFIX,
    user_name=_NODE_NAME,
    user_placeholder="node name",
    optional_usages=frozenset({CertificateUsage.KEY_ENCIPHERMENT}),
    maximum_alternative_names=0,
    maximum_duration=MAXIMUM_KUBELET_DURATION,
)
KUBELET_SERVING: Final = CertificateProfile(
    name="kubelet serving",
    purpose=Purpose.SERVING,
    organization=NODES_GROUP,
    user_prefix=NODE_USER_PREFIX,
    user_name=_NODE_NAME,
    user_placeholder="node name",
    optional_usages=frozenset({CertificateUsage.KEY_ENCIPHERMENT}),
    maximum_alternative_names=_MAXIMUM_ALTERNATIVE_NAMES,
    maximum_duration=MAXIMUM_KUBELET_DURATION,
)
CANARY: Final = CertificateProfile(
    name="canary",
    purpose=Purpose.CLIENT,
    organization="",
    user_prefix=CANARY_USER_PREFIX,
    user_name=_CANARY_NAME,
    user_placeholder="name",
    optional_usages=frozenset(),
    maximum_alternative_names=0,
    maximum_duration=MINIMUM_DURATION,
)
"""Tests whether an API server accepts a CA's certificates. It is in no group, so it has only the rights of every
authenticated user. Like every certificate, it is journaled before it is used."""


def _subject(certificate: x509.Certificate) -> tuple[str, str]:
    """Organization and common name, read here because the library refuses names of more than 64 characters."""
    try:
        to_be_signed = read_elements(read_single(certificate.tbs_certificate_bytes, Tag.SEQUENCE).content)
        # version, serialNumber, signature, issuer, validity, subject
        attributes = [_attribute(element.encoded) for element in read_elements(to_be_signed[5].content)]
    except (DerError, LookupError) as error:
        raise ValueError("the subject cannot be read") from error
    match attributes:
        case [(identifier, common_name)] if identifier == COMMON_NAME:
            return "", common_name
        case [(first, organization), (second, common_name)] if (first, second) == (ORGANIZATION, COMMON_NAME):
            return organization, common_name
    raise IssuanceRefused(_Reason.SUBJECT_INVALID, "the subject has other attributes than organization and common name")


def _attribute(relative_name: bytes) -> tuple[bytes, str]:
    (attribute,) = read_elements(read_single(relative_name, Tag.SET).content)
    identifier, value = read_elements(read_single(attribute.encoded, Tag.SEQUENCE).content)
    return identifier.encoded, read_single(value.encoded, Tag.UTF8_STRING).content.decode("utf-8")


def _extensions(certificate: x509.Certificate) -> dict[type[x509.ExtensionType], x509.ExtensionType]:
    """The certificate's extensions by kind. They must be those of an end entity."""
    found = {type(extension.value): extension.value for extension in certificate.extensions}
    if not found.keys() <= _KNOWN_EXTENSIONS:
        raise _unknown("an extension")
    for kind in _NEEDED_EXTENSIONS:
        if kind not in found:
            raise _unknown(f"it has no {kind.__name__}")
    return found


def _usages(extensions: Mapping[type[x509.ExtensionType], x509.ExtensionType]) -> frozenset[CertificateUsage]:
    """The certificate's usages. They must be those of an end entity, and known to profiles."""
    constraints, key_usage = extensions[x509.BasicConstraints], extensions[x509.KeyUsage]
    extended = extensions[x509.ExtendedKeyUsage]
    if not isinstance(constraints, x509.BasicConstraints) or constraints.ca:
        raise _unknown("CA:TRUE")
    identifiers = list(extended) if isinstance(extended, x509.ExtendedKeyUsage) else []
    if any(getattr(key_usage, name) for name in _OTHER_PLAIN_USAGES):
        raise _unknown("a usage")
    if not _EXTENDED_USAGE_OF.keys() >= set(identifiers):
        raise _unknown("a usage")
    plain = [usage for usage, name in _PLAIN_USAGES.items() if getattr(key_usage, name)]
    return frozenset((*plain, *(_EXTENDED_USAGE_OF[identifier] for identifier in identifiers)))


def _alternative_names(
    extensions: Mapping[type[x509.ExtensionType], x509.ExtensionType],
) -> tuple[tuple[str, ...], tuple[IPAddress, ...]]:
    names = extensions.get(x509.SubjectAlternativeName)
    if not isinstance(names, x509.SubjectAlternativeName):
        return (), ()
    dns_names = tuple(name.value for name in names if isinstance(name, x509.DNSName))
    addresses = tuple(
        name.value
        for name in names
        if isinstance(name, x509.IPAddress) and isinstance(name.value, ipaddress.IPv4Address | ipaddress.IPv6Address)
    )
    if len(dns_names) + len(addresses) != len(list(names)):
        raise _unknown("an alternative name")
    return dns_names, addresses


def _unknown(part: str) -> IssuanceRefused:
    return IssuanceRefused(_Reason.SELF_CHECK_FAILED, f"no profile allows a part of the new certificate: {part}")
