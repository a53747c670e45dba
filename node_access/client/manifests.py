"""Objects and patches that this program writes. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from attestors.wire.ssh.container_names import Container, Pod
from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.keys import PublicKey
from attestors.wire.ssh.options import Network
from node_access.client.errors import ClientFailed
from node_access.client.grants import (
    APPROVAL_KIND,
    GRANT_KIND,
    GROUP,
    VERSION,
    AllNodesTarget,
    ContainerTarget,
    GrantKey,
    InvalidGrant,
    NodesTarget,
)
from node_access.client.grants import Target as GrantTarget
from node_access.client.words import time_text

JsonObject = dict[str, Any]
HEARTBEAT: Final = f"{GROUP}/heartbeat"
_NOT_IN_DIGEST: Final = frozenset({"ingress", "suspend"})
MAXIMUM_GROUPS: Final = 64


class NotAsSent(ClientFailed):
    """The API server returned an object that differs from what was sent."""


@dataclass(frozen=True, slots=True)
class GrantRequest:
    """What a person asks for. Empty texts and tuples leave the choice to policy and controller."""

    cluster: str
    target: GrantTarget
    logins: tuple[str, ...]
    ingress: tuple[Network, ...] = ()
    bastion: str = ""
    duration: str = ""
    port_forwarding: bool = False
    command: str = ""
    reason: str = ""
    ticket: str = ""


@dataclass(frozen=True, slots=True)
class Person:
    """Who somebody is for the API server."""

    username: str
    uid: str = ""
    groups: tuple[str, ...] = ()


def grant_manifest(request: GrantRequest, name: str, key: PublicKey) -> JsonObject:
    """An AccessGrant to create. Its creator is not in it."""
    permissions: JsonObject = {"portForwarding": True} if request.port_forwarding else {}
    if request.command:
        permissions["command"] = request.command
    optional = {
        "ingress": ingress(request.ingress),
        "bastion": request.bastion,
        "duration": request.duration,
        "permissions": permissions,
        "reason": request.reason,
        "ticket": request.ticket,
    }
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": GRANT_KIND,
        "metadata": {"name": name},
        "spec": {
            "clusterRef": {"name": request.cluster},
            "target": _target(request.target),
            **({"logins": list(request.logins)} if request.logins else {}),
            "sshPublicKey": key_line(key),
            **{field: value for field, value in optional.items() if value},
        },
    }


def approval_manifest(grant: GrantKey, name: str, spec: Mapping[str, Any], *, decision: str) -> JsonObject:
    """An AccessApproval to create, of the grant's spec as it was shown. Its creator is not in it."""
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": APPROVAL_KIND,
        "metadata": {"name": name},
        "spec": {
            "grantRef": {"name": grant.name, "uid": grant.uid},
            "decision": decision,
            "specDigest": spec_digest(spec),
        },
    }


def with_creator(manifest: JsonObject, person: Person) -> JsonObject:
    """The object in that person's name."""
    creator: JsonObject = {"username": person.username}
    if person.uid:
        creator["uid"] = person.uid
    if person.groups:
        creator["groups"] = list(person.groups[:MAXIMUM_GROUPS])
    return {**manifest, "spec": {**manifest["spec"], "createdBy": creator}}


def spec_digest(spec: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical JSON of a grant's spec, but for what may change.

    Raises:
        InvalidGrant: it is no JSON that an API server stores.
    """
    covered = {name: value for name, value in spec.items() if name not in _NOT_IN_DIGEST}
    try:
        text = json.dumps(covered, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise InvalidGrant("spec: not JSON that an API server stores") from error
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def ingress(networks: Sequence[Network]) -> list[JsonObject]:
    """``spec.ingress``."""
    return [{"ipBlock": {"cidr": str(one)}} for one in networks]


def heartbeat_patch(key: GrantKey, now: datetime) -> JsonObject:
    """A merge patch. The UID makes the API server refuse it for another grant of the name."""
    return {"metadata": {"uid": key.uid, "annotations": {HEARTBEAT: time_text(now)}}}


def ingress_patch(key: GrantKey, networks: Sequence[Network]) -> JsonObject:
    """A merge patch."""
    return {"metadata": {"uid": key.uid}, "spec": {"ingress": ingress(networks)}}


def require_as_sent(sent: Mapping[str, Any], got: Mapping[str, Any]) -> None:
    """Require that the answer has everything that was sent; fields that the API server filled in besides are fine.

    Raises:
        NotAsSent: the message names the field.
    """
    for name in ("apiVersion", "kind"):
        _require_equal(name, sent[name], got.get(name))
    metadata, spec = got.get("metadata"), got.get("spec")
    if not isinstance(metadata, Mapping) or not isinstance(spec, Mapping):
        raise NotAsSent("the API server returned no object")
    _require_equal("metadata.name", sent["metadata"]["name"], metadata.get("name"))
    for name, value in sent["spec"].items():
        _require_equal(f"spec.{name}", value, spec.get(name))


def _require_equal(where: str, sent: object, got: object) -> None:
    if isinstance(sent, Mapping) and isinstance(got, Mapping):
        for name, value in sent.items():
            _require_equal(f"{where}.{name}", value, got.get(name))
    elif sent != got:
        raise NotAsSent(f"the API server returned another {where} than was sent")


def _target(target: GrantTarget) -> JsonObject:
    match target:
        case NodesTarget(nodes):
            return {"nodes": list(map(str, nodes))}
        case AllNodesTarget():
            return {"allNodes": {}}
        case ContainerTarget(container):
            return {"container": _container(container)}


def _container(container: Container) -> JsonObject:
    of = container.of
    where: JsonObject = (
        {"pod": of.name} if isinstance(of, Pod) else {"workload": {"kind": of.kind.value, "name": of.name}}
    )
    return {"namespace": container.namespace, **where, "container": container.container}
