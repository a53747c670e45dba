"""Carries out one move for a grant: one write to the management cluster, or two where GEP-0015 asks for it.

Every write names the version that the facts came from, so a move that was planned on an older one fails with Conflict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Protocol

from signer.access.auditing import log_end, log_issuance
from signer.access.bastion_objects import AsDesired, Change, MakeAnother, bastion_change
from signer.access.conditions import condition_objects
from signer.access.containers.creators import GatewayUsers
from signer.access.containers.nodes import NodeHint, NodeHints, NotKnown
from signer.access.facts import Facts
from signer.access.gathering import Gathered
from signer.access.lifetimes import expiration
from signer.access.parts import RevocationList, Targets
from signer.access.plan import (
    WHY,
    AddFinalizer,
    DeleteBastion,
    DeleteGrant,
    Issue,
    MakeBastion,
    NotIssued,
    RemoveFinalizer,
    RemoveKeepalive,
    Rest,
    Revoke,
    Step,
    WriteRecord,
)
from signer.access.record import BrokenRecord, Closing, GrantRecord, GrantSeals, Live, StoredRecord, with_entries
from signer.access.signing import SignedHop, sign_hops
from signer.access.status_fields import WITHOUT_WAYS, ways_of
from signer.access.store import StoredBastion, StoredGrant
from signer.audit.log import AuditLog, AuditLogUnavailable
from signer.configuration import NamedGateway
from signer.kube.calls import GetCreateReplacePatchDelete
from signer.kube.client import JsonObject
from signer.kube.errors import AlreadyExists, NotFound
from signer.kube.resources import ACCESS_GRANTS, BASTIONS
from signer.model.access import Container
from signer.model.access.grant import FINALIZER, OPERATION_ANNOTATION
from signer.model.cluster import ClusterKey
from signer.model.fields import format_time, items_of, mapping_of, text_of
from signer.model.seal import ControllerKeys
from signer.ssh.available import AvailableAuthorities, SSHAuthoritiesOf
from signer.store.cache import Cache
from signer.store.caches import Caches

_AUTHORITY_CHANGED: Final = "AuthorityChanged"


@dataclass(frozen=True, slots=True)
class Tools:
    """What moves need."""

    management: GetCreateReplacePatchDelete
    caches: Caches
    grants: Cache[StoredGrant]
    bastions: Cache[StoredBastion]
    targets: Targets
    revocation_list: RevocationList
    authorities_of: SSHAuthoritiesOf
    audit_log: AuditLog
    gateway_users: GatewayUsers
    node_hints: NodeHints
    gateway: NamedGateway


class Effects(Protocol):
    """Is told what has happened, after it has."""

    def keepalive_taken(self, gathered: Gathered) -> None:
        """The annotation was removed, and counts as a heartbeat."""
        ...

    def issued(self, gathered: Gathered, hops: tuple[SignedHop, ...]) -> None:
        """Certificates were written."""
        ...

    def closed(self, gathered: Gathered, record: GrantRecord) -> None:
        """The state of the grant's end was written."""
        ...


async def carry_out(step: Step, gathered: Gathered, tools: Tools, keys: ControllerKeys, effects: Effects) -> None:
    """Carry out the step's move.

    Raises:
        ApiError: it may not have happened. Look again.
        NotIssued: no certificates can be made now.
        Deferred: the controller key is not available.
        AuditLogUnavailable: nothing has happened, but that the certificates of a grant that ends are revoked.
    """
    match step.move:
        case Rest():
            if _is_news(step, gathered):
                await _write_status(step, gathered, tools, {})
        case AddFinalizer():
            await _add_finalizer(gathered, tools)
        case WriteRecord():
            await _write_record(step, gathered, tools, keys, effects)
        case Issue() as move:
            await _issue(step, move, gathered, tools, keys, effects)
        case MakeBastion():
            await _make_bastion(gathered, tools)
        case RemoveKeepalive(counts):
            annotations = {OPERATION_ANNOTATION: None}
            await _patch_metadata(gathered, tools, {"annotations": annotations})
            if counts:
                effects.keepalive_taken(gathered)
        case Revoke(cluster, key_ids, until):
            for key_id in key_ids:
                await tools.revocation_list.add(ClusterKey(gathered.cluster.namespace, cluster), key_id, until)
            await _write_record(step, gathered, tools, keys, effects)
        case DeleteBastion():
            await _delete_bastion(gathered, tools)
        case DeleteGrant():
            await _delete_grant(gathered, tools)
        case RemoveFinalizer():
            await _remove_finalizer(gathered, tools)


# Status


def _is_news(step: Step, gathered: Gathered) -> bool:
    """Whether the conditions differ from those that the status shows."""
    stored = gathered.stored
    wanted = [(one.type.value, one.status, one.reason, one.message) for one in step.conditions]
    present = [
        (kind, text_of(one, "status"), text_of(one, "reason"), text_of(one, "message"))
        for kind, one in stored.present_conditions().items()
    ]
    return sorted(wanted) != sorted(present) or stored.observed_generation != stored.metadata.generation


async def _write_record(step: Step, gathered: Gathered, tools: Tools, keys: ControllerKeys, effects: Effects) -> None:
    if not isinstance(step.record, GrantRecord):
        raise TypeError("a step that writes a record has one")
    status = _record_status(step.record, gathered, keys)
    if isinstance(step.record.state, Closing) and _is_new_end(step.record, gathered.facts.record):
        try:
            await log_end(gathered.facts, step.record, WHY[step.record.state.cause], tools.audit_log)
        except AuditLogUnavailable:
            await _revoke(step.record, gathered, tools)
            raise
    if isinstance(step.record.state, Closing):
        status.update(WITHOUT_WAYS)
    await _write_status(step, gathered, tools, status)
    if isinstance(step.record.state, Closing):
        effects.closed(gathered, step.record)
        creator = step.record.creator.username
        tools.gateway_users.ended(gathered.cluster, gathered.facts.metadata.uid, creator)


async def _revoke(record: GrantRecord, gathered: Gathered, tools: Tools) -> None:
    """The end waits for the audit log, but the sessions do not."""
    if isinstance(record.last_end, datetime):
        cluster = ClusterKey(gathered.cluster.namespace, record.cluster)
        for epoch in record.revoked_epochs:
            await tools.revocation_list.add(cluster, record.key_id(gathered.facts.metadata, epoch), record.last_end)


async def _issue(
    step: Step, move: Issue, gathered: Gathered, tools: Tools, keys: ControllerKeys, effects: Effects
) -> None:
    facts = gathered.facts
    available = tools.authorities_of(gathered.cluster)
    if not isinstance(available, AvailableAuthorities) or available.user.public_key.fingerprint != facts.authority:
        raise NotIssued(_AUTHORITY_CHANGED, "another user authority signs since the grant was looked at")
    if not isinstance(step.record, GrantRecord):
        raise TypeError("certificates are made for grants with a record")
    if isinstance(move.facts.grant.target, Container):
        is_renewal = bool(step.record.current(facts.metadata, facts.now))
        creator = move.facts.creator
        tools.gateway_users.require(gathered.cluster, facts.metadata.uid, creator, has_certificate=is_renewal)
    hint = await _node_hint(move, gathered, tools)  # before the journal: nothing waits between it and its write
    hops = sign_hops(move.requests, move.facts.lifetime, available.user, keys, facts.now)
    await log_issuance(facts, move.facts, step.record, hops, tools.audit_log)
    sequence = step.record.sequence + 1 if step.record == facts.record else step.record.sequence
    record = replace(with_entries(step.record, [one.entry for one in hops], facts.now), sequence=sequence)
    status = _record_status(record, gathered, keys)
    status["certificates"] = [one.status for one in hops]
    hosts = tools.targets.known_hosts(move.facts.grant, move.facts.targets)
    status.update(ways_of(move.facts, hosts, tools.gateway, hint))
    await _write_status(step, gathered, tools, status)
    effects.issued(gathered, hops)


async def _node_hint(move: Issue, gathered: Gathered, tools: Tools) -> NodeHint:
    target = move.facts.grant.target
    return await tools.node_hints.of(gathered.cluster, target) if isinstance(target, Container) else NotKnown()


def _is_new_end(record: GrantRecord, before: StoredRecord) -> bool:
    if not isinstance(record.state, Closing):
        return False
    was = before.state if isinstance(before, GrantRecord) else Live()
    return not isinstance(was, Closing) or was.cause is not record.state.cause


def _record_status(record: GrantRecord, gathered: Gathered, keys: ControllerKeys) -> dict[str, Any]:
    facts = gathered.facts
    return {
        "record": GrantSeals(keys).sealed_object(facts.metadata, record),
        "lastHeartbeatTimestamp": format_time(record.heartbeat),
        "expirationTimestamp": format_time(_expires(facts, record)),
    }


def _expires(facts: Facts, record: GrantRecord) -> datetime:
    return expiration(facts.lifetime, record.heartbeat, facts.now)


async def _write_status(step: Step, gathered: Gathered, tools: Tools, status: Mapping[str, Any]) -> None:
    stored = gathered.stored
    metadata = stored.metadata
    conditions = condition_objects(
        step.conditions, stored.present_conditions(), metadata.generation, gathered.facts.now
    )
    changes = {**status, "conditions": conditions, "observedGeneration": metadata.generation}
    path = ACCESS_GRANTS.object(metadata.name, metadata.namespace, "status")
    if "record" in changes and isinstance(gathered.facts.record, BrokenRecord):
        tools.grants.written(await _replaced(path, gathered, tools, changes))
        return
    patch = {
        "metadata": {"resourceVersion": metadata.resource_version},
        "status": _replacing(stored, changes),
    }
    tools.grants.written(await tools.management.patch(path, patch))


async def _replaced(path: str, gathered: Gathered, tools: Tools, changes: Mapping[str, Any]) -> JsonObject:
    """The whole status is written: a merge would leave what somebody put into the former record."""
    metadata = gathered.stored.metadata
    found = await tools.management.get(ACCESS_GRANTS.object(metadata.name, metadata.namespace))
    if text_of(mapping_of(found, "metadata"), "resourceVersion") != metadata.resource_version:
        return found  # look again
    kept = {name: value for name, value in changes.items() if value is not None}
    return await tools.management.replace(path, {**found, "status": kept})


def _replacing(stored: StoredGrant, changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """A merge patch (RFC 7396) merges objects: fields of the former record that the new one lacks have to go."""
    record = changes.get("record")
    if not isinstance(record, dict):
        return changes
    gone = dict.fromkeys(stored.record_fields() - record.keys())
    return {**changes, "record": {**gone, **record}}


# Metadata


async def _patch_metadata(gathered: Gathered, tools: Tools, fields: Mapping[str, Any]) -> None:
    metadata = gathered.stored.metadata
    patch = {"metadata": {"resourceVersion": metadata.resource_version, "uid": metadata.uid, **fields}}
    tools.grants.written(await tools.management.patch(ACCESS_GRANTS.object(metadata.name, metadata.namespace), patch))


async def _add_finalizer(gathered: Gathered, tools: Tools) -> None:
    metadata = gathered.stored.metadata
    found = await tools.management.get(ACCESS_GRANTS.object(metadata.name, metadata.namespace))
    present = mapping_of(found, "metadata")
    if text_of(present, "resourceVersion") != metadata.resource_version:
        tools.grants.written(found)
        return
    fields: dict[str, Any] = {"finalizers": [*metadata.finalizers, FINALIZER]}
    view = tools.caches.clusters.get(gathered.cluster.namespace, gathered.cluster.name)
    owners = items_of(present, "ownerReferences")
    if view is not None and not any(isinstance(one, Mapping) and one.get("uid") == view.uid for one in owners):
        owner = {
            "apiVersion": tools.caches.version.clusters.api_version,
            "kind": "Cluster",
            "name": view.key.name,
            "uid": view.uid,
        }
        fields["ownerReferences"] = [*owners, owner]
    await _patch_metadata(gathered, tools, fields)


async def _remove_finalizer(gathered: Gathered, tools: Tools) -> None:
    metadata = gathered.stored.metadata
    left = [one for one in metadata.finalizers if one != FINALIZER]
    try:
        await _patch_metadata(gathered, tools, {"finalizers": left})
    except NotFound:
        tools.grants.forget(metadata.namespace, metadata.name)


async def _delete_grant(gathered: Gathered, tools: Tools) -> None:
    metadata = gathered.stored.metadata
    path = ACCESS_GRANTS.object(metadata.name, metadata.namespace)
    try:
        await tools.management.delete(path, uid=metadata.uid, resource_version=metadata.resource_version)
    except NotFound:
        tools.grants.forget(metadata.namespace, metadata.name)


# The bastion


async def _make_bastion(gathered: Gathered, tools: Tools) -> None:
    desired, bastion, metadata = gathered.desired_bastion, gathered.bastion, gathered.stored.metadata
    if not desired:
        return
    if not isinstance(bastion, StoredBastion):
        try:
            made = await tools.management.create(BASTIONS.collection(metadata.namespace), desired)
        except AlreadyExists:  # the cache did not know it yet
            made = await tools.management.get(BASTIONS.object(metadata.name, metadata.namespace))
        tools.bastions.written(made)
        return
    match bastion_change(bastion.manifest, desired):
        case Change(fields):
            patch: JsonObject = {"metadata": {"uid": bastion.uid}, "spec": dict(fields)}
            path = BASTIONS.object(bastion.name, metadata.namespace)
            tools.bastions.written(await tools.management.patch(path, patch))
        case MakeAnother():
            await _delete_bastion(gathered, tools)
        case AsDesired():
            pass


async def _delete_bastion(gathered: Gathered, tools: Tools) -> None:
    bastion, namespace = gathered.bastion, gathered.stored.metadata.namespace
    if not isinstance(bastion, StoredBastion):
        return
    path = BASTIONS.object(bastion.name, namespace)
    try:
        tools.bastions.written(await tools.management.delete(path, uid=bastion.uid))
        tools.bastions.written(await tools.management.get(path))
    except NotFound:
        tools.bastions.forget(namespace, bastion.name)


__all__ = ["Effects", "Tools", "carry_out"]
