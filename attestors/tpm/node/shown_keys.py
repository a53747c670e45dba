"""What a person registers of an endorsement key, as the controller reads the key and its certificate."""

from __future__ import annotations

from attestors.contract import EvidenceUnavailable, ShownKey
from attestors.tpm.attestation_key import EndorsementKey as PublicEndorsementKey
from attestors.tpm.attestation_key import UnsuitableKey
from attestors.tpm.endorsement import ChipNamed, EndorsementCertificateRefused
from attestors.tpm.endorsement.certificate import read_stored_certificate
from attestors.tpm.endorsement.chips import CHIP_NOT_NAMED, chip_of
from attestors.tpm.endorsement_key_sources.fingerprint import fingerprint
from attestors.tpm.node.endorsement_key import EndorsementKey
from attestors.tpm.reader import MalformedStructure


def shown(endorsement: EndorsementKey) -> ShownKey:
    """The fingerprint of the key, and the chip that its certificate names.

    Raises:
        EvidenceUnavailable: the controller would refuse the key or its certificate.
    """
    name, certificate = endorsement.choice.name, endorsement.certificate
    try:
        public = PublicEndorsementKey.decode(endorsement.key.public_bytes)
        chip = chip_of(read_stored_certificate(certificate)) if certificate else CHIP_NOT_NAMED
    except (MalformedStructure, UnsuitableKey, EndorsementCertificateRefused) as error:
        raise EvidenceUnavailable(
            f"the controller would refuse the endorsement key {name}: {error}; choose another one with the setting ek"
        ) from error
    return ShownKey(fingerprint(public), name, bool(certificate), chip.name if isinstance(chip, ChipNamed) else "")
