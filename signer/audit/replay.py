"""Replays a logged decision: walks the decision's plan over the logged decision inputs.

The replay uses the plans of :mod:`signer.rules.checks` and calls no API server. It trusts only the logged inputs: it
parses the request again, runs every check again, and lets the attestor verify the evidence again with the recorded
answers to its calls.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from attestors.contract import StillAllowed
from attestors.wire.names import SignerName, parse_signer_name
from attestors.wire.provider_id import InvalidOID, read_oids
from signer.audit.attestor_replay import stood
from signer.audit.consistency import require_about, require_consistent, require_same_request
from signer.audit.decision_inputs import BuiltinStage, DecisionInputs, NotReached, SnapshotStage
from signer.audit.decision_line import DecisionLine
from signer.audit.errors import DecisionInputsEnd, Inconsistent
from signer.audit.replay_attestors import ReplayAttestors
from signer.audit.replayed_request import ReplayedRequest, reached
from signer.model.decision import Deferred, Refused
from signer.model.reasons import Reason
from signer.model.signing_request import (
    BuiltinServingRequest,
    Malformed,
    MalformedBuiltinServingRequest,
    NotOurs,
    Settled,
    SigningRequest,
    parse_signing_request,
)
from signer.rules.builtin_serving import (
    AttestedMachine,
    BuiltinRequestFacts,
    BuiltinServingFacts,
    StandingFacts,
    posted_at,
    refuse_malformed,
    the_attested_machine,
)
from signer.rules.checks import decide_builtin_serving, decide_request
from signer.rules.plan import PROCEED, SILENCE, Note, Proceed, Trace
from signer.rules.shape import ClusterFacts, node_name_of


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay."""

    kind: str
    """Kind of the decision; empty if the decision inputs end before one."""
    reason: str
    message: str
    taken: tuple[str, ...]
    """The parts that were not replayed but taken from the line, in a few words each."""


async def replay(line: DecisionLine, plugins: ReplayAttestors, trace: Trace = SILENCE) -> Replayed:
    """Replay the decision of a line.

    Raises:
        Inconsistent: the line contradicts itself.
    """
    require_consistent(line)
    taken: list[str] = []
    kind = reason = message = ""
    try:
        kind, reason = await _decided(line, plugins, taken, trace)
    except Refused as error:
        kind, reason, message = "Deny", str(error.deny.reason), error.deny.message
    except Deferred as error:
        kind, reason, message = "Defer", str(error.defer.reason), error.defer.message
    except DecisionInputsEnd as error:
        message = str(error)
    return Replayed(kind, reason, message, tuple(taken))


async def _decided(line: DecisionLine, plugins: ReplayAttestors, taken: list[str], trace: Trace) -> tuple[str, str]:
    request = line.request
    providers = plugins.registry.providers | _requested_provider(line) | _named_providers(line.decision_inputs)
    try:
        oids = read_oids(request.provider_id_oid)
    except InvalidOID as error:
        raise Inconsistent(f"the line has no valid OID of the provider ID: {error}") from error
    parsed = parse_signing_request(request.manifest(), providers, oids)
    if isinstance(parsed, NotOurs | Settled):
        raise Inconsistent("the controller does not decide such a request")
    require_same_request(line, parsed, plugins)
    if isinstance(parsed, SigningRequest | Malformed):
        return await decide_request(ReplayedRequest(line, parsed, plugins, taken), trace)
    return await _builtin(_ReplayedBuiltinServing(line, parsed, plugins, taken), trace)


def _requested_provider(line: DecisionLine) -> frozenset[str]:
    """The request's provider, which was installed at the time of the decision. It may not be installed here."""
    signer = parse_signer_name(str(line.request.spec.get("signerName", "")))
    return frozenset({signer.provider}) if isinstance(signer, SignerName) else frozenset()


def _named_providers(decision_inputs: DecisionInputs) -> frozenset[str]:
    if isinstance(decision_inputs.snapshot, NotReached):
        return frozenset()
    return frozenset(attestor.provider for attestor in decision_inputs.snapshot.policy.authorized_attestors)


@dataclass(slots=True)
class _ReplayedBuiltinServing:
    """Implements :class:`~signer.rules.supplies.BuiltinSupplies` for a logged request."""

    line: DecisionLine
    parsed: BuiltinServingRequest | MalformedBuiltinServingRequest
    plugins: ReplayAttestors
    taken: list[str]
    snapshot: SnapshotStage = field(init=False)
    request: BuiltinServingRequest = field(init=False)
    found: BuiltinStage = field(init=False)
    attested: AttestedMachine = field(init=False)

    async def policy(self, note: Note) -> Proceed:
        """See BuiltinSupplies."""
        self.snapshot = reached(self.line.decision_inputs.snapshot, "the Cluster and its policy")
        return PROCEED

    async def cluster_facts(self) -> ClusterFacts:
        """See BuiltinSupplies."""
        return self.snapshot

    async def clocks(self, note: Note) -> Proceed:
        """See BuiltinSupplies."""
        return PROCEED

    async def read(self, note: Note) -> Proceed:
        """See BuiltinSupplies."""
        if isinstance(self.parsed, MalformedBuiltinServingRequest):
            raise refuse_malformed(self.parsed.message)
        self.request = self.parsed
        return PROCEED

    async def request_facts(self) -> BuiltinRequestFacts:
        """See BuiltinSupplies."""
        return BuiltinRequestFacts(self.request, self.snapshot.cluster)

    async def record(self, note: Note) -> Proceed:
        """See BuiltinSupplies."""
        self.found = reached(self.line.decision_inputs.builtin, "the node's record")
        node_name = node_name_of(self.request)
        require_about(self.line, node_name)
        self.attested = the_attested_machine(node_name, self.found.record, self.found.machine)
        return PROCEED

    async def serving_facts(self) -> BuiltinServingFacts:
        """See BuiltinSupplies."""
        return BuiltinServingFacts(
            node_name=node_name_of(self.request),
            dns_names=self.request.certificate_request.dns_names,
            ip_addresses=self.request.certificate_request.ip_addresses,
            credential=self.request.header.credential,
            created=posted_at(self.request),
            cluster=self.snapshot.cluster,
            policy=self.snapshot.policy,
            record=self.attested.record,
            machine=self.attested.machine,
            operator_allows=self.found.operator_allows,
            pair=self.found.pair,
            conflicting_names=self.found.conflicting_names,
            serving=self.found.serving,
            now=self.snapshot.now,
        )

    async def recheck_record(self, error: Refused | Deferred) -> None:
        """The logged facts are those after any recheck."""
        raise error

    async def standing_facts(self) -> StandingFacts:
        """See BuiltinSupplies."""
        record, stage = self.attested.record, self.found.standing
        if isinstance(stage, NotReached):  # a controller wrote the line that did not ask
            return StandingFacts(record, "", StillAllowed())
        plugin = self.plugins.of(record.identity.provider, self.snapshot.policy)
        return StandingFacts(record, stage.hardware, stood(record, stage, plugin, self.taken))

    async def recheck_standing(self, error: Refused | Deferred) -> None:
        """The logged facts are those after any recheck."""
        raise error

    async def journal(self, note: Note) -> tuple[str, str]:
        """See BuiltinSupplies."""
        return "ApproveOnly", str(Reason.ATTESTED)


async def _builtin(replayed: _ReplayedBuiltinServing, trace: Trace) -> tuple[str, str]:
    """Replay a built-in serving request. If the policy ignores such requests, the decision is ``LeftAlone`` with the
    reason of the decision that the policy prevented.
    """
    line, snapshot = replayed.line, replayed.line.decision_inputs.snapshot
    left_alone = not (isinstance(snapshot, NotReached) or snapshot.policy.approves_builtin_serving)
    instead_of = ""
    try:
        kind, reason = await decide_builtin_serving(replayed, trace)
    except Refused as error:
        if not left_alone:
            raise
        kind, reason = "Deny", str(error.deny.reason)
    except Deferred as error:
        if not left_alone:
            raise
        kind, reason = "Defer", str(error.defer.reason)
    if left_alone:
        kind, instead_of = "LeftAlone", kind
    if instead_of != line.decision.instead_of:
        raise Inconsistent(f"without the policy the decision would be {instead_of or kind}")
    return kind, reason
