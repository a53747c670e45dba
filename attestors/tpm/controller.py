"""The server plugin of the TPM attestor: verifies which TPM sent the request, and that it did so for this request.

The steps run in this order, so that nothing unverified is used:

1. parse the fields within bounds; check EK and AK by their public areas
2. the operator accepts the EK's template, and the EK is not on the deny list
3. if authorities are configured: the certificate is for the EK, and chains to one of them; the chip that it names is
   not on the deny list
4. if the first source is the Machine's annotation: it names the EK
5. in an answer: the token is valid and of this Cluster; the AK signed the quote; the quote covers the secret that only
   the TPM with this EK and AK can recover, and the binding; its registers are the requested ones, with allowed values
6. the endorsement key sources, in the cluster's order, assign the EK to the claimed machine; other services are called
7. in a first request: issue a challenge for exactly this EK, AK and binding
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from attestors.contract import (
    AttestationRequest,
    AttestedBefore,
    ChallengeIssued,
    Denied,
    Outcome,
    Plausible,
    PreFiltered,
    Standing,
    VerifiedIdentity,
)
from attestors.tpm import wire
from attestors.tpm.challenge import (
    ChallengeExpired,
    ChallengeFromTheFuture,
    ChallengeInputs,
    ChallengeOfAnotherCluster,
    InvalidToken,
    Token,
    key_identifier,
)
from attestors.tpm.endorsement import ChipNamed
from attestors.tpm.endorsement_key_sources import (
    KeyConfirmed,
    KeyContradicted,
    SourceUnavailable,
    Undetermined,
    identity,
    proven_node_names,
)
from attestors.tpm.operator_files import OperatorFileUnusable
from attestors.tpm.presented_keys import PresentedKeys, check_keys, shown_fingerprint
from attestors.tpm.quote import BoundTo, QuoteRefused, verify_quote
from attestors.tpm.reader import MalformedStructure
from attestors.tpm.recorded_calls import (
    CHALLENGE,
    CHALLENGE_KEYS,
    CHALLENGE_QUESTION,
    FLAG,
    KEY_IS_KNOWN_QUESTION,
    KEYS_QUESTION,
    QUOTE_QUESTION,
    TRUST_QUESTION,
    secret_form,
    trust_form,
)
from attestors.tpm.settings import TPMSettings
from attestors.tpm.standing import standing_of
from attestors.tpm.trust import Trust
from attestors.verdict import MAXIMUM_MESSAGE_CHARACTERS, Ended, denied, not_yet
from attestors.wire.binding import BindingMismatch, ProvenBinding
from attestors.wire.evidence import MalformedEvidence
from attestors.wire.names import (
    CHALLENGE_EXPIRED,
    CHALLENGE_OF_ANOTHER_CLUSTER,
    CHIP_ANNOTATION,
    CHIP_NOT_NAMED,
    ENDORSEMENT_KEY_ANNOTATION,
    ENDORSEMENT_KEY_SOURCE_ANNOTATION,
)


@dataclass(frozen=True, slots=True)
class TPMServerPlugin:
    """Implements :class:`attestors.contract.ServerPlugin` and :class:`attestors.contract.DeniesIdentities`. It keeps no
    state between requests.
    """

    settings: TPMSettings
    challenge_keys: Callable[[], tuple[bytes, ...]] = field(repr=False)

    def pre_filter(self, request: AttestationRequest) -> PreFiltered:
        """Steps 1 to 4, with the operator's files as last read. The others need services or the controller's keys."""
        try:
            self._check_keys(request, self.settings.trust.last())
        except OperatorFileUnusable:
            return Plausible()
        except Ended as ended:
            return ended.outcome if isinstance(ended.outcome, Denied) else Plausible()
        return Plausible()

    async def verify_client(self, request: AttestationRequest) -> Outcome:
        """Issue a challenge, or verify the answer to one.

        Raises:
            MalformedEvidence: a field is missing, unknown or malformed; the core denies.
            BindingMismatch: the quote was made for another key, cluster, signer or challenge; the core denies.
        """
        return await self._verify(request)

    async def verify_serving(self, request: AttestationRequest) -> Outcome:
        """Same as :meth:`verify_client`: a TPM knows no addresses, so the core takes them from the Machine."""
        return await self._verify(request)

    def standing_of(self, attested: AttestedBefore) -> Standing:
        """See :class:`attestors.contract.DeniesIdentities`."""
        return standing_of(attested, self.settings.trust)

    async def _verify(self, request: AttestationRequest) -> Outcome:
        try:
            keys = self._check_keys(request, self._current_trust(request))
            if wire.CHALLENGE_TOKEN_FIELD not in request.evidence.fields:
                token = _token(request)
                await self._confirm_key(request, keys)
                return self._challenge(request, keys, token)
            proof = self._verify_answer(request, keys)
            confirmed = await self._confirm_key(request, keys)
        except OperatorFileUnusable as error:
            return not_yet("OperatorFileUnusable", str(error)).outcome
        except SourceUnavailable as error:
            return not_yet("EndorsementKeySourceUnavailable", str(error), error.retry_after).outcome
        except Ended as ended:
            return ended.outcome
        return VerifiedIdentity(
            provider_id=request.provider_id,
            identity=identity(keys.endorsement),
            binding=proof,
            node_names=proven_node_names(confirmed.source, request.provider_id),
            annotations={
                ENDORSEMENT_KEY_ANNOTATION: keys.fingerprint,
                ENDORSEMENT_KEY_SOURCE_ANNOTATION: confirmed.source.value,
                CHIP_ANNOTATION: keys.chip.name if isinstance(keys.chip, ChipNamed) else CHIP_NOT_NAMED,
            },
            hardware=keys.chip.name if isinstance(keys.chip, ChipNamed) else "",
        )

    # Steps 1 to 4.

    def _check_keys(self, request: AttestationRequest, trust: Trust) -> PresentedKeys:
        keys = check_keys(request, trust, self.settings.accepted)
        answer = self.settings.sources.check_locally(request, keys.endorsement)
        if isinstance(answer, KeyContradicted):
            raise _mismatch(answer, keys)
        return keys

    def _current_trust(self, request: AttestationRequest) -> Trust:
        form = trust_form(lambda: shown_fingerprint(request.evidence), self.settings.trust.current)
        return request.recorded_calls.look(TRUST_QUESTION, self.settings.trust.current, form)

    # Step 6.

    async def _confirm_key(self, request: AttestationRequest, keys: PresentedKeys) -> KeyConfirmed:
        answer = await self.settings.sources.ask(request, keys.endorsement, keys.certificate)
        match answer:
            case KeyConfirmed():
                return answer
            case KeyContradicted():
                raise _mismatch(answer, keys)
            case Undetermined():
                shown = f"; the request shows {keys.fingerprint}"
                lacking = answer.within(MAXIMUM_MESSAGE_CHARACTERS - len(shown))
                raise not_yet("EndorsementKeyUnknown", lacking + shown, answer.retry_after)

    # Step 7.

    def _challenge(self, request: AttestationRequest, keys: PresentedKeys, token: Token) -> ChallengeIssued:
        inputs = ChallengeInputs(token, keys.endorsement, keys.attestation, request.binding, request.cluster_uid)

        def create() -> str:
            current = self._challenge_keys()[0]
            return inputs.text(current, self.settings.selection, random_bytes=secrets.token_bytes)

        return ChallengeIssued(request.recorded_calls.look(CHALLENGE_QUESTION, create, CHALLENGE))

    def _challenge_keys(self) -> tuple[bytes, ...]:
        """At least one key. A missing key is not the node's fault, so the request waits."""
        keys = self.challenge_keys()
        if not keys:
            raise not_yet("ChallengeKeysMissing", "the controller has no keys for challenges at the moment")
        return keys

    # Step 5.

    def _verify_answer(self, request: AttestationRequest, keys: PresentedKeys) -> ProvenBinding:
        evidence = request.evidence
        try:
            token = Token.parse(
                evidence.text(wire.CHALLENGE_TOKEN_FIELD, maximum_characters=wire.MAXIMUM_TOKEN_CHARACTERS)
            )
            token.require_valid(request.now)
            token.require_cluster(request.cluster_uid)
        except InvalidToken as error:
            raise MalformedEvidence(str(error)) from error
        except ChallengeExpired as error:
            # Often it expired while the request waited, for example for its node name: the node may retry at once.
            raise denied(CHALLENGE_EXPIRED, str(error)) from error
        except ChallengeFromTheFuture as error:
            raise denied("ChallengeFromTheFuture", str(error)) from error
        except ChallengeOfAnotherCluster as error:
            # A Cluster that is created again, from a backup for example, has another UID.
            raise denied(CHALLENGE_OF_ANOTHER_CLUSTER, str(error)) from error
        inputs = ChallengeInputs(token, keys.endorsement, keys.attestation, request.binding, request.cluster_uid)
        try:
            return self._verify_quote(request, keys, inputs)
        except MalformedStructure as error:
            raise MalformedEvidence(str(error)) from error
        except QuoteRefused as error:
            raise denied("QuoteRefused", str(error)) from error

    def _verify_quote(self, request: AttestationRequest, keys: PresentedKeys, inputs: ChallengeInputs) -> ProvenBinding:
        """Verify the quote under the newest challenge key, or the one before it: the key may have been rotated."""
        evidence = request.evidence
        quote = evidence.binary(wire.QUOTE_FIELD, maximum_bytes=wire.MAXIMUM_QUOTE_BYTES)
        signature = evidence.binary(wire.QUOTE_SIGNATURE_FIELD, maximum_bytes=wire.MAXIMUM_SIGNATURE_BYTES)
        values = evidence.binary(wire.PCR_VALUES_FIELD, maximum_bytes=wire.MAXIMUM_PCR_VALUES_BYTES)
        known = self._key_is_known(request, inputs.token)
        mismatch: BindingMismatch | None = None
        recorded_calls, form = request.recorded_calls, secret_form(quote)
        for challenge_key in recorded_calls.look(KEYS_QUESTION, self._challenge_keys, CHALLENGE_KEYS):

            def through(binding: bytes, key: bytes = challenge_key) -> bytes:
                return recorded_calls.look(
                    QUOTE_QUESTION, lambda: wire.qualifying_data(inputs.secret(key), binding), form
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
                inputs.token.expires_in(request.now),
            )
        raise mismatch or BindingMismatch("the quote answers no challenge of this controller")

    def _key_is_known(self, request: AttestationRequest, token: Token) -> bool:
        """Whether the challenge was made under a key of this controller, according to its token.

        A key that is too new to have been read, or that was rotated away, is not the node's fault. The answer then
        waits until the token expires: another replica may hold the key, and this one may read it. After that the node
        starts again. The core verifies the request again only after it has read other keys, because a requester can
        name any key.
        """

        def is_known() -> bool:
            return token.key_identifier in map(key_identifier, self._challenge_keys())

        return request.recorded_calls.look(KEY_IS_KNOWN_QUESTION, is_known, FLAG)


def _token(request: AttestationRequest) -> Token:
    try:
        return Token.issue(request.csr_uid, request.cluster_uid, request.now)
    except InvalidToken as error:
        # Only something other than an API server assigns such UIDs.
        raise denied("UnusableRequestUID", "the request's UID is not of the form that API servers give") from error


def _mismatch(answer: KeyContradicted, keys: PresentedKeys) -> Ended:
    return denied("EndorsementKeyMismatch", f"{answer.message} than {keys.fingerprint}")
