"""The annotation that says which TPM is in a machine, on whichever object it stands."""

from __future__ import annotations

from collections.abc import Mapping

from attestors.tpm.attestation_key import EndorsementKey
from attestors.tpm.endorsement_key_sources.answer import (
    KeySourceAnswer,
    NotSaid,
    Owned,
    OwnedByOthers,
    SourceName,
    Unclear,
)
from attestors.tpm.endorsement_key_sources.fingerprint import NoFingerprint, fingerprint, read_fingerprint
from attestors.wire.names import ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION


def judge_annotation(
    source: SourceName, annotations: Mapping[str, str], whose: str, endorsement_key: EndorsementKey
) -> KeySourceAnswer:
    """What the annotations of ``whose`` (such as ``Machine worker-1``) say."""
    said = annotations.get(ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION)
    if said is None:
        return NotSaid(f"{whose} has no annotation {ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION}")
    try:
        expected = read_fingerprint(said)
    except NoFingerprint:
        return Unclear(
            f"annotation {ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION} of {whose} is neither sha256: with 64 lower-case "
            "hexadecimal digits, without line end or space, nor a public key in PEM"
        )
    if expected == fingerprint(endorsement_key):
        return Owned(source)
    return OwnedByOthers(f"by its annotation, {whose} has another TPM")
