"""Makes the writes of a rotation, each at exactly the version of the object that was read.

A write that another client came before is not repeated here: the next pass looks again. No key leaves this module but
into the Secrets that the plan names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from signer.authority import AuthorityError, CertificateAuthority
from signer.authority.lenient_certificate import parse_ca_certificate
from signer.authority.link import LinkCertificate, new_with_old, old_with_new
from signer.authority.pair import require_pair, require_service_account_pair
from signer.authority.private_key import read_private_key
from signer.authority.successor import new_authority, new_service_account_key
from signer.kube.calls import Create, Patch, Replace
from signer.kube.client import JsonObject
from signer.kube.errors import AlreadyExists
from signer.kube.resources import SECRETS, Resource
from signer.model.cluster import ClusterView
from signer.model.fields import mapping_of
from signer.model.seal import ControllerKeys
from signer.rotation.authorities import AuthorityKind, NotMade, Role, pair_suffix
from signer.rotation.bundles import bundle_of, read_bundle, reference_of, reference_of_key
from signer.rotation.desired import (
    LINK_LIFETIME,
    DeleteKey,
    KeepPair,
    PruneAuthentication,
    Roles,
    SealPair,
    SplitPairs,
    Write,
    WriteAuthority,
    WriteClusterInfo,
    WriteKubeconfig,
    WritePins,
    WriteSigning,
    WriteTrust,
    hashes,
)
from signer.rotation.facts import HeldCertificate, HeldPair, Link
from signer.rotation.kubeconfigs import Issuers, KubeconfigNotChanged, cluster_info_with, rewritten
from signer.rotation.management import CLIENT_CA, KUBECONFIG_KEY, LINK, SERVER_CA, ManagementSecrets
from signer.rotation.record import RotationRecord
from signer.rotation.secrets import (
    CERTIFICATE_KEY,
    PRIVATE_KEY,
    NoPair,
    Pair,
    ReadSecret,
    decoded,
    encoded,
    pair_manifest,
    published_manifest,
    sealed_anew,
)
from signer.rotation.signing_secret import signing_data
from signer.rotation.workload import (
    AUTHENTICATION,
    CLUSTER_INFO,
    WorkloadFacts,
    pruned,
)


class CreateReplacePatch(Create, Replace, Patch, Protocol):
    """The calls of the writer."""


class WriteRefused(Exception):
    """The write cannot be made as things are; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Pinning:
    """The KubeadmConfig of a MachinePool."""

    pins: frozenset[str]
    """Discovery hashes of the CAs that its machines accept when they join."""
    resource_version: str


@dataclass(frozen=True, slots=True)
class Gathered:
    """What one pass has read, besides its facts."""

    cluster: ClusterView
    owner_version: str
    """``apiVersion`` of Clusters."""
    secrets: ManagementSecrets
    workload: WorkloadFacts
    keys: ControllerKeys
    kubeadm_configs: Resource
    pinning: Mapping[str, Pinning]
    """KubeadmConfigs of MachinePools, by name."""


class Writer:
    """Makes one write at a time, for one Cluster."""

    def __init__(
        self, management: CreateReplacePatch, workload: CreateReplacePatch, now: Callable[[], datetime]
    ) -> None:
        self._management = management
        self._workload = workload
        self._now = now

    async def make(self, write: Write, record: RotationRecord, gathered: Gathered) -> None:
        """Make it.

        Raises:
            WriteRefused: it cannot be made.
            Conflict, NotFound: another client was first.
            ApiError: from either cluster.
        """
        match write:
            case KeepPair(kind, role):
                await self._keep_pair(kind, role, record, gathered)
            case SealPair(kind, role):
                await self._seal_pair(gathered.secrets.kept[kind, role], gathered.keys)
            case WriteAuthority(kind, contents):
                await self._write_authority(kind, contents.certificates, contents.key, gathered)
            case WriteTrust(client, server, link):
                await self._write_trust(client, server, link, gathered)
            case WriteSigning(split):
                await self._write_signing(split, gathered)
            case WriteKubeconfig(authorities, client_role):
                await self._write_kubeconfig(authorities, client_role, gathered)
            case WriteClusterInfo(authorities):
                await self._write_cluster_info(authorities, gathered)
            case WritePins(name, authorities):
                await self._write_pins(name, authorities, record, gathered)
            case PruneAuthentication():
                await self._prune(record, gathered)
            case DeleteKey(kind, role):
                await self._delete_key(gathered.secrets.kept[kind, role])

    # Pairs

    async def _keep_pair(self, kind: AuthorityKind, role: Role, record: RotationRecord, gathered: Gathered) -> None:
        pair = await asyncio.to_thread(self._pair, kind, role, record, gathered)
        name = f"{record.cluster.name}-{pair_suffix(kind, record.rotation_id, role)}"
        manifest = pair_manifest(name, pair, gathered.cluster, gathered.owner_version, gathered.keys)
        try:
            await self._management.create(SECRETS.collection(record.cluster.namespace), manifest)
        except AlreadyExists:
            return  # made by an earlier pass: the next one reads it

    def _pair(self, kind: AuthorityKind, role: Role, record: RotationRecord, gathered: Gathered) -> Pair:
        own, authority = _pair_of(gathered.secrets.current[kind]), record.authority(kind)
        if role is Role.NEW and not isinstance(authority.new, NotMade):  # never another one in its place
            if own.reference.digest == authority.new.digest:
                return own
            raise WriteRefused(f"the new pair of authority {kind.value} is gone: restore it from a backup")
        if own.reference.digest != authority.old.digest:
            raise WriteRefused(f"the Secret of authority {kind.value} holds another one than when the rotation started")
        if role is Role.OLD:
            return own
        if kind is AuthorityKind.SERVICE_ACCOUNT:
            key = new_service_account_key(like=read_private_key(own.key).public_key())
            return Pair(reference_of_key(_der(key.public_key_pem)), key.public_key_pem, key.private_key_pem)
        like = parse_ca_certificate(_der(own.certificate))
        made = new_authority(kind, record.rotation_id, like=like, now=self._now())
        return Pair(reference_of(made.certificate), made.certificate_pem, made.private_key_pem)

    async def _seal_pair(self, kept: ReadSecret, keys: ControllerKeys) -> None:
        match kept.held:
            case HeldPair(signs=reference) | HeldCertificate(certificate=reference):
                metadata = kept.manifest["metadata"]
                path = SECRETS.object(metadata["name"], metadata["namespace"])
                await self._management.replace(path, sealed_anew(kept.manifest, reference, keys))
            case _:
                raise WriteRefused("a Secret has no usable pair")

    async def _delete_key(self, kept: ReadSecret) -> None:
        data = {name: value for name, value in mapping_of(kept.manifest, "data").items() if name != PRIVATE_KEY}
        await self._replace_secret(kept.manifest, data)

    # Authorities and trust

    async def _write_authority(self, kind: AuthorityKind, certificates: Roles, key: Role, gathered: Gathered) -> None:
        pairs = gathered.secrets.pairs
        data = {
            CERTIFICATE_KEY: b"".join(_kept(pairs, kind, role).certificate for role in certificates),
            PRIVATE_KEY: _kept(pairs, kind, key).key,
        }
        try:  # I1, on the very bytes
            if kind is AuthorityKind.SERVICE_ACCOUNT:
                require_service_account_pair(data)
            else:
                require_pair(kind, data, now=self._now())
        except AuthorityError as error:
            raise WriteRefused(f"the Secret of authority {kind.value} would be unusable: {error}") from error
        before = gathered.secrets.current[kind].manifest
        await self._replace_secret(before, {**mapping_of(before, "data"), **encoded(data)})

    async def _write_trust(self, client: Roles, server: Roles, link: Link, gathered: Gathered) -> None:
        secrets = gathered.secrets
        data = {
            CLIENT_CA: _bundle(secrets, client) + bundle_of(*secrets.node_client),
            SERVER_CA: _bundle(secrets, server),
            LINK: await asyncio.to_thread(self._link, link, secrets),
        }
        await self._put("trust", secrets.trust_object, data, gathered)

    async def _write_signing(self, split: SplitPairs, gathered: Gathered) -> None:
        pairs = gathered.secrets.pairs
        client, serving = (_kept(pairs, AuthorityKind.CLUSTER, role) for role in (split.client, split.serving))
        await self._put("signing", gathered.secrets.signing_object, signing_data(client, serving), gathered)

    async def _put(self, suffix: str, before: JsonObject, data: Mapping[str, bytes], gathered: Gathered) -> None:
        """Create Secret ``<cluster>-<suffix>``, or replace it at the version that was read."""
        if before:
            await self._replace_secret(before, {**mapping_of(before, "data"), **encoded(data)})
            return
        manifest = published_manifest(suffix, gathered.cluster, gathered.owner_version, data)
        await self._management.create(SECRETS.collection(gathered.cluster.key.namespace), manifest)

    def _link(self, link: Link, secrets: ManagementSecrets) -> bytes:
        if link in (Link.NONE, Link.OTHER):
            return b""
        old, new = _authority(secrets, Role.OLD), _authority(secrets, Role.NEW)
        now = self._now()
        if link is Link.OLD_WITH_NEW:
            made = old_with_new(old=old.certificate, new=new, now=now, lifetime=LINK_LIFETIME)
        else:
            made = new_with_old(new=new.certificate, old=old, now=now, lifetime=LINK_LIFETIME)
        if not isinstance(made, LinkCertificate):
            raise WriteRefused(f"no link certificate: {made.message}")
        return made.certificate_pem

    async def _write_kubeconfig(self, authorities: Roles, client: Role, gathered: Gathered) -> None:
        secrets = gathered.secrets
        issuers = Issuers(secrets.cluster.both, _authority(secrets, client))
        before = secrets.kubeconfig_object
        try:
            value = rewritten(decoded(before)[KUBECONFIG_KEY], _bundle(secrets, authorities), issuers, self._now())
        except (KubeconfigNotChanged, AuthorityError) as error:
            raise WriteRefused(f"Secret {gathered.cluster.key.name}-kubeconfig is not changed: {error}") from error
        await self._replace_secret(before, {**mapping_of(before, "data"), **encoded({KUBECONFIG_KEY: value})})

    async def _write_pins(self, name: str, authorities: Roles, record: RotationRecord, gathered: Gathered) -> None:
        path = gathered.kubeadm_configs.object(name, record.cluster.namespace)
        pins = list(hashes(record, authorities))
        token = {"discovery": {"bootstrapToken": {"caCertHashes": pins}}}
        exactly = {"resourceVersion": gathered.pinning[name].resource_version}
        await self._management.patch(path, {"metadata": exactly, "spec": {"joinConfiguration": token}})

    # The workload cluster

    async def _write_cluster_info(self, authorities: Roles, gathered: Gathered) -> None:
        before = gathered.workload.cluster_info_object
        try:
            value = cluster_info_with(before, _bundle(gathered.secrets, authorities))
        except KubeconfigNotChanged as error:
            raise WriteRefused(f"ConfigMap kube-public/cluster-info is not changed: {error}") from error
        await self._workload.replace(
            CLUSTER_INFO, {**before, "data": {**mapping_of(before, "data"), "kubeconfig": value}}
        )

    async def _prune(self, record: RotationRecord, gathered: Gathered) -> None:
        old = {authority.old.digest for authority in record.authorities}
        await self._workload.replace(AUTHENTICATION, pruned(gathered.workload.authentication_object, old))

    async def _replace_secret(self, before: JsonObject, data: Mapping[str, Any]) -> None:
        metadata = before["metadata"]
        path = SECRETS.object(metadata["name"], metadata["namespace"])
        await self._management.replace(path, {**before, "data": dict(data)})


def _der(pem: bytes) -> bytes:
    found = read_bundle(pem)
    if not isinstance(found, tuple) or len(found) != 1:
        raise WriteRefused("a kept pair has not exactly one certificate or public key")
    return found[0]


def _pair_of(read: ReadSecret) -> Pair:
    if isinstance(read.pair, NoPair):
        raise WriteRefused("a Secret has no usable pair")
    return read.pair


def _kept(pairs: Mapping[tuple[AuthorityKind, Role], Pair], kind: AuthorityKind, role: Role) -> Pair:
    pair = pairs.get((kind, role))
    if pair is None:
        raise WriteRefused(f"the {role.value} pair of authority {kind.value} is not kept")
    return pair


def _authority(secrets: ManagementSecrets, role: Role) -> CertificateAuthority:
    authority = secrets.cluster.by_role.get(role)
    if authority is None:
        raise WriteRefused(f"the {role.value} CA cannot sign: it is missing, unusable, or expired")
    return authority


def _bundle(secrets: ManagementSecrets, roles: Roles) -> bytes:
    return b"".join(_kept(secrets.pairs, AuthorityKind.CLUSTER, role).certificate for role in roles)
