"""Which principals a node accepts."""

from __future__ import annotations

from typing import Any

import pytest

from attestors.wire.ssh.krl import AnyAuthority, CertificateRevocations, RevocationList, SerialRange
from attestors.wire.ssh.options import ForceCommand
from attestors.wire.ssh.signatures import public_key_of
from node_access.principals import (
    LoginRefused,
    Node,
    NodeName,
    NotAttested,
    Revocations,
    UnknownRevocations,
    accepted_principals,
)
from node_access.values import Opens
from tests.unit.node_access.made import AUTHORITY, BREAK_GLASS, certificate

FINGERPRINT = public_key_of(BREAK_GLASS).fingerprint
EMPTY = RevocationList(version=0, generated=0)
NODE = Node(NodeName("worker-1"), frozenset({FINGERPRINT}), Revocations((EMPTY,)))


def accepted(node: Node = NODE, **changes: Any) -> list[str]:
    return list(map(str, accepted_principals("root", certificate(**changes).certificate, node, Opens.NODE)))


def test_the_online_authority_opens_what_its_certificate_names_here() -> None:
    assert accepted() == ["root@worker-1", "root@*"]


def test_an_authority_for_emergencies_opens_the_login_itself() -> None:
    assert accepted(by=BREAK_GLASS) == ["root", "root@worker-1", "root@*"]


def test_a_machine_without_a_name_opens_to_emergencies_alone() -> None:
    node = Node(NotAttested(), NODE.break_glass, NODE.revocations)
    assert accepted(node, by=BREAK_GLASS) == ["root"]
    with pytest.raises(LoginRefused, match="no attested name"):
        accepted(node)


@pytest.mark.parametrize("by", ["first", "second"])
def test_each_list_revokes(by: str) -> None:
    revoking = EMPTY.with_entries(
        generated=1, certificates=(CertificateRevocations(AnyAuthority(), serials=(SerialRange.single(7),)),)
    )
    lists = (revoking, EMPTY) if by == "first" else (EMPTY, revoking)
    node = Node(NODE.name, NODE.break_glass, Revocations(lists))
    with pytest.raises(LoginRefused, match="revoked"):
        accepted(node, by=BREAK_GLASS)
    assert accepted(node, serial=8)


def test_without_lists_nobody_gets_in() -> None:
    node = Node(NODE.name, NODE.break_glass, UnknownRevocations("revoked_keys: missing"))
    with pytest.raises(LoginRefused, match="missing"):
        accepted(node, by=BREAK_GLASS)


def opened(login: str, node: Node = NODE, **changes: Any) -> list[str]:
    return list(map(str, accepted_principals(login, certificate(**changes).certificate, node, Opens.CONTAINERS)))


def test_where_containers_are_opened_the_containers_name_counts_and_no_login_of_the_node() -> None:
    assert opened("shop_web-0_app") == ["shop_web-0_app"]
    assert opened("shop_web-0_app", by=BREAK_GLASS) == ["shop_web-0_app"]
    nameless = Node(NotAttested(), NODE.break_glass, NODE.revocations)
    assert opened("shop_web-0_app", nameless) == ["shop_web-0_app"]


@pytest.mark.parametrize("login", ["root", "alice", "shop_web-0", "shop_deploy.web_app", "a_b_c_d", "_web-0_app"])
def test_where_containers_are_opened_nothing_else_is(login: str) -> None:
    with pytest.raises(LoginRefused):
        opened(login, by=BREAK_GLASS)


def test_revocation_counts_where_containers_are_opened() -> None:
    node = Node(NODE.name, NODE.break_glass, UnknownRevocations("revoked_keys: missing"))
    with pytest.raises(LoginRefused, match="missing"):
        opened("shop_web-0_app", node)


def test_a_forced_command_opens_no_container() -> None:
    """sshd's own ForceCommand would run everything that the client asks for."""
    forced = (ForceCommand("uptime"),)
    for by in (AUTHORITY, BREAK_GLASS):
        with pytest.raises(LoginRefused, match="forced command"):
            opened("shop_web-0_app", by=by, critical_options=forced)
    assert accepted(critical_options=forced)


def test_a_containers_name_opens_no_login_of_the_node() -> None:
    for by in (AUTHORITY, BREAK_GLASS):
        with pytest.raises(LoginRefused, match="a container's"):
            accepted_principals("shop_web-0_app", certificate(by=by).certificate, NODE, Opens.NODE)
    assert accepted_principals("web_admin", certificate().certificate, NODE, Opens.NODE)
