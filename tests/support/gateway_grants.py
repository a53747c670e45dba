"""Grants for containers as the gateway sees them, with certificates as the controller issues them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from signer.access.parts import Hop
from signer.authority.ssh.authorities import UserAuthority
from signer.model.access import parse_access_grant
from signer.model.cluster import ClusterKey
from signer.model.gateway_connection import GatewayConnection, render_gateway_connection
from signer.model.tools_image import NamedToolsImage, NoToolsImage
from tests.support.access_grants import AUTHORITY, HOUR, NOW, facts_of, issued
from tests.support.access_objects import grant_object

NO_TOOLS: Final = NoToolsImage()
GATEWAY_NAMESPACE: Final = "node-access-gateway"
CLUSTER: Final = ClusterKey("team-a", "production")
POD: Final[Mapping[str, Any]] = {"namespace": "shop", "pod": "web-0", "container": "app"}
WORKLOAD: Final[Mapping[str, Any]] = {
    "namespace": "shop",
    "workload": {"kind": "Deployment", "name": "web"},
    "container": "app",
}
UID: Final = "7b1a2f9e-58a4-4ad1-9a55-0d6fdf9a3c{:02d}"


def container_grant(
    container: Mapping[str, Any] = POD,
    *,
    name: str = "repair",
    number: int = 11,
    creator: str = "alice",
    now: datetime = NOW,
    lifetime: timedelta = HOUR,
    authority: UserAuthority = AUTHORITY,
    epoch: int = 0,
    created: str = "2026-11-27T14:00:00Z",
    uid: str = "",
    **spec: Any,
) -> dict[str, Any]:
    """A ready grant with its certificate, as the API server gives it."""
    spec = {"target": {"container": dict(container)}, "logins": [], **spec}
    manifest = grant_object(name, creator={"username": creator, "uid": "u-1", "groups": []}, **spec)
    manifest["metadata"].update(uid=uid or UID.format(number), creationTimestamp=created)
    facts = facts_of(parse_access_grant(manifest), creator=creator, lifetime=lifetime, epoch=epoch)
    certificate = issued(facts, now=now, authority=authority, serial=number)[Hop.CONTAINER]
    manifest["status"] = {
        "conditions": [{"type": "Ready", "status": "True", "reason": "Issued"}],
        "certificates": [{"hop": "container", "certificate": certificate.line, "serial": str(number)}],
    }
    return manifest


def connection_secret(
    cluster: ClusterKey = CLUSTER,
    *authorities: UserAuthority,
    kubeconfig: bytes = b"kubeconfig",
    tools: NamedToolsImage = NO_TOOLS,
) -> dict[str, Any]:
    """The Secret by which the gateway knows the cluster."""
    keys = tuple(one.public_key for one in authorities or (AUTHORITY,))
    return render_gateway_connection(GatewayConnection(cluster, kubeconfig, keys, tools), GATEWAY_NAMESPACE)
