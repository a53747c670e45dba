"""Key revocation lists: one encoding, the same answers as sshd, and nothing that would lock everybody out."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestors.wire.ssh.certificate import Certificate, CertificateKind
from attestors.wire.ssh.encoding import mpint, string, strings, uint32, uint64
from attestors.wire.ssh.errors import SSHReason, SSHRefused
from attestors.wire.ssh.keys import parse_revocable_key
from attestors.wire.ssh.krl import (
    MAXIMUM_ENTRIES,
    MAXIMUM_LIST_BYTES,
    AnyAuthority,
    CertificateRevocations,
    Fingerprint,
    RevocationList,
    SerialRange,
    encode_revocation_list,
    merged,
    parse_fingerprint,
    parse_revocation_list,
    revoking_both,
)
from attestors.wire.ssh.principals import PlainPrincipal
from tests.support.cpu_time import within_cpu_seconds
from tests.support.openssh import public_keys
from tests.unit.attestors.wire.ssh.strategies import revocation_lists

KEYS = public_keys()
AUTHORITY, OTHER = KEYS["ed25519"], KEYS["nistp384"]
SUBJECT = KEYS["nistp256"]
CERTIFICATE = Certificate(
    public_key=SUBJECT,
    kind=CertificateKind.USER,
    serial=20,
    key_id="grant/a",
    principals=(PlainPrincipal("root"),),
    valid_after=0,
    valid_before=1,
    authority=AUTHORITY,
    nonce=bytes(32),
)
EMPTY = RevocationList(version=3, generated=1_700_000_000)
HEADER = encode_revocation_list(EMPTY)


def of(*serials: int, authority: object = AUTHORITY, key_ids: tuple[str, ...] = ()) -> CertificateRevocations:
    return CertificateRevocations(authority, tuple(map(SerialRange.single, serials)), key_ids)  # type: ignore[arg-type]


def with_certificates(*found: CertificateRevocations) -> RevocationList:
    return replace(EMPTY, certificates=found)


def is_revoked(revocations: RevocationList, certificate: Certificate = CERTIFICATE) -> bool:
    try:
        revocations.require_not_revoked(certificate)
    except SSHRefused as refused:
        if refused.reason is not SSHReason.REVOKED:
            raise
        return True
    return False


@given(revocation_lists(authorities=[AUTHORITY, OTHER], ids=["a", "b", "grant/c"], subjects=list(KEYS.values())))
def test_any_list_reads_back(revocations: RevocationList) -> None:
    encoded = encode_revocation_list(revocations)
    found = parse_revocation_list(encoded)
    assert found == revocations
    assert encode_revocation_list(found) == encoded


@given(
    revocation_lists(authorities=[AUTHORITY, OTHER], ids=["a", "b", "grant/c"], subjects=list(KEYS.values())),
    st.data(),
)
def test_changed_lists_are_refused_or_mean_the_same_when_written(
    revocations: RevocationList, data: st.DataObject
) -> None:
    """More than one encoding is read, since ``ssh-keygen`` writes others; each is written in the one form."""
    blob = bytearray(encode_revocation_list(revocations))
    blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = parse_revocation_list(bytes(blob[: data.draw(st.integers(len(blob) - 5, len(blob)))]))
    except SSHRefused:
        return
    assert parse_revocation_list(encode_revocation_list(found)) == found


@given(st.binary(max_size=80))
def test_any_bytes_are_refused_or_mean_the_same_when_written(data: bytes) -> None:
    for begin in (b"", HEADER, HEADER + b"\x01" + string(string(b"") + string(b""))[:-4]):
        try:
            found = parse_revocation_list(begin + data)
        except SSHRefused:
            continue
        assert parse_revocation_list(encode_revocation_list(found)) == found


@pytest.mark.parametrize(
    ("revocations", "revoked"),
    [
        (EMPTY, False),
        (with_certificates(of(20)), True),
        (with_certificates(of(19, 21)), False),
        (with_certificates(of(20, authority=OTHER)), False),
        (with_certificates(of(20, authority=AnyAuthority())), True),
        (with_certificates(CertificateRevocations(AUTHORITY, (SerialRange(1, 20),))), True),
        (with_certificates(CertificateRevocations(AUTHORITY, (SerialRange(1, 19), SerialRange(21, 30)))), False),
        (with_certificates(of(key_ids=("grant/a",))), True),
        (with_certificates(of(key_ids=("grant",))), False),
        (with_certificates(of(key_ids=("grant/a",), authority=OTHER)), False),
        (with_certificates(of(key_ids=("grant/a",), authority=AnyAuthority())), True),
        (replace(EMPTY, keys=(SUBJECT,)), True),
        (replace(EMPTY, keys=(AUTHORITY,)), True),
        (replace(EMPTY, keys=(OTHER,)), False),
        (replace(EMPTY, fingerprints=(Fingerprint.of(SUBJECT),)), True),
        (replace(EMPTY, fingerprints=(Fingerprint.of(AUTHORITY),)), True),
    ],
)
def test_what_a_list_revokes(revocations: RevocationList, revoked: bool) -> None:
    assert is_revoked(revocations) is revoked


def test_a_plain_key_is_revoked() -> None:
    replace(EMPTY, keys=(OTHER,)).require_not_revoked(SUBJECT)
    with pytest.raises(SSHRefused, match="Revoked"):
        replace(EMPTY, keys=(SUBJECT,)).require_not_revoked(SUBJECT)


def test_serial_number_0_is_never_revoked_nor_read() -> None:
    """Test 4: OpenSSH calls the whole list invalid, and sshd refuses everybody."""
    for last in (0, 5):
        with pytest.raises(SSHRefused) as refused:
            SerialRange(0, last)
        assert refused.value.reason is SSHReason.SERIAL_ZERO
    for part in (
        b"\x20" + string(uint64(0)),
        b"\x21" + string(uint64(0) + uint64(5)),
        b"\x22" + string(uint64(0) + mpint(1)),
    ):
        with pytest.raises(SSHRefused) as read:
            parse_revocation_list(HEADER + section(part))
        assert read.value.reason is SSHReason.SERIAL_ZERO


def section(*parts: bytes, authority: bytes = b"") -> bytes:
    return b"\x01" + string(string(authority) + string(b"") + b"".join(parts))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", SSHReason.MALFORMED),
        (b"ssh-ed25519 AAAA\n", SSHReason.MALFORMED),
        (HEADER[:-1], SSHReason.MALFORMED),
        (HEADER[:7] + b"\1" + HEADER[8:], SSHReason.MALFORMED),
        (HEADER[:8] + uint32(2) + HEADER[12:], SSHReason.MALFORMED),
        (HEADER[:28] + uint64(1) + HEADER[36:], SSHReason.MALFORMED),
        (HEADER[:36] + string(b"x") + HEADER[40:], SSHReason.TOO_LARGE),
        (HEADER + b"\x03" + string(string(bytes(20))), SSHReason.REVOCATION_SECTION_UNSUPPORTED),
        (HEADER + b"\x04" + string(b""), SSHReason.REVOCATION_SECTION_UNSUPPORTED),
        (HEADER + b"\xff" + string(b""), SSHReason.REVOCATION_SECTION_UNSUPPORTED),
        (HEADER + section(b"\x39" + string(b"")), SSHReason.REVOCATION_SECTION_UNSUPPORTED),
        (HEADER + section(b"\x21" + string(uint64(5) + uint64(4))), SSHReason.SERIAL_RANGE_INVALID),
        (HEADER + section(b"\x21" + string(uint64(5) + uint64(6) + b"x")), SSHReason.TRAILING_BYTES),
        (HEADER + section(b"\x20" + string(b"1234567")), SSHReason.MALFORMED),
        (HEADER + section(b"\x22" + string(uint64(2**64 - 1) + mpint(3))), SSHReason.SERIAL_RANGE_INVALID),
        (HEADER + section(b"\x22" + string(uint64(1) + string(b"\x80"))), SSHReason.MALFORMED),
        (HEADER + section(b"\x22" + string(uint64(1) + string(bytes(70_000)))), SSHReason.TOO_LARGE),
        (HEADER + section(b"\x22" + string(uint64(1) + mpint(1) + b"x")), SSHReason.TRAILING_BYTES),
        (HEADER + section(b"\x23" + string(string(b"a\0"))), SSHReason.MALFORMED),
        (HEADER + section(b"\x23" + string(string(b""))), SSHReason.KEY_ID_INVALID),
        (HEADER + section(authority=b"x"), SSHReason.MALFORMED),
        (HEADER + b"\x02" + string(string(string(b"ssh-dss"))), SSHReason.KEY_TYPE_UNSUPPORTED),
        (HEADER + b"\x02" + string(string(string(b"ssh-ed25519") + string(b"x"))), SSHReason.KEY_INVALID),
        (HEADER + b"\x05" + string(string(bytes(31))), SSHReason.MALFORMED),
        (bytes(MAXIMUM_LIST_BYTES + 1), SSHReason.TOO_LARGE),
    ],
)
def test_another_file_is_refused(data: bytes, reason: SSHReason) -> None:
    with pytest.raises(SSHRefused) as refused:
        parse_revocation_list(data)
    assert refused.value.reason is reason


def test_bitmaps_are_read() -> None:
    found = parse_revocation_list(HEADER + section(b"\x22" + string(uint64(10) + mpint(0b1011001))))
    assert found.certificates[0].serials == (SerialRange(10, 10), SerialRange(13, 14), SerialRange(16, 16))


def test_a_list_that_grows_while_it_is_read() -> None:
    """Every second bit of a bitmap is a range of its own."""
    alternating = mpint(int("01" * 80_000, 2))
    once, twice = (section(b"\x22" + string(uint64(1) + alternating)) * count for count in (1, 2))
    assert parse_revocation_list(HEADER + once).entries == 80_000
    data = HEADER + twice  # the same serial numbers again: the list itself would not be too long
    with pytest.raises(SSHRefused) as refused:
        parse_revocation_list(data)
    assert refused.value.reason is SSHReason.TOO_LARGE


def test_too_many_entries() -> None:
    with pytest.raises(SSHRefused) as refused:
        with_certificates(of(*range(1, 2 * MAXIMUM_ENTRIES + 3, 2)))
    assert refused.value.reason is SSHReason.TOO_LARGE


def test_a_list_that_nodes_would_not_read() -> None:
    names = tuple(f"{n:01024}" for n in range(5000))
    with pytest.raises(SSHRefused) as refused:
        encode_revocation_list(with_certificates(of(key_ids=names)))
    assert refused.value.reason is SSHReason.TOO_LARGE


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 10)), max_size=12))
def test_ranges_are_merged(found: list[tuple[int, int]]) -> None:
    ranges = merged(SerialRange(first, first + more) for first, more in found)
    assert {n for one in ranges for n in range(one.first, one.last + 1)} == {
        n for first, more in found for n in range(first, first + more + 1)
    }
    assert all(one.last + 1 < other.first for one, other in itertools.pairwise(ranges))


def test_the_next_version_takes_nothing_away() -> None:
    first = with_certificates(of(20))
    second = first.with_entries(
        generated=5, certificates=(of(21),), keys=(OTHER,), fingerprints=(Fingerprint(bytes(32)),)
    )
    assert (second.version, second.generated, second.entries) == (4, 5, 3)
    assert second.certificates[0].serials == (SerialRange(20, 21),)
    assert is_revoked(second)
    with pytest.raises(SSHRefused, match="Malformed"):
        replace(first, version=2**64 - 1).with_entries(generated=5)


_LISTS = revocation_lists(authorities=[AUTHORITY, OTHER], ids=["a", "b", "grant/c"], subjects=list(KEYS.values()))


@given(_LISTS, _LISTS)
def test_two_lists_revoke_what_either_does(former: RevocationList, later: RevocationList) -> None:
    both = revoking_both(former, later)
    assert (both.version, both.generated) == (later.version, later.generated)
    assert revoking_both(later, both) == both
    assert revoking_both(both, replace(EMPTY, comment="")) == replace(
        both, version=3, generated=1_700_000_000, comment=""
    )
    for one in (former, later):
        assert set(one.keys) <= set(both.keys)
        assert set(one.fingerprints) <= set(both.fingerprints)
        for authority, serial, key_id in itertools.product((AUTHORITY, OTHER), range(30), ("a", "b", "grant/c")):
            certificate = replace(CERTIFICATE, authority=authority, serial=serial, key_id=key_id)
            assert is_revoked(both, certificate) or not is_revoked(one, certificate)


@pytest.mark.parametrize("key_id", ["", "a\0", "x" * 1025, "\ud800"])
def test_key_ids_that_are_none(key_id: str) -> None:
    with pytest.raises(SSHRefused, match="KeyIDInvalid"):
        of(key_ids=(key_id,))


@pytest.mark.parametrize("comment", ["a\0", "x" * 1025, "\ud800"])
def test_comments_that_are_none(comment: str) -> None:
    with pytest.raises(SSHRefused, match="Malformed"):
        replace(EMPTY, comment=comment)


def test_weak_keys_can_be_revoked() -> None:
    weak = parse_revocable_key(string(b"ssh-rsa") + mpint(65537) + mpint(2**2047 + 1))
    revocations = replace(EMPTY, keys=(weak,))
    assert parse_revocation_list(encode_revocation_list(revocations)) == revocations


def test_fingerprints_as_ssh_keygen_prints_them() -> None:
    assert parse_fingerprint(SUBJECT.fingerprint) == Fingerprint.of(SUBJECT)
    for text in (
        *(SUBJECT.fingerprint[:-1], f"{SUBJECT.fingerprint}=", SUBJECT.fingerprint.removeprefix("SHA256:")),
        *("MD5:00:11", "SHA256:", "SHA256:ä", f"SHA256:{SUBJECT.fingerprint[7:-1]}+"),
    ):
        with pytest.raises(SSHRefused, match="Malformed"):
            parse_fingerprint(text)


def test_ten_thousand_key_ids_are_read_in_less_than_a_second() -> None:
    names = [
        f"grant/team-a/{n:06}/0f6a3f0f-7a11-4c0a-9b46-7c1c0f3e7d1e/alice@example.org".encode() for n in range(10_000)
    ]
    data = HEADER + section(b"\x23" + string(strings(names)))
    assert within_cpu_seconds(1, lambda: parse_revocation_list(data)).entries == 10_000
