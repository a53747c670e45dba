"""Software TPMs for the tests of the TPM attestor."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.software_tpm import SoftwareTPM


@pytest.fixture(scope="session")
def software_tpm() -> Iterator[SoftwareTPM]:
    """One for all tests that leave it as it was."""
    try:
        tpm = SoftwareTPM()
    except MissingPart as missing:
        skip_or_fail(missing)
    with tpm:
        yield tpm


@pytest.fixture
def own_tpm(software_tpm: SoftwareTPM) -> Iterator[SoftwareTPM]:
    """One that the test may spoil; its certificates are from the same authority."""
    with SoftwareTPM(same_authority_as=software_tpm) as tpm:
        yield tpm
