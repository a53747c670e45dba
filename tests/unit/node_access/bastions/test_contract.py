"""The types of the contract: what can describe a bastion, and what cannot."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, Final

import pytest

from node_access.bastions.contract import (
    Bastion,
    BastionReference,
    Deadline,
    Endpoint,
    InvalidBastion,
    OutOfTime,
    Pending,
    Scope,
    Target,
    host_keys,
    one_line,
)
from node_access.bastions.host_key import BastionHostKey
from node_access.bastions.sshd import authorized_keys, sshd_configuration
from tests.support.openssh import public_keys, ssh_keygen

UID: Final = "5d1c2b6a-3a0e-4f4a-a9b1-5a1b8c0d9e03"
REFERENCE: Final = BastionReference(UID, "team-a", "repair", "production")
BASTION: Final = Bastion(
    reference=REFERENCE,
    ingress=(ip_network("198.51.100.7/32"),),
    user_authorities=(public_keys()["ed25519"],),
    principal=f"bastion@{UID}",
    targets=(Target((ip_address("10.0.1.5"), ip_address("fd00::5")), 22),),
    not_after=datetime(2026, 11, 27, 22, tzinfo=UTC),
    host_key=BastionHostKey(b"k" * 32),
)


@pytest.mark.parametrize(
    "changes",
    [
        {"ingress": ()},
        {"ingress": (ip_network("0.0.0.0/0"),)},
        {"ingress": (ip_network("::/0"),)},
        {"ingress": (ip_network("::ffff:198.51.100.7/128"),)},
        {"ingress": (ip_network("198.51.100.7/32"),) * 2},
        {"ingress": tuple(ip_network(f"198.51.100.{number}/32") for number in range(17))},
        {"user_authorities": ()},
        {"principal": f"root@{UID}"},
        {"principal": f"bastion@{UID},root"},
        {"principal": f'bastion@{UID}"'},
        {"targets": ()},
        {"not_after": datetime(2026, 11, 27)},
    ],
)
def test_what_is_no_bastion(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidBastion):
        replace(BASTION, **changes)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "::1",
        "169.254.169.254",
        "fe80::1",
        "::",
        "224.0.0.1",
        "::ffff:10.0.0.1",
        "fd00:ec2::254",
        "fd20:ce::254",
        "192.0.0.192",
        "::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::7f00:1",
        "2002:a9fe:a9fe::1",
        "2001:0:a9fe:a9fe::1",
    ],
)
def test_what_is_no_node(address: str) -> None:
    """The metadata service of a cloud would give a person the bastion's own rights."""
    with pytest.raises(InvalidBastion):
        Target((ip_address(address),), 22)


@pytest.mark.parametrize("port", [0, 65536])
def test_what_is_no_port(port: int) -> None:
    with pytest.raises(InvalidBastion):
        Target((ip_address("10.0.1.5"),), port)
    with pytest.raises(InvalidBastion):
        Endpoint(port, ip_address("203.0.113.5"))


def test_an_endpoint_is_somewhere() -> None:
    with pytest.raises(InvalidBastion):
        Endpoint(22)
    with pytest.raises(InvalidBastion):
        Endpoint(22, None, "bastion example")


@pytest.mark.parametrize(
    ("uid", "name"), [("", "repair"), ("../../etc", "repair"), (UID.upper(), "repair"), (UID, "a/b"), (UID, "")]
)
def test_what_is_no_reference(uid: str, name: str) -> None:
    with pytest.raises(InvalidBastion):
        BastionReference(uid, "team-a", name, "production")


@pytest.mark.parametrize("owner", ["", "..", "a/b", "Blue", "a" * 64])
def test_what_is_no_owner(owner: str) -> None:
    with pytest.raises(InvalidBastion):
        Scope(owner)


def test_a_deadline_passes() -> None:
    now = [10.0]
    deadline = Deadline(12.0, lambda: now[0])
    assert deadline.seconds() == 2.0
    now[0] = 12.0
    with pytest.raises(OutOfTime):
        deadline.seconds()


def test_pending_is_asked_again_soon() -> None:
    with pytest.raises(InvalidBastion):
        Pending("never", timedelta(days=1))


def test_a_reason_is_one_bounded_line() -> None:
    assert one_line("a\nb\x1b[31m\tc") == "a b [31m c"
    assert one_line("nœud") == "n?ud"  # the grant controller reads ASCII
    assert len(one_line("a" * 5000)) == 512


def test_destinations_are_sorted_and_different() -> None:
    twice = replace(BASTION, targets=BASTION.targets * 2)
    assert [(str(address), port) for address, port in twice.destinations] == [("10.0.1.5", 22), ("fd00::5", 22)]


def test_more_destinations_than_sshd_reads() -> None:
    first = int(ip_address("10.0.0.0"))
    targets = tuple(Target(tuple(ip_address(first + 5 * number + one) for one in range(5))) for number in range(820))
    with pytest.raises(InvalidBastion):
        replace(BASTION, targets=targets)


def test_the_private_file_is_the_same_each_time_and_openssh_reads_it(tmp_path: Path) -> None:
    assert BASTION.host_key.private_file() == BastionHostKey(b"k" * 32).private_file()
    file = tmp_path / "host_key"
    file.touch(mode=0o600)
    file.write_bytes(BASTION.host_key.private_file())
    shown = ssh_keygen("-y", "-f", file)
    (key,) = host_keys(BASTION)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.split()[0] == "ssh-ed25519"
    assert key.fingerprint in ssh_keygen("-l", "-f", file).stdout
    assert "host_key=" not in repr(BASTION)
    with pytest.raises(ValueError, match="32 bytes"):
        BastionHostKey(b"short")


def test_the_line_of_an_authority() -> None:
    lines = authorized_keys(replace(BASTION, user_authorities=tuple(public_keys().values())), sources=BASTION.ingress)
    assert len(lines.splitlines()) == len(public_keys())
    for line in lines.splitlines():
        options = line.split(" ")[0]
        assert options == (
            f'cert-authority,principals="bastion@{UID}",from="198.51.100.7/32",restrict,port-forwarding,'
            'permitopen="10.0.1.5:22",permitopen="[fd00::5]:22"'
        )
        assert len(line.split(" ")) == 3  # no comment


@pytest.mark.parametrize(
    "line",
    [
        "MaxSessions 0",
        "ForceCommand /bin/false",
        "AllowTcpForwarding local",
        "AllowStreamLocalForwarding no",
        "AllowAgentForwarding no",
        "X11Forwarding no",
        "PermitTunnel no",
        "PermitTTY no",
        "PermitListen none",
        "PermitOpen 10.0.1.5:22 [fd00::5]:22",
        "PasswordAuthentication no",
        "AllowUsers bastion",
        "TrustedUserCAKeys none",
    ],
)
def test_every_switch_is_written_out(line: str) -> None:
    text = sshd_configuration(BASTION, listen=("0.0.0.0:22",), host_key="/h", authorized_keys_file="/a")
    assert text.splitlines().count(line) == 1
