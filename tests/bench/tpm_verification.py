"""Measures the controller's CPU time for TPM evidence: ``python -m tests.bench.tpm_verification``.

It uses the recorded quotes and credentials of ``fixtures/tpm``, without a TPM and without a cache: every run parses
keys, signature and quote from bytes.
"""

from __future__ import annotations

import functools
import secrets
import sys

from attestors.tpm.attestation_key import AttestationKey, EndorsementKey
from attestors.tpm.credential import make_credential
from attestors.tpm.selection import PCRSelection
from tests.bench.verification import RUNS, Verification, measure
from tests.unit.attestors.tpm.support import Evidence, recording


def measure_tpm_verification(runs: int = RUNS) -> list[Verification]:
    """Verify each recorded quote, and make a credential for each recorded endorsement key."""
    measured = []
    for recorded in recording()["quotes"]:
        parts = (bytes.fromhex(recorded[part]) for part in ("attestationKey", "quote", "signature", "pcrValues"))
        evidence, extra_data = Evidence(*parts), bytes.fromhex(recorded["extraData"])
        selection = PCRSelection.parse(recorded["pcrSelection"])
        verify = functools.partial(evidence.verify, selection, extra_data)
        measured.append(measure(f"TPM quote, {recorded['title']}", verify, runs))
    for recorded in recording()["credentials"]:
        ek_public, ak_public = (bytes.fromhex(recorded[key]) for key in ("endorsementKey", "attestationKey"))
        make = functools.partial(_make_credential, ek_public, ak_public)
        measured.append(measure(f"TPM credential, {recorded['template']}", make, runs))
    return measured


def _make_credential(ek_public: bytes, ak_public: bytes) -> object:
    keys = EndorsementKey.decode(ek_public), AttestationKey.decode(ak_public)
    return make_credential(*keys, bytes(32), random_bytes=secrets.token_bytes)


def main() -> int:
    """Print the measurements."""
    for measured in measure_tpm_verification():
        print(measured)
    return 0


if __name__ == "__main__":
    sys.exit(main())
