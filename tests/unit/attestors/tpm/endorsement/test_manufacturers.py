"""The chains in fixtures/tpm/certificates, imitations of manufacturers' and swtpm's own: all accepted."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from cryptography import x509

from attestors.tpm.endorsement import (
    CertificateNotYetValid,
    EndorsementKeyMismatch,
    verify_endorsement_certificate,
)
from tests.support.make_endorsement_certificates import EXPECTED, PUBLIC_KEY
from tests.unit.attestors.tpm.endorsement.imitations import FOLDERS, MOMENT, authorities, read, stored, verify
from tests.unit.attestors.tpm.endorsement.support import FIXTURES

NOT_DER: Final = {
    "intel-rsa": "EncodedDefault",
    "intel-elliptic": "EncodedDefault",
    "nuvoton": "InvalidSetOrdering",
    "stmicroelectronics-padded": "ExtraData",
}
"""As the library complains of the genuine ones."""

imitations = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


@imitations
def test_each_is_accepted(folder: Path) -> None:
    verified = verify(folder)
    expected = json.loads((folder / EXPECTED).read_text())
    found = {"manufacturer": verified.manufacturer, "model": verified.model, "version": verified.version}
    assert found == expected
    assert verified.public_key_sha256 == hashlib.sha256((folder / PUBLIC_KEY).read_bytes()).hexdigest()
    assert verified.certificate_sha256 == hashlib.sha256(read(folder).encoded).hexdigest()
    assert verified.not_before <= MOMENT <= verified.not_after


@imitations
def test_each_is_refused_for_the_key_of_another_chip(folder: Path) -> None:
    other = next(candidate for candidate in FOLDERS if candidate != folder)
    with pytest.raises(EndorsementKeyMismatch):
        verify_endorsement_certificate(
            stored(folder),
            endorsement_key=(other / PUBLIC_KEY).read_bytes(),
            authorities=authorities(folder),
            at=MOMENT,
        )


@imitations
def test_each_is_refused_before_its_beginning(folder: Path) -> None:
    beginning = verify(folder).not_before
    with pytest.raises(CertificateNotYetValid):
        verify_endorsement_certificate(
            stored(folder),
            endorsement_key=(folder / PUBLIC_KEY).read_bytes(),
            authorities=authorities(folder),
            at=beginning - timedelta(seconds=1),
        )


@imitations
def test_what_is_behind_the_certificate_does_not_matter(folder: Path) -> None:
    encoded = read(folder).encoded
    for behind in (b"", b"\x00" * 500, b"\xff" * 500, b"\x30\x82 left over from before"):
        assert verify(folder, encoded + behind) == verify(folder)


@pytest.mark.parametrize(("name", "complaint"), NOT_DER.items(), ids=NOT_DER)
def test_a_strict_parser_would_refuse_the_odd_ones(name: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        x509.load_der_x509_certificate(stored(FIXTURES / "tpm/certificates" / name))
