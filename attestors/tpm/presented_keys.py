"""The keys that a request presents, and the certificate of its endorsement key.

Steps 1 to 3 of the server plugin (`controller`). They are local, and prove nothing about the present machine.
"""

from __future__ import annotations

from dataclasses import dataclass

from attestors.contract import AttestationRequest
from attestors.tpm import wire
from attestors.tpm.attestation_key import AttestationKey, EndorsementKey, UnsuitableKey
from attestors.tpm.endorsement import (
    AuthorityMissing,
    AuthorityOutsideValidity,
    CertificateNotYetValid,
    EndorsementCertificateRefused,
    verify_endorsement_certificate,
)
from attestors.tpm.endorsement_key_sources import CertificateNotVerified, CertificateState, fingerprint
from attestors.tpm.reader import MalformedStructure
from attestors.tpm.trust import NoAuthorities, Trust
from attestors.verdict import denied, not_yet
from attestors.wire.evidence import Evidence, MalformedEvidence


@dataclass(frozen=True, slots=True)
class PresentedKeys:
    """The presented keys after the check, and the state of the endorsement key's certificate."""

    endorsement: EndorsementKey
    attestation: AttestationKey
    attestation_public: bytes
    fingerprint: str
    certificate: CertificateState


def check_keys(request: AttestationRequest, trust: Trust) -> PresentedKeys:
    """Run steps 1 to 3.

    Raises:
        MalformedEvidence: a field is missing, unknown or malformed.
        Ended: a key is unsuitable or denied, or its certificate does not verify.
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
    _require_not_denied(shown, trust)
    certificate = _check_certificate(request, endorsement_key, trust)
    return PresentedKeys(endorsement_key, attestation_key, attestation_public, shown, certificate)


def shown_fingerprint(evidence: Evidence) -> str:
    """Fingerprint for the deny list; empty if the key cannot be parsed, which :func:`check_keys` reports."""
    try:
        public = evidence.binary(wire.ENDORSEMENT_PUBLIC_FIELD, maximum_bytes=wire.MAXIMUM_PUBLIC_BYTES)
        return fingerprint(EndorsementKey.decode(public))
    except (MalformedEvidence, MalformedStructure, UnsuitableKey):
        return ""


def _require_not_denied(shown: str, trust: Trust) -> None:
    """Step 2."""
    if shown in trust.denied:
        raise denied("EndorsementKeyDenied", f"endorsement key {shown} is on the operator's deny list")


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
