"""The server plugin of the TPM attestor: which chip is asking, and is it here, now, for this request.

In this order, so that nothing unverified is used:

1. the fields, decoded in bounds; EK and AK judged by their public areas
2. the EK is not on the deny list
3. where authorities are configured: the EK certificate is the EK's own, and one of them vouches for it
4. as far as the Machine itself says it: the EK is that of the Machine whose provider ID is claimed
5. in an answer: the token is in time; the quote is signed by the AK, over the secret that only the TPM with this EK and
   AK could open, and over the binding; of the registers that were asked for, and their values are allowed
6. the EK is that of the claimed machine, say the sources that the cluster prefers; here others are asked
7. without an answer: a challenge for exactly this EK, AK and binding
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from attestors.contract import (
    AttestationRequest,
    ChallengeIssued,
    Denied,
    Outcome,
    Plausible,
    PreFiltered,
    VerifiedIdentity,
)
from attestors.tpm import wire
from attestors.tpm.challenge import (
    Challenged,
    ChallengeExpired,
    ChallengeFromTheFuture,
    InvalidToken,
    Token,
    key_identifier,
)
from attestors.tpm.endorsement_key_sources import CannotBeAskedNow, NobodySays, Owned, OwnedByOthers, identity
from attestors.tpm.operator_files import OperatorFileUnusable
from attestors.tpm.presented_keys import PresentedKeys, judge_keys, shown_fingerprint
from attestors.tpm.quote import BoundTo, QuoteRefused, verify_quote
from attestors.tpm.reader import MalformedStructure
from attestors.tpm.recorded_calls import (
    CHALLENGE,
    CHALLENGE_KEYS,
    CHALLENGE_QUESTION,
    KEY_IS_KNOWN,
    KEY_IS_KNOWN_QUESTION,
    KEYS_QUESTION,
    QUOTE_QUESTION,
    TRUST_QUESTION,
    secret_form,
    trust_form,
)
from attestors.tpm.settings import TPMSettings
from attestors.tpm.trust import Trust
from attestors.verdict import MAXIMUM_MESSAGE_CHARACTERS, Ended, denied, not_yet
from attestors.wire.binding import BindingMismatch, ProvenBinding
from attestors.wire.evidence import MalformedEvidence
from attestors.wire.names import ENDORSEMENT_KEY_ANNOTATION, ENDORSEMENT_KEY_SOURCE_ANNOTATION, EVIDENCE_EXPIRED


@dataclass(frozen=True, slots=True)
class TPMServerPlugin:
    """Implements :class:`attestors.contract.ServerPlugin`. It remembers nothing between two requests."""

    settings: TPMSettings
    challenge_keys: Callable[[], tuple[bytes, ...]] = field(repr=False)

    def pre_filter(self, request: AttestationRequest) -> PreFiltered:
        """Steps 1 to 4, by what is known of the operator's files: the rest needs others, or the controller's keys."""
        try:
            self._judge(request, self.settings.trust.last())
        except OperatorFileUnusable:
            return Plausible()
        except Ended as ended:
            return ended.outcome if isinstance(ended.outcome, Denied) else Plausible()
        return Plausible()

    async def verify_client(self, request: AttestationRequest) -> Outcome:
        """Challenge, or judge the answer.

        Raises:
            MalformedEvidence: a field is missing, unknown or not of its form; the core denies.
            BindingMismatch: the quote was made for another key, cluster, signer or challenge; the core denies.
        """
        return await self._verify(request)

    async def verify_serving(self, request: AttestationRequest) -> Outcome:
        """The same; names and addresses are the Machine's to say, a TPM knows none."""
        return await self._verify(request)

    async def _verify(self, request: AttestationRequest) -> Outcome:
        try:
            keys = self._judge(request, self._current_trust(request))
            if wire.CHALLENGE_TOKEN_FIELD not in request.evidence.fields:
                token = _token(request)
                await self._owner(request, keys)
                return self._challenge(request, keys, token)
            proof = self._judge_answer(request, keys)
            owned = await self._owner(request, keys)
        except OperatorFileUnusable as error:
            return not_yet("OperatorFileUnusable", str(error)).outcome
        except CannotBeAskedNow as error:
            return not_yet("EndorsementKeySourceUnavailable", str(error), error.retry_after).outcome
        except Ended as ended:
            return ended.outcome
        return VerifiedIdentity(
            provider_id=request.provider_id,
            identity=identity(keys.endorsement),
            binding=proof,
            annotations={
                ENDORSEMENT_KEY_ANNOTATION: keys.fingerprint,
                ENDORSEMENT_KEY_SOURCE_ANNOTATION: owned.source.value,
            },
        )

    # Steps 1 to 4.

    def _judge(self, request: AttestationRequest, trust: Trust) -> PresentedKeys:
        keys = judge_keys(request, trust)
        said = self.settings.sources.look(request, keys.endorsement)
        if isinstance(said, OwnedByOthers):
            raise _not_this(said, keys)
        return keys

    def _current_trust(self, request: AttestationRequest) -> Trust:
        form = trust_form(lambda: shown_fingerprint(request.evidence), self.settings.trust.current)
        return request.recorded_calls.look(TRUST_QUESTION, self.settings.trust.current, form)

    # Step 6.

    async def _owner(self, request: AttestationRequest, keys: PresentedKeys) -> Owned:
        said = await self.settings.sources.ask(request, keys.endorsement, keys.certificate)
        match said:
            case Owned():
                return said
            case OwnedByOthers():
                raise _not_this(said, keys)
            case NobodySays():
                shown = f"; the request shows {keys.fingerprint}"
                lacking = said.within(MAXIMUM_MESSAGE_CHARACTERS - len(shown))
                raise not_yet("EndorsementKeyUnknown", lacking + shown, said.retry_after)

    # Step 7.

    def _challenge(self, request: AttestationRequest, keys: PresentedKeys, token: Token) -> ChallengeIssued:
        challenged = Challenged(token, keys.endorsement, keys.attestation, request.binding)

        def made() -> str:
            current = self._challenge_keys()[0]
            return challenged.text(current, self.settings.selection, random_bytes=secrets.token_bytes)

        return ChallengeIssued(request.recorded_calls.look(CHALLENGE_QUESTION, made, CHALLENGE))

    def _challenge_keys(self) -> tuple[bytes, ...]:
        """At least one; where there are none, the node is not to blame."""
        keys = self.challenge_keys()
        if not keys:
            raise not_yet("ChallengeKeysMissing", "the controller has no keys for challenges at the moment")
        return keys

    # Step 5.

    def _judge_answer(self, request: AttestationRequest, keys: PresentedKeys) -> ProvenBinding:
        evidence = request.evidence
        try:
            token = Token.parse(
                evidence.text(wire.CHALLENGE_TOKEN_FIELD, maximum_characters=wire.MAXIMUM_TOKEN_CHARACTERS)
            )
            token.require_valid(request.now)
        except InvalidToken as error:
            raise MalformedEvidence(str(error)) from error
        except ChallengeExpired as error:
            # Often it had to wait, for its node name as an example: then the node shall not have to pause besides.
            raise denied(EVIDENCE_EXPIRED, str(error)) from error
        except ChallengeFromTheFuture as error:
            raise denied("ChallengeFromTheFuture", str(error)) from error
        challenged = Challenged(token, keys.endorsement, keys.attestation, request.binding)
        try:
            return self._quote(request, keys, challenged)
        except MalformedStructure as error:
            raise MalformedEvidence(str(error)) from error
        except QuoteRefused as error:
            raise denied("QuoteRefused", str(error)) from error

    def _quote(self, request: AttestationRequest, keys: PresentedKeys, challenged: Challenged) -> ProvenBinding:
        """The quote under the newest challenge key, or under the one before it: it may have been rotated meanwhile."""
        evidence = request.evidence
        quote = evidence.binary(wire.QUOTE_FIELD, maximum_bytes=wire.MAXIMUM_QUOTE_BYTES)
        signature = evidence.binary(wire.QUOTE_SIGNATURE_FIELD, maximum_bytes=wire.MAXIMUM_SIGNATURE_BYTES)
        values = evidence.binary(wire.PCR_VALUES_FIELD, maximum_bytes=wire.MAXIMUM_PCR_VALUES_BYTES)
        known = self._key_is_known(request, challenged.token)
        mismatch: BindingMismatch | None = None
        recorded_calls, form = request.recorded_calls, secret_form(quote)
        for challenge_key in recorded_calls.look(KEYS_QUESTION, self._challenge_keys, CHALLENGE_KEYS):

            def through(binding: bytes, key: bytes = challenge_key) -> bytes:
                return recorded_calls.look(
                    QUOTE_QUESTION, lambda: wire.qualifying_data(challenged.secret(key), binding), form
                )

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
        if not known:
            raise not_yet(
                "ChallengeKeysMissing",
                "the challenge was made under a controller key that is not known here, or not yet: it was rotated",
                challenged.token.expires_in(request.now),
            )
        raise mismatch or BindingMismatch("the quote is for no challenge of this controller")

    def _key_is_known(self, request: AttestationRequest, token: Token) -> bool:
        """Whether the challenge was made under a key of ours, as far as its token says.

        One so new that it was not read yet, or that was rotated away, is no fault of the node: until the token expires
        its answer waits for whoever has that key, and then the node starts again. The core judges it again when it has
        read other keys; not before, for whoever asks names any key that he likes.
        """

        def is_known() -> bool:
            return token.key_identifier in map(key_identifier, self._challenge_keys())

        return request.recorded_calls.look(KEY_IS_KNOWN_QUESTION, is_known, KEY_IS_KNOWN)


def _token(request: AttestationRequest) -> Token:
    try:
        return Token.issue(request.csr_uid, request.now)
    except InvalidToken as error:
        # Only an API server that is not one gives such UIDs.
        raise denied("UnusableRequestUID", "the request's UID is not of the form that API servers give") from error


def _not_this(said: OwnedByOthers, keys: PresentedKeys) -> Ended:
    return denied("EndorsementKeyMismatch", f"{said.message} than {keys.fingerprint}")
