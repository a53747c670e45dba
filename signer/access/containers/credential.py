"""The gateway's credential for a workload cluster: a token of its ServiceAccount, in a kubeconfig."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final

from attestors.wire.ssh.encoding import to_base64
from signer.access.containers.objects import SERVICE_ACCOUNT
from signer.kube.calls import Create
from signer.kube.connection import ClusterConnection
from signer.kube.errors import UnexpectedAnswer
from signer.model.fields import mapping_of, parse_time, text_of

TOKEN_LIFETIME: Final = timedelta(hours=24)
"""What is asked for. An API server may give less (``--service-account-max-token-expiration``)."""
RENEWAL_JITTER: Final = 0.2
MINIMUM_RENEWAL_SECONDS: Final = 60.0
"""However short the tokens are that a workload cluster gives, or whatever its clock shows."""
_TOKEN: Final = re.compile(r"[!-~]{1,16384}", re.ASCII)
_TOKEN_REQUEST: Final = {
    "apiVersion": "authentication.k8s.io/v1",
    "kind": "TokenRequest",
    "spec": {"expirationSeconds": int(TOKEN_LIFETIME.total_seconds())},
}


@dataclass(frozen=True, slots=True)
class Credential:
    """A token, and where it counts."""

    token: str = field(repr=False)
    account_uid: str
    """UID of the ServiceAccount."""
    renewed: datetime
    """When the next one is asked for."""
    expires: datetime


async def request_credential(client: Create, account_uid: str, now: datetime, random: Random) -> Credential:
    """Ask for a token (``authentication.k8s.io/v1`` TokenRequest). No object keeps it.

    Raises:
        ApiError: from the workload cluster; UnexpectedAnswer if it gives no token.
    """
    path = SERVICE_ACCOUNT.resource.object(SERVICE_ACCOUNT.name, SERVICE_ACCOUNT.namespace, "token")
    status = mapping_of(await client.create(path, _TOKEN_REQUEST), "status")
    token, expires = text_of(status, "token"), _expiry(status)
    if _TOKEN.fullmatch(token) is None:
        raise UnexpectedAnswer("the answer to the TokenRequest holds no token that a header can carry", status=201)
    return Credential(token, account_uid, now + _renewal(expires - now, random), expires)


def render_kubeconfig(server: ClusterConnection, credential: Credential) -> bytes:
    """For :func:`signer.kube.kubeconfig.parse_kubeconfig`; JSON is YAML. ``server`` is where the controller itself is
    connected: address, CAs and server name of the Cluster's kubeconfig as it is now.
    """
    cluster = {"server": server.server, "certificate-authority-data": to_base64(server.certificate_authority)}
    if server.tls_server_name is not None:
        cluster["tls-server-name"] = server.tls_server_name
    name = SERVICE_ACCOUNT.name
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": {"token": credential.token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }
    return json.dumps(document, separators=(",", ":")).encode("ascii")


def _expiry(status: Mapping[str, Any]) -> datetime:
    try:
        return parse_time(text_of(status, "expirationTimestamp"))
    except ValueError:
        raise UnexpectedAnswer("the answer to the TokenRequest does not say when the token ends", status=201) from None


def _renewal(lifetime: timedelta, random: Random) -> timedelta:
    """Half of the lifetime, and up to a fifth less, so that a fleet does not renew in step."""
    seconds = min(lifetime, TOKEN_LIFETIME).total_seconds() / 2
    return timedelta(seconds=max(seconds * (1 - RENEWAL_JITTER * random.random()), MINIMUM_RENEWAL_SECONDS))


__all__ = ["Credential", "render_kubeconfig", "request_credential"]
