"""The text behind a node's certificate: one form, and nothing beside it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attestors.wire.node_access import (
    MAXIMUM_TEXT_BYTES,
    NodeAccess,
    NodeAccessReason,
    NodeAccessRefused,
    NodeAccessText,
    NoNodeAccess,
    Trust,
    find,
    parse,
    render,
)
from attestors.wire.ssh.certificate import Certificate, CertificateKind
from attestors.wire.ssh.errors import SSHReason
from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.keys import Ed25519Key
from attestors.wire.ssh.principals import HostName, PlainPrincipal
from attestors.wire.ssh.signatures import public_key_of
from attestors.wire.ssh_host_keys import LARGEST_TRUST_VERSION
from tests.support.node_access import HOST_AUTHORITY, USER_AUTHORITY, certificate, signed, text_of, trust
from tests.support.openssh import SIGNERS, private_key, public_keys

KEYS = [public_key_of(private_key(name)) for name in SIGNERS]
CERTIFICATE = certificate(KEYS[0])
TEXT = text_of(CERTIFICATE)
LINES = TEXT.decode().splitlines()
FIRST, HOST_CERTIFICATE, USER_CA, HOST_CA, VERSION = LINES
BREAK_GLASS: Final = public_key_of(private_key("ed25519", 201))
BREAK_GLASS_CA: Final = f"break-glass-ca {key_line(BREAK_GLASS)}"
OTHER_CA = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + "A" * 43


def text(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("latin-1")


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(NodeAccessRefused) as refused:
        call()
    assert str(refused.value).startswith(f"{refused.value.reason}: ")
    return refused.value.reason


def reading(content: bytes) -> str:
    return refusal(lambda: parse(content))


def test_the_form_of_the_text() -> None:
    assert FIRST == "# node-access v1"
    assert f"host-certificate {CERTIFICATE.line}" == HOST_CERTIFICATE
    assert [USER_CA.split()[0], HOST_CA.split()[0], VERSION] == ["user-ca", "host-ca", "trust-version 7"]
    assert parse(TEXT) == NodeAccess((CERTIFICATE,), trust())
    marked = text(FIRST, HOST_CERTIFICATE, USER_CA, BREAK_GLASS_CA, HOST_CA, VERSION)
    assert text_of(CERTIFICATE, break_glass_authorities=(BREAK_GLASS,)) == marked
    found = parse(marked).trust
    assert found == trust(break_glass_authorities=(BREAK_GLASS,))
    assert found.all_user_authorities == (*trust().user_authorities, BREAK_GLASS)


host_keys = st.lists(st.sampled_from(KEYS), min_size=1, max_size=3, unique=True)
points = st.binary(min_size=32, max_size=32).map(Ed25519Key)


@settings(max_examples=100, deadline=None)
@given(
    keys=host_keys,
    users=st.lists(st.one_of(points, st.sampled_from([*public_keys().values()])), min_size=1, max_size=12, unique=True),
    online=st.integers(1, 12),
    hosts=st.lists(points, min_size=1, max_size=4, unique=True),
    version=st.integers(1, LARGEST_TRUST_VERSION),
)
def test_what_is_rendered_is_read(
    keys: list[Ed25519Key], users: list[Ed25519Key], online: int, hosts: list[Ed25519Key], version: int
) -> None:
    hosts = [key for key in hosts if key not in users] or [Ed25519Key(bytes(31) + b"\x01")]
    access = NodeAccess(
        tuple(map(certificate, keys)), Trust(tuple(users[:online]), tuple(users[online:]), tuple(hosts), version)
    )
    assert parse(render(access)) == access


@settings(max_examples=500, deadline=None)
@given(data=st.data())
def test_one_byte_off_is_never_the_same_text(data: st.DataObject) -> None:
    """Test 15: what is still read after a change says something else, and says it in its only form."""
    position, kind = (
        data.draw(st.integers(0, len(TEXT) - 1)),
        data.draw(st.sampled_from(["change", "insert", "remove"])),
    )
    byte = bytes([data.draw(st.integers(0, 255))])
    changed = {
        "change": TEXT[:position] + byte + TEXT[position + 1 :],
        "insert": TEXT[:position] + byte + TEXT[position:],
        "remove": TEXT[:position] + TEXT[position + 1 :],
    }[kind]
    if changed == TEXT:
        return
    try:
        read = parse(changed)
    except NodeAccessRefused:
        return
    assert render(read) == changed
    assert read != parse(TEXT)


@settings(max_examples=200, deadline=None)
@given(
    content=st.one_of(st.binary(max_size=400), st.lists(st.sampled_from(LINES), max_size=8).map(lambda ls: text(*ls)))
)
def test_other_bytes_and_orders_are_refused_or_canonical(content: bytes) -> None:
    with contextlib.suppress(NodeAccessRefused):
        assert render(parse(content)) == content


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", NodeAccessReason.VERSION_UNKNOWN),
        (TEXT.replace(b"v1", b"v2", 1), NodeAccessReason.VERSION_UNKNOWN),
        (b"\n" + TEXT, NodeAccessReason.VERSION_UNKNOWN),
        (TEXT[:-1], NodeAccessReason.TEXT_MALFORMED),
        (TEXT.replace(b"\n", b"\r\n"), NodeAccessReason.VERSION_UNKNOWN),
        (TEXT[:-1] + b"\r\n", NodeAccessReason.TEXT_MALFORMED),
        (TEXT[:-1] + b"\0\n", NodeAccessReason.TEXT_MALFORMED),
        (TEXT[:-1] + b"\xc2\xa0\n", NodeAccessReason.TEXT_MALFORMED),
        (TEXT + b"\n", NodeAccessReason.LINE_UNEXPECTED),
        (TEXT + b"comment\n", NodeAccessReason.LINE_UNEXPECTED),
        (TEXT + TEXT, NodeAccessReason.LINE_UNEXPECTED),
        (text(FIRST, HOST_CERTIFICATE, USER_CA, HOST_CA, VERSION, VERSION), NodeAccessReason.TOO_MANY_LINES),
        (text(FIRST, HOST_CERTIFICATE, HOST_CERTIFICATE, USER_CA, HOST_CA, VERSION), NodeAccessReason.LINE_REPEATED),
        (text(FIRST, HOST_CERTIFICATE, USER_CA, USER_CA, HOST_CA, VERSION), NodeAccessReason.LINE_REPEATED),
        (text(FIRST, HOST_CERTIFICATE, USER_CA, HOST_CA, HOST_CA, VERSION), NodeAccessReason.LINE_REPEATED),
        (text(FIRST, HOST_CERTIFICATE, HOST_CA, USER_CA, VERSION), NodeAccessReason.LINE_UNEXPECTED),
        (text(FIRST, USER_CA, HOST_CERTIFICATE, HOST_CA, VERSION), NodeAccessReason.LINE_UNEXPECTED),
        (text(FIRST, HOST_CERTIFICATE, USER_CA, "else x", HOST_CA, VERSION), NodeAccessReason.LINE_UNEXPECTED),
        (text(FIRST, HOST_CERTIFICATE, "", USER_CA, HOST_CA, VERSION), NodeAccessReason.LINE_UNEXPECTED),
        (text(FIRST, f" {HOST_CERTIFICATE}", USER_CA, HOST_CA, VERSION), NodeAccessReason.LINE_UNEXPECTED),
        (text(FIRST, HOST_CERTIFICATE, USER_CA, HOST_CA), NodeAccessReason.LINE_MISSING),
        (text(FIRST), NodeAccessReason.LINE_MISSING),
        (text(FIRST, HOST_CERTIFICATE + " comment", USER_CA, HOST_CA, VERSION), SSHReason.MALFORMED),
        (text(FIRST, HOST_CERTIFICATE, USER_CA + " me", HOST_CA, VERSION), SSHReason.KEY_LINE_HAS_COMMENT),
        (text(FIRST, HOST_CERTIFICATE, USER_CA + "\t", HOST_CA, VERSION), NodeAccessReason.TEXT_MALFORMED),
        (text(FIRST, HOST_CERTIFICATE, USER_CA, HOST_CA, "trust-version 0"), NodeAccessReason.TRUST_VERSION_INVALID),
        (text(FIRST, HOST_CERTIFICATE, USER_CA, HOST_CA, "trust-version 07"), NodeAccessReason.TRUST_VERSION_INVALID),
        (text(FIRST, HOST_CERTIFICATE, USER_CA, HOST_CA, "trust-version +7"), NodeAccessReason.TRUST_VERSION_INVALID),
        (text(FIRST, HOST_CERTIFICATE, USER_CA, HOST_CA, "trust-version 7 "), NodeAccessReason.TRUST_VERSION_INVALID),
        (
            text(FIRST, HOST_CERTIFICATE, USER_CA, HOST_CA, f"trust-version {2**63}"),
            NodeAccessReason.TRUST_VERSION_INVALID,
        ),
        (
            text(FIRST, HOST_CERTIFICATE, HOST_CA.replace("host", "user"), HOST_CA, VERSION),
            NodeAccessReason.AUTHORITY_FOR_USERS_AND_HOSTS,
        ),
        (
            text(FIRST, HOST_CERTIFICATE, USER_CA, HOST_CA.replace("host", "break-glass"), HOST_CA, VERSION),
            NodeAccessReason.AUTHORITY_FOR_USERS_AND_HOSTS,
        ),
        (
            text(FIRST, HOST_CERTIFICATE, USER_CA, USER_CA.replace("user", "break-glass"), HOST_CA, VERSION),
            NodeAccessReason.ONLINE_BREAK_GLASS_AUTHORITY,
        ),
        (
            text(FIRST, HOST_CERTIFICATE, USER_CA, BREAK_GLASS_CA, BREAK_GLASS_CA, HOST_CA, VERSION),
            NodeAccessReason.LINE_REPEATED,
        ),
        (text(FIRST, HOST_CERTIFICATE, BREAK_GLASS_CA, HOST_CA, VERSION), NodeAccessReason.LINE_UNEXPECTED),
        (text(FIRST, HOST_CERTIFICATE, BREAK_GLASS_CA, USER_CA, HOST_CA, VERSION), NodeAccessReason.LINE_UNEXPECTED),
        (text(FIRST, HOST_CERTIFICATE, USER_CA, HOST_CA, BREAK_GLASS_CA, VERSION), NodeAccessReason.LINE_UNEXPECTED),
        (text(FIRST, HOST_CERTIFICATE, USER_CA, BREAK_GLASS_CA), NodeAccessReason.LINE_MISSING),
        (
            text(FIRST, HOST_CERTIFICATE, USER_CA, BREAK_GLASS_CA + " me", HOST_CA, VERSION),
            SSHReason.KEY_LINE_HAS_COMMENT,
        ),
    ],
)
def test_each_deviation_has_its_reason(content: bytes, reason: str) -> None:
    assert reading(content) == reason


def test_more_than_16_kib_are_refused() -> None:
    assert reading(TEXT + b"#" * (MAXIMUM_TEXT_BYTES - len(TEXT) + 1)) == NodeAccessReason.TEXT_TOO_LARGE
    assert reading(b"x" * 17 * 1024) == NodeAccessReason.TEXT_TOO_LARGE


def test_more_lines_of_one_kind_than_allowed_are_refused() -> None:
    keys = [Ed25519Key(bytes(31) + bytes([number])) for number in range(1, 14)]
    assert refusal(lambda: trust(user_authorities=tuple(keys))) == NodeAccessReason.TOO_MANY_LINES
    online, break_glass = tuple(keys[:2]), tuple(keys[2:])
    made = refusal(lambda: trust(user_authorities=online, break_glass_authorities=break_glass))
    assert made == NodeAccessReason.TOO_MANY_LINES, "13 of both kinds"
    listed = [f"user-ca {key_line(key)}" for key in keys[:2]] + [f"break-glass-ca {key_line(key)}" for key in keys[2:]]
    assert reading(text(FIRST, HOST_CERTIFICATE, *listed, HOST_CA, VERSION)) == NodeAccessReason.TOO_MANY_LINES
    parse(text(FIRST, HOST_CERTIFICATE, *listed[1:], HOST_CA, VERSION))
    assert refusal(lambda: trust(host_authorities=tuple(keys[:5]))) == NodeAccessReason.TOO_MANY_LINES
    four = tuple(map(certificate, keys[:4]))
    assert refusal(lambda: NodeAccess(four, trust())) == NodeAccessReason.TOO_MANY_LINES
    rendered = [f"host-certificate {one.line}" for one in four]
    assert reading(text(FIRST, *rendered, USER_CA, HOST_CA, VERSION)) == NodeAccessReason.TOO_MANY_LINES


@pytest.mark.parametrize("version", [-1, 0, 2**63])
def test_a_version_out_of_range_is_not_rendered(version: int) -> None:
    assert refusal(lambda: trust(version=version)) == NodeAccessReason.TRUST_VERSION_INVALID


def test_two_certificates_for_one_host_key_are_refused() -> None:
    both = (CERTIFICATE, certificate(KEYS[0], serial=4712))
    assert refusal(lambda: NodeAccess(both, trust())) == NodeAccessReason.LINE_REPEATED


def test_a_users_certificate_is_refused() -> None:
    made = Certificate(
        public_key=KEYS[0],
        kind=CertificateKind.USER,
        serial=1,
        key_id="thief",
        principals=(PlainPrincipal("worker-1"),),
        valid_after=1,
        valid_before=2,
        authority=public_key_of(HOST_AUTHORITY),
        nonce=bytes(32),
    )
    line = f"host-certificate {signed(made, HOST_AUTHORITY).line}"
    assert reading(text(FIRST, line, USER_CA, HOST_CA, VERSION)) == NodeAccessReason.NOT_A_HOST_CERTIFICATE


def test_a_fido_key_is_a_users_ca_and_no_hosts_ca() -> None:
    fido = public_keys()["sk-ed25519"]
    assert parse(text_of(CERTIFICATE, user_authorities=(fido,))).trust.user_authorities == (fido,)
    line = USER_CA
    with_fido = text_of(CERTIFICATE, user_authorities=(fido,)).decode().splitlines()[2].replace("user", "host", 1)
    assert reading(text(FIRST, HOST_CERTIFICATE, line, with_fido, VERSION)) == SSHReason.SECURITY_KEY_NOT_ALLOWED


def test_the_largest_text_that_a_controller_needs_fits() -> None:
    """Three host certificates with many principals, two CAs of each kind and six for emergencies."""
    names = tuple(HostName(f"{'n' * 60}-{number}.example") for number in range(16))
    wide = [certificate(key, principals=(HostName("worker-1"), *names)) for key in (KEYS[0], KEYS[3], KEYS[4])]
    users = tuple(Ed25519Key(bytes(31) + bytes([number])) for number in range(1, 9))
    assert len(text_of(*wide, user_authorities=users)) < MAXIMUM_TEXT_BYTES


def test_a_text_that_is_too_large_is_not_rendered() -> None:
    names = tuple(HostName(f"{'n' * 60}-{number}.example") for number in range(200))
    wide = certificate(KEYS[0], principals=names)
    assert refusal(lambda: text_of(wide)) == NodeAccessReason.TEXT_TOO_LARGE


PEM = b"-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize("between", [b"", b"node-attestation statement: {}\n"])
def test_the_text_is_found_behind_the_certificate(between: bytes) -> None:
    assert find(PEM + between + TEXT) == NodeAccessText(TEXT)
    assert find(PEM + between) == NoNodeAccess()
    assert find(TEXT) == NodeAccessText(TEXT)


def test_everything_behind_the_first_line_belongs_to_the_text() -> None:
    found = find(PEM + TEXT + PEM)
    assert isinstance(found, NodeAccessText)
    assert reading(found.content) == NodeAccessReason.LINE_UNEXPECTED
    later = find(PEM + TEXT.replace(b"v1", b"v2"))
    assert isinstance(later, NodeAccessText)
    assert reading(later.content) == NodeAccessReason.VERSION_UNKNOWN
    assert find(PEM + b" " + TEXT) == NoNodeAccess()


def test_the_text_holds_nothing_that_pem_readers_take_for_a_block() -> None:
    for keys in (KEYS[:3], KEYS[2:]):
        assert b"-----" not in text_of(*map(certificate, keys))


def test_the_authorities_differ() -> None:
    assert public_key_of(USER_AUTHORITY) != public_key_of(HOST_AUTHORITY)
