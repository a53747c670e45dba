"""Asks the attestor that proved a recorded identity whether the operator still allows it."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from attestors.contract import AttestedBefore, DeniesIdentities, Standing, StillAllowed
from attestors.registry import AttestorFailed, attestor_code
from signer.audit.decision_inputs import BuiltinStage, StandingStage
from signer.audit.recorded_calls import CallRecorder
from signer.decision.attestor_set import AttestorTimings
from signer.decision.snapshot import Snapshot
from signer.model.decision import Deferred
from signer.model.reasons import Reason
from signer.model.record import AttestedIdentity

_LOG: Final = logging.getLogger(__name__)


def ask_standing(identity: AttestedIdentity, hardware: str, snapshot: Snapshot, timings: AttestorTimings) -> Standing:
    """The answer of the attestor that proved ``identity``. One that denies no identities allows each.

    Raises:
        Deferred: the attestor cannot be asked, failed or gave no answer.
    """
    provider, cluster = identity.provider, snapshot.cluster.key
    plugin = snapshot.attestors.ready(provider).server_plugin
    recorder = CallRecorder()
    standing: object = StillAllowed()
    if isinstance(plugin, DeniesIdentities):
        try:
            with attestor_code(), timings.of(provider, cluster):
                standing = plugin.standing_of(AttestedBefore(identity.identity, hardware, recorder))
        except AttestorFailed as failed:
            _LOG.error(
                "an attestor failed", exc_info=failed.fault, extra={"cluster": str(cluster), "provider": provider}
            )
            raise Deferred(
                Reason.INTERNAL_ERROR, f"attestor {provider} failed with {failed}; see the controller's log"
            ) from failed
    if not isinstance(standing, Standing):
        raise Deferred(
            Reason.INTERNAL_ERROR,
            f"attestor {provider} returned {type(standing).__name__} about a recorded identity, which is no answer",
        )
    stage = snapshot.decision_inputs.builtin
    if isinstance(stage, BuiltinStage):
        stated = StandingStage.of(hardware, standing, recorder.recorded)
        snapshot.decision_inputs.builtin = replace(stage, standing=stated)
    return standing
