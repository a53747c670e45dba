"""How far nodes and API servers are, and until when a rotation can wait: for status and metrics. Pure.

A proof (:mod:`signer.rotation.proofs`) says whether one step may end, and names the first members that hold it. What is
here names every member that is not yet as the whole direction of the rotation wants it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from signer.authority.presented import Presented
from signer.model.fields import format_time
from signer.rotation.authorities import AuthorityKind, NotMade
from signer.rotation.facts import Acceptance, Facts, NodeFacts, NotObserved, ServerFacts, ServersFacts, TrustFacts
from signer.rotation.phases import COMPLETING_STEPS, Step
from signer.rotation.record import Moment, NotYet, RotationRecord

MOST_ROLLOUTS: Final = 100
_OLD: Final = frozenset({Presented.OLD, Presented.OLD_LINKED})
_NEW: Final = frozenset({Presented.NEW, Presented.NEW_LINKED})
_LINKED: Final = _NEW | {Presented.OLD_LINKED}


def lagging_nodes(record: RotationRecord, facts: Facts) -> tuple[str, ...]:
    """Nodes that are not proven to trust and use the CA to which the rotation leads; sorted. Machines whose node never
    attested are among them, unless the rotation goes back: then they have nothing to return from.
    """
    unattested = () if record.goes_back else facts.unattested
    return tuple(sorted([*(node.node for node in facts.nodes if _lags(record, node)), *unattested]))


def _lags(record: RotationRecord, node: NodeFacts) -> bool:
    made = record.authority(AuthorityKind.CLUSTER).new
    if isinstance(made, NotMade):
        return not record.goes_back
    new = made.public_key_hash
    if record.goes_back:
        return new in (node.evidence, node.client, node.serving)
    if node.evidence != new or node.client != new:
        return True
    return record.step.is_at_least(Step.SIGN_SERVING) and node.serving not in ("", new)


def lagging_servers(record: RotationRecord, facts: Facts) -> tuple[str, ...] | NotObserved:
    """Machines whose API server is not yet as the rotation's direction wants it, or could not be asked; sorted."""
    if not isinstance(facts.servers, ServersFacts):
        return facts.servers
    lagging = (server.machine for server in facts.servers.seen if not _is_as_wanted(record, server))
    return tuple(sorted([*lagging, *facts.servers.unseen]))


def _is_as_wanted(record: RotationRecord, server: ServerFacts) -> bool:
    if record.goes_back:
        return server.presents in _OLD
    if server.new is not Acceptance.ACCEPTED:
        return False
    if record.step not in COMPLETING_STEPS:
        return server.presents in _LINKED
    refuses = server.old is Acceptance.REFUSED or not record.step.is_at_least(Step.DROP_OLD)
    return server.presents in _NEW and refuses


def pending_rollouts(record: RotationRecord, facts: Facts) -> list[dict[str, Any]]:
    """The first MachineDeployments and MachinePools with nodes that are not proven to trust the new CA, as
    ``pendingWorkersRollouts``. Empty once the completion was ordered, and on the way back.
    """
    made = record.authority(AuthorityKind.CLUSTER).new
    if isinstance(made, NotMade) or not _may_still_wait(record):
        return []
    machines = {node.machine for node in facts.nodes if node.evidence != made.public_key_hash} | set(facts.unattested)
    groups = sorted({facts.worker_groups[machine] for machine in machines if machine in facts.worker_groups})
    began = record.at(Moment.STEP)
    waits = record.step is Step.NODES_TRUST and not isinstance(began, NotYet)
    since = {"lastInitiationTime": format_time(began)} if waits and not isinstance(began, NotYet) else {}
    return [{"name": name, **since} for name in groups[:MOST_ROLLOUTS]]


def link_end(facts: Facts) -> datetime | NotObserved:
    """When the published link certificate ends."""
    if not isinstance(facts.trust, TrustFacts):
        return NotObserved("the Secret with the CAs that are trusted is not readable")
    end = facts.trust.link_not_after
    return end if isinstance(end, datetime) else NotObserved("no link certificate is published")


def complete_before(record: RotationRecord, facts: Facts) -> datetime | NotObserved:
    """When ``complete-ca-rotation`` must be ordered at the latest: the overlap before the link certificate ends, or the
    old CA if it ends first.
    """
    if not _may_still_wait(record):
        return NotObserved("the completion was ordered, or nothing is to be completed")
    ends = [record.authority(AuthorityKind.CLUSTER).old.not_after]
    link = link_end(facts)
    if isinstance(link, datetime):
        ends.append(link)
    return min(ends) - record.waits.overlap


def _may_still_wait(record: RotationRecord) -> bool:
    """Whether the completion is yet to be ordered."""
    return not (record.phase.is_over or record.goes_back or record.step in COMPLETING_STEPS)
