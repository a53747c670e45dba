"""What ``krl revoke`` is asked to revoke."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from attestors.wire.ssh.certificate import (
    MAXIMUM_CERTIFICATE_FILE_BYTES,
    SignedCertificate,
    parse_certificate_file,
)
from attestors.wire.ssh.encoding import from_base64
from attestors.wire.ssh.errors import SSHReason, SSHRefused
from attestors.wire.ssh.key_line import words_of_file
from attestors.wire.ssh.keys import KeyType, RevocableKey, parse_revocable_key
from attestors.wire.ssh.krl import (
    Authority,
    CertificateRevocations,
    Fingerprint,
    SerialRange,
    parse_fingerprint,
)
from signer.offline.failures import InputRefused
from signer.offline.files import read_input

Revoked: TypeAlias = CertificateRevocations | RevocableKey | Fingerprint

FORMS: Final = (
    "a serial number (7, or 7-9); a key id; the file or the line of a public key or certificate; a fingerprint "
    "(SHA256:...). Where that is ambiguous, write serial:7, id:TEXT or key:FILE"
)
_SERIALS: Final = re.compile(r"(\d{1,20})(?:-(\d{1,20}))?", re.ASCII)
_KEY_ID: Final = re.compile(r"[!-~]{1,1024}", re.ASCII)
_TYPES: Final = tuple(f"{name} " for one in KeyType for name in (one.value, one.certificate_type))
_CERTIFICATE_MARK: Final = "-cert-v01@openssh.com"


def revoked_by(text: str, authority: Authority) -> Revoked:
    """What an argument revokes. Serial numbers and key ids are those of ``authority``'s certificates.

    Raises:
        InputRefused: it is nothing that can be revoked.
        SSHRefused: a key, a certificate or a fingerprint is malformed, or a serial number is 0.
    """
    prefix, colon, rest = text.partition(":")
    if colon and prefix in _PREFIXES:
        return _PREFIXES[prefix](rest, authority)
    if _SERIALS.fullmatch(text):
        return _serials(text, authority)
    if text.startswith(_TYPES):
        return _key_or_certificate(text.encode("utf-8", "surrogateescape"))
    if Path(text).is_file():
        return _file(text, authority)
    if text.endswith(".pub"):
        raise InputRefused(f"there is no file {text!a}; if that is a key id, write id:{text}")
    return _key_id(text, authority)


def _serials(text: str, authority: Authority) -> CertificateRevocations:
    found = _SERIALS.fullmatch(text)
    if found is None:
        raise InputRefused(f"{text!a} is no serial number: write it such as 7, or a range such as 7-9")
    first = int(found[1])
    return CertificateRevocations(authority, serials=(SerialRange(first, int(found[2] or first)),))


def _key_id(text: str, authority: Authority) -> CertificateRevocations:
    if _KEY_ID.fullmatch(text) is None:
        raise InputRefused(f"{text[:64]!a} is no key id: those have 1 to 1024 printable ASCII characters, no spaces")
    return CertificateRevocations(authority, key_ids=(text,))


def _file(name: str, _: Authority) -> Revoked:
    return _key_or_certificate(read_input(name, maximum_bytes=MAXIMUM_CERTIFICATE_FILE_BYTES))


def _fingerprint(text: str, _: Authority) -> Fingerprint:
    return parse_fingerprint(f"SHA256:{text}")


_PREFIXES: Final[Mapping[str, Callable[[str, Authority], Revoked]]] = {
    "serial": _serials,
    "id": _key_id,
    "key": _file,
    "SHA256": _fingerprint,
}
"""As in the specifications that ``ssh-keygen -k`` reads."""


def _key_or_certificate(data: bytes) -> Revoked:
    words = words_of_file(data, maximum_bytes=MAXIMUM_CERTIFICATE_FILE_BYTES)
    if words[0].endswith(_CERTIFICATE_MARK):
        return _of_certificate(parse_certificate_file(data))
    if len(words) != 2:
        raise SSHRefused(SSHReason.KEY_LINE_MALFORMED, "not one line `type base64`, perhaps with a comment behind it")
    key = parse_revocable_key(from_base64(words[1], "the key"))
    if key.key_type.value != words[0]:
        raise SSHRefused(SSHReason.KEY_LINE_TYPE_MISMATCH, "the line's first word is not the type of the key inside it")
    return key


def _of_certificate(signed: SignedCertificate) -> CertificateRevocations:
    """That certificate alone: by its serial number, or by its key id where it has none."""
    certificate = signed.certificate
    if certificate.serial:
        return CertificateRevocations(certificate.authority, serials=(SerialRange.single(certificate.serial),))
    if certificate.key_id:
        return CertificateRevocations(certificate.authority, key_ids=(certificate.key_id,))
    raise InputRefused("the certificate has neither serial number nor key id: revoke its key")
