"""Which chip a certificate names, so that several endorsement keys of one chip count as one.

A TPM has an endorsement key for each template, and a certificate for some of them. Genuine certificates of discrete and
firmware TPMs describe the model alone: nothing in them ties two keys of one chip together. Some certificates do name
the chip:

- Google's name the virtual machine: project number and instance ID.
- A serial number beside manufacturer and model in the subject alternative name is the chip's (X.520 6.2.9).
- Some CAs, such as ``swtpm_localca`` under libvirt, write a subject of the chip's own. Others write the same subject
  for every chip (``CN=unknown``), so the operator must say that the subject names the chip.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Final, TypeAlias

from attestors.tpm.endorsement.certificate import Certificate
from attestors.tpm.endorsement.names import ComparableName

CHIP_PREFIX: Final = "chip:"


@dataclass(frozen=True, slots=True)
class ChipNamed:
    """All certificates with this name are of one chip."""

    name: str
    """``chip:sha256:`` and 64 hexadecimal digits."""


@dataclass(frozen=True, slots=True)
class ChipNotNamed:
    """The certificate names no chip, so other keys of its chip cannot be told from those of other chips."""


Chip: TypeAlias = ChipNamed | ChipNotNamed

CHIP_NOT_NAMED: Final = ChipNotNamed()


def chip_of(certificate: Certificate) -> Chip:
    """The chip that the certificate names by itself."""
    instance, tpm = certificate.extensions.instance, certificate.extensions.tpm
    if instance is not None:
        return _named("google", str(instance.project_number), str(instance.instance_id))
    # A blank serial number would be that of each chip of the model.
    serial_number = tpm.serial_number or ""
    if serial_number.strip() and tpm.manufacturer is not None and tpm.model is not None:
        return _named("serial", tpm.manufacturer, tpm.model, serial_number)
    return CHIP_NOT_NAMED


def chip_in_subject(certificate: Certificate) -> Chip:
    """The chip, if the operator says that subjects name chips. Certificates of most manufacturers have no subject."""
    if not certificate.subject.comparable:
        return CHIP_NOT_NAMED
    tpm = certificate.extensions.tpm
    return _named("subject", tpm.manufacturer or "", tpm.model or "", _text_of(certificate.subject.comparable))


def _named(*parts: str) -> ChipNamed:
    return ChipNamed(f"{CHIP_PREFIX}sha256:{hashlib.sha256(json.dumps(parts).encode()).hexdigest()}")


def _text_of(name: ComparableName) -> str:
    """One text for equal names: the order within a SET has no meaning."""
    return json.dumps(
        [
            sorted((kind, value if isinstance(value, str) else value.hex()) for kind, value in relative)
            for relative in name
        ]
    )
