"""The server plugin of the composite attestor: every part must prove the same machine, for the same request.

The steps run in this order:

1. the evidence has exactly the configured parts
2. each part is verified by its own attestor: one that denies, denies the request
3. a part that cannot decide yet lets the request wait
4. a challenge of the one part that may issue one goes to the node, once all other parts are proven
5. all parts prove the request's binding and one provider ID, and agree on what they state
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from attestors.composite.joining import join
from attestors.composite.parts import Part, PartCalls
from attestors.composite.wire import join_challenge, split_evidence
from attestors.contract import (
    AttestationRequest,
    AttestedBefore,
    ChallengeIssued,
    ClaimedMachine,
    Denied,
    DeniesIdentities,
    InvalidOutcome,
    NoClaimedMachine,
    NoRecordedIdentity,
    NotProvableYet,
    Outcome,
    Plausible,
    PreFiltered,
    RecordedIdentity,
    ServerPlugin,
    Standing,
    StillAllowed,
    VerifiedIdentity,
)
from attestors.contract.composite import CompositeIdentity
from attestors.verdict import MAXIMUM_MESSAGE_CHARACTERS, Ended, not_until_fixed
from attestors.wire.binding import BindingMismatch
from attestors.wire.evidence import MalformedEvidence

Verify: TypeAlias = Callable[[ServerPlugin, AttestationRequest], Awaitable[Outcome]]


@dataclass(frozen=True, slots=True)
class CompositeServerPlugin:
    """Implements :class:`attestors.contract.ServerPlugin` and :class:`attestors.contract.DeniesIdentities`. It keeps no
    state of requests.
    """

    parts: tuple[Part, ...]
    """Sorted by name."""

    def pre_filter(self, request: AttestationRequest) -> PreFiltered:
        """Every part's own pre-filter."""
        try:
            requests = self._requests(request)
        except Ended:
            return Plausible()
        for part in self.parts:
            found = part.plugin.pre_filter(requests[part.name])
            if isinstance(found, Denied):
                return Denied(found.reason, _message(part, found.message))
        return Plausible()

    async def verify_client(self, request: AttestationRequest) -> Outcome:
        """Verify every part of a request for a client certificate.

        Raises:
            MalformedEvidence: a part is missing, unknown or malformed; the core denies.
            BindingMismatch: a part was made for another key, cluster or signer; the core denies.
        """
        return await self._verify(request, lambda plugin, of_part: plugin.verify_client(of_part))

    async def verify_serving(self, request: AttestationRequest) -> Outcome:
        """Verify every part of a request for a serving certificate; raises like :meth:`verify_client`."""
        return await self._verify(request, lambda plugin, of_part: plugin.verify_serving(of_part))

    def standing_of(self, attested: AttestedBefore) -> Standing:
        """The first answer of a part other than :class:`StillAllowed`: each part is asked about its own identity.

        Raises:
            MalformedCompositeIdentity: the identity is not one that this attestor proves.
        """
        try:
            identities = _identities(attested.identity, [part.name for part in self.parts])
        except Ended as ended:
            return ended.outcome
        for part in self.parts:
            found = _standing_of(part, identities[part.name], attested)
            if not isinstance(found, StillAllowed):
                return found
        return StillAllowed()

    async def _verify(self, request: AttestationRequest, verify: Verify) -> Outcome:
        try:
            requests = self._requests(request)
            outcomes: dict[str, VerifiedIdentity | NotProvableYet | ChallengeIssued] = {}
            for part in self.parts:  # one after the other: a replay needs the calls in the same order
                found = await _asked(part, requests[part.name], verify)
                if isinstance(found, Denied):
                    return found
                outcomes[part.name] = found
            return self._together(request, outcomes)
        except Ended as ended:
            return ended.outcome

    def _together(
        self, request: AttestationRequest, outcomes: Mapping[str, VerifiedIdentity | NotProvableYet | ChallengeIssued]
    ) -> Outcome:
        """Steps 3 to 5."""
        for outcome in outcomes.values():
            if isinstance(outcome, NotProvableYet):
                return outcome
        for name, outcome in outcomes.items():
            if isinstance(outcome, ChallengeIssued):
                return ChallengeIssued(join_challenge(name, outcome.challenge))
        proven = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, VerifiedIdentity)}
        names_hardware = frozenset(part.name for part in self.parts if part.names_hardware)
        return join(request, proven, names_hardware)

    def _requests(self, request: AttestationRequest) -> Mapping[str, AttestationRequest]:
        """Step 1: the request as each part sees it, with the request's own binding."""
        names = [part.name for part in self.parts]
        evidence = split_evidence(request.evidence, names)
        return {
            name: replace(
                request,
                evidence=evidence[name],
                machine=_told(request.machine, name, names),
                recorded_calls=PartCalls(name, request.recorded_calls),
            )
            for name in names
        }


async def _asked(
    part: Part, request: AttestationRequest, verify: Verify
) -> VerifiedIdentity | NotProvableYet | ChallengeIssued | Denied:
    """Step 2: the part's own outcome."""
    try:
        outcome = await verify(part.plugin, request)
    except MalformedEvidence as error:
        raise MalformedEvidence(f"{part.name}: {error}") from error
    except BindingMismatch as error:
        raise BindingMismatch(f"{part.name}: {error}") from error
    match outcome:
        case VerifiedIdentity():
            return outcome
        case Denied():
            return Denied(outcome.reason, _message(part, outcome.message))
        case NotProvableYet():
            return replace(outcome, message=_message(part, outcome.message))
        case ChallengeIssued() if part.challenges:
            return outcome
        case _:
            raise InvalidOutcome(f"{part.name} returned {type(outcome).__name__}, which no part may return")


def _told(machine: ClaimedMachine | NoClaimedMachine, name: str, names: list[str]) -> ClaimedMachine | NoClaimedMachine:
    """The Machine as the part sees it: of the recorded identity, the part's own.

    Raises:
        Ended: the record is of other parts.
    """
    if not isinstance(machine, ClaimedMachine) or isinstance(machine.recorded, NoRecordedIdentity):
        return machine
    recorded = _identities(machine.recorded.identity, names)
    return replace(machine, recorded=RecordedIdentity(recorded[name]))


def _identities(recorded_identity: str, names: list[str]) -> Mapping[str, str]:
    """The identities of the parts in the record's.

    Raises:
        Ended: the record is of other parts.
    """
    recorded = CompositeIdentity.parse(recorded_identity).parts
    if list(recorded) != names:
        raise not_until_fixed(
            "AttestorsChanged",
            f"the Machine's record is of {', '.join(recorded)}, and the operator requires {', '.join(names)}: replace "
            "the Machine, or delete its AttestedNode and IdentityReservations",
        )
    return recorded


def _standing_of(part: Part, identity: str, attested: AttestedBefore) -> Standing:
    """What the part says of its own identity. The hardware is that of one part: no other recognizes its name."""
    if not isinstance(part.plugin, DeniesIdentities):
        return StillAllowed()
    calls = PartCalls(part.name, attested.recorded_calls)
    found: object = part.plugin.standing_of(AttestedBefore(identity, attested.hardware, calls))
    match found:
        case StillAllowed():
            return found
        case Denied():
            return Denied(found.reason, _message(part, found.message))
        case NotProvableYet():
            return replace(found, message=_message(part, found.message))
        case _:
            raise InvalidOutcome(f"{part.name} returned {type(found).__name__} about an identity, which is no answer")


def _message(part: Part, message: str) -> str:
    return f"{part.name}: {message}"[:MAXIMUM_MESSAGE_CHARACTERS]
