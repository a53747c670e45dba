"""What sshd's command passes on."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestors.wire.ssh.certificate import CertificateKind
from node_access.requests import MAXIMUM_REQUEST_BYTES, RequestRefused, parse_request
from tests.support.openssh import public_keys
from tests.unit.node_access.made import certificate, message


@pytest.mark.parametrize("key", sorted(public_keys()))
def test_certificates_for_every_kind_of_key(key: str) -> None:
    signed = certificate(key=key)
    request = parse_request(message(signed))
    assert (request.login_name, request.certificate) == ("alice", signed.certificate)


@pytest.mark.parametrize(("size", "why"), [(MAXIMUM_REQUEST_BYTES, "encoding"), (MAXIMUM_REQUEST_BYTES + 1, "five")])
def test_the_longest_question(size: int, why: str) -> None:
    with pytest.raises(RequestRefused, match=why):
        parse_request(b"alice\0\0\0\0".ljust(size, b"!"))


def test_what_other_tools_of_the_rfc_sign() -> None:
    """``constellation ssh``: serial number 0 and no key id."""
    assert parse_request(message(certificate(serial=0, key_id=""))).certificate.serial == 0


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"key_id": "grant/bob"}, "not the one that sshd names"),
        ({"serial": "8"}, "not the one that sshd names"),
        ({"authority": "SHA256:x"}, "not the one that sshd names"),
        ({"encoded": "AAAA"}, "Malformed"),
        ({"encoded": "!"}, "not in its encoding"),
        ({"login": "a,b"}, "PrincipalInvalid"),
        ({"login": "-oProxyCommand"}, "PrincipalInvalid"),
        ({"login": "alice\nroot"}, "PrincipalInvalid"),
        ({"encoded": f"{base64.b64encode(certificate().blob + b'x').decode()}"}, "TrailingBytes"),
    ],
)
def test_what_is_refused(changes: dict[str, str], why: str) -> None:
    with pytest.raises(RequestRefused, match=why):
        parse_request(message(certificate(), **changes))


@pytest.mark.parametrize(
    "data", [b"", b"\0\0\0\0\0", b"a\0b\0c\0d", b"\xff\0a\0b\0c\0d", bytes(MAXIMUM_REQUEST_BYTES + 1)]
)
def test_what_is_no_message(data: bytes) -> None:
    with pytest.raises(RequestRefused):
        parse_request(data)


def test_a_host_certificate_logs_nobody_in() -> None:
    with pytest.raises(RequestRefused, match="not for a user"):
        parse_request(message(certificate(kind=CertificateKind.HOST)))


@given(st.binary(max_size=400), st.integers(0, 400))
def test_any_other_bytes_are_refused_or_agree(data: bytes, at: int) -> None:
    """sshd has verified the signature, so the nonce may be any."""
    whole = message(certificate())
    try:
        request = parse_request(whole[:at] + data + whole[at + len(data) :])
    except RequestRefused:
        return
    found, made = request.certificate, certificate().certificate
    assert (found.serial, found.key_id, found.authority) == (made.serial, made.key_id, made.authority)
