"""The software TPM of tests and demo: its parts are installed, its state is kept, and it is removed completely."""

from __future__ import annotations

import os

import pytest
from cryptography import x509

from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.processes import wait_until
from tests.support.software_tpm import (
    ENDORSEMENT_CERTIFICATES,
    SoftwareTPM,
    find_swtpm,
    find_tpm_library,
    listens,
)

pytestmark = pytest.mark.slow


def test_parts_are_installed() -> None:
    """Other modules skip tests without these parts; this test fails if they are required."""
    try:
        find_swtpm()
        find_tpm_library()
    except MissingPart as missing:
        skip_or_fail(missing)


def make(same_authority_as: SoftwareTPM | None = None) -> SoftwareTPM:
    try:
        return SoftwareTPM(same_authority_as=same_authority_as)
    except MissingPart as missing:
        skip_or_fail(missing)


def test_restart_keeps_address_and_state() -> None:
    with make() as tpm:
        tcti, process, certificate = tpm.tcti, tpm.process_id, tpm.endorsement_certificate(0x01C00002)
        tpm.restart()
        assert tpm.tcti == tcti
        assert tpm.process_id != process
        assert tpm.endorsement_certificate(0x01C00002) == certificate
        tpm.stop()
        assert not listens(tpm.port + 1)


def test_authorities() -> None:
    with make() as first, make(first) as second, make() as third:
        assert second.root_certificate == first.root_certificate != third.root_certificate
        issuers = [x509.load_pem_x509_certificate(tpm.issuer_certificate) for tpm in (first, second, third)]
        certificates = set()
        for tpm, issuer in zip((first, second, third), issuers, strict=True):
            for index in ENDORSEMENT_CERTIFICATES:
                certificate = x509.load_der_x509_certificate(tpm.endorsement_certificate(index))
                certificate.verify_directly_issued_by(issuer)
                certificates.add(certificate)
        assert len(certificates) == 6


def test_it_is_removed_completely() -> None:
    with make() as tpm:
        process, folder = tpm.process_id, tpm.authority.parent
    assert not folder.exists()
    wait_until(lambda: not _exists(process), "swtpm is gone")


def _exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
