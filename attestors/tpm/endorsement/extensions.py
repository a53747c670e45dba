"""The extensions that state the use of a certificate: lenient in form, strict in meaning.

A critical extension that is neither read here nor in `_CRITICAL_WITHOUT_EFFECT` refuses the certificate (RFC 5280 4.2).
A malformed extension among those read here refuses it too, critical or not. The exception is authority information
access, which is only a hint for a person.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from attestors.tpm.endorsement import der, names
from attestors.tpm.endorsement.der import Element, Malformed

ENDORSEMENT_KEY_CERTIFICATE: Final = "2.23.133.8.1"
"""tcg-kp-EKCertificate (TCG EK Credential Profile 2.6, 3.2: Extended Key Usage)."""
ATTESTATION_KEY_CERTIFICATE: Final = "2.23.133.8.3"
"""tcg-kp-AIKCertificate."""
ANY_EXTENDED_KEY_USAGE: Final = "2.5.29.37.0"

_MANUFACTURER: Final = "2.23.133.2.1"
_MODEL: Final = "2.23.133.2.2"
_VERSION: Final = "2.23.133.2.3"
_SERIAL_NUMBER: Final = "2.5.4.5"
"""serialNumber (X.520 6.2.9): "the serial number of a device"."""
_INSTANCE: Final = "1.3.6.1.4.1.11129.2.1.21"
"""Google's description of the virtual machine: zone, project number, project, instance ID, and more."""
_INSTANCE_FIELDS: Final = 4

_SUBJECT_DIRECTORY_ATTRIBUTES: Final = "2.5.29.9"
_SUBJECT_KEY_IDENTIFIER: Final = "2.5.29.14"
_KEY_USAGE: Final = "2.5.29.15"
_SUBJECT_ALTERNATIVE_NAME: Final = "2.5.29.17"
_ISSUER_ALTERNATIVE_NAME: Final = "2.5.29.18"
_BASIC_CONSTRAINTS: Final = "2.5.29.19"
_CRL_DISTRIBUTION_POINTS: Final = "2.5.29.31"
_CERTIFICATE_POLICIES: Final = "2.5.29.32"
_AUTHORITY_KEY_IDENTIFIER: Final = "2.5.29.35"
_EXTENDED_KEY_USAGE: Final = "2.5.29.37"
_AUTHORITY_INFORMATION_ACCESS: Final = "1.3.6.1.5.5.7.1.1"
_CA_ISSUERS: Final = "1.3.6.1.5.5.7.48.2"

_READ: Final = frozenset(
    {
        _SUBJECT_KEY_IDENTIFIER,
        _KEY_USAGE,
        _SUBJECT_ALTERNATIVE_NAME,
        _BASIC_CONSTRAINTS,
        _AUTHORITY_KEY_IDENTIFIER,
        _EXTENDED_KEY_USAGE,
        _AUTHORITY_INFORMATION_ACCESS,
        _INSTANCE,
    }
)
_CRITICAL_WITHOUT_EFFECT: Final = frozenset(
    {
        # The TPM specification that the chip follows: a description (profile 2.6, 3.2: Subject Directory Attributes).
        _SUBJECT_DIRECTORY_ATTRIBUTES,
        # Any policy is accepted (RFC 5280 6.1.1, user-initial-policy-set = any-policy). STMicroelectronics' are
        # critical.
        _CERTIFICATE_POLICIES,
        # Another name of the issuer; chains use its subject name.
        _ISSUER_ALTERNATIVE_NAME,
        # Location of revocation data. Here the operator's deny list revokes endorsement keys.
        _CRL_DISTRIBUTION_POINTS,
    }
)
_MAXIMUM_EXTENSIONS: Final = 32
_MAXIMUM_PURPOSES: Final = 32
_PATH_LENGTH_UNBOUNDED: Final = None

_DIGITAL_SIGNATURE, _KEY_ENCIPHERMENT, _KEY_AGREEMENT, _KEY_CERT_SIGN = 0, 2, 4, 5
_DIRECTORY_NAME: Final = 0xA4
_UNIFORM_RESOURCE_IDENTIFIER: Final = 0x86
_KEY_IDENTIFIER: Final = 0x80


@dataclass(frozen=True, slots=True)
class KeyUsage:
    """The bits of RFC 5280 4.2.1.3 that are used here."""

    digital_signature: bool
    key_encipherment: bool
    key_agreement: bool
    key_cert_sign: bool


@dataclass(frozen=True, slots=True)
class TPMIdentity:
    """The chip's description in the subject alternative name (profile 2.6, 3.2: Subject Alternative Name).

    None if absent: Google's certificates have no such name.
    """

    manufacturer: str | None = None
    """``id:`` and the four octets of the TCG vendor ID in hexadecimal, such as ``id:53544D20``."""
    model: str | None = None
    version: str | None = None
    serial_number: str | None = field(default=None, repr=False)
    """The chip's own, exactly as it is written; most manufacturers leave it out."""


@dataclass(frozen=True, slots=True)
class Instance:
    """The virtual machine of Google Cloud that has the TPM. Both numbers are never given again."""

    project_number: int
    instance_id: int


@dataclass(frozen=True, slots=True)
class Extensions:
    """The statements of a certificate about its use; None if it makes none."""

    is_authority: bool | None = None
    path_length: int | None = _PATH_LENGTH_UNBOUNDED
    key_usage: KeyUsage | None = None
    purposes: frozenset[str] | None = None
    """Identifiers in the extended key usage."""
    subject_key_identifier: bytes | None = None
    authority_key_identifier: bytes | None = None
    tpm: TPMIdentity = TPMIdentity()
    instance: Instance | None = None
    issuer_location: str | None = None
    """URL of the issuer's certificate (authority information access). Unverified text, never fetched."""
    unknown_critical: tuple[str, ...] = ()


def read_extensions(element: Element) -> Extensions:
    """Parse the Extensions of a TBSCertificate (RFC 5280 4.2).

    Raises:
        Malformed: another structure, a repeated extension, or a malformed one that matters.
    """
    values: dict[str, bytes] = {}
    unknown: list[str] = []
    extensions = der.children(element, der.SEQUENCE)
    if len(extensions) > _MAXIMUM_EXTENSIONS:
        raise Malformed(f"has more than {_MAXIMUM_EXTENSIONS} extensions")
    for extension in extensions:
        identifier, critical, value = _read_extension(extension)
        if identifier in values:
            raise Malformed(f"has the extension {identifier} twice")
        values[identifier] = value
        if critical and identifier not in _READ | _CRITICAL_WITHOUT_EFFECT:
            unknown.append(identifier)
    is_authority, path_length = _read_basic_constraints(values.get(_BASIC_CONSTRAINTS))
    return Extensions(
        is_authority=is_authority,
        path_length=path_length,
        key_usage=_read_key_usage(values.get(_KEY_USAGE)),
        purposes=_read_purposes(values.get(_EXTENDED_KEY_USAGE)),
        subject_key_identifier=_read_subject_key_identifier(values.get(_SUBJECT_KEY_IDENTIFIER)),
        authority_key_identifier=_read_authority_key_identifier(values.get(_AUTHORITY_KEY_IDENTIFIER)),
        tpm=_read_tpm_identity(values.get(_SUBJECT_ALTERNATIVE_NAME)),
        instance=_read_instance(values.get(_INSTANCE)),
        issuer_location=_read_issuer_location(values.get(_AUTHORITY_INFORMATION_ACCESS)),
        unknown_critical=tuple(unknown),
    )


def _read_extension(extension: Element) -> tuple[str, bool, bytes]:
    """``critical`` is DEFAULT FALSE; Intel encodes the FALSE, which DER forbids."""
    fields = der.children(extension, der.SEQUENCE)
    if not 2 <= len(fields) <= 3:
        raise Malformed("has a malformed extension")
    critical = der.boolean(fields[1]) if len(fields) == 3 else False
    return der.object_identifier(fields[0]), critical, der.octet_string(fields[-1])


def _read_basic_constraints(value: bytes | None) -> tuple[bool | None, int | None]:
    """RFC 5280 4.2.1.9. ``cA`` is DEFAULT FALSE; Intel encodes the FALSE."""
    if value is None:
        return None, _PATH_LENGTH_UNBOUNDED
    fields = list(der.children(der.only(value, der.SEQUENCE), der.SEQUENCE))
    is_authority = der.boolean(fields.pop(0)) if fields and fields[0].tag == der.BOOLEAN else False
    path_length = der.integer(fields.pop(0)) if fields else _PATH_LENGTH_UNBOUNDED
    if fields or (path_length is not None and path_length < 0):
        raise Malformed("has malformed basic constraints")
    return is_authority, path_length


def _read_key_usage(value: bytes | None) -> KeyUsage | None:
    """A named bit list; trailing zero bits, which DER forbids, have no meaning."""
    if value is None:
        return None
    octets, unused = der.bit_string(der.only(value, der.BIT_STRING))
    bits = "".join(f"{octet:08b}" for octet in octets)
    bits = bits[: len(bits) - unused]

    def is_set(number: int) -> bool:
        return bits[number : number + 1] == "1"

    return KeyUsage(
        digital_signature=is_set(_DIGITAL_SIGNATURE),
        key_encipherment=is_set(_KEY_ENCIPHERMENT),
        key_agreement=is_set(_KEY_AGREEMENT),
        key_cert_sign=is_set(_KEY_CERT_SIGN),
    )


def _read_purposes(value: bytes | None) -> frozenset[str] | None:
    if value is None:
        return None
    purposes = der.children(der.only(value, der.SEQUENCE), der.SEQUENCE)
    if not 1 <= len(purposes) <= _MAXIMUM_PURPOSES:
        raise Malformed("has a malformed extended key usage")
    return frozenset(der.object_identifier(purpose) for purpose in purposes)


def _read_subject_key_identifier(value: bytes | None) -> bytes | None:
    return None if value is None else der.octet_string(der.only(value, der.OCTET_STRING))


def _read_authority_key_identifier(value: bytes | None) -> bytes | None:
    if value is None:
        return None
    fields = der.children(der.only(value, der.SEQUENCE), der.SEQUENCE)
    return next((field.content for field in fields if field.tag == _KEY_IDENTIFIER), None)


def _read_tpm_identity(value: bytes | None) -> TPMIdentity:
    """One directoryName with the three attributes, in one relative name or in three."""
    if value is None:
        return TPMIdentity()
    found: dict[str, str] = {}
    for kind, shown, exact in _directory_attributes(der.children(der.only(value, der.SEQUENCE), der.SEQUENCE)):
        text = exact if kind == _SERIAL_NUMBER else shown
        if kind in (_MANUFACTURER, _MODEL, _VERSION, _SERIAL_NUMBER) and found.setdefault(kind, text) != text:
            raise Malformed("names two TPMs in its subject alternative name")
    return TPMIdentity(found.get(_MANUFACTURER), found.get(_MODEL), found.get(_VERSION), found.get(_SERIAL_NUMBER))


def _read_instance(value: bytes | None) -> Instance | None:
    if value is None:
        return None
    fields = der.children(der.only(value, der.SEQUENCE), der.SEQUENCE)
    if len(fields) < _INSTANCE_FIELDS:
        raise Malformed("has a malformed description of its virtual machine")
    _, project_number, _, instance_id = fields[:_INSTANCE_FIELDS]
    return Instance(der.integer(project_number), der.integer(instance_id))


def _directory_attributes(general_names: Iterable[Element]) -> Iterable[tuple[str, str, str]]:
    """Type, printable text and exact text of each attribute."""
    for general_name in general_names:
        if general_name.tag == _DIRECTORY_NAME:
            name = names.read_name(der.only(general_name.content, der.SEQUENCE))
            for (kind, shown), (_, exact) in zip(name.attributes, name.exact, strict=True):
                yield kind, shown, exact


def _read_issuer_location(value: bytes | None) -> str | None:
    """A hint for a person, so a malformed one counts as absent."""
    if value is None:
        return None
    try:
        for description in der.children(der.only(value, der.SEQUENCE), der.SEQUENCE):
            method, location = der.children(description, der.SEQUENCE)
            if der.object_identifier(method) == _CA_ISSUERS and location.tag == _UNIFORM_RESOURCE_IDENTIFIER:
                return names.printable(location.content.decode("ascii", errors="replace"))
    except ValueError:
        pass
    return None
