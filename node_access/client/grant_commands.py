"""``grant create|list|show|extend|revoke|approve``, and ``patch-ingress``."""

from __future__ import annotations

import argparse
import json
import secrets
import shlex
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from node_access.client.access import Client, Held, node_target, target_of
from node_access.client.addresses import own_networks
from node_access.client.approving import approval_lines
from node_access.client.arguments import choices_of, client_of, sources_of
from node_access.client.creating import create_as_self
from node_access.client.errors import ClientFailed, WrongUse
from node_access.client.folders import BadFolder
from node_access.client.grants import ConditionStatus, Grant, InvalidGrant, Target, key_of, parse_grant, spec_of
from node_access.client.heartbeat import REVOKED, WithoutAgent
from node_access.client.lifecycle import is_ready, state, why_ended, why_over
from node_access.client.manifests import approval_manifest, heartbeat_patch
from node_access.client.ssh_files import names_of
from node_access.client.tables import fields, table
from node_access.client.terminal import ask, confirm, is_terminal, say, show, tell, width_of
from node_access.client.words import (
    ContainerDestination,
    Destination,
    destination_of,
    duration_text,
    object_name,
    time_text,
)

_HEADS = ("NAME", "CLUSTER", "TARGET", "LOGINS", "CREATOR", "STATE", "ENDS IN")
_SHRINK = (0, 1, 2, 3, 4)
_UNREADABLE = "?"


def create(options: argparse.Namespace) -> int:
    """A grant that lives until it is revoked, or its duration is over."""
    client = client_of(options)
    cluster, target = _target(options)
    choices = choices_of(options, cluster, target)
    held = client.make(choices)
    if options.no_wait:
        show_grant(options, client, held.record.key.name)
        return 0
    access = client.open(held, choices.seconds)
    if choices.keepalive:
        client.start_heartbeat(held)
    say(f"ssh -F {shlex.quote(str(held.folder.config))} {names_of(access)[0]}")
    show_grant(options, client, held.record.key.name)
    return 0


def _target(options: argparse.Namespace) -> tuple[str, Target]:
    """The Cluster, and what is asked for."""
    found = [destination_of(one, options.cluster, ()) for one in options.nodes]
    containers = [one for one in found if isinstance(one, ContainerDestination)]
    if containers:
        if len(found) > 1 or options.all_nodes:
            raise WrongUse("a grant is for one container, or for nodes: name one container alone")
        return containers[0].cluster, target_of(containers[0])
    nodes = tuple(one.node for one in found if isinstance(one, Destination))
    clusters = {one.cluster for one in found} or ({options.cluster} - {""})
    if found and options.all_nodes:
        raise WrongUse("--all-nodes is every node of --cluster: leave it out, or name no node")
    if len(clusters) != 1 or bool(found) is options.all_nodes:
        raise WrongUse("name nodes of one Cluster as NODE.CLUSTER, or use --all-nodes with --cluster")
    return clusters.pop(), node_target(nodes)


def list_grants(options: argparse.Namespace) -> int:
    """A table of the namespace's grants."""
    documents = client_of(options).kubectl.list_grants()
    if options.output == "json":
        _show_json({"apiVersion": "v1", "kind": "List", "items": documents})
        return 0
    now = datetime.now(UTC)
    show(table(_HEADS, [_row(one, now) for one in documents], shrink=_SHRINK, width=width_of(sys.stdout)))
    return 0


def show_one(options: argparse.Namespace) -> int:
    """Everything about one grant."""
    show_grant(options, client_of(options), object_name(options.grant, "a grant"))
    return 0


def extend(options: argparse.Namespace) -> int:
    """One heartbeat, and the new certificates."""
    client = client_of(options)
    grant = _named(client, options)
    if why := why_over(grant, datetime.now(UTC)):
        raise ClientFailed(f"the grant {grant.key.name} has ended: {why}")
    kubectl = client.kubectl.in_namespace(grant.key.namespace)
    kubectl.patch_grant(grant.key.name, heartbeat_patch(grant.key, datetime.now(UTC)))
    renewed = client.wait_renewed(grant, options.timeout)
    try:
        folder = client.folders.of(grant.key.uid)
        client.open(Held(folder, folder.record(), renewed, WithoutAgent()), options.timeout)
    except BadFolder:
        say("its key is on another machine, so no file is written here")
    show_grant(options, client, grant.key.name)
    return 0


def revoke(options: argparse.Namespace) -> int:
    """End grants now."""
    client = client_of(options)
    for name in options.grants:
        grant_name = object_name(name, "a grant")
        own = [(folder, record) for folder, record in client.folders.all() if client.is_of(record, grant_name)]
        for folder, record in own:
            with folder.exclusive():
                client.revoke(folder, record, REVOKED)
        if not own:
            client.kubectl.delete_grant(key_of(client.kubectl.get_grant(grant_name)))
        say(f"revoked: {grant_name}")
    return 0


def approve(options: argparse.Namespace) -> int:
    """Approve or deny another person's grant, as it is now."""
    client = client_of(options)
    document = client.kubectl.get_grant(object_name(options.grant, "a grant"))
    grant = parse_grant(document)
    decision = "Deny" if options.deny else "Approve"
    tell(fields(approval_lines(document, grant), width=width_of(sys.stderr)))
    if why := why_ended(grant, datetime.now(UTC)):
        raise ClientFailed(f"the grant {grant.key.name} has ended: {why}")
    if not options.yes and not is_terminal():
        raise ClientFailed("nobody is at the terminal to compare this: compare it, and give --yes")
    if not options.yes and not confirm(f"{decision} this?"):
        raise ClientFailed(f"nothing was done: {grant.key.name} is neither approved nor denied")
    name = f"{grant.key.name[:50].rstrip('.-')}-{secrets.token_hex(4)}"
    manifest = approval_manifest(grant.key, name, spec_of(document), decision=decision)
    create_as_self(client.kubectl, manifest, options.user)
    say(f"{'denied' if options.deny else 'approved'}: {grant.key.name} of {grant.creator}")
    return 0


def patch_ingress(options: argparse.Namespace) -> int:
    """Let a bastion be reached from this machine's address now, and from no other."""
    client = client_of(options)
    grant = client.patch_ingress(_named(client, options), own_networks(sources_of(options), ask))
    say(f"{grant.key.name}: {', '.join(map(str, grant.ingress))}")
    return 0


def show_grant(options: argparse.Namespace, client: Client, name: str) -> None:
    """Print one grant."""
    document = client.kubectl.get_grant(name)
    if options.output == "json":
        _show_json(document)
    else:
        show(fields(_fields(parse_grant(document), datetime.now(UTC)), width=width_of(sys.stdout)))


def _named(client: Client, options: argparse.Namespace) -> Grant:
    return client.grant(object_name(options.grant, "a grant"))


def _show_json(document: Mapping[str, Any]) -> None:
    """ASCII: a terminal obeys nothing in it."""
    show(f"{json.dumps(document, indent=2)}\n")


def _row(document: Mapping[str, Any], now: datetime) -> tuple[str, ...]:
    try:
        grant = parse_grant(document)
    except InvalidGrant:
        metadata = document.get("metadata")
        name = metadata.get("name") if isinstance(metadata, Mapping) else ""
        return (str(name), *[_UNREADABLE] * 4, "Unreadable", "")
    ends = duration_text(grant.status.expiration[0] - now) if grant.status.expiration else ""
    return (
        grant.key.name,
        grant.cluster,
        str(grant.target),
        ",".join(grant.logins),
        grant.creator,
        state(grant, now),
        "" if why_over(grant, now) else ends,
    )


def _fields(grant: Grant, now: datetime) -> list[tuple[str, str]]:
    status = grant.status
    entries = [
        ("Name", str(grant.key)),
        ("Cluster", grant.cluster),
        ("Target", str(grant.target)),
        ("Logins", ", ".join(grant.logins)),
        ("Creator", grant.creator),
        ("Key", f"{grant.public_key.key_type.value} {grant.public_key.fingerprint}"),
        ("Permissions", "port forwarding" if grant.port_forwarding else ""),
        ("Command", grant.command),
        ("Bastion", grant.bastion),
        ("Ingress", ", ".join(map(str, grant.ingress))),
        ("Reason", grant.reason),
        ("Ticket", grant.ticket),
        ("Created", time_text(grant.created)),
        ("Duration", "".join(map(duration_text, grant.duration))),
        ("Ends", "".join(map(time_text, status.expiration))),
        ("State", state(grant, now)),
        ("Over", "" if is_ready(grant) else why_over(grant, now)),
    ]
    entries += [
        (one.type, f"{one.status.value} {one.reason} {one.message}".strip())
        for one in status.conditions
        if one.status is not ConditionStatus.UNKNOWN or one.message
    ]
    return [(name, value) for name, value in entries if value]
