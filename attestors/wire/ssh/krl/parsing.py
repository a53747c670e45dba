"""Reads key revocation lists: all that ``ssh-keygen -k`` writes, save SHA-1 fingerprints and signatures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from attestors.wire.ssh.certificate import MAXIMUM_KEY_ID_BYTES
from attestors.wire.ssh.encoding import Reader
from attestors.wire.ssh.errors import SSHReason, SSHRefused, malformed
from attestors.wire.ssh.keys import MAXIMUM_KEY_BYTES, RevocableKey, parse_revocable_key
from attestors.wire.ssh.krl.revocation_list import (
    FINGERPRINT_BYTES,
    MAXIMUM_COMMENT_BYTES,
    MAXIMUM_ENTRIES,
    MAXIMUM_LIST_BYTES,
    AnyAuthority,
    Authority,
    CertificateRevocations,
    Fingerprint,
    RevocationList,
)
from attestors.wire.ssh.krl.sections import FORMAT_VERSION, MAGIC, CertificateSection, Section
from attestors.wire.ssh.krl.serials import SerialRange

_MAXIMUM_BITMAP_BYTES: Final = 64 * 1024
_SIGN_BIT: Final = 0x80


class _Entries:
    """Counts entries while they are read, so that a list does not become large before it is refused."""

    def __init__(self) -> None:
        self._left = MAXIMUM_ENTRIES

    def take(self) -> None:
        """Raises SSHRefused: ``TooLarge``."""
        if self._left == 0:
            raise SSHRefused(SSHReason.TOO_LARGE, f"the revocation list holds more than {MAXIMUM_ENTRIES} entries")
        self._left -= 1


def parse_revocation_list(data: bytes) -> RevocationList:
    """Parse a file.

    Raises:
        SSHRefused: ``Malformed``, ``TrailingBytes``, ``TooLarge``, ``SerialZero``, ``SerialRangeInvalid``,
            ``RevocationSectionUnsupported``, or as :func:`~attestors.wire.ssh.keys.parse_revocable_key`.
    """
    if len(data) > MAXIMUM_LIST_BYTES:
        raise SSHRefused(SSHReason.TOO_LARGE, f"a revocation list has at most {MAXIMUM_LIST_BYTES} bytes")
    reader = Reader(data)
    if not data.startswith(MAGIC):
        raise malformed("not a key revocation list of OpenSSH: it does not begin with SSHKRL")
    reader.take(len(MAGIC), "the preamble")
    if (version := reader.uint32("the format's version")) != FORMAT_VERSION:
        raise malformed(f"revocation lists of format {version} are not known here")
    number, generated = reader.uint64("the version"), reader.uint64("the time")
    if reader.uint64("the flags") != 0:
        raise malformed("the revocation list has flags, and none is known here")
    reader.string("the reserved field", maximum=0)
    comment = reader.text("the comment", maximum=MAXIMUM_COMMENT_BYTES)
    certificates: list[CertificateRevocations] = []
    keys: list[RevocableKey] = []
    fingerprints: list[Fingerprint] = []
    entries = _Entries()
    while not reader.is_at_end:
        kind = reader.uint8("the kind of a section")
        content = Reader(reader.string("a section", maximum=MAXIMUM_LIST_BYTES))
        if kind == Section.CERTIFICATES:
            certificates.append(_certificates(content, entries))
        elif kind == Section.EXPLICIT_KEYS:
            keys.extend(_keys(content, entries))
        elif kind == Section.FINGERPRINTS_SHA256:
            fingerprints.extend(_fingerprints(content, entries))
        else:
            raise _unsupported(kind)
    return RevocationList(number, generated, comment, tuple(certificates), tuple(keys), tuple(fingerprints))


def _certificates(reader: Reader, entries: _Entries) -> CertificateRevocations:
    blob = reader.string("the authority's key", maximum=MAXIMUM_KEY_BYTES)
    authority: Authority = parse_revocable_key(blob) if blob else AnyAuthority()
    reader.string("the reserved field", maximum=0)
    serials: list[SerialRange] = []
    key_ids: list[str] = []
    while not reader.is_at_end:
        kind = reader.uint8("the kind of a part")
        content = Reader(reader.string("a part", maximum=MAXIMUM_LIST_BYTES))
        if kind == CertificateSection.SERIAL_LIST:
            serials.extend(_serial_list(content, entries))
        elif kind == CertificateSection.SERIAL_RANGE:
            entries.take()
            serials.append(SerialRange(content.uint64("a serial number"), content.uint64("a serial number")))
            content.end("the range of serial numbers")
        elif kind == CertificateSection.SERIAL_BITMAP:
            serials.extend(_serial_bitmap(content, entries))
        elif kind == CertificateSection.KEY_IDS:
            key_ids.extend(_key_ids(content, entries))
        else:
            raise _unsupported(kind)
    return CertificateRevocations(authority, tuple(serials), tuple(key_ids))


def _serial_list(reader: Reader, entries: _Entries) -> Iterator[SerialRange]:
    while not reader.is_at_end:
        entries.take()
        yield SerialRange.single(reader.uint64("a serial number"))


def _serial_bitmap(reader: Reader, entries: _Entries) -> Iterator[SerialRange]:
    offset = reader.uint64("the first serial number of a bitmap")
    content = reader.string("a bitmap", maximum=_MAXIMUM_BITMAP_BYTES)
    reader.end("the bitmap")
    if content and content[0] >= _SIGN_BIT:
        raise malformed("a bitmap is negative")
    bits = int.from_bytes(content, "big")
    # The lowest bit is the first serial number. Runs are found in text, which costs no more than its length.
    text = bin(bits)[:1:-1]
    start = text.find("1")
    while start >= 0:
        end = text.find("0", start)
        end = len(text) if end < 0 else end
        entries.take()
        yield SerialRange(offset + start, offset + end - 1)
        start = text.find("1", end)


def _key_ids(reader: Reader, entries: _Entries) -> Iterator[str]:
    while not reader.is_at_end:
        entries.take()
        yield reader.text("a key id", maximum=MAXIMUM_KEY_ID_BYTES)


def _keys(reader: Reader, entries: _Entries) -> Iterator[RevocableKey]:
    while not reader.is_at_end:
        entries.take()
        yield parse_revocable_key(reader.string("a revoked key", maximum=MAXIMUM_KEY_BYTES))


def _fingerprints(reader: Reader, entries: _Entries) -> Iterator[Fingerprint]:
    while not reader.is_at_end:
        entries.take()
        yield Fingerprint(reader.string("a fingerprint", maximum=FINGERPRINT_BYTES))


def _unsupported(kind: int) -> SSHRefused:
    return SSHRefused(
        SSHReason.REVOCATION_SECTION_UNSUPPORTED,
        f"the revocation list has a section of kind {kind}, such as SHA-1 fingerprints or a signature; make it again "
        "with keys, serial numbers, key ids or SHA-256 fingerprints",
    )
