"""Makes the kubeconfig in order: rights first, then a credential, a trial of it, the Secret, and the end of older ones.

A failure at any point leaves the controller with the credential that it had. Running it again finishes the work.
"""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import SystemRandom
from typing import Any, Final, Protocol

from signer.cli.workload_kubeconfig.credential import (
    Credential,
    CredentialCalls,
    request_credential,
    revoke_others,
)
from signer.cli.workload_kubeconfig.features import Feature
from signer.cli.workload_kubeconfig.roles import (
    ACCOUNT,
    unwanted_bindings,
    wanted_objects,
)
from signer.controller.workload_access import EXPIRES_KEY, KUBECONFIG_KEY, RESTRICTED_SUFFIX
from signer.kube.backoff import Backoff
from signer.kube.calls import GetCreateReplace
from signer.kube.client import Client, JsonObject
from signer.kube.connection import ClusterConnection
from signer.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound, Unauthorized
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS, NAMESPACES, SECRETS
from signer.kube.wanted_object import OWNER, OWNER_LABEL, WantedObject, uid_of
from signer.model.cluster import CLUSTER_NAME_LABEL, ClusterView
from signer.model.command_failures import CommandFailed
from signer.model.fields import format_time, mapping_of, text_of

CLUSTER_API_TYPE: Final = "cluster.x-k8s.io/secret"
_TRIALS: Final = 12
_TRIAL: Final = Backoff(base_seconds=0.1, maximum_seconds=2.0, jitter=0.0)
"""An API server applies new bindings after a moment."""
_WRITES: Final = 5
"""Attempts to write the Secret. Between two, another program changed something else of it, such as a label."""


class WorkloadCalls(GetCreateReplace, CredentialCalls, Protocol):
    """The calls to the workload cluster, as an administrator."""


class KubeconfigNotMade(CommandFailed):
    """The kubeconfig was not made; the message names the fault and the remedy."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be made."""

    cluster: ClusterView
    owner_version: str
    """``apiVersion`` of the Cluster."""
    features: frozenset[Feature]
    attestors: frozenset[str]
    lifetime: timedelta


@dataclass(frozen=True, slots=True)
class Made:
    """What was made."""

    secret: str
    """NAMESPACE/NAME in the management cluster."""
    expires: datetime
    written: tuple[str, ...]
    """Objects of the workload cluster that were missing or other than wanted."""
    removed: tuple[str, ...]
    """Bindings for features that are not wanted any more."""
    revoked: int
    """Number of older credentials that ended."""


async def make_kubeconfig(
    management: GetCreateReplace, workload: WorkloadCalls, address: ClusterConnection, wish: Wish
) -> Made:
    """Make or renew it. ``address`` says where the API server is, and by which CAs.

    Raises:
        KubeconfigNotMade: the credential does not work, or a Secret of that name belongs to somebody else or was
            written meanwhile.
        ApiError: from either cluster.
    """
    before = await _read_ours(management, wish)
    written = [one.title for one in wanted_objects(wish.features, wish.attestors) if await _ensure(workload, one)]
    removed = [one.title for one in unwanted_bindings(wish.features) if await _remove(workload, one)]
    credential = await request_credential(workload, wish.lifetime)
    await _try(
        ClusterConnection(
            address.server, address.certificate_authority, address.tls_server_name, bearer_token=credential.token
        )
    )
    await _write_secret(management, wish, before, render_kubeconfig(address, credential), credential.expires)
    revoked = await revoke_others(workload, credential.bound_to)
    return Made(
        f"{wish.cluster.key.namespace}/{secret_name(wish)}",
        credential.expires,
        tuple(written),
        tuple(removed),
        len(revoked),
    )


def secret_name(wish: Wish) -> str:
    """Name of the Secret in the management cluster."""
    return f"{wish.cluster.key.name}-{RESTRICTED_SUFFIX}"


def render_kubeconfig(address: ClusterConnection, credential: Credential) -> bytes:
    """For :func:`signer.kube.kubeconfig.parse_kubeconfig`; JSON is YAML."""
    authorities = base64.b64encode(address.certificate_authority).decode("ascii")
    cluster = {"server": address.server, "certificate-authority-data": authorities}
    if address.tls_server_name is not None:
        cluster["tls-server-name"] = address.tls_server_name
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": ACCOUNT,
        "clusters": [{"name": ACCOUNT, "cluster": cluster}],
        "users": [{"name": ACCOUNT, "user": {"token": credential.token}}],
        "contexts": [{"name": ACCOUNT, "context": {"cluster": ACCOUNT, "user": ACCOUNT}}],
    }
    return json.dumps(document, separators=(",", ":")).encode("ascii")


@dataclass(frozen=True, slots=True)
class _Absent:
    """There is no such Secret."""


@dataclass(frozen=True, slots=True)
class _Ours:
    """The Secret as this command made it."""

    resource_version: str
    uid: str
    data: Any
    """As the API server has it, to be compared."""


async def _read_ours(management: GetCreateReplace, wish: Wish) -> _Ours | _Absent:
    try:
        found = await management.get(SECRETS.object(secret_name(wish), wish.cluster.key.namespace))
    except NotFound:
        return _Absent()
    metadata = mapping_of(found, "metadata")
    if text_of(mapping_of(metadata, "labels"), OWNER_LABEL) != OWNER:
        raise KubeconfigNotMade(
            f"Secret {wish.cluster.key.namespace}/{secret_name(wish)} has no label {OWNER_LABEL}: {OWNER}, so somebody "
            "else made it: delete it, if it is not needed"
        )
    return _Ours(text_of(metadata, "resourceVersion"), text_of(metadata, "uid"), found.get("data"))


async def _ensure(client: WorkloadCalls, wanted: WantedObject) -> bool:
    """Whether the object was written."""
    try:
        found = await client.get(wanted.path)
    except NotFound:
        await client.create(wanted.collection, wanted.body)
        return True
    if wanted.resource is NAMESPACES or wanted.is_as_wanted(found):
        return False
    if wanted.needs_new_object(found):
        await client.delete(wanted.path, uid=uid_of(found))
        await client.create(wanted.collection, wanted.body)
        return True
    await client.replace(wanted.path, wanted.replacement(found))
    return True


async def _remove(client: WorkloadCalls, unwanted: WantedObject) -> bool:
    """Whether the object was removed. One that this command did not make stays."""
    try:
        found = await client.get(unwanted.path)
        if not unwanted.is_ours(found):
            return False
        await client.delete(unwanted.path, uid=uid_of(found))
    except NotFound:
        return False
    return True


async def _try(connection: ClusterConnection) -> None:
    refusal: ApiError | None = None
    random = SystemRandom()
    async with Client(connection) as client:
        for attempt in range(_TRIALS):
            try:
                await client.get(CERTIFICATE_SIGNING_REQUESTS.collection(), {"limit": "1"})
            except (Forbidden, Unauthorized) as error:
                refusal = error
                await asyncio.sleep(_TRIAL.delay(attempt, random))
            else:
                return
    raise KubeconfigNotMade(
        f"the API server does not accept the new credential: {refusal}; the former one stays in use"
    )


async def _write_secret(
    management: GetCreateReplace, wish: Wish, before: _Ours | _Absent, kubeconfig: bytes, expires: datetime
) -> None:
    """Write the Secret over the one that was there ``before``. A change of its data meanwhile, as by another run of
    this command, stays: this run would end the other's credential.
    """
    key, found = wish.cluster.key, before
    for _ in range(_WRITES):
        try:
            if isinstance(found, _Absent):
                await management.create(SECRETS.collection(key.namespace), _secret(wish, found, kubeconfig, expires))
            else:
                path = SECRETS.object(secret_name(wish), key.namespace)
                await management.replace(path, _secret(wish, found, kubeconfig, expires))
        except (AlreadyExists, Conflict, NotFound):
            found = await _read_ours(management, wish)
            if isinstance(found, _Ours) and (isinstance(before, _Absent) or found.data != before.data):
                raise KubeconfigNotMade(
                    f"Secret {key.namespace}/{secret_name(wish)} was written by another program while this command "
                    "ran, perhaps by another run of it; that Secret stays, and the new credential is not used: make "
                    "sure that no other run is under way, and run the command again"
                ) from None
        else:
            return
    raise KubeconfigNotMade(
        f"Secret {key.namespace}/{secret_name(wish)} changed {_WRITES} times while this command wrote it; the new "
        "credential is not used: find the program that changes it, by the Secret's managedFields, and run the command "
        "again"
    )


def _secret(wish: Wish, before: _Ours | _Absent, kubeconfig: bytes, expires: datetime) -> JsonObject:
    key = wish.cluster.key
    owner = {"apiVersion": wish.owner_version, "kind": "Cluster", "name": key.name, "uid": wish.cluster.uid}
    data = {KUBECONFIG_KEY: kubeconfig, EXPIRES_KEY: format_time(expires).encode("ascii")}
    metadata: dict[str, Any] = {
        "name": secret_name(wish),
        "namespace": key.namespace,
        "labels": {CLUSTER_NAME_LABEL: key.name, OWNER_LABEL: OWNER},
        "ownerReferences": [owner],
    }
    if isinstance(before, _Ours):
        metadata |= {"resourceVersion": before.resource_version, "uid": before.uid}
    return {
        "apiVersion": SECRETS.api_version,
        "kind": "Secret",
        "type": CLUSTER_API_TYPE,
        "metadata": metadata,
        "data": {name: base64.b64encode(value).decode("ascii") for name, value in data.items()},
    }


__all__ = ["KubeconfigNotMade", "Made", "Wish", "WorkloadCalls", "make_kubeconfig", "render_kubeconfig", "secret_name"]
