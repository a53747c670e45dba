"""The annotation that names a machine's TPM, on a Machine or an InfraMachine."""

from __future__ import annotations

from collections.abc import Mapping

from attestors.tpm.attestation_key import EndorsementKey
from attestors.tpm.endorsement_key_sources.answer import (
    KeyConfirmed,
    KeyContradicted,
    KeySourceAnswer,
    NoInformation,
    SourceName,
    Unclear,
)
from attestors.tpm.endorsement_key_sources.fingerprint import NoFingerprint, fingerprint, read_fingerprint
from attestors.wire.names import ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION


def compare_annotation(
    source: SourceName, annotations: Mapping[str, str], owner: str, endorsement_key: EndorsementKey
) -> KeySourceAnswer:
    """Compare the key with the annotation of ``owner`` (such as ``Machine worker-1``)."""
    value = annotations.get(ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION)
    if value is None:
        return NoInformation(f"{owner} has no annotation {ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION}")
    try:
        expected = read_fingerprint(value)
    except NoFingerprint:
        return Unclear(
            f"annotation {ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION} of {owner} is neither sha256: with 64 lower-case "
            "hexadecimal digits, without line end or space, nor a public key in PEM"
        )
    if expected == fingerprint(endorsement_key):
        return KeyConfirmed(source)
    return KeyContradicted(f"by its annotation, {owner} has another TPM")
