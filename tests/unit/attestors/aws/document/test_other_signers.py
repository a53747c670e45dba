"""Documents signed by programs that are not ours verify; what they refuse, we refuse."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs7

from attestors.aws.document import IdentityDocumentRefused, verify_identity_document
from tests.support import aws_documents as aws
from tests.support.aws_documents import REGION, authority, certificates, document

_AWS = authority(REGION)


@pytest.mark.parametrize("capabilities", [True, False])
@pytest.mark.parametrize("embedded", [True, False])
def test_pyca(capabilities: bool, embedded: bool) -> None:
    options = [pkcs7.PKCS7Options.Binary]
    options += [] if capabilities else [pkcs7.PKCS7Options.NoCapabilities]
    options += [] if embedded else [pkcs7.PKCS7Options.NoCerts]
    builder = pkcs7.PKCS7SignatureBuilder().set_data(document())
    signed = builder.add_signer(_AWS.certificate, _AWS.key, hashes.SHA256()).sign(Encoding.DER, options)
    assert verify_identity_document(signed, certificates()).instance_id == aws.INSTANCE


def openssl(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("openssl is not installed")
    return subprocess.run([program, *arguments], cwd=folder, capture_output=True, timeout=60, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    key = _AWS.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "key.pem").write_bytes(key)
    (tmp_path / "certificate.pem").write_bytes(_AWS.certificate.public_bytes(Encoding.PEM))
    (tmp_path / "document").write_bytes(document())
    return tmp_path


@pytest.mark.parametrize(
    "options", [(), ("-stream",), ("-noattr",), ("-nocerts",), ("-stream", "-nocerts", "-noattr")], ids="".join
)
def test_openssl_signs(folder: Path, options: tuple[str, ...]) -> None:
    done = openssl(
        folder, "cms", "-sign", "-binary", "-nodetach", "-md", "sha256", "-in", "document", "-signer",
        "certificate.pem", "-inkey", "key.pem", "-outform", "DER", "-out", "signed", *options,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    verified = verify_identity_document((folder / "signed").read_bytes(), certificates())
    assert verified.instance_id == aws.INSTANCE


def openssl_takes(folder: Path, signed: bytes, *options: str) -> bool:
    (folder / "signed").write_bytes(signed)
    done = openssl(
        folder, "cms", "-verify", "-inform", "DER", "-in", "signed", "-binary", "-certfile", "certificate.pem",
        "-noverify", *options,
    )  # fmt: skip
    return done.returncode == 0 and done.stdout != b""


def test_openssl_verifies_what_the_test_signer_writes(folder: Path) -> None:
    assert openssl_takes(folder, aws.sign(document()), "-nointern")


def test_attack_that_openssl_takes_as_aws_documents_its_use(folder: Path) -> None:
    """With ``-noverify`` and without ``-nointern``, the certificate inside signs whatever it likes."""
    attacker = authority("an attacker")
    content = document()
    forged = aws.signed_data(
        aws.signer_info(attacker, content),
        content=aws.streamed_content(content),
        between=aws.tlv(0xA0, attacker.der),
    )
    assert openssl_takes(folder, forged)
    assert not openssl_takes(folder, forged, "-nointern")
    with pytest.raises(IdentityDocumentRefused):
        verify_identity_document(forged, certificates())
