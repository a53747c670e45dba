"""A certificate and its key in one PEM file, and the certificate's validity.

One file, so that one rename replaces both: no crash leaves a certificate with another key. The kubelet stores its own
pairs in the same way (``kubelet-client-current.pem``), and Go's ``tls.LoadX509KeyPair`` takes the same file for both.

This module is on the printing path: it imports only the standard library. The validity is parsed from the certificate's
own DER, so no second source can disagree with it. This program wrote the file after a full check
(:mod:`authenticator.model.certificate`), so this parser only has to find the validity, and to reject what it cannot
parse.
"""

from __future__ import annotations

import binascii

CERTIFICATE_BEGIN = "-----BEGIN CERTIFICATE-----\n"
CERTIFICATE_END = "-----END CERTIFICATE-----\n"
KEY_BEGIN = "-----BEGIN PRIVATE KEY-----\n"
KEY_END = "-----END PRIVATE KEY-----\n"
MAXIMUM_CHARACTERS = 64 * 1024

RENEWAL_DIVISOR = 5
"""A certificate is renewed when a fifth of its life, 20 %, is left (proposal, "client-authenticator-flow")."""
LONGEST_ANSWER_SECONDS = 3600
"""client-go runs the plugin again at least once an hour."""
RETRY_SECONDS = 15
"""When client-go runs the plugin again while a certificate is due and not renewed yet."""

_SEQUENCE = 0x30
_INTEGER = 0x02
_EXPLICIT_VERSION = 0xA0
_UTC_TIME = 0x17
_GENERALIZED_TIME = 0x18
_DAYS_TO_1970 = 719468


class UnreadablePair(ValueError):
    """The file holds no pair; the message names the error, and quotes nothing of the key."""


class Pair:
    """A certificate chain and its key (PEM), and the validity of the first certificate (Unix times)."""

    __slots__ = ("certificate", "key", "not_after", "not_before")

    def __init__(self, certificate: str, key: str, not_before: int, not_after: int) -> None:
        self.certificate = certificate
        self.key = key
        self.not_before = not_before
        self.not_after = not_after

    @property
    def lifetime(self) -> int:
        """Seconds from ``notBefore`` to ``notAfter``."""
        return self.not_after - self.not_before

    @property
    def renewal(self) -> int:
        """The time of renewal, at which 20 % of its life is left."""
        return self.not_after - self.lifetime // RENEWAL_DIVISOR

    def encode(self) -> str:
        """The content of the file."""
        return self.certificate + self.key


def parse_pair(text: str) -> Pair:
    """Parse the content of a pair's file.

    Raises:
        UnreadablePair: it is not a certificate and key in the format of :meth:`Pair.encode`.
    """
    if len(text) > MAXIMUM_CHARACTERS:
        raise UnreadablePair(f"longer than {MAXIMUM_CHARACTERS} characters")
    certificate, separator, rest = text.partition(KEY_BEGIN)
    key = separator + rest
    if not certificate.startswith(CERTIFICATE_BEGIN) or not certificate.endswith(CERTIFICATE_END):
        raise UnreadablePair("does not begin with a certificate that a key follows")
    if not key.endswith(KEY_END) or key.count("-----BEGIN ") != 1:
        raise UnreadablePair("does not end with one private key")
    body = certificate[len(CERTIFICATE_BEGIN) : certificate.index(CERTIFICATE_END)]
    try:
        not_before, not_after = _validity(binascii.a2b_base64(body))
    except (ValueError, IndexError):
        raise UnreadablePair("the certificate is unreadable") from None
    return Pair(certificate, key, not_before, not_after)


def _validity(certificate: bytes) -> tuple[int, int]:
    """RFC 5280 section 4.1: Certificate > TBSCertificate > [version], serial, algorithm, issuer, validity."""
    start, end = _content(certificate, 0, _SEQUENCE)
    if end != len(certificate):
        raise ValueError("trailing bytes")
    start, _ = _content(certificate, start, _SEQUENCE)
    if certificate[start] == _EXPLICIT_VERSION:
        _, start = _content(certificate, start, _EXPLICIT_VERSION)
    for tag in (_INTEGER, _SEQUENCE, _SEQUENCE):
        _, start = _content(certificate, start, tag)
    start, end = _content(certificate, start, _SEQUENCE)
    not_before, start = _time(certificate, start)
    not_after, start = _time(certificate, start)
    if start != end or not_after <= not_before:
        raise ValueError("no validity")
    return not_before, not_after


def _content(data: bytes, position: int, tag: int) -> tuple[int, int]:
    """Start and end of the content of the DER element at ``position``."""
    if data[position] != tag:
        raise ValueError("another element was expected")
    length = data[position + 1]
    start = position + 2
    if length >= 0x80:
        octets = length & 0x7F
        if not 0 < octets <= 2:
            raise ValueError("a length that no certificate has")
        start += octets
        length = int.from_bytes(data[start - octets : start], "big")
    if start + length > len(data):
        raise ValueError("longer than its container")
    return start, start + length


def _time(data: bytes, position: int) -> tuple[int, int]:
    """UTCTime before 2050, GeneralizedTime from then on, both to the second and in UTC (RFC 5280 section 4.1.2.5)."""
    utc_time = data[position] == _UTC_TIME
    start, end = _content(data, position, _UTC_TIME if utc_time else _GENERALIZED_TIME)
    text = data[start:end].decode("ascii")
    if utc_time:
        text = ("20" if text[:2] < "50" else "19") + text
    if len(text) != 15 or text[14] != "Z" or not text[:14].isdigit():
        raise ValueError("no time")
    year, month, day = int(text[:4]), int(text[4:6]), int(text[6:8])
    seconds = int(text[8:10]) * 3600 + int(text[10:12]) * 60 + int(text[12:14])
    return _days_since_1970(year, month, day) * 86400 + seconds, end


def _days_since_1970(year: int, month: int, day: int) -> int:
    """Days in the proleptic Gregorian calendar, counted in eras of 400 years that begin on 1 March.

    ``calendar.timegm`` does the same, but its import costs more than the rest of the printing path.
    """
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - _DAYS_TO_1970
