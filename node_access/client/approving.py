"""Everything that an approver agrees to, as lines for a person. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from attestors.wire.ssh.container_names import Pod
from node_access.client.grants import ContainerTarget, Grant, Target, spec_of
from node_access.client.manifests import spec_digest
from node_access.client.words import duration_text, time_text

UNKNOWN_FIELD: Final = "Not known here"
_NOTHING: Final[Mapping[str, Any]] = {}
_KNOWN: Final[Mapping[str, Any]] = {
    "clusterRef": {"name": _NOTHING},
    "target": {
        "nodes": _NOTHING,
        "allNodes": _NOTHING,
        "container": {
            "namespace": _NOTHING,
            "pod": _NOTHING,
            "workload": {"kind": _NOTHING, "name": _NOTHING},
            "container": _NOTHING,
        },
    },
    "logins": _NOTHING,
    "sshPublicKey": _NOTHING,
    "ingress": {"ipBlock": {"cidr": _NOTHING}},
    "bastion": _NOTHING,
    "duration": _NOTHING,
    "permissions": {"pty": _NOTHING, "portForwarding": _NOTHING, "command": _NOTHING},
    "reason": _NOTHING,
    "ticket": _NOTHING,
    "createdBy": {"username": _NOTHING, "uid": _NOTHING, "groups": _NOTHING},
    "suspend": _NOTHING,
}
"""The fields that have a line of their own."""


def approval_lines(document: Mapping[str, Any], grant: Grant) -> list[tuple[str, str]]:
    """Names and values; none is printable as it is. ``grant`` is the parsed document.

    A field of the spec that this version does not know has a line, too: the digest covers it.

    Raises:
        ClientFailed: the spec has no digest.
    """
    spec = spec_of(document)
    return [
        ("Grant", str(grant.key)),
        ("UID", grant.key.uid),
        ("Cluster", grant.cluster),
        ("Target", _target(grant.target)),
        ("Logins", ", ".join(grant.logins) or "those of the container"),
        ("Creator", grant.creator or "not stated"),
        ("Creator's UID", grant.creator_uid or "not stated"),
        ("Creator's groups", ", ".join(grant.creator_groups) or "none"),
        ("Key", f"{grant.public_key.key_type.value} {grant.public_key.fingerprint}"),
        ("Terminal (pty)", "yes" if grant.pty else "no"),
        ("Port forwarding", "yes" if grant.port_forwarding else "no"),
        ("Command", grant.command or "any"),
        ("Bastion", grant.bastion or "as the policy says"),
        ("Ingress", f"{', '.join(map(str, grant.ingress)) or 'none'}; the creator may change it later"),
        ("Duration", "".join(map(duration_text, grant.duration)) or "the policy's longest"),
        ("Suspended", "yes, until the creator goes on" if grant.suspended else "no"),
        ("Reason", grant.reason or "none"),
        ("Ticket", grant.ticket or "none"),
        ("Created", time_text(grant.created)),
        *((UNKNOWN_FIELD, f"spec.{name}: {text}") for name, text in _unknown(spec, _KNOWN)),
        ("Digest (SHA-256)", spec_digest(spec)),
    ]


def _target(target: Target) -> str:
    if not isinstance(target, ContainerTarget):
        return str(target).replace(",", ", ")
    container = target.container
    kind = "Pod" if isinstance(container.of, Pod) else container.of.kind.value
    return f"container {container.container} of {kind} {container.namespace}/{container.of.name}"


def _unknown(found: Mapping[str, Any], known: Mapping[str, Any], before: str = "") -> list[tuple[str, str]]:
    entries: list[tuple[str, str]] = []
    for name, value in found.items():
        below = known.get(name)
        if below is None:
            entries.append((f"{before}{name}", json.dumps(value)))
            continue
        for one in value if isinstance(value, list) else [value]:
            if below and isinstance(one, Mapping):
                entries += _unknown(one, below, f"{before}{name}.")
    return entries
