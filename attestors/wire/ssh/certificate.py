"""OpenSSH certificates (PROTOCOL.certkeys), of every key type."""

from __future__ import annotations

import enum
import functools
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from attestors.wire.ssh.encoding import MAXIMUM_UINT64, Reader, from_base64, string, strings, to_base64, uint32, uint64
from attestors.wire.ssh.errors import SSHReason, SSHRefused, malformed
from attestors.wire.ssh.key_line import words_of_file
from attestors.wire.ssh.keys import (
    MAXIMUM_KEY_BYTES,
    KeyType,
    PublicKey,
    WeakRSAKey,
    parse_public_key,
    read_key_fields,
    shown_name,
)
from attestors.wire.ssh.options import (
    MAXIMUM_OPTIONS_BYTES,
    CriticalOption,
    Extension,
    encode_extensions,
    encode_options,
    parse_extensions,
    parse_options,
    require_sorted_extensions,
    require_sorted_options,
)
from attestors.wire.ssh.principals import (
    MAXIMUM_PRINCIPAL_CHARACTERS,
    MAXIMUM_PRINCIPALS,
    HostAddress,
    HostName,
    HostPrincipal,
    UserPrincipal,
    parse_host_principal,
    parse_user_principal,
)
from attestors.wire.ssh.signatures import MAXIMUM_SIGNATURE_BYTES, Signature, parse_signature, verify

FOREVER: Final = MAXIMUM_UINT64
"""The end of a certificate that has none."""
NONCE_BYTES: Final = 32
MAXIMUM_KEY_ID_BYTES: Final = 1024
MAXIMUM_CERTIFICATE_BYTES: Final = 128 * 1024
MAXIMUM_CERTIFICATE_FILE_BYTES: Final = 256 * 1024
_NONCE_RANGE: Final = range(16, 65)
_MAXIMUM_PRINCIPALS_BYTES: Final = MAXIMUM_PRINCIPALS * (4 + MAXIMUM_PRINCIPAL_CHARACTERS)
_MAXIMUM_TYPE_BYTES: Final = 64
_TYPES: Final = {key_type.certificate_type: key_type for key_type in KeyType}
_ENCODED_TYPES: Final = {key_type: string(name.encode("ascii")) for name, key_type in _TYPES.items()}


class CertificateKind(enum.Enum):
    """What a certificate counts for; the value is the type on the wire."""

    USER = 1
    HOST = 2


Principal: TypeAlias = UserPrincipal | HostPrincipal


@dataclass(frozen=True)  # without slots: it keeps its bytes
class Certificate:
    """What the authority signs.

    Raises:
        SSHRefused: ``PrincipalInvalid`` (of the other kind), ``PrincipalsRepeated``, ``TooManyPrincipals``,
            ``KeyIDInvalid``, ``ValidityInvalid``, ``OptionsNotSorted``, ``OptionInvalid`` or ``Malformed`` (a number
            out of range, or the nonce's length).
    """

    public_key: PublicKey
    kind: CertificateKind
    serial: int
    key_id: str
    principals: tuple[Principal, ...]
    valid_after: int
    """Unix time: the certificate counts from then on."""
    valid_before: int
    """Unix time: the certificate counts until then, exclusively. :data:`FOREVER`: without end."""
    authority: PublicKey
    """The key that signs."""
    nonce: bytes = field(repr=False)
    """A requester cannot predict it, and so not the signed bytes either."""
    critical_options: tuple[CriticalOption, ...] = ()
    extensions: tuple[Extension, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.serial <= MAXIMUM_UINT64:
            raise malformed("a serial number has 64 bits")
        if len(self.nonce) not in _NONCE_RANGE:
            raise malformed(f"the nonce has {len(self.nonce)} bytes, not {_NONCE_RANGE[0]} to {_NONCE_RANGE[-1]}")
        if not 0 <= self.valid_after < self.valid_before <= FOREVER:
            raise SSHRefused(SSHReason.VALIDITY_INVALID, "the validity ends before it begins, or is out of range")
        _require_key_id(self.key_id)
        self._require_principals()
        require_sorted_options(self.critical_options)
        require_sorted_extensions(self.extensions)
        if self.kind is CertificateKind.HOST and (self.critical_options or self.extensions):
            raise SSHRefused(SSHReason.OPTION_INVALID, "a host certificate has no options and no extensions")

    def _require_principals(self) -> None:
        if len(self.principals) > MAXIMUM_PRINCIPALS:
            raise SSHRefused(
                SSHReason.TOO_MANY_PRINCIPALS, f"OpenSSH reads at most {MAXIMUM_PRINCIPALS} principals of a certificate"
            )
        if len(set(map(str, self.principals))) != len(self.principals):
            raise SSHRefused(SSHReason.PRINCIPALS_REPEATED, "a principal is there twice")
        is_host = self.kind is CertificateKind.HOST
        if any(isinstance(principal, HostName | HostAddress) is not is_host for principal in self.principals):
            raise SSHRefused(
                SSHReason.PRINCIPAL_INVALID, "a user certificate names logins, a host certificate names hosts"
            )

    @functools.cached_property
    def signed_bytes(self) -> bytes:
        """The bytes that are signed."""
        return _signed_bytes(self)


def _signed_bytes(certificate: Certificate) -> bytes:
    return b"".join(
        (
            _ENCODED_TYPES[certificate.public_key.key_type],
            string(certificate.nonce),
            certificate.public_key.fields,
            uint64(certificate.serial),
            uint32(certificate.kind.value),
            string(certificate.key_id.encode("utf-8")),
            string(strings(str(principal).encode("ascii") for principal in certificate.principals)),
            uint64(certificate.valid_after),
            uint64(certificate.valid_before),
            string(encode_options(certificate.critical_options)),
            string(encode_extensions(certificate.extensions)),
            string(b""),  # reserved
            string(certificate.authority.blob),
        )
    )


@dataclass(frozen=True, slots=True)
class SignedCertificate:
    """A certificate with its signature. :meth:`verify` says whether the authority made it."""

    certificate: Certificate
    signature: Signature

    @property
    def blob(self) -> bytes:
        """The encoded certificate."""
        return self.certificate.signed_bytes + string(self.signature.blob)

    @property
    def line(self) -> str:
        """The certificate as text, ``type base64``, without a line end."""
        return f"{self.certificate.public_key.key_type.certificate_type} {to_base64(self.blob)}"

    def verify(self) -> None:
        """Verify the signature. Whether the authority is trusted, and the certificate valid, is another question.

        Raises:
            SSHRefused: as :func:`attestors.wire.ssh.signatures.verify`.
        """
        verify(self.certificate.authority, self.signature, self.certificate.signed_bytes)


def parse_certificate(blob: bytes) -> SignedCertificate:
    """Parse an encoded certificate. Its signature is not verified.

    Raises:
        SSHRefused: of many reasons; see :class:`~attestors.wire.ssh.errors.SSHReason`.
    """
    if len(blob) > MAXIMUM_CERTIFICATE_BYTES:
        raise SSHRefused(SSHReason.TOO_LARGE, f"a certificate has at most {MAXIMUM_CERTIFICATE_BYTES} bytes")
    reader = Reader(blob)
    key_type = _certificate_type(reader.string("the certificate's type", maximum=_MAXIMUM_TYPE_BYTES))
    nonce = reader.string("the nonce", maximum=_NONCE_RANGE[-1])
    public_key = read_key_fields(reader, key_type)
    if isinstance(public_key, WeakRSAKey):
        raise SSHRefused(SSHReason.KEY_TOO_WEAK, "the certificate is for an RSA key of fewer than 3072 bits")
    serial = reader.uint64("the serial number")
    kind = _kind(reader.uint32("the certificate's kind"))
    key_id = reader.text("the key id", maximum=MAXIMUM_KEY_ID_BYTES)
    principals = _principals(reader.string("the principals", maximum=_MAXIMUM_PRINCIPALS_BYTES), kind)
    valid_after, valid_before = reader.uint64("the begin"), reader.uint64("the end")
    options = parse_options(reader.string("the critical options", maximum=MAXIMUM_OPTIONS_BYTES))
    extensions = parse_extensions(reader.string("the extensions", maximum=MAXIMUM_OPTIONS_BYTES))
    reader.string("the reserved field", maximum=0)
    authority = parse_public_key(reader.string("the authority's key", maximum=MAXIMUM_KEY_BYTES))
    signature = parse_signature(reader.string("the signature", maximum=MAXIMUM_SIGNATURE_BYTES))
    reader.end("the certificate")
    certificate = Certificate(
        public_key=public_key,
        kind=kind,
        serial=serial,
        key_id=key_id,
        principals=principals,
        valid_after=valid_after,
        valid_before=valid_before,
        authority=authority,
        critical_options=options,
        extensions=extensions,
        nonce=nonce,
    )
    return SignedCertificate(certificate, signature)


def parse_certificate_line(text: str) -> SignedCertificate:
    """Parse ``type base64``, and nothing else.

    Raises:
        SSHRefused: ``KeyLineMalformed``, ``KeyLineTypeMismatch``, or as :func:`parse_certificate`.
    """
    if len(text) > MAXIMUM_CERTIFICATE_FILE_BYTES:
        raise SSHRefused(SSHReason.TOO_LARGE, "the line is longer than any certificate")
    named, _, encoded = text.partition(" ")
    stated = _certificate_type(named.encode("utf-8", "surrogatepass"))
    signed = parse_certificate(from_base64(encoded, "the certificate"))
    if signed.certificate.public_key.key_type is not stated:
        raise SSHRefused(SSHReason.KEY_LINE_TYPE_MISMATCH, "the line's first word is not the type inside it")
    return signed


def parse_certificate_file(data: bytes) -> SignedCertificate:
    """Parse a certificate file of ``ssh-keygen``: one line, perhaps with a comment and a line end.

    Raises:
        SSHRefused: see :func:`parse_certificate_line`.
    """
    return parse_certificate_line(" ".join(words_of_file(data, maximum_bytes=MAXIMUM_CERTIFICATE_FILE_BYTES)))


def _certificate_type(name: bytes) -> KeyType:
    found = _TYPES.get(name.decode("ascii", "backslashreplace"))
    if found is None:
        raise SSHRefused(
            SSHReason.KEY_TYPE_UNSUPPORTED, f"certificates of type {shown_name(name)} are not accepted here"
        )
    return found


def _kind(value: int) -> CertificateKind:
    try:
        return CertificateKind(value)
    except ValueError:
        raise SSHRefused(
            SSHReason.CERTIFICATE_KIND_UNKNOWN, f"a certificate of kind {value} is neither for users nor for hosts"
        ) from None


def _principals(data: bytes, kind: CertificateKind) -> tuple[Principal, ...]:
    reader = Reader(data)
    found: list[Principal] = []
    while not reader.is_at_end:
        content = reader.string("a principal", maximum=MAXIMUM_PRINCIPAL_CHARACTERS)
        text = content.decode("ascii", "backslashreplace")  # a backslash is in no principal
        found.append(parse_user_principal(text) if kind is CertificateKind.USER else parse_host_principal(text))
    return tuple(found)


def _require_key_id(key_id: str) -> None:
    try:
        length = len(key_id.encode("utf-8"))
    except UnicodeEncodeError:
        raise SSHRefused(SSHReason.KEY_ID_INVALID, "the key id is no Unicode text") from None
    if length > MAXIMUM_KEY_ID_BYTES or "\0" in key_id:
        raise SSHRefused(
            SSHReason.KEY_ID_INVALID, f"a key id has at most {MAXIMUM_KEY_ID_BYTES} bytes, and no NUL among them"
        )
