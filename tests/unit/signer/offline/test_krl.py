"""``krl revoke``: what is revoked, in which file, and what happens to the former one."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from attestors.wire.ssh.certificate import SignedCertificate
from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.keys import PublicKey
from attestors.wire.ssh.krl import (
    AnyAuthority,
    CertificateRevocations,
    Fingerprint,
    RevocationList,
    SerialRange,
    encode_revocation_list,
    parse_revocation_list,
)
from attestors.wire.ssh.signatures import public_key_of, sign
from signer.offline import revocation_file
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.openssh import find_openssh, public_keys
from tests.unit.attestors.wire.ssh.test_certificate import AUTHORITY, USER
from tests.unit.attestors.wire.ssh.test_krl import HEADER, section
from tests.unit.signer.offline.conftest import Run

KEYS = public_keys()
ANY = AnyAuthority()


@pytest.fixture(autouse=True)
def _ssh_keygen() -> None:
    try:
        find_openssh("ssh-keygen")
    except MissingPart as missing:
        skip_or_fail(missing)


def certificate_line(serial: int = 7, key_id: str = "grant/a", authority: PublicKey | None = None) -> str:
    changed = replace(USER, serial=serial, key_id=key_id, authority=authority or public_key_of(AUTHORITY))
    return SignedCertificate(changed, sign(AUTHORITY, changed.signed_bytes)).line


def in_file(name: str = "revoked.krl") -> RevocationList:
    return parse_revocation_list(Path(name).read_bytes())


def certificates_of(**what: object) -> tuple[CertificateRevocations, ...]:
    return (CertificateRevocations(ANY, **what),)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7", {"serials": (SerialRange(7, 7),)}),
        ("7-9", {"serials": (SerialRange(7, 9),)}),
        ("serial:7", {"serials": (SerialRange(7, 7),)}),
        ("grant/team-a/night", {"key_ids": ("grant/team-a/night",)}),
        ("id:7", {"key_ids": ("7",)}),
        ("id:ed25519.pub", {"key_ids": ("ed25519.pub",)}),
        ("alice@example.org", {"key_ids": ("alice@example.org",)}),
        ("uid:alice", {"key_ids": ("uid:alice",)}),
    ],
)
@pytest.mark.usefixtures("folder")
def test_serials_and_key_ids(run: Run, text: str, expected: dict[str, object]) -> None:
    assert run("krl", "revoke", text, "--file", "revoked.krl") == 0
    assert in_file().certificates == certificates_of(**expected)


@pytest.mark.usefixtures("folder")
def test_keys_by_file_line_and_fingerprint(run: Run) -> None:
    line = key_line(KEYS["nistp521"])
    arguments = ("sk-ed25519.pub", "key:rsa-3072.pub", line, KEYS["nistp384"].fingerprint)
    assert run("krl", "revoke", *arguments, "--file", "revoked.krl") == 0
    found = in_file()
    assert set(found.keys) == {KEYS["sk-ed25519"], KEYS["rsa-3072"], KEYS["nistp521"]}
    assert found.fingerprints == (Fingerprint.of(KEYS["nistp384"]),)


def test_certificates_by_their_serial_or_else_by_their_key_id(run: Run, folder: Path) -> None:
    """That certificate, and not all of the key."""
    (folder / "user-cert.pub").write_text(f"{certificate_line()} alice\n")
    assert run("krl", "revoke", "user-cert.pub", certificate_line(0), "--file", "revoked.krl") == 0
    authority = public_key_of(AUTHORITY)
    assert in_file().certificates == (CertificateRevocations(authority, (SerialRange(7, 7),), ("grant/a",)),)
    assert in_file().keys == ()


@pytest.mark.usefixtures("folder")
def test_of_one_authority(run: Run) -> None:
    assert run("krl", "revoke", "7", "grant/a", "--ca", "nistp256.pub", "--file", "revoked.krl") == 0
    assert in_file().certificates == (CertificateRevocations(KEYS["nistp256"], (SerialRange(7, 7),), ("grant/a",)),)


def test_weak_keys_can_be_revoked(run: Run, folder: Path) -> None:
    made = subprocess.run(["ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-N", "", "-f", "weak"], check=False)
    assert made.returncode == 0
    assert run("krl", "revoke", "weak.pub", "--file", "revoked.krl") == 0
    assert len(in_file().keys) == 1


def test_each_revocation_is_the_next_version(run: Run, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "revoked.krl").touch()
    before = int(time.time())
    for number in range(1, 4):
        assert run("krl", "revoke", str(number * 10), "--file", "revoked.krl") == 0
        assert in_file().version == number
    assert before <= in_file().generated <= int(time.time())
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1] == "revoked.krl: version 3, 1 added, 3 entries"
    assert "it ends no session that is open" in printed.err
    assert "not installed" not in printed.err


@pytest.mark.usefixtures("folder")
def test_as_json(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("krl", "revoke", "7", "8", "x", "--file", "revoked.krl", "--output", "json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "file": "revoked.krl",
        "version": 1,
        "added": 2,
        "entries": 2,
        "checked": "OpenSSH",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0", "SerialZero"),
        ("0-9", "SerialZero"),
        ("9-7", "SerialRangeInvalid"),
        ("99999999999999999999", "SerialRangeInvalid"),
        ("serial:x", "is no serial number"),
        ("missing.pub", "there is no file"),
        ("key:missing", "cannot be read"),
        ("two words", "is no key id"),
        ("", "is no key id"),
        ("id:a\n", "is no key id"),
        ("SHA256:x", "not a fingerprint"),
        ("ssh-ed25519 AAAA", "Malformed"),
        ("options.pub", "KeyLineMalformed"),
        ("mismatch.pub", "KeyLineTypeMismatch"),
        ("nothing-cert.pub", "neither serial number nor key id"),
    ],
)
def test_what_cannot_be_revoked_changes_nothing(
    run: Run, folder: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    (folder / "options.pub").write_text(f"restrict {key_line(KEYS['ed25519'])}\n")
    (folder / "mismatch.pub").write_text(key_line(KEYS["ed25519"]).replace("ssh-ed25519", "ssh-rsa"))
    (folder / "nothing-cert.pub").write_text(certificate_line(0, ""))
    assert run("krl", "revoke", "7", "--file", "revoked.krl") == 0
    before = (folder / "revoked.krl").read_bytes()
    capsys.readouterr()
    assert run("krl", "revoke", "8", text, "--file", "revoked.krl") == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert (folder / "revoked.krl").read_bytes() == before


@pytest.mark.parametrize(
    "content",
    [b"ssh-ed25519 AAAA\n", b"SSHKRL\n\0", HEADER + section(b"\x20" + bytes([0, 0, 0, 8, *bytes(8)]))],
    ids=["a list of keys", "cut off", "serial 0"],
)
def test_another_file_is_left_alone(run: Run, folder: Path, capsys: pytest.CaptureFixture[str], content: bytes) -> None:
    """Overwriting it would take back what it revokes."""
    (folder / "revoked.krl").write_bytes(content)
    assert run("krl", "revoke", "7", "--file", "revoked.krl") == 2
    assert "is not changed" in capsys.readouterr().err
    assert (folder / "revoked.krl").read_bytes() == content


def test_the_file_is_replaced_and_never_written_into(run: Run, folder: Path) -> None:
    """sshd may read it at any moment. Whoever has the former one open goes on reading that."""
    assert run("krl", "revoke", "7", "--file", "revoked.krl") == 0
    with (folder / "revoked.krl").open("rb") as former:
        assert run("krl", "revoke", "9", "--file", "revoked.krl") == 0
        assert parse_revocation_list(former.read()).version == 1
    assert in_file().version == 2
    assert [file.name for file in folder.iterdir() if file.name.startswith(".")] == []


def test_mode_and_symbolic_link_stay(run: Run, folder: Path) -> None:
    (folder / "elsewhere").mkdir()
    real = folder / "elsewhere" / "real.krl"
    real.touch(mode=0o640)
    real.chmod(0o640)
    (folder / "revoked.krl").symlink_to(real)
    assert run("krl", "revoke", "7", "--file", "revoked.krl") == 0
    assert (folder / "revoked.krl").is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert parse_revocation_list(real.read_bytes()).version == 1
    assert run("krl", "revoke", "7", "--file", "new.krl") == 0
    assert stat.S_IMODE((folder / "new.krl").stat().st_mode) == 0o644


def test_a_list_that_openssh_does_not_read_is_not_installed(
    run: Run, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("krl", "revoke", "7", "--file", "revoked.krl") == 0
    before = (folder / "revoked.krl").read_bytes()
    broken = HEADER + section(b"\x20" + bytes([0, 0, 0, 8, *bytes(8)]))
    monkeypatch.setattr(revocation_file, "encode_revocation_list", lambda revocations: broken)
    expected = parse_revocation_list(before).with_entries(generated=5)
    monkeypatch.setattr(revocation_file, "_with", lambda former, _: expected)
    answers = {broken: expected}
    monkeypatch.setattr(
        revocation_file, "parse_revocation_list", lambda data: answers.get(data) or parse_revocation_list(data)
    )
    assert run("krl", "revoke", "9", "--file", "revoked.krl") == 1
    assert "ssh-keygen -Q does not read the new list" in capsys.readouterr().err
    assert [file.name for file in folder.iterdir() if "krl" in file.name] == ["revoked.krl"]
    assert (folder / "revoked.krl").read_bytes() == before


def test_a_list_that_reads_back_otherwise_is_not_installed(
    run: Run, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = encode_revocation_list(RevocationList(1, 1))
    monkeypatch.setattr(revocation_file, "encode_revocation_list", lambda revocations: empty)
    assert run("krl", "revoke", "9", "--file", "revoked.krl") == 1
    assert "does not read back" in capsys.readouterr().err
    assert not (folder / "revoked.krl").exists()


@pytest.mark.usefixtures("folder")
def test_without_ssh_keygen_our_own_reader_checks(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    assert run("krl", "revoke", "7", "--file", "revoked.krl", "--output", "json") == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["checked"] == "OwnReaderAlone"
    assert "OpenSSH has not read the file" in printed.err


def test_a_folder_that_is_not_there(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("krl", "revoke", "7", "--file", "nowhere/revoked.krl") == 1
    assert "cannot be replaced: No such file or directory" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_none_of_several_at_once_is_lost() -> None:
    code = "import sys; from signer.offline.main import main; sys.exit(main(sys.argv[1:]))"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code, "krl", "revoke", str(number), "--file", "revoked.krl"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for number in range(10, 30, 2)
    ]
    assert [one.wait(60) for one in running] == [0] * 10
    assert in_file().version == 10
    assert in_file().certificates == certificates_of(serials=tuple(SerialRange(n, n) for n in range(10, 30, 2)))


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_standard_output_that_cannot_be_written() -> None:
    code = "import sys; from signer.offline.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "ssh-sign", "ca", "--master-secret", "master.json"]
    with Path("/dev/full").open("wb") as output:
        done = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert (done.returncode, "standard output cannot be written" in done.stderr) == (os.EX_IOERR, True)
