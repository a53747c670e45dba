"""The chains in fixtures/tpm/certificates, read once: imitations of manufacturers', and swtpm's own."""

from __future__ import annotations

import functools
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from attestors.tpm.endorsement import (
    EndorsementAuthorities,
    VerifiedEndorsementCertificate,
    load_endorsement_authorities,
    verify_endorsement_certificate,
)
from attestors.tpm.endorsement.certificate import Certificate, read_stored_certificate
from tests.support.make_endorsement_certificates import CERTIFICATE, INTERMEDIATES, PUBLIC_KEY, ROOTS
from tests.unit.attestors.tpm.endorsement.support import FIXTURES

MOMENT: Final = datetime(2030, 1, 1, tzinfo=UTC)
"""Within the validity of all of them."""
FOLDERS: Final = tuple(sorted(path for path in (FIXTURES / "tpm/certificates").iterdir() if path.is_dir()))


@functools.cache
def authorities(folder: Path) -> EndorsementAuthorities:
    return load_endorsement_authorities(
        roots=[(folder / ROOTS).read_bytes()], intermediates=[(folder / INTERMEDIATES).read_bytes()]
    )


@functools.cache
def stored(folder: Path) -> bytes:
    return (folder / CERTIFICATE).read_bytes()


@functools.cache
def read(folder: Path) -> Certificate:
    return read_stored_certificate(stored(folder))


def verify(folder: Path, certificate: bytes | None = None) -> VerifiedEndorsementCertificate:
    return verify_endorsement_certificate(
        stored(folder) if certificate is None else certificate,
        endorsement_key=(folder / PUBLIC_KEY).read_bytes(),
        authorities=authorities(folder),
        at=MOMENT,
    )
