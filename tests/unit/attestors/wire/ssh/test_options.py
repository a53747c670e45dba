"""Critical options and extensions: closed, sorted, each in one form."""

from __future__ import annotations

import contextlib
import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestors.wire.ssh.encoding import string
from attestors.wire.ssh.errors import SSHReason, SSHRefused
from attestors.wire.ssh.options import (
    CriticalOption,
    Extension,
    ForceCommand,
    SourceAddress,
    VerifyRequired,
    encode_extensions,
    encode_options,
    parse_extensions,
    parse_network,
    parse_options,
)
from tests.unit.attestors.wire.ssh.strategies import critical_options, extensions

NETWORK = ipaddress.ip_network("192.0.2.0/24")


def entry(name: str, value: bytes = b"") -> bytes:
    return string(name.encode()) + string(value)


@given(critical_options)
def test_options_read_back(options: tuple[CriticalOption, ...]) -> None:
    assert parse_options(encode_options(options)) == options


@given(extensions)
def test_extensions_read_back(found: tuple[Extension, ...]) -> None:
    assert parse_extensions(encode_extensions(found)) == found


@given(st.binary(max_size=60))
def test_any_bytes_are_refused_or_read_back(data: bytes) -> None:
    for begin in (b"", string(b"permit-pty"), string(b"source-address"), string(b"force-command")):
        with contextlib.suppress(SSHRefused):
            assert encode_options(parse_options(begin + data)) == begin + data
        with contextlib.suppress(SSHRefused):
            assert encode_extensions(parse_extensions(begin + data)) == begin + data


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (entry("permit-everything"), SSHReason.OPTION_UNKNOWN),
        (entry("permit-pty"), SSHReason.OPTION_UNKNOWN),
        (entry("verify-required", b"yes"), SSHReason.OPTION_INVALID),
        (entry("force-command", string(b"")), SSHReason.OPTION_INVALID),
        (entry("force-command", string(b"ls\nrm")), SSHReason.OPTION_INVALID),
        (entry("force-command", string(b" ls")), SSHReason.OPTION_INVALID),
        (entry("force-command", string(b"x" * 1025)), SSHReason.OPTION_INVALID),
        (entry("force-command", string(b"ls\0")), SSHReason.MALFORMED),
        (entry("force-command", b"ls"), SSHReason.MALFORMED),
        (entry("force-command", string(b"ls") + b"\0"), SSHReason.TRAILING_BYTES),
        (entry("source-address", string(b"")), SSHReason.OPTION_INVALID),
        (entry("source-address", string(b"192.0.2.1/24")), SSHReason.OPTION_INVALID),
        (entry("source-address", string(b"192.0.2.1")), SSHReason.OPTION_INVALID),
        (entry("source-address", string(b"192.0.2.0/24,192.0.2.0/24")), SSHReason.OPTION_INVALID),
        (entry("source-address", string(b"192.0.2.0/24, 198.51.100.0/24")), SSHReason.OPTION_INVALID),
        (entry("source-address", string(b"!192.0.2.0/24")), SSHReason.OPTION_INVALID),
        (entry("verify-required") + entry("verify-required"), SSHReason.OPTIONS_NOT_SORTED),
        (entry("verify-required") + entry("force-command", string(b"ls")), SSHReason.OPTIONS_NOT_SORTED),
        (string(b"verify-required"), SSHReason.MALFORMED),
    ],
)
def test_other_options_are_refused(data: bytes, reason: SSHReason) -> None:
    with pytest.raises(SSHRefused) as refused:
        parse_options(data)
    assert refused.value.reason is reason


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (entry("permit-pty", string(b"yes")), SSHReason.OPTION_INVALID),
        (entry("login@github.com"), SSHReason.OPTION_UNKNOWN),
        (entry("verify-required"), SSHReason.OPTION_UNKNOWN),
        (entry("permit-pty") + entry("permit-pty"), SSHReason.OPTIONS_NOT_SORTED),
        (entry("permit-pty") + entry("permit-port-forwarding"), SSHReason.OPTIONS_NOT_SORTED),
    ],
    ids=["the value of RFC 016's example", "unknown", "an option", "twice", "unsorted"],
)
def test_other_extensions_are_refused(data: bytes, reason: SSHReason) -> None:
    with pytest.raises(SSHRefused) as refused:
        parse_extensions(data)
    assert refused.value.reason is reason


@pytest.mark.parametrize(
    "networks", [(), (NETWORK, NETWORK), tuple(ipaddress.ip_network(f"10.{n}.0.0/16") for n in range(17))]
)
def test_none_too_many_or_one_twice(networks: tuple[ipaddress.IPv4Network, ...]) -> None:
    with pytest.raises(SSHRefused, match="OptionInvalid"):
        SourceAddress(networks)


@pytest.mark.parametrize("text", ["::ffff:192.0.2.0/120", "fe80::%eth0/64"])
def test_networks_that_match_no_connection(text: str) -> None:
    with pytest.raises(SSHRefused, match="OptionInvalid"):
        SourceAddress((ipaddress.ip_network(text),))


@pytest.mark.parametrize("text", ["2001:DB8::/32", "192.0.2.0/255.255.255.0", "192.0.2.0/024", "", "x"])
def test_networks_have_one_form(text: str) -> None:
    with pytest.raises(SSHRefused, match="OptionInvalid"):
        parse_network(text)


def test_names_are_sorted_as_openssh_sorts_them() -> None:
    assert [one.name.value for one in (ForceCommand("x"), SourceAddress((NETWORK,)), VerifyRequired())] == sorted(
        ("verify-required", "source-address", "force-command")
    )
