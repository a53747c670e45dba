"""Checks of what the attestor returned: is it a success that this attestor may claim, for this very request?"""

from __future__ import annotations

import hmac
from dataclasses import dataclass

from attestors.contract import AssertedIdentity, AttestorDescription, Security, VerifiedIdentity
from attestors.wire.binding import Binding
from signer.model.decision import Deferred, Refused
from signer.model.reasons import Reason


@dataclass(frozen=True, slots=True)
class IdentityFacts:
    """What the checks of an identity look at."""

    claimed_provider_id: str
    binding: Binding
    attestor: AttestorDescription
    identity: VerifiedIdentity | AssertedIdentity


def security_is_declared(facts: IdentityFacts) -> None:
    """Only an attestor that declares itself insecure may return an unproven identity; a defect of ours otherwise."""
    if isinstance(facts.identity, AssertedIdentity) is not (facts.attestor.security is Security.INSECURE):
        raise Deferred(
            Reason.INTERNAL_ERROR,
            f"attestor {facts.attestor.provider} declares itself {facts.attestor.security.value} and returned "
            f"{type(facts.identity).__name__}",
        )


def binding_is_this_requests(facts: IdentityFacts) -> None:
    """A verified identity carries the proof for this request's binding, not for another's."""
    if isinstance(facts.identity, VerifiedIdentity) and not hmac.compare_digest(
        facts.identity.binding.value, facts.binding.value
    ):
        raise Refused(Reason.BINDING_MISMATCH, "the evidence was made for another key, cluster or signer")


def provider_id_is_proven(facts: IdentityFacts) -> None:
    """The claim in the CSR's extension equals what the evidence proves."""
    if facts.identity.provider_id != facts.claimed_provider_id:
        raise Refused(
            Reason.PROVIDER_ID_MISMATCH,
            f"the request claims provider ID {facts.claimed_provider_id}, which its evidence does not prove",
        )
