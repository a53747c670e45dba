"""The files of sshd: complete, checked by OpenSSH, and never a worse one in place of a good one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from attestors.wire.ssh.certificate import SignedCertificate, parse_certificate_file
from attestors.wire.ssh.key_line import key_line, readable_authorities
from attestors.wire.ssh.keys import PublicKey
from attestors.wire.ssh.krl import RevocationList, encode_revocation_list, parse_revocation_list
from attestors.wire.ssh.signatures import public_key_of
from authenticator.flow import sshd_files
from authenticator.flow.sshd_files import (
    BREAK_GLASS_FILE,
    IMAGE_BREAK_GLASS_FILE,
    KNOWN_HOSTS_FILE,
    NODE_NAME_FILE,
    REVOKED_KEYS_FILE,
    USER_AUTHORITIES_FILE,
    SSHDFiles,
    UnwrittenFiles,
)
from authenticator.model.node_access import AcceptedAccess
from authenticator.store.files import write_atomically
from tests.support.node_access import HOST_AUTHORITY, NOW, USER_AUTHORITY, certificate, trust
from tests.support.openssh import private_key, ssh_keygen

KEY = public_key_of(private_key("ed25519"))
OTHER = public_key_of(private_key("nistp256"))
ONLINE, NEXT_ONLINE, BREAK_GLASS, NEXT_BREAK_GLASS, PROMOTED, OF_IMAGE = (
    public_key_of(private_key("ed25519", number)) for number in range(210, 216)
)
PATHS: dict[PublicKey, Path] = {KEY: Path("/etc/ssh/ssh_host_ed25519_key"), OTHER: Path("/etc/ssh/ssh_host_ecdsa_key")}


@pytest.fixture
def files(tmp_path: Path) -> SSHDFiles:
    return SSHDFiles(tmp_path / "node-access")


def install(files: SSHDFiles, *certificates: SignedCertificate, is_first: bool = True, **changes: Any) -> None:
    accepted = AcceptedAccess(certificates or (certificate(KEY),), trust(**changes))
    files.install(accepted, PATHS, node_name="worker-1", is_first=is_first, now=NOW)


def contents(files: SSHDFiles) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in files.folder.iterdir() if path.is_file()}


def test_the_files(files: SSHDFiles) -> None:
    made = certificate(KEY), certificate(OTHER)
    install(files, *made)
    assert contents(files) == {
        "ssh_host_ed25519_key-cert.pub": f"{made[0].line}\n".encode(),
        "ssh_host_ecdsa_key-cert.pub": f"{made[1].line}\n".encode(),
        USER_AUTHORITIES_FILE: f"{key_line(public_key_of(USER_AUTHORITY))}\n".encode(),
        BREAK_GLASS_FILE: b"",
        KNOWN_HOSTS_FILE: f"@cert-authority * {key_line(public_key_of(HOST_AUTHORITY))}\n".encode(),
        REVOKED_KEYS_FILE: (files.folder / REVOKED_KEYS_FILE).read_bytes(),
        NODE_NAME_FILE: b"worker-1\n",
    }
    assert {path.stat().st_mode & 0o777 for path in files.folder.iterdir()} == {0o644}
    assert files.certificate(PATHS[KEY]) == (made[0],)
    assert not files.lacks_revocation_list()


def test_openssh_reads_them(files: SSHDFiles) -> None:
    install(files)
    assert "worker-1" in ssh_keygen("-L", "-f", files.certificate_file(PATHS[KEY])).stdout
    assert ssh_keygen("-Q", "-l", "-f", files.folder / REVOKED_KEYS_FILE).returncode == 0
    assert ssh_keygen("-l", "-f", files.folder / USER_AUTHORITIES_FILE).returncode == 0
    found = ssh_keygen("-F", "worker-1", "-f", files.folder / KNOWN_HOSTS_FILE)
    assert "CA" in found.stdout


def test_the_revocation_list_is_made_with_the_first_trust_only(files: SSHDFiles) -> None:
    install(files)
    revoked = files.folder / REVOKED_KEYS_FILE
    assert parse_revocation_list(revoked.read_bytes()) == RevocationList(version=0, generated=NOW)
    revoked.unlink()
    install(files, is_first=False)
    assert not revoked.exists(), "an empty list would let revoked certificates in"
    assert files.lacks_revocation_list()


def test_a_revocation_list_that_is_there_stays(files: SSHDFiles) -> None:
    files.folder.mkdir(mode=0o755)
    (files.folder / REVOKED_KEYS_FILE).write_bytes(b"of the image")
    install(files)
    assert (files.folder / REVOKED_KEYS_FILE).read_bytes() == b"of the image"
    assert files.lacks_revocation_list()


def test_an_empty_revocation_list_of_an_image_is_one(files: SSHDFiles) -> None:
    files.folder.mkdir(mode=0o755)
    (files.folder / REVOKED_KEYS_FILE).touch()
    assert not files.lacks_revocation_list()


def test_files_that_are_the_same_are_not_written_again(files: SSHDFiles) -> None:
    install(files)
    before = {path.name: path.stat().st_ino for path in files.folder.iterdir()}
    install(files)
    assert {path.name: path.stat().st_ino for path in files.folder.iterdir()} == before
    install(files, certificate(KEY, serial=2))
    after = {path.name: path.stat().st_ino for path in files.folder.iterdir()}
    assert {name for name in after if after[name] != before[name]} == {"ssh_host_ed25519_key-cert.pub"}


@pytest.mark.parametrize("parser", ["parse_certificate_file", "parse_key_line", "parse_revocation_list"])
def test_what_our_own_parser_does_not_read_is_not_laid_out(
    files: SSHDFiles, parser: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing = {
        "parse_certificate_file": lambda _: parse_certificate_file(b""),
        "parse_key_line": lambda _: parse_certificate_file(b""),
        "parse_revocation_list": lambda _: parse_revocation_list(b""),
    }[parser]
    monkeypatch.setattr(sshd_files, parser, refusing)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(UnwrittenFiles):
        install(files)
    name = {
        "parse_certificate_file": "ssh_host_ed25519_key-cert.pub",
        "parse_key_line": KNOWN_HOSTS_FILE,
        "parse_revocation_list": REVOKED_KEYS_FILE,
    }[parser]
    assert not [path for path in files.folder.iterdir() if name in path.name]


def program(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts another ssh-keygen into the PATH."""
    folder.mkdir()
    (folder / "ssh-keygen").write_text(f"#!/bin/sh\n{text}\n")
    (folder / "ssh-keygen").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("-L", "ssh_host_ed25519_key-cert.pub"),
        ("-Q", REVOKED_KEYS_FILE),
        ("-l", USER_AUTHORITIES_FILE),
        ("-l", BREAK_GLASS_FILE),
    ],
)
def test_what_openssh_does_not_read_is_not_laid_out(
    files: SSHDFiles, tmp_path: Path, option: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "bin", f'[ "$1" != {option} ]', monkeypatch)
    with pytest.raises(UnwrittenFiles, match="ssh-keygen does not read it"):
        install(files, break_glass_authorities=(BREAK_GLASS,) if name == BREAK_GLASS_FILE else ())
    assert not [path for path in files.folder.iterdir() if name in path.name]


def test_a_good_certificate_is_not_replaced_by_one_that_openssh_does_not_read(
    files: SSHDFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(files)
    before = contents(files)
    program(tmp_path / "bin", '[ "$1" != -L ]', monkeypatch)
    with pytest.raises(UnwrittenFiles):
        install(files, certificate(KEY, serial=2))
    assert contents(files) == before


def test_an_ssh_keygen_that_hangs_is_ended(files: SSHDFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sshd_files, "_TIMEOUT_SECONDS", 0.1)
    program(tmp_path / "bin", "exec sleep 60", monkeypatch)
    with pytest.raises(UnwrittenFiles, match="does not end"):
        install(files)


def test_without_openssh_our_own_parser_suffices(files: SSHDFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    install(files)
    assert files.certificate(PATHS[KEY])


@pytest.mark.parametrize("mode", [0o775, 0o757])
def test_a_folder_that_others_may_write_to_is_refused(files: SSHDFiles, mode: int) -> None:
    files.folder.mkdir()
    files.folder.chmod(mode)
    with pytest.raises(UnwrittenFiles, match="nobody but"):
        install(files)
    assert contents(files) == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(files: SSHDFiles) -> None:
    files.folder.mkdir()
    os.chown(files.folder, 65534, -1)
    with pytest.raises(UnwrittenFiles, match="nobody but"):
        install(files)


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnwrittenFiles, match="cannot write"):
        install(SSHDFiles(tmp_path / "file" / "node-access"))
    with pytest.raises(UnwrittenFiles, match="nobody but"):
        install(SSHDFiles(tmp_path / "file"))


def test_a_symbolic_link_is_replaced_and_not_followed(files: SSHDFiles, tmp_path: Path) -> None:
    files.folder.mkdir(mode=0o755)
    (tmp_path / "shadow").write_text("precious")
    (files.folder / USER_AUTHORITIES_FILE).symlink_to(tmp_path / "shadow")
    install(files)
    assert (tmp_path / "shadow").read_text() == "precious"


def test_withdrawing_leaves_no_trust_and_no_name(files: SSHDFiles) -> None:
    files.withdraw(tuple(PATHS.values()))
    install(files, break_glass_authorities=(BREAK_GLASS,))
    revoked = (files.folder / REVOKED_KEYS_FILE).read_bytes()
    files.withdraw(tuple(PATHS.values()))
    empty = dict.fromkeys((USER_AUTHORITIES_FILE, BREAK_GLASS_FILE, KNOWN_HOSTS_FILE, NODE_NAME_FILE), b"")
    assert contents(files) == {**empty, REVOKED_KEYS_FILE: revoked}


def test_an_unreadable_certificate_counts_as_none(files: SSHDFiles) -> None:
    assert files.certificate(PATHS[KEY]) == ()
    install(files)
    files.certificate_file(PATHS[KEY]).write_bytes(b"x")
    assert files.certificate(PATHS[KEY]) == ()


# Who opens plain logins.


def bring(files: SSHDFiles, content: bytes | None = None) -> None:
    """The image's own break-glass authority, in the two files that it lays down."""
    files.folder.mkdir(mode=0o755)
    line = f"{key_line(OF_IMAGE)} of the safe\n".encode()
    (files.folder / USER_AUTHORITIES_FILE).write_bytes(line)
    (files.folder / IMAGE_BREAK_GLASS_FILE).write_bytes(b"# ours\n\n" + line if content is None else content)


def keys_in(files: SSHDFiles, name: str) -> list[PublicKey]:
    path = files.folder / name
    return list(readable_authorities(path.read_bytes())) if path.exists() else []


def plain(files: SSHDFiles) -> set[PublicKey]:
    """The authorities that open plain logins: sshd trusts them, and the node knows them as break-glass ones."""
    break_glass = keys_in(files, BREAK_GLASS_FILE) + keys_in(files, IMAGE_BREAK_GLASS_FILE)
    return set(break_glass) & set(keys_in(files, USER_AUTHORITIES_FILE))


def test_break_glass_authorities_are_in_both_files_and_online_ones_in_one(files: SSHDFiles) -> None:
    install(files, user_authorities=(ONLINE,), break_glass_authorities=(BREAK_GLASS,))
    assert keys_in(files, USER_AUTHORITIES_FILE) == [ONLINE, BREAK_GLASS]
    assert keys_in(files, BREAK_GLASS_FILE) == [BREAK_GLASS]
    assert ssh_keygen("-l", "-f", files.folder / BREAK_GLASS_FILE).returncode == 0
    install(files, user_authorities=(ONLINE,), version=8)
    assert plain(files) == set(), "the policy names none any more"


def test_the_image_keeps_its_own(files: SSHDFiles) -> None:
    bring(files)
    (files.folder / BREAK_GLASS_FILE).write_text(f"{key_line(PROMOTED)}\n")
    brought = (files.folder / IMAGE_BREAK_GLASS_FILE).read_bytes()
    assert plain(files) == {OF_IMAGE}
    install(files, user_authorities=(ONLINE,), break_glass_authorities=(BREAK_GLASS, OF_IMAGE))
    assert keys_in(files, USER_AUTHORITIES_FILE) == [ONLINE, BREAK_GLASS, OF_IMAGE]
    install(files, user_authorities=(ONLINE,), break_glass_authorities=(BREAK_GLASS,), version=8)
    assert keys_in(files, USER_AUTHORITIES_FILE) == [ONLINE, BREAK_GLASS, OF_IMAGE]
    assert keys_in(files, BREAK_GLASS_FILE) == [BREAK_GLASS], "that file is the policy's"
    assert plain(files) == {BREAK_GLASS, OF_IMAGE}
    files.withdraw(())
    assert plain(files) == {OF_IMAGE} == set(keys_in(files, USER_AUTHORITIES_FILE))
    assert (files.folder / IMAGE_BREAK_GLASS_FILE).read_bytes() == brought


def test_no_moment_of_a_change_opens_or_locks_out(files: SSHDFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    bring(files)
    install(files, user_authorities=(ONLINE,), break_glass_authorities=(BREAK_GLASS, PROMOTED))
    first, second = {BREAK_GLASS, PROMOTED, OF_IMAGE}, {BREAK_GLASS, NEXT_BREAK_GLASS, OF_IMAGE}
    assert plain(files) == first
    moments: list[set[PublicKey]] = []

    def observed(path: Path, content: bytes, **how: Any) -> None:
        write_atomically(path, content, **how)
        found = plain(files)
        moments.append(found)
        assert {BREAK_GLASS, OF_IMAGE} <= found <= first | second
        if NEXT_ONLINE in keys_in(files, USER_AUTHORITIES_FILE):
            assert PROMOTED not in found, "it is an online authority now"

    monkeypatch.setattr(sshd_files, "write_atomically", observed)
    changed = trust(
        version=8,
        user_authorities=(NEXT_ONLINE, PROMOTED),
        break_glass_authorities=(BREAK_GLASS, NEXT_BREAK_GLASS),
    )
    files.install_bundle((files.folder / REVOKED_KEYS_FILE).read_bytes(), changed)
    assert (len(moments), moments[-1]) == (2, second)


@pytest.mark.parametrize("online", [{"user_authorities": (OF_IMAGE,)}, {"host_authorities": (OF_IMAGE,)}])
def test_an_online_authority_in_the_image_s_file_is_refused(files: SSHDFiles, online: dict[str, Any]) -> None:
    bring(files)
    before = contents(files)
    with pytest.raises(UnwrittenFiles, match="would open plain logins"):
        files.install_bundle(_empty(), trust(**online))
    assert {**before, REVOKED_KEYS_FILE: _empty()} == contents(files)


def test_a_line_of_the_image_that_cannot_be_read_is_in_nothing_s_way(files: SSHDFiles) -> None:
    bring(files, f"nonsense\n{key_line(OF_IMAGE)}\n".encode())
    install(files, user_authorities=(ONLINE,))
    assert keys_in(files, USER_AUTHORITIES_FILE) == [ONLINE, OF_IMAGE]
    assert b"nonsense" not in contents(files)[USER_AUTHORITIES_FILE]


@pytest.mark.parametrize("content", [b"#" * 33 * 1024, "a folder"])
def test_an_image_s_file_that_cannot_be_read_leaves_the_trust_and_not_the_revocations(
    files: SSHDFiles, content: bytes | str
) -> None:
    bring(files, content if isinstance(content, bytes) else b"")
    file = files.folder / IMAGE_BREAK_GLASS_FILE
    if not isinstance(content, bytes):
        file.unlink()
        file.mkdir()
    before = contents(files)
    assert files.differ(_empty(), trust()) == (REVOKED_KEYS_FILE,)
    with pytest.raises(UnwrittenFiles, match=IMAGE_BREAK_GLASS_FILE):
        files.install_bundle(_empty(), trust())
    assert contents(files) == {**before, REVOKED_KEYS_FILE: _empty()}
    files.withdraw(())
    assert contents(files)[USER_AUTHORITIES_FILE] == b"", "the former cluster's trust ends all the same"


def _empty() -> bytes:
    return encode_revocation_list(RevocationList(version=1, generated=1))
