"""What was recorded on real instances, and the command that verifies it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from attestors.aws.document import (
    IdentityDocumentMalformed,
    SignatureRefused,
    read_recorded,
    shipped_certificates,
    verify_identity_document,
)
from attestors.aws.document.__main__ import main
from tests.support import aws_documents as aws

_RECORDINGS = Path(__file__).parents[5] / "fixtures" / "aws"
_GENUINE = _RECORDINGS / "ap-southeast-2.rsa2048"


def test_genuine_document() -> None:
    pkcs7 = read_recorded(_GENUINE.read_bytes())
    document = verify_identity_document(pkcs7, shipped_certificates())
    assert document.provider_id == "aws:///ap-southeast-2a/i-0c5541936caf78c12"
    assert document.account_id == "189292791360"
    content = (_RECORDINGS / "ap-southeast-2.json").read_bytes()
    assert content in pkcs7


def test_genuine_document_with_one_bit_changed() -> None:
    """In the content, the attributes, the signer's name or the signature."""
    pkcs7 = read_recorded(_GENUINE.read_bytes())
    reasons = set()
    for place in (b"i-0c5541936caf78c12", b"260216003828Z", b"Seattle", pkcs7[-20:]):
        position = pkcs7.index(place) + 3
        changed = pkcs7[:position] + bytes([pkcs7[position] ^ 1]) + pkcs7[position + 1 :]
        with pytest.raises(SignatureRefused) as caught:
            verify_identity_document(changed, shipped_certificates())
        reasons.add(str(caught.value))
    assert len(reasons) == 3


def test_test_signer_writes_what_ec2_writes() -> None:
    """Up to the content, and from there to the signature, apart from names, times and digests."""
    genuine = read_recorded(_GENUINE.read_bytes())
    ours = aws.sign((_RECORDINGS / "ap-southeast-2.json").read_bytes(), aws.authority(aws.REGION))
    assert len(ours) == len(genuine)
    header = genuine.index(b"{")
    assert ours[:header] == genuine[:header]
    signer = ours.index(b"Amazon Web Services LLC")
    # EC2's certificates have PrintableString where pyca writes UTF8String.
    assert ours[:signer].replace(b"\x0c", b"\x13") == genuine[:signer]


def test_forms_of_the_text() -> None:
    pkcs7 = aws.sign(aws.document())
    text = aws.recorded(pkcs7)
    for form in (
        text,
        text + b"\n",
        text.replace(b"\n", b"\r\n"),
        text.replace(b"\n", b""),
        b"-----BEGIN PKCS7-----\n" + text + b"\n-----END PKCS7-----\n",
    ):
        assert read_recorded(form) == pkcs7


def test_size_of_the_text() -> None:
    assert read_recorded(b"MIAG".ljust(16384)) == bytes.fromhex("308006")
    with pytest.raises(IdentityDocumentMalformed, match="is too large"):
        read_recorded(b"MIAG".ljust(16385))


@pytest.mark.parametrize("text", [b"MIAG!", b"MIA", "MIAG\u00e9".encode(), b"x" * 20000, b"-----BEGIN CMS-----\nMIAG"])
def test_not_the_text(text: bytes) -> None:
    with pytest.raises(IdentityDocumentMalformed):
        read_recorded(text)


class TestCommand:
    def test_verifies(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main([str(_GENUINE)]) == 0
        assert "aws:///ap-southeast-2a/i-0c5541936caf78c12 of account 189292791360\n" in capsys.readouterr().out

    def test_refuses(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        forged = tmp_path / "forged"
        forged.write_bytes(aws.recorded(aws.sign(aws.document())))
        assert main([str(forged), str(_GENUINE)]) == 1
        lines = capsys.readouterr().out.splitlines()
        assert "forged: refused: the instance identity document is not signed with the certificate of" in lines[0]
        assert "aws:///ap-southeast-2a/" in lines[1]

    def test_further_regions(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        new = aws.authority("eu-west-7")
        (tmp_path / "eu-west-7.pem").write_bytes(new.certificate.public_bytes(Encoding.PEM))
        recorded = tmp_path.parent / "recorded"
        recorded.write_bytes(aws.recorded(aws.sign(aws.document(region="eu-west-7"), new)))
        assert main(["--certificates", str(tmp_path), str(recorded)]) == 0
        assert "aws:///eu-west-7a/" in capsys.readouterr().out
        assert main([str(recorded)]) == 1

    def test_what_is_not_there(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main([str(tmp_path / "nothing")]) == 2
        assert main(["--certificates", str(tmp_path), str(_GENUINE)]) == 2
        assert "must hold 1 to 256 certificates" in capsys.readouterr().err

    def test_as_a_program(self) -> None:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", "attestors.aws.document", str(_GENUINE)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
