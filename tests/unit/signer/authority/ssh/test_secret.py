"""The Secrets of the two authorities."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.signatures import public_key_of
from signer.authority.ssh.errors import SSHAuthorityReason, SSHAuthorityRefused
from signer.authority.ssh.secret import host_authority_in, user_authority_in
from tests.support.openssh import private_key, private_key_text
from tests.unit.signer.authority.ssh.requests import authority_key

PRIVATE = authority_key("ed25519", 4)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def manifest(name: str = "production-ssh-user", **data: Any) -> dict[str, Any]:
    content = {
        "ssh-privatekey": encoded(private_key_text(PRIVATE)),
        "ssh-publickey": encoded(key_line(public_key_of(PRIVATE)).encode()),
    }
    content |= {name.replace("_", "-"): value for name, value in data.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": content}


def refusal(document: object) -> SSHAuthorityReason:
    with pytest.raises(SSHAuthorityRefused) as refused:
        user_authority_in(document)
    return refused.value.reason


def test_each_authority_is_read_from_its_secret() -> None:
    assert user_authority_in(manifest()).public_key == public_key_of(PRIVATE)
    assert host_authority_in(manifest("production-ssh-host")).public_key == public_key_of(PRIVATE)


def test_neither_is_read_from_the_others() -> None:
    """Test 22: nobody signs users' certificates with a host authority by mistake."""
    assert refusal(manifest("production-ssh-host")) is SSHAuthorityReason.WRONG_AUTHORITY
    assert refusal(manifest("production-ca")) is SSHAuthorityReason.WRONG_AUTHORITY
    with pytest.raises(SSHAuthorityRefused) as refused:
        host_authority_in(manifest())
    assert refused.value.reason is SSHAuthorityReason.WRONG_AUTHORITY


def test_the_public_key_is_that_of_the_private_one() -> None:
    other = encoded(key_line(public_key_of(private_key("ed25519", 9))).encode())
    assert refusal(manifest(ssh_publickey=other)) is SSHAuthorityReason.KEY_MISMATCH


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        manifest() | {"kind": "List"},
        manifest() | {"apiVersion": "v2"},
        manifest() | {"data": None},
        {key: value for key, value in manifest().items() if key != "data"},
        manifest(ssh_privatekey=None),
        manifest(ssh_privatekey=""),
        manifest(ssh_privatekey="ä"),
        manifest(ssh_privatekey="A"),
        manifest(ssh_privatekey="A" * 10_000),
        manifest(ssh_publickey=""),
        manifest(ssh_publickey=encoded(b"ssh-ed25519")),
        manifest(ssh_publickey=encoded(b"\xff")),
    ],
)
def test_another_manifest_is_refused(document: object) -> None:
    assert refusal(document) is SSHAuthorityReason.SECRET_INVALID


@pytest.mark.parametrize("metadata", [{}, {"name": 5}, {"name": "ssh-user"}])
def test_a_secret_without_the_name(metadata: dict[str, Any]) -> None:
    assert refusal(manifest() | {"metadata": metadata}) is SSHAuthorityReason.WRONG_AUTHORITY
