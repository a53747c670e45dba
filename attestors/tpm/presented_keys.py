"""The keys that a request presents, and the certificate of its endorsement key.

Steps 1 to 3 of the server plugin (`controller`). They are local, and prove nothing about the present machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from attestors.contract import AttestationRequest
from attestors.tpm import wire
from attestors.tpm.attestation_key import AttestationKey, EndorsementKey, UnsuitableKey
from attestors.tpm.endorsement import (
    AuthorityMissing,
    AuthorityOutsideValidity,
    CertificateNotYetValid,
    Chip,
    ChipNotNamed,
    EndorsementCertificateRefused,
    verify_endorsement_certificate,
)
from attestors.tpm.endorsement_key_sources import CertificateNotVerified, CertificateState, fingerprint
from attestors.tpm.reader import MalformedStructure
from attestors.tpm.recorded_calls import CHIP_QUESTION, FLAG
from attestors.tpm.trust import NoAuthorities, Trust
from attestors.verdict import Ended, denied, not_yet
from attestors.wire.evidence import Evidence, MalformedEvidence

DEFAULT_TEMPLATES: Final = frozenset({"rsa-2048"})
"""One template: a chip then has one endorsement key that its manufacturer certified, and so one identity. Two keys of
one chip can hardly ever be tied together. Nearly every TPM has a certificate for this template, and inventories name
its key."""


@dataclass(frozen=True, slots=True)
class AcceptedKeys:
    """The operator's choice of endorsement keys."""

    templates: frozenset[str] = DEFAULT_TEMPLATES
    """Names of the accepted templates."""
    subjects_name_chips: bool = False
    """Whether the subjects of the certificates differ for each chip, and are the same for all keys of one chip."""


@dataclass(frozen=True, slots=True)
class PresentedKeys:
    """The presented keys after the check, and the state of the endorsement key's certificate."""

    endorsement: EndorsementKey
    attestation: AttestationKey
    attestation_public: bytes
    fingerprint: str
    certificate: CertificateState
    chip: Chip
    """The chip, as far as the verified certificate names it."""


def check_keys(request: AttestationRequest, trust: Trust, accepted: AcceptedKeys) -> PresentedKeys:
    """Run steps 1 to 3.

    Raises:
        MalformedEvidence: a field is missing, unknown or malformed.
        Ended: a key is unsuitable, of a template that the operator does not accept, or denied; its certificate does
            not verify; or its chip is denied.
    """
    evidence = request.evidence
    evidence.expect_fields(*_expected_fields(evidence))
    try:
        endorsement_key = EndorsementKey.decode(
            evidence.binary(wire.ENDORSEMENT_PUBLIC_FIELD, maximum_bytes=wire.MAXIMUM_PUBLIC_BYTES)
        )
        attestation_public = evidence.binary(wire.ATTESTATION_PUBLIC_FIELD, maximum_bytes=wire.MAXIMUM_PUBLIC_BYTES)
        attestation_key = AttestationKey.decode(attestation_public)
    except MalformedStructure as error:
        raise MalformedEvidence(str(error)) from error
    except UnsuitableKey as error:
        raise denied("UnsuitableTPMKey", str(error)) from error
    shown = fingerprint(endorsement_key)
    _require_template(endorsement_key, accepted)
    _require_not_denied(shown, trust)
    certificate = _check_certificate(request, endorsement_key, trust)
    chip = _chip_of(certificate, accepted)
    _require_chip_not_denied(chip, request, trust)
    return PresentedKeys(endorsement_key, attestation_key, attestation_public, shown, certificate, chip)


def shown_fingerprint(evidence: Evidence) -> str:
    """Fingerprint for the deny list; empty if the key cannot be parsed, which :func:`check_keys` reports."""
    try:
        public = evidence.binary(wire.ENDORSEMENT_PUBLIC_FIELD, maximum_bytes=wire.MAXIMUM_PUBLIC_BYTES)
        return fingerprint(EndorsementKey.decode(public))
    except (MalformedEvidence, MalformedStructure, UnsuitableKey):
        return ""


def _require_template(endorsement_key: EndorsementKey, accepted: AcceptedKeys) -> None:
    """Step 2, too."""
    template = endorsement_key.template
    if template.name not in accepted.templates:
        raise denied(
            "EndorsementKeyTemplateNotAllowed",
            f"the endorsement key is {template.name} ({template.title}), and this controller accepts "
            f"{', '.join(sorted(accepted.templates))}: choose such a key with the node's setting ek, or let the "
            "operator add the template to endorsementKeyTemplates",
        )


def _require_not_denied(shown: str, trust: Trust) -> None:
    """Step 2."""
    if shown in trust.denied:
        raise endorsement_key_denied(shown)


def endorsement_key_denied(shown: str) -> Ended:
    """The denial of an endorsement key on the deny list."""
    return denied("EndorsementKeyDenied", f"endorsement key {shown} is on the operator's deny list")


def chip_denied(name: str) -> Ended:
    """The denial of a chip on the deny list."""
    return denied("EndorsementKeyDenied", f"{name} is on the operator's deny list: so are all keys of this TPM")


def _chip_of(certificate: CertificateState, accepted: AcceptedKeys) -> Chip:
    if isinstance(certificate, CertificateNotVerified):
        return ChipNotNamed()
    if isinstance(certificate.chip, ChipNotNamed) and accepted.subjects_name_chips:
        return certificate.chip_in_subject
    return certificate.chip


def _require_chip_not_denied(chip: Chip, request: AttestationRequest, trust: Trust) -> None:
    """Step 3, too."""
    if isinstance(chip, ChipNotNamed):
        return
    if request.recorded_calls.look(CHIP_QUESTION, lambda: chip.name in trust.denied, FLAG):
        raise chip_denied(chip.name)


def _check_certificate(request: AttestationRequest, endorsement_key: EndorsementKey, trust: Trust) -> CertificateState:
    """Step 3."""
    authorities = trust.authorities
    if isinstance(authorities, NoAuthorities):
        return CertificateNotVerified()
    evidence = request.evidence
    if wire.ENDORSEMENT_CERTIFICATE_FIELD not in evidence.fields:
        raise denied(
            "EndorsementCertificateMissing",
            "this TPM presents no endorsement certificate, and the operator's endorsement authorities require one: "
            "choose a key that has one with the node's setting ek",
        )
    certificate = evidence.binary(wire.ENDORSEMENT_CERTIFICATE_FIELD, maximum_bytes=wire.MAXIMUM_CERTIFICATE_BYTES)
    chain = (
        (evidence.binary(wire.ENDORSEMENT_CHAIN_FIELD, maximum_bytes=wire.MAXIMUM_CHAIN_BYTES),)
        if wire.ENDORSEMENT_CHAIN_FIELD in evidence.fields
        else ()
    )
    try:
        return verify_endorsement_certificate(
            certificate,
            endorsement_key=endorsement_key.key,
            authorities=authorities,
            at=request.now,
            intermediates=chain,
        )
    except (AuthorityMissing, AuthorityOutsideValidity) as error:
        # The operator's configuration, which the operator can fix.
        raise not_yet("EndorsementAuthorityMissing", str(error)) from error
    except CertificateNotYetValid as error:
        # A matter of time, or of the controller's clock.
        raise not_yet("EndorsementCertificateNotYetValid", str(error)) from error
    except EndorsementCertificateRefused as error:
        raise denied("EndorsementCertificateRefused", str(error)) from error


def _expected_fields(evidence: Evidence) -> tuple[str, ...]:
    """The fields of a first request or of an answer, with the optional ones that are present."""
    optional = tuple(name for name in wire.OPTIONAL_FIELDS if name in evidence.fields)
    answers = wire.CHALLENGE_TOKEN_FIELD in evidence.fields
    return (*wire.IDENTITY_FIELDS, *optional, *(wire.ANSWER_FIELDS if answers else ()))
