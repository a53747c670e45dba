"""The inputs of one decision, recorded while it is made, and sufficient to replay it.

Each stage holds the facts of a group of checks (:mod:`signer.rules.checks`). Facts that follow from the request itself
are not recorded: the replay parses the request again.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from attestors.contract import (
    AssertedIdentity,
    AttestorDescription,
    ChallengeIssued,
    Denied,
    InstanceExists,
    InstanceGone,
    IPAddress,
    NotProvableYet,
    Outcome,
    Standing,
    StillAllowed,
    Termination,
    TerminationNotProvable,
    VerifiedIdentity,
    digest_of,
)
from attestors.wire.binding import Binding
from signer.audit.values import MAY_BE_MISSING, InvalidValue
from signer.model.authority_sharing import NOT_SHARED, SharedAuthorities
from signer.model.bootstrap_token import (
    NodeAsks,
    TokenAsks,
    TokenOwner,
    Trace,
    TracedTo,
    TracingInterrupted,
    TracingOff,
    Untraceable,
)
from signer.model.cluster import ClusterView, MachineView
from signer.model.policy import Policy
from signer.model.record import AttestedNode
from signer.model.serving_facts import ServingFacts
from signer.rules.approval import Approver
from signer.rules.builtin_serving import PairState
from signer.rules.host_certificates import HostAuthorityFacts, HostNameFacts
from signer.rules.machine import MachineGone, NoRecord
from signer.rules.machine_match import MatchFacts, NotConsidered, OtherLead

MOST_OWNERS: Final = 8
"""Maximum owners of one bootstrap token in a line of the log."""


@dataclass(frozen=True, slots=True)
class NotReached:
    """The decision ended before that stage."""


NOT_REACHED: Final = NotReached()

OUTCOMES: Final = frozenset(
    kind.__name__ for kind in (VerifiedIdentity, AssertedIdentity, Denied, NotProvableYet, ChallengeIssued)
)
"""Names of the classes of an attestor's outcome. Any other kind of answer is an exception's."""


@dataclass(frozen=True, slots=True)
class SnapshotStage:
    """The Cluster and its policy when the decision began."""

    cluster: ClusterView
    policy: Policy
    now: datetime


@dataclass(frozen=True, slots=True)
class RequestStage:
    """The inputs of the request checks other than the request."""

    attestor: AttestorDescription
    insecure_allowed: bool
    operator_allows: bool
    ca_cert_hashes: frozenset[str]
    signing_ca_cert_hash: str
    ca_not_after: datetime
    waiting_ca_cert_hashes: frozenset[str] = field(default=frozenset(), metadata=MAY_BE_MISSING)
    shared: SharedAuthorities = field(default=NOT_SHARED, metadata=MAY_BE_MISSING)


@dataclass(frozen=True, slots=True)
class Asks:
    """The requester, and the owners of its bootstrap token: a :class:`NodeAsks` or :class:`TokenAsks` for the log."""

    kind: str
    owners: tuple[TokenOwner, ...] = ()
    cause: str = ""
    held_elsewhere: bool = field(default=False, metadata=MAY_BE_MISSING)

    @classmethod
    def of(cls, asks: NodeAsks | TokenAsks, machine: MachineView | None = None) -> Asks:
        """Record it. ``machine`` is the one that the evidence proves, if known by now."""
        if isinstance(asks, NodeAsks):
            return cls(NodeAsks.__name__)
        kind = type(asks.trace).__name__
        match asks.trace:
            case TracedTo(owners, held_elsewhere):
                return cls(kind, _some_of(owners, machine), held_elsewhere=held_elsewhere)
            case TracingOff(cause) | TracingInterrupted(cause):
                return cls(kind, cause=cause)
            case Untraceable():
                return cls(kind)

    def asks(self) -> NodeAsks | TokenAsks:
        """The recorded value.

        Raises:
            InvalidValue: the kind is unknown.
        """
        traces: Mapping[str, Trace] = {
            TracedTo.__name__: TracedTo(frozenset(self.owners), self.held_elsewhere),
            Untraceable.__name__: Untraceable(),
            TracingOff.__name__: TracingOff(self.cause),
            TracingInterrupted.__name__: TracingInterrupted(self.cause),
        }
        if self.kind == NodeAsks.__name__:
            return NodeAsks()
        if self.kind not in traces or (self.kind == TracedTo.__name__ and not self.owners):
            raise InvalidValue("asks is of an unknown kind")
        return TokenAsks(traces[self.kind])


def _some_of(owners: frozenset[TokenOwner], machine: MachineView | None) -> tuple[TokenOwner, ...]:
    """The owners that the replay needs: one that owns the Machine, if any, and some of the others.

    If the operator preset one token for all Machines, it has thousands of owners, too many for each line.
    """
    own = frozenset(owner for owner in owners if machine is not None and owner.is_owner_of(machine))
    some = (*heapq.nsmallest(1, own, key=_order), *heapq.nsmallest(MOST_OWNERS, owners - own, key=_order))
    return tuple(sorted(some[:MOST_OWNERS], key=_order))


def _order(owner: TokenOwner) -> tuple[str, str]:
    return str(owner), owner.uid


@dataclass(frozen=True, slots=True)
class LeadStage:
    """The facts that lead to a Machine that shows no provider ID: :class:`~signer.rules.machine_match.OtherLead`."""

    asks: Asks
    machine: MachineView | MachineGone
    record: AttestedNode | NoRecord
    holders: tuple[str, ...]

    @classmethod
    def of(cls, facts: MatchFacts) -> LeadStage | NotReached:
        """Record them, if they were considered."""
        lead = facts.lead
        if isinstance(lead, NotConsidered):
            return NOT_REACHED
        machine = lead.machine if isinstance(lead.machine, MachineView) else None
        return cls(Asks.of(facts.asks, machine), lead.machine, lead.record, lead.holders)

    def lead(self) -> OtherLead:
        """The recorded value."""
        return OtherLead(self.machine, self.record, self.holders)


@dataclass(frozen=True, slots=True)
class ClaimStage:
    """The facts that the attestor was told besides the request."""

    asks: Asks
    recorded_identity: str
    """The identity that it proved for the Machine before; empty if none."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The attestor's outcome."""

    kind: str
    """Name of the class of the outcome, or of the exception."""
    reason: str = ""
    message: str = ""
    provider_id: str = ""
    identity: str = ""
    binding: str = ""
    """Hexadecimal; for a :class:`VerifiedIdentity`."""
    node_names: tuple[str, ...] = ()
    dns_names: tuple[str, ...] = ()
    ip_addresses: tuple[IPAddress, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    retry_after: timedelta = timedelta()
    challenge: str = ""
    """Digest of the challenge."""
    hardware: str = field(default="", metadata=MAY_BE_MISSING)
    hardware_identity: str = field(default="", metadata=MAY_BE_MISSING)

    @classmethod
    def of(cls, outcome: Outcome) -> Answer:
        """Record an outcome."""
        kind = type(outcome).__name__
        match outcome:
            case VerifiedIdentity():
                return cls(
                    kind,
                    provider_id=outcome.provider_id,
                    identity=outcome.identity,
                    binding=outcome.binding.value.hex(),
                    node_names=tuple(outcome.node_names),
                    dns_names=tuple(outcome.dns_names),
                    ip_addresses=tuple(outcome.ip_addresses),
                    annotations=dict(outcome.annotations),
                    hardware=outcome.hardware,
                    hardware_identity=outcome.hardware_identity,
                )
            case AssertedIdentity():
                return cls(kind, provider_id=outcome.provider_id, identity=outcome.identity)
            case Denied():
                return cls(kind, outcome.reason, outcome.message)
            case NotProvableYet():
                return cls(kind, outcome.reason, outcome.message, retry_after=outcome.retry_after)
            case ChallengeIssued():
                return cls(kind, challenge=digest_of(outcome.challenge))

    def without_words(self) -> Answer:
        """The answer without message and pause. A replay must give the same; messages and pauses may differ."""
        return replace(self, message="", retry_after=timedelta())

    def outcome(self, binding: Binding) -> Outcome:
        """The recorded outcome. ``binding`` is the request's, which a verified identity must have.

        Raises:
            BindingMismatch: it has another one.
            InvalidValue: the answer is not a valid outcome.
        """
        try:
            match self.kind:
                case VerifiedIdentity.__name__:
                    return VerifiedIdentity(
                        self.provider_id,
                        self.identity,
                        binding.prove(bytes.fromhex(self.binding)),
                        self.node_names,
                        self.dns_names,
                        self.ip_addresses,
                        self.annotations,
                        self.hardware,
                        self.hardware_identity,
                    )
                case AssertedIdentity.__name__:
                    return AssertedIdentity(self.provider_id, self.identity)
                case Denied.__name__:
                    return Denied(self.reason, self.message)
                case NotProvableYet.__name__:
                    return NotProvableYet(self.reason, self.message, self.retry_after)
                case ChallengeIssued.__name__:
                    return ChallengeIssued(self.challenge)
        except ValueError as error:
            raise InvalidValue(f"the attestor's answer: {error}") from error
        raise InvalidValue("the attestor's answer is of an unknown kind")


@dataclass(frozen=True, slots=True)
class AnswerStage:
    """The attestor's outcome, and the answers to its own calls."""

    answer: Answer
    recorded_calls: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class MachineStage:
    """The inputs of the checks of the Machine."""

    record: AttestedNode | NoRecord
    recorded_machine: MachineView | MachineGone
    others_called_so: tuple[MachineView, ...]
    other_names: tuple[AttestedNode, ...]
    conflicting_names: frozenset[str]
    serving: ServingFacts = field(default=ServingFacts(), metadata=MAY_BE_MISSING)


@dataclass(frozen=True, slots=True)
class FormerInstanceStage:
    """The attestor's answer about the instance that had the node name before, and the answers to its own calls."""

    kind: str
    """Name of the class of the answer."""
    message: str
    recorded_calls: tuple[Mapping[str, Any], ...]

    @classmethod
    def of(cls, termination: Termination, recorded_calls: Iterable[Mapping[str, Any]]) -> FormerInstanceStage:
        """Record an answer."""
        message = "" if isinstance(termination, InstanceGone) else termination.message
        return cls(type(termination).__name__, message, tuple(recorded_calls))

    def termination(self) -> Termination:
        """The recorded answer.

        Raises:
            InvalidValue: it is not a valid answer.
        """
        try:
            match self.kind:
                case InstanceGone.__name__:
                    return InstanceGone()
                case InstanceExists.__name__:
                    return InstanceExists(self.message)
                case TerminationNotProvable.__name__:
                    return TerminationNotProvable(self.message)
        except ValueError as error:
            raise InvalidValue(f"the answer about the former instance: {error}") from error
        raise InvalidValue("the answer about the former instance is of an unknown kind")


@dataclass(frozen=True, slots=True)
class HostKeysStage:
    """The inputs of the answer to the host keys in a request."""

    host_keys_oid: str
    """The OID that counts as the extension with host keys."""
    unavailable: str = ""
    """Why no host authority could sign; empty if one could."""
    authority: HostAuthorityFacts | NotReached = NOT_REACHED
    holders: tuple[AttestedNode, ...] = ()
    """Records of other identities with one of the keys."""
    names: HostNameFacts | NotReached = NOT_REACHED
    """Set once the host keys are proven."""


@dataclass(frozen=True, slots=True)
class StandingStage:
    """The attestor's answer about the recorded identity, and the answers to its own questions."""

    hardware: str
    """The other name of the hardware that is reserved for the Machine; empty if none is."""
    answer: Answer
    recorded_calls: tuple[Mapping[str, Any], ...]

    @classmethod
    def of(cls, hardware: str, standing: Standing, recorded_calls: Iterable[Mapping[str, Any]]) -> StandingStage:
        """Record an answer."""
        answer = Answer(StillAllowed.__name__) if isinstance(standing, StillAllowed) else Answer.of(standing)
        return cls(hardware, answer, tuple(recorded_calls))

    def standing(self) -> Standing:
        """The recorded answer.

        Raises:
            InvalidValue: it is not a valid answer.
        """
        answer = self.answer
        try:
            match answer.kind:
                case StillAllowed.__name__:
                    return StillAllowed()
                case Denied.__name__:
                    return Denied(answer.reason, answer.message)
                case NotProvableYet.__name__:
                    return NotProvableYet(answer.reason, answer.message, answer.retry_after)
        except ValueError as error:
            raise InvalidValue(f"the answer about the recorded identity: {error}") from error
        raise InvalidValue("the answer about the recorded identity is of an unknown kind")


@dataclass(frozen=True, slots=True)
class BuiltinStage:
    """The inputs of the checks of a built-in serving request."""

    record: AttestedNode | NoRecord
    machine: MachineView | MachineGone
    operator_allows: bool = False
    pair: PairState = PairState.NOT_RESERVED
    conflicting_names: frozenset[str] = frozenset()
    serving: ServingFacts = field(default=ServingFacts(), metadata=MAY_BE_MISSING)
    standing: StandingStage | NotReached = field(default=NOT_REACHED, metadata=MAY_BE_MISSING)
    """Lines of controllers that did not ask have none."""


@dataclass(slots=True)
class DecisionInputs:
    """All inputs of one decision. Each stage is set when it is reached, and again if it is repeated.

    The decision writes it and never reads it.
    """

    snapshot: SnapshotStage | NotReached = NOT_REACHED
    request: RequestStage | NotReached = NOT_REACHED
    claimed: tuple[MachineView, ...] | NotReached = NOT_REACHED
    """The Machines of the Cluster with the claimed provider ID when the attestor was called."""
    claimed_lead: LeadStage | NotReached = field(default=NOT_REACHED, metadata=MAY_BE_MISSING)
    """If none has it: what leads to a Machine that shows no provider ID, when the attestor was called."""
    claim: ClaimStage | NotReached = NOT_REACHED
    answer: AnswerStage | NotReached = NOT_REACHED
    matched: tuple[MachineView, ...] | NotReached = NOT_REACHED
    """The Machines of the Cluster with the proven provider ID afterwards."""
    matched_lead: LeadStage | NotReached = field(default=NOT_REACHED, metadata=MAY_BE_MISSING)
    """If none has it: what leads to a Machine that shows no provider ID, afterwards."""
    machine: MachineStage | NotReached = NOT_REACHED
    token: Asks | NotReached = NOT_REACHED
    former_instance: FormerInstanceStage | NotReached = field(default=NOT_REACHED, metadata=MAY_BE_MISSING)
    reserved: bool = False
    """Whether identity and Machine were, or became, reserved for each other."""
    host_keys: HostKeysStage | NotReached = field(default=NOT_REACHED, metadata=MAY_BE_MISSING)
    approver: Approver | NotReached = field(default=NOT_REACHED, metadata=MAY_BE_MISSING)
    """Of a request that is approved already."""
    builtin: BuiltinStage | NotReached = NOT_REACHED

    @property
    def is_for_an_allowed_attestor(self) -> bool:
        """Whether the decision reached a stage for which policy and configuration must allow the attestor."""
        return not (isinstance(self.request, NotReached) and isinstance(self.approver, NotReached))

    def without_seals(self) -> DecisionInputs:
        """The same without the seals of records, which a replay does not need."""
        copy = replace(self)
        if isinstance(copy.machine, MachineStage):
            stage = copy.machine
            copy.machine = replace(
                stage,
                record=_unsealed(stage.record),
                other_names=tuple(replace(record, seal="") for record in stage.other_names),
            )
        if isinstance(copy.claimed_lead, LeadStage):
            copy.claimed_lead = replace(copy.claimed_lead, record=_unsealed(copy.claimed_lead.record))
        if isinstance(copy.matched_lead, LeadStage):
            copy.matched_lead = replace(copy.matched_lead, record=_unsealed(copy.matched_lead.record))
        if isinstance(copy.host_keys, HostKeysStage):
            holders = tuple(replace(record, seal="") for record in copy.host_keys.holders)
            copy.host_keys = replace(copy.host_keys, holders=holders)
        if isinstance(copy.builtin, BuiltinStage):
            copy.builtin = replace(copy.builtin, record=_unsealed(copy.builtin.record))
        return copy


def _unsealed(record: AttestedNode | NoRecord) -> AttestedNode | NoRecord:
    return record if isinstance(record, NoRecord) else replace(record, seal="")
