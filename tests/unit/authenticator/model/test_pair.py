from __future__ import annotations

import base64
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from authenticator.model.pair import CERTIFICATE_END, KEY_BEGIN, RETRY_SECONDS, Pair, UnreadablePair, parse_pair
from tests.unit.authenticator.builders import NOW, certificate, key_pem, pair, pem_of

MAXIMUM = 64 * 1024
ONE = pem_of(certificate())
TWO = pem_of(certificate(key=1))
KEY = key_pem()
DER = certificate().public_bytes(Encoding.DER)


def armoured(der: bytes) -> str:
    """A pair's file around any bytes."""
    body = base64.encodebytes(der).decode("ascii")
    return f"-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n{KEY}"


def tlv(tag: int, *content: bytes) -> bytes:
    body = b"".join(content)
    if len(body) < 0x80:
        return bytes([tag, len(body)]) + body
    octets = (len(body).bit_length() + 7) // 8
    return bytes([tag, 0x80 | octets]) + len(body).to_bytes(octets, "big") + body


def made(
    *times: bytes,
    version: bytes = tlv(0xA0, tlv(0x02, b"\x02")),
    serial: bytes = tlv(0x02, b"\x01"),
    algorithm: bytes = tlv(0x30),
    issuer: bytes = tlv(0x30),
    behind: bytes = b"",
    validity_tag: int = 0x30,
    rest: bytes = tlv(0x30),
) -> str:
    """A pair's file around a certificate that has little more than a validity."""
    validity = tlv(validity_tag, *(times or (UTC_2026, UTC_2027)), behind)
    return armoured(tlv(0x30, tlv(0x30, version, serial, algorithm, issuer, validity, rest)))


def utc_time(text: bytes) -> bytes:
    return tlv(0x17, text)


def generalized_time(text: bytes) -> bytes:
    return tlv(0x18, text)


UTC_2026 = utc_time(b"260102030405Z")
UTC_2027 = utc_time(b"270102030405Z")
BODY = b"".join([tlv(0x02, b"\x01"), tlv(0x30), tlv(0x30), tlv(0x30, UTC_2026, UTC_2027)])
"""All that is read of a certificate."""


def unix(year: int, month: int = 1, day: int = 2, hour: int = 3, minute: int = 4, second: int = 5) -> int:
    return int(datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp())


def test_reads_back_what_it_writes() -> None:
    read = parse_pair(ONE + KEY)
    assert (read.certificate, read.key) == (ONE, KEY)
    assert read.encode() == ONE + KEY
    assert (read.not_before, read.not_after) == (
        int((NOW - timedelta(days=1)).timestamp()),
        int((NOW + timedelta(days=9)).timestamp()),
    )


def test_the_first_certificate_of_a_chain_counts() -> None:
    later = pem_of(certificate(not_after=NOW + timedelta(days=99)))
    read = parse_pair(ONE + later + KEY)
    assert read.not_after == parse_pair(ONE + KEY).not_after
    assert read.certificate == ONE + later


def test_it_is_renewed_when_a_fifth_of_its_life_is_left() -> None:
    read = Pair("", "", 1000, 2000)
    assert read.lifetime == 1000
    assert read.renewal == 1800


def test_a_life_that_no_five_divides_is_renewed_no_earlier_than_at_a_fifth() -> None:
    assert Pair("", "", 0, 9).renewal == 8


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param(KEY, id="no-certificate"),
        pytest.param(KEY + ONE, id="key-first"),
        pytest.param("text\n" + ONE + KEY, id="text-before"),
        pytest.param(ONE + "text\n" + KEY, id="text-between"),
        pytest.param(ONE.replace("-----END CERTIFICATE-----", "-----END X-----") + KEY, id="no-end"),
        pytest.param(ONE.replace("\n", "\r\n") + KEY, id="carriage-returns"),
        pytest.param(ONE.replace("CERTIFICATE", "TRUSTED CERTIFICATE") + KEY, id="another-label"),
    ],
)
def test_what_does_not_begin_with_a_certificate_is_refused(text: str) -> None:
    with pytest.raises(UnreadablePair, match="does not begin with a certificate that a key follows"):
        parse_pair(text)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(ONE, id="no-key"),
        pytest.param(ONE + KEY + "text\n", id="text-behind"),
        pytest.param(ONE + KEY + ONE, id="certificate-behind"),
        pytest.param(ONE + KEY + KEY, id="two-keys"),
        pytest.param(ONE + KEY + TWO + KEY, id="two-pairs"),
        pytest.param(ONE + KEY.removesuffix("\n"), id="cut-off"),
        pytest.param(ONE + KEY_BEGIN, id="begin-only"),
        pytest.param(ONE + KEY.replace("\n-----END", "\n-----BEGIN EC PARAMETERS-----\n-----END"), id="within"),
    ],
)
def test_what_does_not_end_with_one_key_is_refused(text: str) -> None:
    with pytest.raises(UnreadablePair, match="does not end with one private key"):
        parse_pair(text)


def test_another_kind_of_key_is_none() -> None:
    with pytest.raises(UnreadablePair):
        parse_pair(ONE + KEY.replace("PRIVATE KEY", "EC PRIVATE KEY"))


def test_the_length_is_bounded() -> None:
    filler = pem_of(*[certificate(key=1)] * 200)
    room = MAXIMUM - len(ONE + KEY) - len(CERTIFICATE_END)
    full = ONE + filler[:room] + CERTIFICATE_END + KEY
    assert len(full) == MAXIMUM
    assert parse_pair(full).key == KEY
    with pytest.raises(UnreadablePair, match=f"longer than {MAXIMUM} characters"):
        parse_pair(ONE + filler[: room + 1] + CERTIFICATE_END + KEY)


@pytest.mark.parametrize(
    ("times", "not_before", "not_after"),
    [
        pytest.param((UTC_2026, UTC_2027), unix(2026), unix(2027), id="utc"),
        pytest.param(
            (utc_time(b"491231235959Z"), generalized_time(b"20500101000000Z")),
            unix(2049, 12, 31, 23, 59, 59),
            unix(2050, 1, 1, 0, 0, 0),
            id="where-the-forms-change",
        ),
        pytest.param(
            (utc_time(b"500101000000Z"), UTC_2026), unix(1950, 1, 1, 0, 0, 0), unix(2026), id="the-first-utc-time"
        ),
        pytest.param((utc_time(b"991231235959Z"), UTC_2026), unix(1999, 12, 31, 23, 59, 59), unix(2026), id="1999"),
        pytest.param(
            (utc_time(b"260331000000Z"), utc_time(b"260401000000Z")),
            unix(2026, 3, 31, 0, 0, 0),
            unix(2026, 4, 1, 0, 0, 0),
            id="march",
        ),
        pytest.param(
            (UTC_2026, generalized_time(b"21000301000000Z")), unix(2026), unix(2100, 3, 1, 0, 0, 0), id="no-leap-year"
        ),
        pytest.param((utc_time(b"000229120000Z"), UTC_2026), unix(2000, 2, 29, 12, 0, 0), unix(2026), id="leap-day"),
        pytest.param(
            (UTC_2026, generalized_time(b"99991231235959Z")), unix(2026), unix(9999, 12, 31, 23, 59, 59), id="for-ever"
        ),
        pytest.param((generalized_time(b"20260102030405Z"), UTC_2027), unix(2026), unix(2027), id="loose-form"),
    ],
)
def test_the_validity_is_read(times: tuple[bytes, bytes], not_before: int, not_after: int) -> None:
    read = parse_pair(made(*times))
    assert (read.not_before, read.not_after) == (not_before, not_after)


def test_a_certificate_of_version_1_has_no_version() -> None:
    assert parse_pair(made(version=b"")).not_after == unix(2027)


def test_long_lengths_are_read() -> None:
    assert parse_pair(made(issuer=tlv(0x30, bytes(127)))).not_after == unix(2027)
    assert parse_pair(made(issuer=tlv(0x30, bytes(200)))).not_after == unix(2027)
    assert parse_pair(made(issuer=tlv(0x30, bytes(0x101)))).not_after == unix(2027)
    assert parse_pair(made(rest=tlv(0x30, bytes(0x8000)))).not_after == unix(2027)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(armoured(b""), id="nothing"),
        pytest.param(armoured(DER[:-1]), id="cut-off"),
        pytest.param(armoured(DER + b"\0"), id="trailing-byte"),
        pytest.param(armoured(b"\x31" + DER[1:]), id="no-sequence"),
        pytest.param(armoured(b"\x30\x80" + DER[4:] + b"\0\0"), id="indefinite-length"),
        pytest.param(made(issuer=b"\x30\x80"), id="empty-of-indefinite-length"),
        pytest.param(made(issuer=b"\x30\x80" + bytes(128)), id="indefinite-length-as-a-short-one"),
        pytest.param(made(issuer=b"\x30\x83\0\0\0"), id="length-of-three-octets"),
        pytest.param(armoured(tlv(0x30, b"\x30\x7f" + BODY)), id="body-longer-than-all"),
        pytest.param(armoured(b"\x30"), id="tag-only"),
        pytest.param(armoured(tlv(0x30)), id="empty-certificate"),
        pytest.param(armoured(tlv(0x30, tlv(0x31))), id="no-body"),
        pytest.param(made(serial=tlv(0x04, b"\x01")), id="no-serial-number"),
        pytest.param(made(algorithm=tlv(0x31)), id="no-algorithm"),
        pytest.param(made(issuer=tlv(0x31)), id="no-issuer"),
        pytest.param(made(issuer=b"\x30\x7f"), id="longer-than-all"),
        pytest.param(made(validity_tag=0x31), id="no-validity"),
        pytest.param(made(UTC_2026), id="one-time"),
        pytest.param(made(UTC_2026, UTC_2027, utc_time(b"280102030405Z")), id="three-times"),
        pytest.param(made(behind=b"\0"), id="byte-behind-the-times"),
        pytest.param(made(UTC_2026, UTC_2026), id="no-life"),
        pytest.param(made(UTC_2027, UTC_2026), id="backwards"),
        pytest.param(made(UTC_2026, tlv(0x04, b"270102030405Z")), id="no-time"),
        pytest.param(made(UTC_2026, utc_time(b"2701020304Z")), id="without-seconds"),
        pytest.param(made(UTC_2026, utc_time(b"270102030405+0100")), id="offset"),
        pytest.param(made(UTC_2026, utc_time(b"2701020304055")), id="no-zone"),
        pytest.param(made(UTC_2026, utc_time(b"2701020304 5Z")), id="space"),
        pytest.param(made(UTC_2026, utc_time("27010203040\u0665Z".encode())), id="no-digit"),
        pytest.param(made(UTC_2026, utc_time(b"27010203045 Z")), id="space-behind-the-seconds"),
        pytest.param(made(UTC_2026, generalized_time(b"20270102030405ZZ")), id="byte-behind-the-zone"),
        pytest.param(made(UTC_2026, utc_time(b"")), id="empty-time"),
        pytest.param(made(UTC_2026, utc_time(b"20270102030405Z")), id="long-utc-time"),
        pytest.param(made(UTC_2026, generalized_time(b"270102030405Z")), id="short-generalized-time"),
        pytest.param(made(UTC_2026, generalized_time(b"20270102030405.5Z")), id="fraction"),
        pytest.param(ONE.replace("\n", "\n\u00e4", 1) + KEY, id="no-base64"),
    ],
)
def test_a_certificate_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(UnreadablePair, match=r"^the certificate is unreadable$"):
        parse_pair(text)


def test_messages_quote_nothing_of_the_file() -> None:
    with pytest.raises(UnreadablePair) as refused:
        parse_pair(armoured(DER[:-1]))
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


def test_a_pair_shows_no_key() -> None:
    assert KEY.splitlines()[1] not in repr(pair())


def test_imports_nothing_but_binascii() -> None:
    program = (
        "import sys; before = set(sys.modules); import authenticator.model.pair; print(*set(sys.modules) - before)"
    )
    done = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {
        "authenticator",
        "authenticator.model",
        "authenticator.model.pair",
        "__future__",
        "binascii",
    }


def test_a_kubelet_asks_again_soon_while_a_renewal_is_under_way() -> None:
    assert RETRY_SECONDS == 15
