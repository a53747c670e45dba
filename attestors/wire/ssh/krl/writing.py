"""Writes key revocation lists.

There is one encoding of each list: single serial numbers first, then ranges, then key ids; bitmaps are never written.
"""

from __future__ import annotations

from collections.abc import Iterator

from attestors.wire.ssh.encoding import string, strings, uint32, uint64
from attestors.wire.ssh.errors import SSHReason, SSHRefused
from attestors.wire.ssh.krl.revocation_list import (
    MAXIMUM_LIST_BYTES,
    AnyAuthority,
    CertificateRevocations,
    RevocationList,
)
from attestors.wire.ssh.krl.sections import FORMAT_VERSION, MAGIC, CertificateSection, Section


def encode_revocation_list(revocations: RevocationList) -> bytes:
    """The file's bytes.

    Raises:
        SSHRefused: ``TooLarge``: larger than what nodes read.
    """
    header = (
        MAGIC,
        uint32(FORMAT_VERSION),
        uint64(revocations.version),
        uint64(revocations.generated),
        uint64(0),  # flags
        string(b""),  # reserved
        string(revocations.comment.encode("utf-8")),
    )
    encoded = b"".join((*header, *_sections(revocations)))
    if len(encoded) > MAXIMUM_LIST_BYTES:
        raise SSHRefused(
            SSHReason.TOO_LARGE,
            f"the revocation list has more than {MAXIMUM_LIST_BYTES} bytes; begin a new one once old certificates have "
            "ended",
        )
    return encoded


def _sections(revocations: RevocationList) -> Iterator[bytes]:
    for one in revocations.certificates:
        authority = b"" if isinstance(one.authority, AnyAuthority) else one.authority.blob
        parts = b"".join(_part(kind, content) for kind, content in _parts(one))
        yield _part(Section.CERTIFICATES, string(authority) + string(b"") + parts)
    if revocations.keys:
        yield _part(Section.EXPLICIT_KEYS, strings(key.blob for key in revocations.keys))
    if revocations.fingerprints:
        yield _part(Section.FINGERPRINTS_SHA256, strings(one.digest for one in revocations.fingerprints))


def _parts(revocations: CertificateRevocations) -> Iterator[tuple[CertificateSection, bytes]]:
    singles = [one.first for one in revocations.serials if one.first == one.last]
    if singles:
        yield CertificateSection.SERIAL_LIST, b"".join(map(uint64, singles))
    for one in revocations.serials:
        if one.first != one.last:
            yield CertificateSection.SERIAL_RANGE, uint64(one.first) + uint64(one.last)
    if revocations.key_ids:
        yield CertificateSection.KEY_IDS, strings(key_id.encode("utf-8") for key_id in revocations.key_ids)


def _part(kind: Section | CertificateSection, content: bytes) -> bytes:
    return bytes([kind]) + string(content)
