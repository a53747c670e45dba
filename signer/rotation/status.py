"""``status.credentials.rotation.certificateAuthorities`` of a policy: the record and the last facts, for people. Pure.

The shape is Gardener's (``ShootCredentialsRotation``), with fields of ours. GEP-0018's phase is derived.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from signer.model.fields import format_time
from signer.rotation.authorities import AuthorityKind, AuthorityReference, NotMade
from signer.rotation.facts import Acceptance, Facts, NotObserved, ServersFacts
from signer.rotation.phases import GEPPhase, RollbackAvailable, SigningPairs, gep_phase
from signer.rotation.plan import rollback_possible
from signer.rotation.progress import complete_before, lagging_nodes, link_end, pending_rollouts
from signer.rotation.record import Moment, NotYet, RotationRecord

MOST_LAGGING: Final = 10
MOST_SERVERS: Final = 16
_TIMES: Final = (
    ("lastInitiationTime", Moment.STARTED),
    ("lastInitiationFinishedTime", Moment.PREPARED),
    ("lastCompletionTriggeredTime", Moment.COMPLETION_TRIGGERED),
    ("lastCompletionTime", Moment.FINISHED),
    ("linkNotAfter", Moment.LINK_ENDS),
)


def rotation_status(record: RotationRecord, facts: Facts | None) -> dict[str, Any]:
    """The status of the rotation; ``facts`` are those of the last pass, None if there was none."""
    cluster = record.authority(AuthorityKind.CLUSTER)
    new = cluster.new
    available = record.rollback_available if facts is None else rollback_possible(record, facts)
    status: dict[str, Any] = {
        "phase": record.phase.value,
        "rotationID": record.rotation_id,
        "step": record.step.value,
        "rollbackAvailable": available.value if not record.phase.is_over else RollbackAvailable.NONE.value,
        "current": _authority(cluster.old),
        "skippedGates": [{"gate": one.gate.value, "time": format_time(one.at)} for one in record.skipped],
    }
    proposed = gep_phase(record.phase)
    if proposed is not GEPPhase.NONE:  # API servers of 1.20 treat an empty string in a custom resource as null
        status["gepPhase"] = proposed.value
    for name, moment in _TIMES:
        at = record.at(moment)
        if isinstance(at, datetime):
            status[name] = format_time(at)
    if record.signing_pairs is SigningPairs.SPLIT:
        status["signingPairs"] = record.signing_pairs.value
    if not isinstance(new, NotMade):
        status["next"] = _authority(new)
    if facts is not None:
        status |= _deadlines(record, facts)
        if pending := pending_rollouts(record, facts):
            status["pendingWorkersRollouts"] = pending
    if facts is not None and not record.phase.is_over:
        status["nodes"] = _nodes(record, facts)
        status["apiServers"] = _servers(facts)
    return status


def _deadlines(record: RotationRecord, facts: Facts) -> dict[str, str]:
    if record.phase.is_over:
        return {}
    times = {"linkNotAfter": _link_end(record, facts), "completeBefore": complete_before(record, facts)}
    return {name: format_time(at) for name, at in times.items() if isinstance(at, datetime)}


def _link_end(record: RotationRecord, facts: Facts) -> datetime | NotObserved:
    """By the record: API servers present their link until they are replaced, and Secret ``<cluster>-trust`` may have
    none by then.
    """
    recorded = record.at(Moment.LINK_ENDS)
    return link_end(facts) if isinstance(recorded, NotYet) else recorded


def _authority(reference: AuthorityReference) -> dict[str, str]:
    return {"hash": reference.public_key_hash, "notAfter": format_time(reference.not_after)}


def _nodes(record: RotationRecord, facts: Facts) -> dict[str, Any]:
    made = record.authority(AuthorityKind.CLUSTER).new
    new = "" if isinstance(made, NotMade) else made.public_key_hash
    return {
        "total": len(facts.nodes) + len(facts.unattested),
        "trustNew": sum(node.evidence == new for node in facts.nodes) if new else 0,
        "clientByNew": sum(node.client == new for node in facts.nodes) if new else 0,
        "servingByNew": sum(node.serving == new for node in facts.nodes) if new else 0,
        "lagging": list(lagging_nodes(record, facts)[:MOST_LAGGING]),
    }


def _servers(facts: Facts) -> list[dict[str, Any]]:
    if not isinstance(facts.servers, ServersFacts):
        return []
    seen = [
        {
            "machine": one.machine,
            "presents": one.presents.value,
            "acceptsOld": _answer(one.old),
            "acceptsNew": _answer(one.new),
            "time": format_time(facts.servers.at),
        }
        for one in facts.servers.seen
    ]
    unseen = [
        {
            "machine": name,
            "presents": "Unknown",
            "acceptsOld": "Unknown",
            "acceptsNew": "Unknown",
            "time": format_time(facts.servers.at),
        }
        for name in sorted(facts.servers.unseen)
    ]
    return (seen + unseen)[:MOST_SERVERS]


def _answer(answer: Acceptance | NotObserved) -> str:
    if isinstance(answer, NotObserved):
        return "Unknown"
    return answer.value
