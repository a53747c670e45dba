"""``ssh-sign`` and ``ssh-sign ca``."""

from __future__ import annotations

import argparse
import io
import json
import time
from datetime import timedelta
from pathlib import Path

import pytest

from attestors.wire.ssh.certificate import CertificateKind, SignedCertificate, parse_certificate_line
from attestors.wire.ssh.encoding import mpint, strings, to_base64
from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.options import Extension, ForceCommand, SourceAddress
from attestors.wire.ssh.signatures import public_key_of
from signer.offline.ssh_sign import duration
from tests.support.openssh import public_keys
from tests.unit.signer.authority.ssh.test_secret import PRIVATE, manifest
from tests.unit.signer.offline.conftest import Run

MASTER = ("--master-secret", "master.json")
ANY_CLOCK = ("--any-clock", "--principal", "root")
RFC = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFxsJp7Y9CCvP07yi4B52SLo4Qif/9TgzCeD23p96CdW"
RELEASED = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEoSrpjl/FhAXaVwGjHxYPzMNKLwNwp2E0bVUxU5dUB6"
WEAK = f"ssh-rsa {to_base64(strings((b'ssh-rsa',)) + mpint(65537) + mpint(2**2047 + 1))}"
EMPTY_SALT = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAII91eMaVuKZxal5sbNWX2RYiDudG18ILMim4Q0MBiDpc"


def signed(text: str) -> SignedCertificate:
    assert text.endswith("\n")
    found = parse_certificate_line(text.removesuffix("\n"))
    found.verify()
    return found


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((), RFC),
        (("--generation", "0"), RFC),
        (("--info", "key-ca_emergency_ssh"), RELEASED),
        (("--salt", ""), EMPTY_SALT),
    ],
)
def test_ca_prints_the_derived_public_key(
    run: Run, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], line: str
) -> None:
    assert run("ssh-sign", "ca", *MASTER, *arguments) == 0
    assert capsys.readouterr() == (f"{line}\n", "")


def test_each_generation_and_salt_is_another(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ((), ("--generation", "1"), ("--generation", "2"), ("--salt", "AAAA")):
        assert run("ssh-sign", "ca", *MASTER, *arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(set(lines)) == 4


@pytest.mark.parametrize("file", ["authority.yaml", "authority.json"])
def test_the_authority_of_a_secret(run: Run, capsys: pytest.CaptureFixture[str], file: str) -> None:
    assert run("ssh-sign", "ca", "--authority", file) == 0
    assert capsys.readouterr().out == f"{key_line(public_key_of(PRIVATE))}\n"
    assert run("ssh-sign", "--authority", file, "ed25519.pub") == 0
    assert signed(capsys.readouterr().out).certificate.authority == public_key_of(PRIVATE)


@pytest.mark.parametrize("flag", ["--master-secret", "--authority"])
def test_from_standard_input(
    run: Run, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, flag: str
) -> None:
    file = folder / {"--master-secret": "master.json", "--authority": "authority.yaml"}[flag]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(file.read_bytes())))
    assert run("ssh-sign", flag, "-", "ed25519.pub") == 0
    signed(capsys.readouterr().out)


def test_the_certificate_goes_to_standard_output_and_warnings_do_not(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    before = int(time.time())
    assert run("ssh-sign", *MASTER, "--principal", "root", "--validity", "1h", "ed25519.pub") == 0
    printed = capsys.readouterr()
    certificate = signed(printed.out).certificate
    assert (certificate.kind, list(map(str, certificate.principals))) == (CertificateKind.USER, ["root"])
    assert certificate.serial >= 1
    assert before - 60 <= certificate.valid_after <= int(time.time()) - 60
    assert certificate.valid_before - certificate.valid_after == 3660
    assert certificate.extensions == (Extension.PERMIT_PORT_FORWARDING, Extension.PERMIT_PTY)
    assert certificate.key_id.startswith("ssh-sign/")
    assert f"krl revoke {certificate.serial} --file FILE" in printed.err
    assert certificate.authority.fingerprint in printed.err
    assert "Without the API server, no command takes it back from all of them" in printed.err


def test_each_certificate_has_its_own_serial_and_nonce(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for _ in range(2):
        assert run("ssh-sign", *MASTER, "ed25519.pub") == 0
        found.append(signed(capsys.readouterr().out).certificate)
    assert found[0].serial != found[1].serial
    assert found[0].nonce != found[1].nonce


@pytest.mark.parametrize("name", list(public_keys()))
def test_each_type_of_key(run: Run, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert run("ssh-sign", *MASTER, f"{name}.pub") == 0
    assert signed(capsys.readouterr().out).certificate.public_key == public_keys()[name]


def test_what_can_be_asked_for(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = (
        *("--principal", "root@worker-1", "--principal", "admin@*", "--validity", "1m30s", "--permit", "none"),
        *("--source-address", "192.0.2.0/24", "--source-address", "2001:db8::/32", "--force-command", "uptime -p"),
        *("--key-id", "ticket-7/alice \n"),
    )
    assert run("ssh-sign", *MASTER, *arguments, "ed25519.pub") == 0
    certificate = signed(capsys.readouterr().out).certificate
    assert list(map(str, certificate.principals)) == ["root@worker-1", "admin@*"]
    assert certificate.valid_before - certificate.valid_after == 150
    assert certificate.extensions == ()
    assert [type(one) for one in certificate.critical_options] == [ForceCommand, SourceAddress]
    assert certificate.key_id == "ticket-7/alice%20%0A"


def test_a_user_without_a_name(run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise KeyError

    monkeypatch.setattr("getpass.getuser", nobody)
    assert run("ssh-sign", *MASTER, "ed25519.pub") == 0
    assert signed(capsys.readouterr().out).certificate.key_id == "ssh-sign/unknown"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*MASTER, "--principal", "root,admin", "ed25519.pub"), "PrincipalInvalid"),
        ((*MASTER, "--principal", "*", "ed25519.pub"), "PrincipalInvalid"),
        ((*MASTER, "--principal", "root", "--principal", "root", "ed25519.pub"), "PrincipalsRepeated"),
        ((*MASTER, "--validity", "1h1s", "ed25519.pub"), "LifetimeInvalid"),
        ((*MASTER, "--validity", "24h", "ed25519.pub"), "LifetimeInvalid"),
        ((*MASTER, "--validity", "0s", "ed25519.pub"), "LifetimeInvalid"),
        ((*MASTER, "--validity", "60", "ed25519.pub"), "a duration is a number and a unit"),
        ((*MASTER, "--validity", "", "ed25519.pub"), "a duration is a number and a unit"),
        ((*MASTER, "--any-clock", "--principal", "root", "ed25519.pub"), "--any-clock belongs to --exec"),
        ((*MASTER, "--any-clock", "ca"), "--any-clock belongs to --exec"),
        (("--authority", "authority.yaml", *ANY_CLOCK, "--exec", "worker-1"), "--any-clock belongs to --master-secret"),
        ((*MASTER, *ANY_CLOCK, "--validity", "1h", "--exec", "worker-1"), "--any-clock takes no --validity"),
        ((*MASTER, *ANY_CLOCK, "--principal", "admin", "--exec", "worker-1"), "exactly one --principal"),
        ((*MASTER, "--any-clock", "--exec", "worker-1"), "exactly one --principal"),
        ((*MASTER, "--permit", "agent-forwarding", "ed25519.pub"), "name pty, port-forwarding"),
        ((*MASTER, "--source-address", "192.0.2.1/24", "ed25519.pub"), "OptionInvalid"),
        ((*MASTER, "--force-command", "ls\nrm", "ed25519.pub"), "OptionInvalid"),
        ((*MASTER, "--key-id", "a//b", "ed25519.pub"), "KeyIDInvalid"),
        ((*MASTER, "--generation", "-1", "ed25519.pub"), "GenerationInvalid"),
        ((*MASTER, "--info", "ssh-ca/1", "ed25519.pub"), "InfoInvalid"),
        ((*MASTER, "--salt", "?", "ed25519.pub"), "MasterSecretInvalid"),
        ((*MASTER, "missing.pub"), "cannot be read: No such file"),
        ((*MASTER, "empty.pub"), "is empty"),
        ((*MASTER, "large.pub"), "'large.pub' has more than 16384 bytes"),
        ((*MASTER, "master.json"), "KeyTypeUnsupported"),
        ((*MASTER, "options.pub"), "KeyLineHasOptions"),
        ((*MASTER, "weak.pub"), "KeyTooWeak"),
        ((*MASTER,), "give either KEY.pub"),
        ((*MASTER, "ed25519.pub", "--exec", "worker-1"), "give either KEY.pub"),
        ((*MASTER, "--exec"), "--exec needs a HOST"),
        (("ed25519.pub",), "one of the arguments --master-secret --authority is required"),
        ((*MASTER, "--authority", "authority.yaml", "ed25519.pub"), "not allowed with"),
        (("--master-secret", "-", "-"), "standard input holds either"),
        (("--master-secret", "authority.json", "ed25519.pub"), "MasterSecretInvalid"),
        (("--authority", "master.json", "ed25519.pub"), "SecretInvalid"),
        (("--authority", "hosts.json", "ed25519.pub"), "WrongAuthority"),
        (("--authority", "two.yaml", "ed25519.pub"), "more than one document"),
        (("--authority", "authority.yaml", "--salt", "AAAA", "ed25519.pub"), "--salt belongs to --master-secret"),
        (("--authority", "authority.yaml", "--generation", "1", "ca"), "--generation belongs to"),
        (("--authority", "authority.yaml", "--info", "x", "ca"), "--info belongs to"),
    ],
)
def test_wrong_use_has_exit_code_2_and_signs_nothing(
    run: Run, folder: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    (folder / "empty.pub").touch()
    (folder / "large.pub").write_text("x" * 20_000)
    (folder / "options.pub").write_text(f"restrict {RFC}\n")
    (folder / "weak.pub").write_text(WEAK)
    (folder / "hosts.json").write_text(json.dumps(manifest("production-ssh-host")))
    (folder / "two.yaml").write_text((folder / "authority.yaml").read_text() + "---\na: b\n")
    assert run("ssh-sign", *arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err


def test_no_secret_is_printed(run: Run, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (folder / "authority.yaml").read_text()
    (folder / "broken.yaml").write_text(text.replace("kind: Secret", "kind: Sekret"))
    (folder / "compact.json").write_text((folder / "master.json").read_text().replace(": ", ":"))
    (folder / "broken.json").write_text((folder / "master.json").read_text().replace('"salt"', '"salz"'))
    for arguments in (("--authority", "broken.yaml"), ("--master-secret", "broken.json")):
        assert run("ssh-sign", *arguments, "ca") == 2
    assert run("ssh-sign", "--authority", "authority.yaml", "master.json") == 2
    assert run("ssh-sign", "--authority", "authority.yaml", "authority.yaml") == 2
    assert run("ssh-sign", *MASTER, "compact.json") == 2
    printed = capsys.readouterr()
    for secret in (text.split("ssh-privatekey: ")[1][:40], "AAECAwQF", "ICEiIyQl"):
        assert secret not in printed.out + printed.err


@pytest.mark.parametrize(
    ("text", "seconds"), [("1h", 3600), ("5m", 300), ("90s", 90), ("1h2m3s", 3723), ("0m", 0), ("9999h", 9999 * 3600)]
)
def test_durations(text: str, seconds: int) -> None:
    assert duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "1", "h", "1d", "-1h", "1.5h", "1s1h", "1h ", "٣m", "1h1h", "99999h"])
def test_texts_that_are_no_durations(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="a duration is"):
        duration(text)
