"""Host keys of sshd: which are read, and which are left alone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import dsa, ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from attestors.wire.ssh.signatures import public_key_of
from authenticator.flow import host_keys
from authenticator.flow.host_keys import UnusableHostKey, read_host_key
from tests.support.openssh import SIGNERS, private_key, private_key_text, ssh_keygen, write_private_key


def refusal(file: Path) -> str:
    with pytest.raises(UnusableHostKey) as refused:
        read_host_key(file)
    assert str(file) in str(refused.value)
    return str(refused.value)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_private_key(tmp_path / "ssh_host_key", private_key("ed25519"))


@pytest.mark.parametrize("name", SIGNERS)
def test_each_kind_of_host_key_is_read(tmp_path: Path, name: str) -> None:
    file = write_private_key(tmp_path / "key", private_key(name))
    assert read_host_key(file).public_key == public_key_of(private_key(name))


@pytest.mark.parametrize(("kind", "bits"), [("ed25519", "0"), ("ecdsa", "384"), ("rsa", "3072")])
@pytest.mark.parametrize("form", ["RFC4716", "PKCS8", "PEM"])
def test_keys_of_ssh_keygen_are_read(tmp_path: Path, kind: str, bits: str, form: str) -> None:
    file = tmp_path / "key"
    options = ["-b", bits] if bits != "0" else []
    made = ssh_keygen("-q", "-N", "", "-t", kind, *options, "-m", form, "-f", file)
    assert made.returncode == 0, made.stderr
    read = read_host_key(file)
    shown = ssh_keygen("-l", "-f", file)
    assert read.public_key.fingerprint in shown.stdout
    assert "PRIVATE" not in repr(read)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o644, 0o610])
def test_a_key_that_others_may_read_is_refused(file: Path, mode: int) -> None:
    file.chmod(mode)
    assert "others may read or write it" in refusal(file)


def test_the_group_of_host_keys_may_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fedora and RHEL lay host keys out so."""
    monkeypatch.setattr(host_keys, "_is_host_key_group", lambda group: group == file.stat().st_gid)
    file.chmod(0o640)
    assert read_host_key(file).public_key == public_key_of(private_key("ed25519"))
    for mode in (0o660, 0o644, 0o641):
        file.chmod(mode)
        assert "others may read or write it" in refusal(file)


def test_the_group_is_found_by_its_name() -> None:
    assert not host_keys._is_host_key_group(os.getgid())
    assert not host_keys._is_host_key_group(2**31 - 2)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_key_of_another_user_is_refused(file: Path) -> None:
    os.chown(file, 65534, -1)
    assert "belongs to another user" in refusal(file)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "missing")
    (tmp_path / "folder").mkdir(mode=0o700)
    assert refusal(tmp_path / "folder")
    os.mkfifo(tmp_path / "fifo", 0o600)
    assert "no file" in refusal(tmp_path / "fifo")


def test_another_content_is_refused_and_not_quoted(file: Path) -> None:
    file.write_bytes(b"a secret in the wrong place")
    assert "secret" not in refusal(file)
    file.write_bytes(private_key_text(private_key("ed25519"))[:-60])
    assert "no unencrypted private key" in refusal(file)
    file.write_bytes(bytes(16 * 1024 + 1))
    assert "larger" in refusal(file)


def test_an_encrypted_key_is_refused(file: Path) -> None:
    key = private_key("nistp256")
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x")))
    assert "no unencrypted private key" in refusal(file)
    made = ssh_keygen("-q", "-p", "-P", "", "-N", "secret", "-f", write_private_key(file, private_key("ed25519")))
    assert made.returncode == 0, made.stderr
    assert "no unencrypted private key" in refusal(file)


@pytest.mark.parametrize(
    ("key", "why"),
    [
        (dsa.generate_private_key(1024), "a host key is Ed25519, ECDSA or RSA"),  # noqa: S505 - refused whatever its size
        (X25519PrivateKey.generate(), "a host key is Ed25519, ECDSA or RSA"),
        (rsa.generate_private_key(65537, 2048), "2048 bits, fewer than 3072"),
        (ec.generate_private_key(ec.SECP256K1()), "not on P-256, P-384 or P-521"),
    ],
)
def test_keys_of_other_kinds_are_refused(file: Path, key: Ed25519PrivateKey, why: str) -> None:
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    assert why in refusal(file)


def test_openssh_is_there() -> None:
    assert subprocess.run(["ssh-keygen", "-?"], capture_output=True, check=False, timeout=60).stderr
