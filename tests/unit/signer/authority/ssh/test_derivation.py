"""RFC 016's derivation byte for byte (test 1). The seeds were computed by the RFC's Go program as well."""

from __future__ import annotations

import base64
import json

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st

from attestors.wire.ssh.key_line import key_line
from signer.authority.ssh.derivation import (
    MAXIMUM_GENERATION,
    MasterSecret,
    derive_user_authority,
    parse_master_secret,
    parse_salt,
)
from signer.authority.ssh.errors import SSHAuthorityReason, SSHAuthorityRefused

MASTER = MasterSecret(bytes(range(32)), bytes(range(32, 64)))
TEXT = b'{"key":"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=","salt":"ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8="}'
UPSTREAM = "key-00000000-0000-0000-0000-000000000000"


def seed(master: MasterSecret, **how: object) -> str:
    key = derive_user_authority(master, **how).private_key  # type: ignore[arg-type]
    assert isinstance(key, Ed25519PrivateKey)
    return key.private_bytes_raw().hex()


@pytest.mark.parametrize(
    ("master", "info", "expected"),
    [
        (MASTER, "ssh-ca", "dea4fadfdb6d940920c0d8dad633f9d34378080ca662674627a137245ea9c1f4"),
        (MASTER, "key-ca_emergency_ssh", "94fa4debe744205b8655eb8f46e1b8f32a1d204d4a4c7ec6d43fd1745bdc88a4"),
        (MASTER.with_salt(b""), "ssh-ca", "40e0a44edbed69be5c4ce3e8386f8c789e6454430bccda77b286e6cb1cd1038c"),
        (
            MasterSecret(bytes(32), bytes(32)),
            UPSTREAM,
            "2b5c829f691bfd4232f8aac464bccc07e605c7c8e82cbca09837e86d0b6d0665",
        ),
    ],
    ids=["the RFC's", "the released one", "empty salt", "Constellation's own vector"],
)
def test_vectors(master: MasterSecret, info: str, expected: str) -> None:
    assert seed(master, info=info) == expected


def test_public_keys_of_the_vectors() -> None:
    for info, encoded in (
        ("ssh-ca", "AAAAC3NzaC1lZDI1NTE5AAAAIFxsJp7Y9CCvP07yi4B52SLo4Qif/9TgzCeD23p96CdW"),
        ("key-ca_emergency_ssh", "AAAAC3NzaC1lZDI1NTE5AAAAIEoSrpjl/FhAXaVwGjHxYPzMNKLwNwp2E0bVUxU5dUB6"),
    ):
        assert key_line(derive_user_authority(MASTER, info=info).public_key) == f"ssh-ed25519 {encoded}"


def test_generation_0_is_the_rfcs_and_each_other_is_its_own() -> None:
    assert seed(MASTER, generation=0) == seed(MASTER)
    found = {seed(MASTER, generation=generation) for generation in (*range(12), MAXIMUM_GENERATION)}
    assert len(found) == 13


def test_a_generation_is_part_of_the_info() -> None:
    """So that a tool with an info argument derives it, too."""
    assert seed(MASTER, generation=3) == HKDF(SHA256(), 32, MASTER.salt, b"ssh-ca/3").derive(MASTER.key).hex()


def test_each_cluster_has_its_own_authority() -> None:
    assert seed(MASTER) != seed(MASTER.with_salt(b"another cluster"))


def test_the_file_is_read() -> None:
    assert parse_master_secret(TEXT) == MASTER
    assert parse_master_secret(TEXT + b"\n") == MASTER
    assert parse_master_secret(json.dumps({"key": base64.b64encode(bytes(16)).decode()}).encode()).salt == b""


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff",
        b"[" * 10_000,
        b'{"salt":"AAAA"}',
        b'{"key":5}',
        b'{"key":"AAAA"}',
        TEXT.replace(b"}", b',"other":""}'),
        TEXT.replace(b"{", b'{"key":"AAAAAAAAAAAAAAAAAAAAAA==",'),
        TEXT.replace(b"AAEC", b"AA-C"),
        TEXT.replace(b'"salt":"', b'"salt":"\xc3\xa4'),
        TEXT + b" " * 20_000,
    ],
)
def test_another_file_is_refused(data: bytes) -> None:
    with pytest.raises(SSHAuthorityRefused) as refused:
        parse_master_secret(data)
    assert refused.value.reason is SSHAuthorityReason.MASTER_SECRET_INVALID
    assert "AAEC" not in str(refused.value)


@given(st.binary(max_size=100))
def test_any_bytes_are_refused_or_read(data: bytes) -> None:
    for text in (data, b'{"key":"' + data + b'"}'):
        try:
            found = parse_master_secret(text)
        except SSHAuthorityRefused as refused:
            if refused.reason is not SSHAuthorityReason.MASTER_SECRET_INVALID:
                raise
            continue
        assert 16 <= len(found.key) <= 1024


def test_lengths() -> None:
    for key, salt in ((bytes(15), b""), (bytes(1025), b""), (bytes(32), bytes(1025))):
        with pytest.raises(SSHAuthorityRefused, match="MasterSecretInvalid"):
            MasterSecret(key, salt)
    with pytest.raises(SSHAuthorityRefused, match="MasterSecretInvalid"):
        parse_salt("A")


@pytest.mark.parametrize("generation", [-1, MAXIMUM_GENERATION + 1])
def test_generations_that_are_none(generation: int) -> None:
    with pytest.raises(SSHAuthorityRefused) as refused:
        derive_user_authority(MASTER, generation=generation)
    assert refused.value.reason is SSHAuthorityReason.GENERATION_INVALID


@pytest.mark.parametrize("info", ["", "ssh-ca/1", "a b", "ä", "x" * 129, "a\n"])
def test_infos_that_are_none(info: str) -> None:
    """With a slash, an info could name a generation."""
    with pytest.raises(SSHAuthorityRefused) as refused:
        derive_user_authority(MASTER, info=info)
    assert refused.value.reason is SSHAuthorityReason.INFO_INVALID


def test_a_master_secret_is_not_shown() -> None:
    assert repr(MASTER.key) not in repr(MASTER)
    assert "private" not in repr(derive_user_authority(MASTER))
