"""``python -m attestors.tpm``: what it accepts, refuses and says."""

from __future__ import annotations

import io
import ssl
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import load_der_public_key

from attestors.tpm.__main__ import EXIT_REFUSED, EXIT_USAGE, main
from tests.support import endorsement_certificates as write
from tests.unit.attestors.tpm.endorsement.support import authority_draft, elliptic_key, endorsement
from tests.unit.attestors.tpm.support import FIXTURES, recording

CERTIFICATES = FIXTURES / "tpm" / "certificates"
SWTPM = CERTIFICATES / "swtpm-rsa"
STORED = SWTPM / "endorsement-key-certificate.bin"
AUTHORITIES = ("--roots", str(SWTPM / "roots.pem"), "--intermediates", str(SWTPM / "intermediates.pem"))


def run(*arguments: str | Path) -> int:
    """Exit code, also where argparse ends the process."""
    try:
        return main([str(argument) for argument in arguments])
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else -1


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    lines = capsys.readouterr().out.splitlines()
    return {name: value.strip() for name, _, value in (line.partition(" ") for line in lines)}


def test_a_certificate(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("endorsement", STORED, *AUTHORITIES) == 0
    said = printed(capsys)
    assert said["verified"] == "a manufacturer vouches for this endorsement key"
    assert said["manufacturer"] == "id:00001014"
    assert "the certificate's own; compare a TPM's key with --key" in said["key"]
    assert run("endorsement", STORED, *AUTHORITIES, "--key", SWTPM / "endorsement-key.der") == 0
    assert printed(capsys) == {**said, "key": "the TPM's"}


def test_files_and_folders_of_every_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pem = tmp_path / "ek.pem"
    pem.write_text(ssl.DER_cert_to_PEM_cert(STORED.read_bytes()))
    roots = tmp_path / "roots"
    roots.mkdir()
    (roots / "ca.pem").write_bytes((SWTPM / "roots.pem").read_bytes())
    (roots / ".hidden").write_bytes(b"garbage")
    chain = tmp_path / "chain"
    chain.write_bytes(ssl.PEM_cert_to_DER_cert((SWTPM / "intermediates.pem").read_text()) + b"\xff" * 20)
    assert run("endorsement", pem, "--roots", roots, "--chain", chain) == 0
    others = (CERTIFICATES / "intel-rsa" / "intermediates.pem").read_bytes()
    chain.write_bytes(others + b"the next one\n" + (SWTPM / "intermediates.pem").read_bytes())
    assert run("endorsement", pem, "--roots", roots, "--chain", chain) == 0
    assert run("endorsement", pem, "--roots", roots) == EXIT_REFUSED
    assert "refused: No endorsement authority is configured by the name" in capsys.readouterr().out


def test_the_key_as_a_tpm_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``tpm2_createek --public`` and ``tpm2_readpublic --output`` write it so, if they are not told otherwise."""
    spki = load_der_public_key((SWTPM / "endorsement-key.der").read_bytes())
    assert isinstance(spki, rsa.RSAPublicKey)
    recorded = bytes.fromhex(recording()["credentials"][0]["endorsementKey"])
    public = recorded[:-256] + spki.public_numbers().n.to_bytes(256, "big")
    key = tmp_path / "ek.pub"
    for shown in (len(public).to_bytes(2, "big") + public, public):
        key.write_bytes(shown)
        assert run("endorsement", STORED, *AUTHORITIES, "--key", key) == 0
        assert printed(capsys)["key"] == "the TPM's"
    for shown, words in ((recorded, "another key"), (public[:-1], "TPMT_PUBLIC"), (b"", "TPMT_PUBLIC")):
        key.write_bytes(shown)
        assert run("endorsement", STORED, *AUTHORITIES, "--key", key) == EXIT_REFUSED
        assert words in capsys.readouterr().out


def test_a_certificate_that_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = CERTIFICATES / "intel-rsa" / "endorsement-key.der"
    assert run("endorsement", STORED, *AUTHORITIES, "--key", other) == EXIT_REFUSED
    assert "refused: The certificate is for another key" in capsys.readouterr().out
    assert run("endorsement", STORED, *AUTHORITIES, "--at", "2001-01-01T00:00:00Z") == EXIT_REFUSED
    assert "is not valid before" in capsys.readouterr().out
    garbage = tmp_path / "garbage"
    for content in (b"", b"garbage", b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"):
        garbage.write_bytes(content)
        assert run("endorsement", garbage, *AUTHORITIES) == EXIT_REFUSED
        assert capsys.readouterr().out.startswith("refused: The endorsement key certificate ")


def test_a_name_that_the_terminal_cannot_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, key = write.common_name("Pr\u00fcfstelle", tag=0x0C), elliptic_key("root")
    root = tmp_path / "root"
    root.write_bytes(authority_draft(name, name, key).signed(key, write.SHA256_ECDSA))
    certificate = tmp_path / "certificate"
    certificate.write_bytes(endorsement(signer=key, issuer=name))
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "ascii"))
    assert run("endorsement", certificate, "--roots", root) == 0
    assert rb"CN=Pr\xfcfstelle" in written.getvalue()


def test_wrong_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, words in (
        ((), "COMMAND"),
        (("endorsement", STORED), "--roots"),
        (("endorsement", tmp_path / "none", *AUTHORITIES), "none: No such file or directory"),
        (("endorsement", tmp_path, *AUTHORITIES), "Is a directory"),
        (("endorsement", STORED, "--roots", tmp_path), "No endorsement root authority"),
        (("endorsement", STORED, "--roots", STORED), "is not a certificate authority"),
        (("endorsement", STORED, *AUTHORITIES, "--at", "yesterday"), "a time is of the form"),
        (("endorsement", STORED, *AUTHORITIES, "--at", "2026-01-01T00:00:00"), "has a zone"),
    ):
        assert run(*arguments) == EXIT_USAGE, arguments
        assert words in capsys.readouterr().err


RECORDED: list[dict[str, Any]] = recording()["quotes"]


def files_of(recorded: dict[str, Any], folder: Path, *, sized: bool) -> list[str]:
    """What tpm2-tools would have written of this quote, and the arguments that name it."""
    public = bytes.fromhex(recorded["attestationKey"])
    content = {
        "ak": len(public).to_bytes(2, "big") + public if sized else public,
        "quote": bytes.fromhex(recorded["quote"]),
        "signature": bytes.fromhex(recorded["signature"]),
        "values": bytes.fromhex(recorded["pcrValues"]),
    }
    for name, data in content.items():
        (folder / name).write_bytes(data)
    files = [argument for name in content for argument in (f"--{name}", str(folder / name))]
    return ["quote", *files, "--pcrs", recorded["pcrSelection"], "--nonce", recorded["extraData"]]


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda recorded: str(recorded["title"]))
def test_a_quote(recorded: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for sized in (True, False):
        assert run(*files_of(recorded, tmp_path, sized=sized)) == 0
        said = printed(capsys)
        values = "".join(value for name, value in said.items() if name.startswith("sha"))
        assert values == recorded["pcrValues"]


def test_a_quote_that_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = files_of(RECORDED[0], tmp_path, sized=True)
    assert run(*arguments[:-1], "00ff") == EXIT_REFUSED
    assert "refused: the quote was made for another nonce" in capsys.readouterr().out
    assert run(*arguments[:-3], "sha256:23", *arguments[-2:]) == EXIT_REFUSED
    assert "refused: the quote covers " in capsys.readouterr().out
    for name, words in (("ak", "TPMT_PUBLIC"), ("signature", "TPMT_SIGNATURE"), ("quote", "did not sign")):
        good = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(good[:-1])
        assert run(*arguments) == EXIT_REFUSED
        assert words in capsys.readouterr().out
        (tmp_path / name).write_bytes(good)


@pytest.mark.parametrize(
    ("flag", "value"), [("--pcrs", "sha1:0"), ("--nonce", ""), ("--nonce", "xy"), ("--nonce", "00" * 67)]
)
def test_a_quote_asked_for_wrongly(flag: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*files_of(RECORDED[0], tmp_path, sized=True), f"{flag}={value}") == EXIT_USAGE
    assert f"argument {flag}: " in capsys.readouterr().err
