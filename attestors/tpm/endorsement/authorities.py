"""The endorsement authorities that the operator trusts, in two groups:

- **roots** are trusted as configured: chains end there, self-signed or not, and their own signatures are not checked.
  An intermediate in this group is pinned and needs no root. In this way an operator can accept an intermediate whose
  own certificate is signed with SHA-1 (Infineon's for TPM 1.2).
- **intermediates** only help to find a path, and must chain to a root like those that a node sends.

Certificates before version 3, which cannot state that they are authorities, are accepted as roots only.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from attestors.tpm.endorsement.certificate import LINE_ENDS, Certificate, read_certificates
from attestors.tpm.endorsement.errors import AuthoritiesUnreadable, CertificateUnreadable
from attestors.tpm.endorsement.names import ComparableName

_MAXIMUM_AUTHORITIES: Final = 4096
"""All manufacturers together have about 300 known ones."""
_MAXIMUM_BYTES: Final = 16 * 1024 * 1024
_VERSION_WITH_CONSTRAINTS: Final = 3
"""The X.509 version from which on a certificate states whether it is an authority."""
_PEM: Final = re.compile(rb"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)
_PEM_START: Final = b"-----BEGIN "
_WHITE_SPACE: Final = b" \t\r\n"

_BySubject = Mapping[ComparableName, tuple[Certificate, ...]]


@dataclass(frozen=True, slots=True)
class EndorsementAuthorities:
    """Built by `load_endorsement_authorities`, once per configuration change."""

    roots: _BySubject = field(repr=False)
    """By subject."""
    intermediates: _BySubject = field(repr=False)
    accept_expired: bool
    """Whether authorities count after they expired. The endorsement key certificate itself must still be valid."""
    digest: str = field(compare=False)
    """``sha256:`` and hexadecimal digits over all of it; equal for equal authorities."""


def load_endorsement_authorities(
    *,
    roots: Mapping[str, bytes] | Sequence[bytes],
    intermediates: Mapping[str, bytes] | Sequence[bytes] = (),
    accept_expired: bool = False,
) -> EndorsementAuthorities:
    """Parse the operator's files; each holds certificates in PEM (text between them is skipped), or in DER.

    Files without names are numbered in messages.

    ``accept_expired`` exists because manufacturers' intermediates expire while the chips that they certified are in use
    (Infineon's CA 01 in October 2025). It is off by default: the key of an expired authority may no longer be
    protected.

    Raises:
        AuthoritiesUnreadable: no root, a certificate that is malformed or not an authority, or too many.
    """
    named_roots, named_intermediates = _named(roots), _named(intermediates)
    if sum(len(data) for data in (*named_roots.values(), *named_intermediates.values())) > _MAXIMUM_BYTES:
        raise AuthoritiesUnreadable(f"The endorsement authorities are larger than {_MAXIMUM_BYTES} bytes in all")
    read_roots = _read_files(named_roots, "roots", _is_root)
    read_intermediates = _read_files(named_intermediates, "intermediates", _is_authority)
    if not read_roots:
        raise AuthoritiesUnreadable("No endorsement root authority is configured: every certificate would be refused")
    return EndorsementAuthorities(
        _by_subject(read_roots),
        _by_subject(read_intermediates),
        accept_expired,
        _digest(read_roots, read_intermediates, accept_expired),
    )


def _digest(roots: Sequence[Certificate], intermediates: Sequence[Certificate], accept_expired: bool) -> str:
    """Over the certificates' own digests, so that file names and order do not matter."""
    hashed = hashlib.sha256(b"accept expired" if accept_expired else b"")
    for group in (roots, intermediates):
        hashed.update("".join(sorted({certificate.digest for certificate in group})).encode("ascii") + b"\n")
    return "sha256:" + hashed.hexdigest()


def _is_root(certificate: Certificate) -> bool:
    return certificate.version < _VERSION_WITH_CONSTRAINTS or _is_authority(certificate)


def _is_authority(certificate: Certificate) -> bool:
    return certificate.extensions.is_authority is True


def _named(files: Mapping[str, bytes] | Sequence[bytes]) -> Mapping[str, bytes]:
    return files if isinstance(files, Mapping) else {str(number): data for number, data in enumerate(files, start=1)}


def _read_files(files: Mapping[str, bytes], group: str, may_be_one: Callable[[Certificate], bool]) -> list[Certificate]:
    found: list[Certificate] = []
    for name, data in files.items():
        blocks = _certificates_in(data, f"{group}, file {name}")
        for number, encoded in enumerate(blocks, start=1):
            place = f"Endorsement {group}, file {name}" + (f", PEM block {number}" if len(blocks) > 1 else "")
            try:
                read = read_certificates(encoded, maximum_count=_MAXIMUM_AUTHORITIES, besides_padding=LINE_ENDS)
            except CertificateUnreadable as error:
                raise AuthoritiesUnreadable(f"{place}: {error}") from None
            for certificate in read:
                if not may_be_one(certificate):
                    raise AuthoritiesUnreadable(
                        f"{place}: {certificate.subject.text} is not a certificate authority: remove it"
                    )
            found += read
            if len(found) > _MAXIMUM_AUTHORITIES:
                raise AuthoritiesUnreadable(f"There are more than {_MAXIMUM_AUTHORITIES} endorsement {group}")
    return found


def _certificates_in(data: bytes, place: str) -> list[bytes]:
    if _PEM_START not in data:
        return [data]
    blocks = _PEM.findall(data)
    if len(blocks) != data.count(_PEM_START):
        raise AuthoritiesUnreadable(f"Endorsement {place}: a PEM block is not a certificate or has no end")
    try:
        return [base64.b64decode(block.translate(None, _WHITE_SPACE), validate=True) for block in blocks]
    except binascii.Error:
        raise AuthoritiesUnreadable(f"Endorsement {place}: a PEM block is not base64") from None


def _by_subject(certificates: Sequence[Certificate]) -> _BySubject:
    found: dict[ComparableName, dict[bytes, Certificate]] = {}
    for certificate in certificates:
        found.setdefault(certificate.subject.comparable, {})[certificate.encoded] = certificate
    return MappingProxyType({subject: tuple(group.values()) for subject, group in found.items()})
