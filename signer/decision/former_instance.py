"""Asks an attestor whether the instance that had a node name before is gone (``nodeNameReuse:
WhenFormerInstanceIsGone``).
"""

from __future__ import annotations

from attestors.contract import (
    FormerInstance,
    InstanceTerminationProver,
    Termination,
    TerminationNotProvable,
)
from signer.audit.decision_inputs import FormerInstanceStage
from signer.audit.recorded_calls import CallRecorder
from signer.decision.attestation import Attestation
from signer.decision.snapshot import Snapshot
from signer.model.decision import Deferred
from signer.model.reasons import Reason
from signer.model.record import AttestedIdentity, MachineKey


async def ask_whether_gone(
    former: AttestedIdentity, machine: MachineKey, provider: str, snapshot: Snapshot, attestation: Attestation
) -> Termination:
    """The answer of the attestor ``provider`` about the instance that it proved as ``former`` before.

    Only the attestor that proved the identity can know of it.

    Raises:
        Deferred: the attestor failed or gave no answer in time.
    """
    if former.provider != provider:
        return _without_asking(snapshot, f"it was attested by {former.provider}, and this request by {provider}")
    plugin = snapshot.attestors.ready(provider).server_plugin
    if not isinstance(plugin, InstanceTerminationProver):
        return _without_asking(snapshot, f"attestor {provider} cannot prove that an instance is gone")
    recorder = CallRecorder()
    asked = FormerInstance(former.identity, machine.provider_id, recorder)
    termination = await attestation.guarded(provider, lambda: plugin.termination_of(asked))
    if not isinstance(termination, Termination):
        raise Deferred(
            Reason.INTERNAL_ERROR,
            f"attestor {provider} returned {type(termination).__name__} about a former instance, which is no answer",
        )
    snapshot.decision_inputs.former_instance = FormerInstanceStage.of(termination, recorder.recorded)
    return termination


def _without_asking(snapshot: Snapshot, message: str) -> Termination:
    termination = TerminationNotProvable(message)
    snapshot.decision_inputs.former_instance = FormerInstanceStage.of(termination, ())
    return termination
