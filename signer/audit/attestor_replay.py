"""Replays an attestor: runs its own code over the logged evidence, with the recorded answers to its calls."""

from __future__ import annotations

from types import MappingProxyType

from attestors.contract import (
    AnswerNotRecorded,
    AttestationRequest,
    AttestedBefore,
    ClaimedMachine,
    DeniesIdentities,
    FormerInstance,
    InstanceTerminationProver,
    MachineMatch,
    NoClaimedMachine,
    NoManagementCluster,
    NoRecordedIdentity,
    Outcome,
    RecordedIdentity,
    ServerPlugin,
    Standing,
    StillAllowed,
    Termination,
    TerminationNotProvable,
)
from attestors.registry import AttestorFailed, attestor_code
from attestors.wire import binding as binding_format
from attestors.wire.binding import Binding, BindingMismatch
from attestors.wire.evidence import MalformedEvidence
from attestors.wire.names import Purpose
from signer.audit.decision_inputs import (
    OUTCOMES,
    Answer,
    AnswerStage,
    ClaimStage,
    FormerInstanceStage,
    NotReached,
    StandingStage,
)
from signer.audit.decision_line import DecisionLine
from signer.audit.errors import DecisionInputsEnd, Inconsistent
from signer.audit.recorded_calls import RecordedManagementCluster, ReplayedCalls
from signer.audit.replay_attestors import NotAsked, ReplayAttestors
from signer.model.cluster import MACHINE_KIND, MachineView
from signer.model.decision import Deferred, Refused
from signer.model.reasons import Reason
from signer.model.record import AttestedNode
from signer.model.signing_request import SigningRequest
from signer.rules.claim import requester_credential, role_of
from signer.rules.machine_match import FoundMachine
from signer.rules.request import claimed_provider_id

_BINDING_MISMATCH = BindingMismatch.__name__
_MALFORMED_EVIDENCE = MalformedEvidence.__name__


async def answered(
    line: DecisionLine, request: SigningRequest, claimed: FoundMachine, plugins: ReplayAttestors, taken: list[str]
) -> tuple[Outcome, Binding]:
    """The attestor's outcome and the request's binding. ``taken`` gets the parts that could not be replayed.

    Raises:
        Refused, Deferred: as the controller raises them for an error of the attestor.
        DecisionInputsEnd: the attestor was not called, or failed.
        Inconsistent: the attestor's outcome is not the logged one.
    """
    claim, stage = line.decision_inputs.claim, line.decision_inputs.answer
    if isinstance(claim, NotReached) or isinstance(stage, NotReached):
        raise DecisionInputsEnd("the attestor's answer")
    attestation = _attestation_request(line, request, claimed, claim)
    again = await _again(attestation, stage, line, request, plugins)
    if isinstance(again, NotAsked):
        taken.append(f"the attestor's answer: {again.why}")
    elif again.without_words() != stage.answer.without_words():
        raise Inconsistent(f"the attestor answers {_shown(again)}, and {_shown(stage.answer)} is logged")
    return _outcome(stage.answer, attestation.binding), attestation.binding


async def terminated(
    record: AttestedNode,
    stage: FormerInstanceStage,
    provider: str,
    plugin: ServerPlugin | NotAsked,
    taken: list[str],
) -> Termination:
    """The attestor's answer about the former instance, which ``record`` names. ``taken`` gets it if it could not be
    replayed.

    Raises:
        Inconsistent: the attestor's answer is not the logged one.
    """
    logged = stage.termination()
    if isinstance(plugin, NotAsked):
        taken.append(f"the attestor's answer about the former instance: {plugin.why}")
        return logged
    again: Termination = TerminationNotProvable("the attestor was not asked")
    if record.identity.provider == provider and isinstance(plugin, InstanceTerminationProver):
        calls = ReplayedCalls(stage.recorded_calls)
        former = FormerInstance(record.identity.identity, record.machine.provider_id, calls)
        try:
            again = await plugin.termination_of(former)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin's bug says nothing about the log
            why = str(error) if isinstance(error, AnswerNotRecorded) else f"it fails with {type(error).__name__}"
            taken.append(f"the attestor's answer about the former instance: {why}")
            return logged
    if type(again) is not type(logged):
        raise Inconsistent(
            f"the attestor answers {type(again).__name__} about the former instance, and {stage.kind} is logged"
        )
    return logged


def stood(record: AttestedNode, stage: StandingStage, plugin: ServerPlugin | NotAsked, taken: list[str]) -> Standing:
    """The attestor's answer about the identity of ``record``. ``taken`` gets it if it could not be replayed.

    Raises:
        Inconsistent: the attestor's answer is not the logged one.
    """
    logged = stage.standing()
    if isinstance(plugin, NotAsked):
        taken.append(f"the attestor's answer about the recorded identity: {plugin.why}")
        return logged
    again: Standing = StillAllowed()
    if isinstance(plugin, DeniesIdentities):
        attested = AttestedBefore(record.identity.identity, stage.hardware, ReplayedCalls(stage.recorded_calls))
        try:
            again = plugin.standing_of(attested)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin's bug says nothing about the log
            why = str(error) if isinstance(error, AnswerNotRecorded) else f"it fails with {type(error).__name__}"
            taken.append(f"the attestor's answer about the recorded identity: {why}")
            return logged
    repeated = StandingStage.of(stage.hardware, again, ()).answer
    if repeated.without_words() != stage.answer.without_words():
        raise Inconsistent(
            f"the attestor answers {_shown(repeated)} about the recorded identity, and {_shown(stage.answer)} is logged"
        )
    return logged


def _shown(answer: Answer) -> str:
    return f"{answer.kind} {answer.reason or answer.identity}".strip()


def _outcome(answer: Answer, binding: Binding) -> Outcome:
    if answer.kind == _BINDING_MISMATCH:
        raise Refused(Reason.BINDING_MISMATCH, answer.message)
    if answer.kind == _MALFORMED_EVIDENCE:
        raise Refused(Reason.MALFORMED_EVIDENCE, answer.message)
    if answer.kind == TimeoutError.__name__:
        raise Deferred(Reason.ATTESTOR_UNAVAILABLE, answer.message)
    if answer.kind not in OUTCOMES:
        raise DecisionInputsEnd("the attestor's answer")
    try:
        return answer.outcome(binding)
    except BindingMismatch as error:
        raise Inconsistent("the attestor's answer is for another request's binding") from error
    except ValueError as error:
        raise Inconsistent(str(error)) from error


async def _again(
    attestation: AttestationRequest,
    stage: AnswerStage,
    line: DecisionLine,
    request: SigningRequest,
    plugins: ReplayAttestors,
) -> Answer | NotAsked:
    snapshot = line.decision_inputs.snapshot
    if isinstance(snapshot, NotReached):
        return NotAsked("the policy is not known")
    signer = request.header.signer
    plugin = plugins.of(signer.provider, snapshot.policy)
    if isinstance(plugin, NotAsked):
        return plugin
    verify = plugin.verify_client if signer.purpose is Purpose.CLIENT else plugin.verify_serving
    try:
        with attestor_code(BindingMismatch, MalformedEvidence, AnswerNotRecorded):
            return Answer.of(await verify(attestation))
    except BindingMismatch as error:
        return Answer(_BINDING_MISMATCH, message=str(error))
    except MalformedEvidence as error:
        return Answer(_MALFORMED_EVIDENCE, message=str(error))
    except AnswerNotRecorded as error:
        return NotAsked(str(error))
    except AttestorFailed as failed:
        if stage.answer.kind == str(failed):
            return stage.answer
        return NotAsked(f"attestor {signer.provider} fails with {failed}")


def _attestation_request(
    line: DecisionLine, request: SigningRequest, claimed: FoundMachine, claim: ClaimStage
) -> AttestationRequest:
    snapshot = line.decision_inputs.snapshot
    if isinstance(snapshot, NotReached):
        raise Inconsistent("the attestor was called without a policy")
    stage = line.decision_inputs.answer
    recorded_calls = ReplayedCalls(() if isinstance(stage, NotReached) else stage.recorded_calls)
    machine = claimed.machine
    told = machine if machine.kind == MACHINE_KIND else NoClaimedMachine(pool=machine.name)
    credential = requester_credential(claim.asks.asks(), told)
    return AttestationRequest(
        provider_id=claimed_provider_id(request),
        evidence=request.evidence,
        binding=binding_format.compute(
            evidence_version=request.evidence.version,
            cluster=request.evidence.cluster,
            signer_name=request.header.signer,
            subject_public_key_info=request.certificate_request.subject_public_key_info,
        ),
        cluster_namespace=snapshot.cluster.key.namespace,
        cluster_name=snapshot.cluster.key.name,
        cluster_uid=snapshot.cluster.uid,
        csr_uid=request.header.uid,
        dns_names=request.certificate_request.dns_names,
        ip_addresses=request.certificate_request.ip_addresses,
        now=snapshot.now,
        machine=told if isinstance(told, NoClaimedMachine) else _told(told, claim, claimed.match),
        credential=credential,
        management=RecordedManagementCluster(NoManagementCluster(), recorded_calls),
        recorded_calls=recorded_calls,
    )


def _told(machine: MachineView, claim: ClaimStage, match: MachineMatch) -> ClaimedMachine:
    recorded = claim.recorded_identity
    return ClaimedMachine(
        name=machine.name,
        annotations=MappingProxyType(dict(machine.annotations)),
        role=role_of(machine),
        recorded=RecordedIdentity(recorded) if recorded else NoRecordedIdentity(),
        match=match,
    )
