"""The credential: a token of the ServiceAccount that is bound to a Secret of the workload cluster.

A token lasts for a year and ends at once when its Secret is deleted. A client certificate could not be revoked, and
needs the CA's key. A Secret of type ``kubernetes.io/service-account-token`` would never end by itself, and shows the
token to everybody who may read Secrets there; the Secret that binds holds nothing.

See Kubernetes, "Managing Service Accounts", and ``authentication.k8s.io/v1`` TokenRequest.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from signer.cli.workload_kubeconfig.roles import ACCOUNT, ACCOUNT_NAMESPACE, ACCOUNT_OBJECT
from signer.kube.calls import Create, Delete, List
from signer.kube.errors import NotFound, UnexpectedAnswer
from signer.kube.resources import SECRETS
from signer.kube.wanted_object import OWNER, OWNER_LABEL
from signer.model.fields import items_of, mapping_of, parse_time, text_of

CREDENTIAL_LABEL: Final = "attestation.cluster.x-k8s.io/credential"
"""Label of the Secrets in the workload cluster that tokens are bound to; its value is the account's name."""
_TOKEN: Final = re.compile(r"[!-~]{1,16384}", re.ASCII)


class CredentialCalls(Create, Delete, List, Protocol):
    """The calls to the workload cluster."""


@dataclass(frozen=True, slots=True)
class Credential:
    """A token, and the Secret with which it ends."""

    token: str = field(repr=False)
    bound_to: str
    """Name of the Secret."""
    expires: datetime


async def request_credential(client: Create, lifetime: timedelta) -> Credential:
    """Make a Secret, and a token that is bound to it.

    Raises:
        ApiError: from the workload cluster; UnexpectedAnswer if it gives no token.
    """
    name = f"{ACCOUNT}-{secrets.token_hex(4)}"
    labels = {OWNER_LABEL: OWNER, CREDENTIAL_LABEL: ACCOUNT}
    body = {
        "apiVersion": SECRETS.api_version,
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {"name": name, "namespace": ACCOUNT_NAMESPACE, "labels": labels},
    }
    made = await client.create(SECRETS.collection(ACCOUNT_NAMESPACE), body)
    uid = text_of(mapping_of(made, "metadata"), "uid")
    spec = {
        "expirationSeconds": int(lifetime.total_seconds()),
        "boundObjectRef": {"apiVersion": "v1", "kind": "Secret", "name": name, "uid": uid},
    }
    path = ACCOUNT_OBJECT.resource.object(ACCOUNT, ACCOUNT_NAMESPACE, "token")
    request: dict[str, Any] = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    status = mapping_of(await client.create(path, request), "status")
    token = text_of(status, "token")
    if _TOKEN.fullmatch(token) is None:
        raise UnexpectedAnswer("the answer to the TokenRequest holds no token that a header can carry", status=201)
    try:
        return Credential(token, name, parse_time(text_of(status, "expirationTimestamp")))
    except ValueError:
        raise UnexpectedAnswer("the answer to the TokenRequest does not say when the token ends", status=201) from None


async def revoke_others(client: CredentialCalls, kept: str) -> tuple[str, ...]:
    """Delete the Secrets of all tokens but that of ``kept``; returns their names.

    Raises:
        ApiError: from the workload cluster.
    """
    revoked: list[str] = []
    query = {"labelSelector": f"{CREDENTIAL_LABEL}={ACCOUNT}"}
    async for page in client.list_pages(SECRETS.collection(ACCOUNT_NAMESPACE), query):
        names = [text_of(mapping_of(item, "metadata"), "name") for item in items_of(page, "items")]
        revoked += [name for name in names if name and name != kept]
    for name in revoked:
        try:
            await client.delete(SECRETS.object(name, ACCOUNT_NAMESPACE))
        except NotFound:
            continue
    return tuple(revoked)


__all__ = [
    "CREDENTIAL_LABEL",
    "Credential",
    "CredentialCalls",
    "request_credential",
    "revoke_others",
]
