"""Principals (test 5 of the design brief)."""

from __future__ import annotations

import ipaddress
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestors.wire.ssh.errors import SSHReason, SSHRefused
from attestors.wire.ssh.principals import (
    HostAddress,
    HostName,
    LoginOnEveryNode,
    LoginOnNode,
    PlainPrincipal,
    parse_host_principal,
    parse_user_principal,
)
from tests.unit.attestors.wire.ssh.strategies import host_principals, user_principals

LONG = "_".join(("n" * 63, "p" * 253, "c" * 63))


@pytest.mark.parametrize(
    ("text", "principal"),
    [
        ("root", PlainPrincipal("root")),
        ("root@worker-1.example", LoginOnNode("root", "worker-1.example")),
        ("root@*", LoginOnEveryNode("root")),
        (LONG, PlainPrincipal(LONG)),
        ("_apt", PlainPrincipal("_apt")),
    ],
)
def test_the_three_forms(text: str, principal: object) -> None:
    assert parse_user_principal(text) == principal
    assert str(principal) == text


@pytest.mark.parametrize(
    "text",
    [
        *("root,admin", "root\nadmin", "root\n", "ro\0ot", "*", "", "-oProxyCommand", "r*", "root@w*", "root@*@*"),
        *("root@", "@worker-1", "@", "root@-w", "root@w-", "Root", "rööt", "root admin", "root/x", "root?", "ro[o]t"),
        *("root@Worker", "root@a@b", "-", "!root", LONG + "x", f"{LONG}@*", f"{LONG}@n", "root@" + "n" * 254, "a\\b"),
    ],
)
def test_another_principal_is_refused(text: str) -> None:
    with pytest.raises(SSHRefused) as refused:
        parse_user_principal(text)
    assert refused.value.reason is SSHReason.PRINCIPAL_INVALID


@given(st.text(max_size=30))
def test_any_text_is_refused_or_of_the_grammar(text: str) -> None:
    for one in (text, f"root@{text}", f"{text}@n"):
        try:
            principal = parse_user_principal(one)
        except SSHRefused:
            continue
        assert str(principal) == one
        assert re.fullmatch(r"[a-z0-9._@-]{1,381}", one.removesuffix("@*") or "@*")
        assert not one.startswith("-")


@given(user_principals)
def test_users_read_back(principal: PlainPrincipal | LoginOnNode | LoginOnEveryNode) -> None:
    assert parse_user_principal(str(principal)) == principal


@given(host_principals)
def test_hosts_read_back(principal: HostName | HostAddress) -> None:
    assert parse_host_principal(str(principal)) == principal


@pytest.mark.parametrize(
    "text",
    [
        *("*", "*.example", "worker?", "", "Worker-1", "-w", "w,x", "w\n", "w\0", "root@w", "a_b"),
        *("2001:DB8::1", "2001:db8:0::1", "fe80::1%eth0", "::ffff:192.0.2.1"),
    ],
)
def test_another_host_is_refused(text: str) -> None:
    with pytest.raises(SSHRefused) as refused:
        parse_host_principal(text)
    assert refused.value.reason is SSHReason.PRINCIPAL_INVALID


def test_an_ipv4_address_in_the_form_of_ipv6() -> None:
    """Versions of Python write it differently."""
    with pytest.raises(SSHRefused, match="without ::ffff:"):
        HostAddress(ipaddress.ip_address("::ffff:192.0.2.1"))


def test_an_address_is_no_name() -> None:
    with pytest.raises(SSHRefused, match="PrincipalInvalid"):
        HostName("192.0.2.1")
    assert parse_host_principal("192.0.2.1") == HostAddress(ipaddress.ip_address("192.0.2.1"))
