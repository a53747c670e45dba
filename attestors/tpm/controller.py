"""The controller half of the TPM attestor: which chip is asking, and is it here, now, for this request.

In this order, so that nothing unverified is used:

1. the fields, decoded in bounds; EK and AK judged by their public areas
2. the EK is not on the deny list
3. where authorities are configured: the EK certificate is the EK's own, and one of them vouches for it
4. the EK is that of the Machine whose provider ID is claimed
5. without an answer: a challenge for exactly this EK, AK and binding
6. with one: the token is in time; the quote is signed by the AK, over the secret that only the TPM with this EK and AK
   could open, and over the binding; of the registers that were asked for, and their values are allowed
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from attestors.contract import (
    AttestationRequest,
    ChallengeIssued,
    Denied,
    NotProvableYet,
    Outcome,
    Plausible,
    Screened,
    VerifiedIdentity,
)
from attestors.tpm import wire
from attestors.tpm.attestation_key import AttestationKey, EndorsementKey, UnsuitableKey
from attestors.tpm.challenge import Challenged, ChallengeExpired, InvalidToken, Token
from attestors.tpm.endorsement import (
    AuthorityMissing,
    AuthorityOutsideValidity,
    EndorsementCertificateRefused,
    verify_endorsement_certificate,
)
from attestors.tpm.ownership import NotSaid, OwnedByOthers, fingerprint, ownership
from attestors.tpm.quote import BoundTo, QuoteRefused, verify_quote
from attestors.tpm.reader import MalformedStructure
from attestors.tpm.settings import NoAuthorities, TPMSettings
from attestors.wire.binding import BindingMismatch, ProvenBinding
from attestors.wire.evidence import Evidence, MalformedEvidence

_MAXIMUM_MESSAGE_CHARACTERS: Final = 500


@dataclass(frozen=True, slots=True)
class _Keys:
    """The keys that the evidence shows, judged."""

    endorsement: EndorsementKey
    attestation: AttestationKey
    attestation_public: bytes
    fingerprint: str


class _Ended(Exception):
    """A step has the answer."""

    def __init__(self, outcome: Denied | NotProvableYet) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome


@dataclass(frozen=True, slots=True)
class TPMControllerHalf:
    """Implements :class:`attestors.contract.ControllerHalf`. It remembers nothing between two requests."""

    settings: TPMSettings
    challenge_keys: Callable[[], tuple[bytes, ...]] = field(repr=False)
    random_bytes: Callable[[int], bytes] = secrets.token_bytes

    def screen(self, request: AttestationRequest) -> Screened:
        """Steps 1 to 4: all but the quote, which needs the controller's keys."""
        try:
            self._judge(request)
        except _Ended as ended:
            return ended.outcome if isinstance(ended.outcome, Denied) else Plausible()
        return Plausible()

    async def verify_client(self, request: AttestationRequest) -> Outcome:
        """Challenge, or judge the answer.

        Raises:
            MalformedEvidence: a field is missing, unknown or not of its form; the core denies.
            BindingMismatch: the quote was made for another key, cluster, signer or challenge; the core denies.
        """
        return self._verify(request)

    async def verify_serving(self, request: AttestationRequest) -> Outcome:
        """The same; names and addresses are the Machine's to say, a TPM knows none."""
        return self._verify(request)

    def _verify(self, request: AttestationRequest) -> Outcome:
        try:
            keys = self._judge(request)
            return self._answered(request, keys)
        except _Ended as ended:
            return ended.outcome

    def _answered(self, request: AttestationRequest, keys: _Keys) -> VerifiedIdentity | ChallengeIssued:
        if wire.CHALLENGE_TOKEN_FIELD not in request.evidence.fields:
            try:
                token = Token.issue(request.csr_uid, request.now)
            except InvalidToken as error:
                # Only an API server that is not one gives such UIDs.
                raise _denied(
                    "UnusableRequestUID", "the request's UID is not of the form that API servers give"
                ) from error
            challenged = Challenged(token, keys.endorsement, keys.attestation, request.binding)
            current = self.challenge_keys()[0]
            return ChallengeIssued(challenged.text(current, self.settings.selection, random_bytes=self.random_bytes))
        return self._judge_answer(request, keys)

    # Steps 1 to 4.

    def _judge(self, request: AttestationRequest) -> _Keys:
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
            raise _denied("UnsuitableTPMKey", str(error)) from error
        shown = fingerprint(endorsement_key)
        if shown in self.settings.denied:
            raise _denied("EndorsementKeyDenied", f"endorsement key {shown} is on the operator's deny list")
        self._check_certificate(request, endorsement_key)
        found = ownership(request.machine, endorsement_key)
        if isinstance(found, NotSaid):
            raise _not_yet("EndorsementKeyUnknown", f"{found.message}; the request shows {shown}")
        if isinstance(found, OwnedByOthers):
            raise _denied("EndorsementKeyMismatch", f"Machine {found.machine} has another TPM than {shown}")
        return _Keys(endorsement_key, attestation_key, attestation_public, shown)

    def _check_certificate(self, request: AttestationRequest, endorsement_key: EndorsementKey) -> None:
        """Step 3."""
        authorities = self.settings.authorities
        if isinstance(authorities, NoAuthorities):
            return
        evidence = request.evidence
        if wire.ENDORSEMENT_CERTIFICATE_FIELD not in evidence.fields:
            raise _denied(
                "EndorsementCertificateMissing",
                "this TPM shows no endorsement certificate, and the operator's endorsement authorities want one",
            )
        certificate = evidence.binary(wire.ENDORSEMENT_CERTIFICATE_FIELD, maximum_bytes=wire.MAXIMUM_CERTIFICATE_BYTES)
        chain = (
            (evidence.binary(wire.ENDORSEMENT_CHAIN_FIELD, maximum_bytes=wire.MAXIMUM_CHAIN_BYTES),)
            if wire.ENDORSEMENT_CHAIN_FIELD in evidence.fields
            else ()
        )
        try:
            verify_endorsement_certificate(
                certificate,
                endorsement_key=endorsement_key.key,
                authorities=authorities,
                at=request.now,
                intermediates=chain,
            )
        except (AuthorityMissing, AuthorityOutsideValidity) as error:
            # Of the operator's making, and the operator may mend it.
            raise _not_yet("EndorsementAuthorityMissing", str(error)) from error
        except EndorsementCertificateRefused as error:
            raise _denied("EndorsementCertificateRefused", str(error)) from error

    # Step 6.

    def _judge_answer(self, request: AttestationRequest, keys: _Keys) -> VerifiedIdentity:
        evidence = request.evidence
        try:
            token = Token.parse(
                evidence.text(wire.CHALLENGE_TOKEN_FIELD, maximum_characters=wire.MAXIMUM_TOKEN_CHARACTERS)
            )
            token.require_valid(request.now)
        except InvalidToken as error:
            raise MalformedEvidence(str(error)) from error
        except ChallengeExpired as error:
            raise _denied("ChallengeExpired", str(error)) from error
        challenged = Challenged(token, keys.endorsement, keys.attestation, request.binding)
        try:
            proof = self._quote(request, keys, challenged)
        except MalformedStructure as error:
            raise MalformedEvidence(str(error)) from error
        except QuoteRefused as error:
            raise _denied("QuoteRefused", str(error)) from error
        return VerifiedIdentity(provider_id=request.provider_id, identity=f"tpm:{keys.fingerprint}", binding=proof)

    def _quote(self, request: AttestationRequest, keys: _Keys, challenged: Challenged) -> ProvenBinding:
        """The quote under the newest challenge key, or under the one before it: it may have been rotated meanwhile."""
        evidence = request.evidence
        quote = evidence.binary(wire.QUOTE_FIELD, maximum_bytes=wire.MAXIMUM_QUOTE_BYTES)
        signature = evidence.binary(wire.QUOTE_SIGNATURE_FIELD, maximum_bytes=wire.MAXIMUM_SIGNATURE_BYTES)
        values = evidence.binary(wire.PCR_VALUES_FIELD, maximum_bytes=wire.MAXIMUM_PCR_VALUES_BYTES)
        mismatch: BindingMismatch | None = None
        for challenge_key in self.challenge_keys():
            secret = challenged.secret(challenge_key)

            def through(binding: bytes, secret: bytes = secret) -> bytes:
                return wire.qualifying_data(secret, binding)

            try:
                verified = verify_quote(
                    ak_public=keys.attestation_public,
                    quote=quote,
                    signature=signature,
                    pcr_values=values,
                    selection=self.settings.selection,
                    extra_data=BoundTo(request.binding, through),
                    pcr_policy=self.settings.pcr_policy,
                )
            except BindingMismatch as error:
                mismatch = error
            else:
                return verified.proof
        raise mismatch or BindingMismatch("there is no key that a challenge could have been made with")


def _expected_fields(evidence: Evidence) -> tuple[str, ...]:
    """The fields of a first request or of an answer, with the optional ones that are there."""
    optional = tuple(name for name in wire.OPTIONAL_FIELDS if name in evidence.fields)
    answers = wire.CHALLENGE_TOKEN_FIELD in evidence.fields
    return (*wire.IDENTITY_FIELDS, *optional, *(wire.ANSWER_FIELDS if answers else ()))


def _denied(reason: str, message: str) -> _Ended:
    return _Ended(Denied(reason, _bounded(message)))


def _not_yet(reason: str, message: str) -> _Ended:
    return _Ended(NotProvableYet(reason, _bounded(message)))


def _bounded(message: str) -> str:
    """As long as an outcome's message may be, and printable: it may quote a certificate's names."""
    text = "".join(character if character.isprintable() else " " for character in message)
    return text[:_MAXIMUM_MESSAGE_CHARACTERS]
