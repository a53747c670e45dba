from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from signer.authority import load_certificate_authority
from signer.testing.certificates import EncryptionAlgorithm, new_cluster_certificate_authority
from tests.unit.signer.authority.support import openssl

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("algorithm", "label"),
    [
        (EncryptionAlgorithm.RSA_2048, b"RSA PRIVATE KEY"),
        (EncryptionAlgorithm.ECDSA_P256, b"EC PRIVATE KEY"),
        (EncryptionAlgorithm.ECDSA_P384, b"EC PRIVATE KEY"),
    ],
)
def test_as_cluster_api_makes_it(algorithm: EncryptionAlgorithm, label: bytes, tmp_path: Path) -> None:
    made = new_cluster_certificate_authority(algorithm, now=NOW)
    path = tmp_path / "ca.crt"
    path.write_bytes(made.certificate)
    text = openssl("x509", "-noout", "-text", "-in", str(path))
    assert "Serial Number: 0 (0x0)" in text
    assert "Subject: CN = kubernetes" in text
    assert "CA:TRUE, pathlen:0" in text
    assert "Digital Signature, Key Encipherment, Certificate Sign" in text
    assert "Not Before: Mar  1 11:55:00 2026 GMT" in text
    assert "Not After : Feb 27 12:00:00 2036 GMT" in text
    openssl("verify", "-check_ss_sig", "-attime", str(int(NOW.timestamp())), "-CAfile", str(path), str(path))
    assert made.private_key.startswith(b"-----BEGIN " + label)
    load_certificate_authority(made.secret_data, now=NOW)


def test_options() -> None:
    made = new_cluster_certificate_authority(
        EncryptionAlgorithm.ECDSA_P256, common_name="other", serial_number=5, now=NOW, duration=timedelta(hours=1)
    )
    loaded = load_certificate_authority(made.secret_data, now=NOW)
    assert loaded.certificate.not_after == NOW + timedelta(hours=1)
    assert b"other" in loaded.certificate.subject


def test_the_private_key_is_not_in_the_representation() -> None:
    made = new_cluster_certificate_authority(EncryptionAlgorithm.ECDSA_P256)
    assert "PRIVATE" not in repr(made)
