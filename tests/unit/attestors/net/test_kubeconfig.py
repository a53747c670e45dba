"""Values of a kubeconfig: any text is read as client-go reads it, or refused without being quoted."""

from __future__ import annotations

import base64
import contextlib
import textwrap
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestors.net.kubeconfig import (
    UnusableValue,
    certificates_in,
    decode_base64,
    is_host,
    pem_text,
    private_key_in,
    server_address,
)
from tests.unit.attestors.support import PATIENT

around = st.sampled_from(["", "# \u0160koda\n", "\r\n", "Bag Attributes\n    friendlyName: x\n", "-----BEGIN X-----\n"])


@PATIENT
@given(st.binary(max_size=200), st.integers(1, 90), st.sampled_from(["\n", "\r\n", "\r"]))
def test_base64_in_lines_of_any_length(content: bytes, width: int, end: str) -> None:
    text = base64.b64encode(content).decode()
    assert decode_base64(end.join(textwrap.wrap(text, width)) + end) == content


@PATIENT
@given(st.text(alphabet="AQab+/=-_ \n\r\t\u00e9", max_size=40))
def test_whatever_is_read_has_these_characters_and_length(text: str) -> None:
    try:
        content = decode_base64(text)
    except UnusableValue:
        return
    joined = text.replace("\n", "").replace("\r", "")
    assert len(joined) == len(base64.b64encode(content))
    assert not set(joined) & set(" -_\t\u00e9")


@PATIENT
@given(st.lists(st.binary(min_size=1, max_size=100), min_size=1, max_size=4), around, around)
def test_blocks_are_found_whatever_is_around_them(contents: list[bytes], before: str, behind: str) -> None:
    text = before + behind.join(pem_text("CERTIFICATE", one) for one in contents)
    for encoded in (text.encode(), text.replace("\n", "\r\n").encode(), text.rstrip("\n").encode()):
        assert certificates_in(encoded) == tuple(contents)
    with pytest.raises(UnusableValue, match="no PEM private key"):
        private_key_in(text.encode())


@pytest.mark.parametrize("label", ["PRIVATE KEY", "EC PRIVATE KEY", "RSA PRIVATE KEY"])
def test_the_first_key_alone_is_taken(label: str) -> None:
    key = pem_text(label, b"key")
    text = f"# caf\u00e9\n{pem_text('CERTIFICATE', b'a')}{key}{pem_text('PRIVATE KEY', b'other')}"
    assert private_key_in(text.encode()) == key
    assert certificates_in(text.encode()) == (b"a",)


def test_a_block_of_broken_base64_does_not_count() -> None:
    broken = "-----BEGIN CERTIFICATE-----\nAAAAA\n-----END CERTIFICATE-----\n"
    assert certificates_in((broken + pem_text("CERTIFICATE", b"a")).encode()) == (b"a",)
    with pytest.raises(UnusableValue, match="holds no PEM certificate"):
        certificates_in(broken.encode())


@PATIENT
@given(st.binary(max_size=300))
def test_any_bytes_hold_certificates_or_none(data: bytes) -> None:
    with contextlib.suppress(UnusableValue):
        certificates_in(data)
    with contextlib.suppress(UnusableValue):
        private_key_in(data)


@PATIENT
@given(
    st.text(alphabet="htps:/.ab1[]:%@?#\\ -_\u00e9\n", max_size=30).map(lambda rest: f"https://{rest}")
    | st.text(max_size=30)
)
def test_an_address_is_https_or_refused(text: str) -> None:
    try:
        found = server_address(text)
    except UnusableValue:
        return
    parts = urlsplit(found)
    assert parts.scheme == "https"
    assert parts.hostname is not None
    assert is_host(parts.hostname)
    assert not found.endswith("/")
    assert found.isascii()
    assert not {*"@?#%\\ "} & {*found}
    assert server_address(found) == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("https://a\n", "without white space and in ASCII"),
        ("a.example:6443", "no scheme, which client-go reads as http://"),
        ("http://a.example", "must begin with https://, because"),
        ("https://u@a.example", r"has a user \(@\)"),
        ("https://a.example/%2e", r"has an escape \(%\)"),
        ("https://a.example:99999", "malformed host or port"),
        ("https://fd00::1:6443", "malformed host"),
        ("https://a..example", "malformed host: it must be a name"),
        ("https://.", "malformed host: it must be"),
        (f"https://{'a' * 64}.example", "malformed host: it must be"),
        ("https://[fe80::1", "malformed host"),
        ("https://a.example:", "a colon without a port"),
        ("https://a.example:0", "or port 0"),
        ("https://a.example/a//b", "malformed path"),
        ("https://a.example/../b", "malformed path"),
        (f"https://a.example/{'a' * 1024}", "longer than 1024 characters"),
    ],
)
def test_why_an_address_is_refused(text: str, message: str) -> None:
    with pytest.raises(UnusableValue, match=message):
        server_address(text)
