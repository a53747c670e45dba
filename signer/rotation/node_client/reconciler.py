"""Makes, publishes and proves the node-client authority of one workload cluster while it is connected.

It needs no order: nothing that it does can lock anybody out. It adds a CA to what API servers are told to trust, and
has it sign once all of them do. It takes nothing away.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from random import Random
from typing import Final, Protocol

from signer.authority import (
    AuthorityError,
    CertificateAuthority,
    CertificateAuthorityUnavailable,
    load_certificate_authority,
)
from signer.authority.lenient_certificate import CACertificate
from signer.authority.successor import new_node_client_authority
from signer.configuration import RotationSettings
from signer.kube.backoff import Backoff
from signer.kube.calls import Create, Get, Replace
from signer.kube.client import Client, JsonObject
from signer.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from signer.kube.resources import SECRETS
from signer.model.authority_suffixes import KUBEADM_CONTROL_PLANE, NODE_CLIENT_CA, ONE_AUTHORITY, suffixes_for
from signer.model.cluster import ClusterKey, ClusterView
from signer.model.condition import ConditionType, PolicyCondition
from signer.model.decision import Deferred, printable
from signer.model.fields import mapping_of
from signer.model.policy import NodeClientAuthority, Policy
from signer.rotation.authorities import AuthorityKind, new_rotation_id
from signer.rotation.bundles import UnreadableBundle, bundle_of, digest_of, read_bundle, reference_of
from signer.rotation.facts import Absent, Bundle, HeldPair, NotObserved, ServersFacts, Unusable
from signer.rotation.management import CLIENT_CA, LINK, SERVER_CA
from signer.rotation.node_client.plan import (
    Ask,
    DoNotSign,
    MakeAuthority,
    Move,
    NodeClientFacts,
    NotAsked,
    NotWanted,
    Publish,
    Reason,
    SealAuthority,
    Sign,
    Wanted,
    next_move,
)
from signer.rotation.node_client.signing import NodeClientSigning
from signer.rotation.observer import AskServers, attested_nodes, servers_facts
from signer.rotation.operations import NeverRotated
from signer.rotation.phases import Phase
from signer.rotation.proofs import NotKnown, named
from signer.rotation.rotations import Known, Verified
from signer.rotation.secrets import (
    ABSENT,
    CERTIFICATE_KEY,
    PRIVATE_KEY,
    NoPair,
    Pair,
    ReadSecret,
    certificate_in,
    decoded,
    pair_manifest,
    published_manifest,
    read_kept_pair,
    read_secret,
    sealed_anew,
)
from signer.rotation.servers.identity import expected_servers
from signer.rotation.servers.observing import NoServersExpected, TwoAuthorities
from signer.store.caches import Caches

_LOG = logging.getLogger(__name__)
IDLE_SECONDS: Final = 600.0
"""Between looks at a cluster that does not use it; a change of its policy is seen at once."""
PROVEN_SECONDS: Final = 300.0
"""Between passes over the API servers while it signs. Each pass writes two canaries to the audit log."""
WAITING: Final = Backoff(base_seconds=5.0, maximum_seconds=PROVEN_SECONDS, jitter=0.2)
CHANGED_SECONDS: Final = 0.5
"""After a write that another one came before."""
NODE_CLIENT_SIGNS: Final = ConditionType("NodeClientAuthoritySigns", lambda policy: False)
"""It never counts toward Ready: while it is False, nodes get certificates of the cluster's CA."""


class ManagementCalls(Get, Create, Replace, Protocol):
    """The calls to the management cluster."""


@dataclass(frozen=True, slots=True)
class _Secrets:
    own: ReadSecret
    cluster: ReadSecret
    trust: Bundle | Absent | Unusable
    trust_object: JsonObject


@dataclass(frozen=True, slots=True)
class _NothingToShow:
    """The cluster does not use it and never has, or no pass has been made."""


class NodeClientReconciler:
    """One cluster's node-client authority."""

    name: Final = "node-client authority"

    def __init__(
        self,
        key: ClusterKey,
        *,
        management: ManagementCalls,
        caches: Caches,
        rotation: Callable[[ClusterKey], Known],
        signing: NodeClientSigning,
        ask_servers: AskServers,
        settings: RotationSettings,
        changed: Callable[[], None],
        now: Callable[[], datetime],
        random: Random,
    ) -> None:
        """``rotation`` is the rotation of the Cluster's CAs. ``changed`` is called when conditions have changed."""
        self._key = key
        self._management = management
        self._caches = caches
        self._rotation = rotation
        self._signing = signing
        self._ask_servers = ask_servers
        self._settings = settings
        self._changed = changed
        self._now = now
        self._random = random
        self._wanted = asyncio.Event()
        self._waits = 0
        self._last: Move | _NothingToShow = _NothingToShow()
        self._users: tuple[str, ...] = ()

    @property
    def conditions(self) -> Sequence[PolicyCondition]:
        """For the policy's status."""
        match self._last:
            case Sign(_, message):
                return (PolicyCondition(NODE_CLIENT_SIGNS, True, "Signing", printable(message)),)
            case DoNotSign(reason, proof):
                met = None if isinstance(proof, NotKnown) else False
                message = f"the cluster's CA signs the nodes' client certificates: {proof.message}{self._still_used()}"
                return (PolicyCondition(NODE_CLIENT_SIGNS, met, reason.value, printable(message)),)
            case _:
                return ()

    def _still_used(self) -> str:
        if not self._users:
            return "; no node has a certificate of the node-client authority"
        return f"; nodes with a certificate of the node-client authority: {named(self._users)}"

    @property
    def users(self) -> tuple[str, ...] | Absent:
        """The nodes whose newest client certificate is by it; Absent if the cluster does not use it."""
        return Absent() if isinstance(self._last, _NothingToShow) else self._users

    def wake(self) -> None:
        """The Cluster, its policy or the record of its rotation has changed."""
        self._wanted.set()

    async def run(self, client: Client) -> None:
        """Work over a connection to the workload cluster until cancelled.

        Then the cluster's CA signs: the next connection may lead to other API servers.
        """
        try:
            while True:
                self._wanted.clear()
                pause = await self._try_pass(client)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._wanted.wait()
        finally:
            self._signing.stop(self._key)

    async def _try_pass(self, client: Client) -> float:
        before = tuple(self.conditions)
        try:
            pause = await self.look(client)
        except (Conflict, AlreadyExists, NotFound):
            pause = CHANGED_SECONDS
        except (ApiError, AuthorityError, Deferred) as error:
            _LOG.warning(
                "the node-client authority cannot be looked after",
                extra={"cluster": str(self._key), "error": printable(str(error))},
            )
            pause = self._waiting()
        if tuple(self.conditions) != before:
            self._changed()
        return pause

    def _waiting(self) -> float:
        self._waits += 1
        return WAITING.delay(self._waits - 1, self._random)

    async def look(self, client: Client) -> float:
        """One pass; returns how many seconds to wait before the next one.

        Raises:
            ApiError: from the management cluster.
            AuthorityError: no CA can be made like the cluster's.
            Deferred: the controller key is not available, or the caches are out of touch.
        """
        cluster = self._caches.clusters.get(self._key.namespace, self._key.name)
        wanted = NotWanted(Reason.NOT_CHOSEN, "there is no Cluster") if cluster is None else self._wants(cluster)
        if isinstance(wanted, NotWanted):
            self._signing.stop(self._key)  # before anything that may fail
        if cluster is None or cluster.deleting:
            self._last = _NothingToShow()
            return IDLE_SECONDS
        self._caches.require_in_touch()
        secrets = await self._read()
        if isinstance(wanted, NotWanted) and isinstance(secrets.own.held, Absent) and not self._is_chosen():
            self._last = _NothingToShow()
            return IDLE_SECONDS
        facts = NodeClientFacts(
            now=self._now(),
            wanted=wanted,
            own=secrets.own.held,
            sealed_with=secrets.own.sealed_with,
            cluster=secrets.cluster.held,
            trust=secrets.trust,
            servers=NotAsked(),
            signs=self._signing.of(self._key),
        )
        move = next_move(facts)
        if isinstance(move, Ask):
            move = next_move(replace(facts, servers=await self._servers(client, secrets)))
            assert not isinstance(move, Ask)
        self._users = self._nodes_with_certificate_of(secrets.own)
        return await self._make(move, cluster, secrets)

    async def _make(self, move: Move, cluster: ClusterView, secrets: _Secrets) -> float:
        match move:
            case MakeAuthority():
                await self._create(cluster, secrets.cluster)
                return 0.0
            case SealAuthority():
                await self._seal(secrets.own)
                return 0.0
            case Publish():
                await self._publish(cluster, secrets)
                return 0.0
            case Sign(authority, _):
                if self._signing.of(self._key) != authority:
                    _LOG.info(
                        "the node-client authority signs",
                        extra={"cluster": str(self._key), "caCertHash": authority.public_key_hash},
                    )
                self._signing.sign(self._key, authority)
                self._last, self._waits = move, 0
                return PROVEN_SECONDS
            case DoNotSign(reason, _):
                self._signing.stop(self._key)
                self._last = move
                return IDLE_SECONDS if reason in _UNTIL_WOKEN else self._waiting()

    # What the policy and the operator want

    def _policy(self) -> Policy | Absent:
        policy = self._caches.policies.get(self._key.namespace, self._key.name)
        return policy if isinstance(policy, Policy) else Absent()

    def _is_chosen(self) -> bool:
        policy = self._policy()
        return isinstance(policy, Policy) and policy.node_client_authority is NodeClientAuthority.SEPARATE

    def _wants(self, cluster: ClusterView) -> Wanted | NotWanted:
        policy = self._policy()
        if not isinstance(policy, Policy) or policy.node_client_authority is NodeClientAuthority.SHARED:
            return NotWanted(Reason.NOT_CHOSEN, "the policy does not choose it")
        if not self._settings.allows_node_client_authority(self._key.namespace):
            return NotWanted(
                Reason.NOT_ALLOWED,
                f"this controller allows it to no policy in namespace {self._key.namespace}: its configuration file "
                "says where, in rotation.nodeClientAuthority",
            )
        kind = cluster.control_plane_kind
        if kind != KUBEADM_CONTROL_PLANE or suffixes_for(policy.certificate_authorities, kind) != ONE_AUTHORITY:
            return NotWanted(
                Reason.NOT_SUPPORTED,
                "it needs a KubeadmControlPlane, and ca as client and serving in certificateAuthorities",
            )
        known = self._rotation(self._key)
        if isinstance(known, Verified) and known.record.phase is Phase.ABANDONED:
            return NotWanted(
                Reason.ROTATION_UNDER_WAY, "a rotation of the cluster's CAs was abandoned, and not cleared"
            )
        if not isinstance(known, NeverRotated) and not (isinstance(known, Verified) and known.record.phase.is_over):
            return NotWanted(Reason.ROTATION_UNDER_WAY, "a rotation of the cluster's CAs decides which CA signs")
        if cluster.paused:
            return NotWanted(Reason.PAUSED, "the Cluster is paused")
        return Wanted()

    # What there is

    async def _read(self) -> _Secrets:
        keys = self._caches.authentic.keys()
        own, cluster, trust = [await self._get(suffix) for suffix in (NODE_CLIENT_CA, AuthorityKind.CLUSTER, "trust")]
        return _Secrets(
            read_kept_pair(AuthorityKind.CLUSTER, own, keys) if own else ABSENT,
            read_secret(AuthorityKind.CLUSTER, cluster) if cluster else ABSENT,
            _client_authorities(trust),
            trust,
        )

    async def _get(self, suffix: str) -> JsonObject:
        """Empty if there is none."""
        try:
            return await self._management.get(SECRETS.object(f"{self._key.name}-{suffix}", self._key.namespace))
        except NotFound:
            return {}

    async def _servers(self, client: Client, secrets: _Secrets) -> ServersFacts | NotObserved:
        machines = tuple(self._caches.machines_of(self._key))
        try:
            both = TwoAuthorities(*[await asyncio.to_thread(self._load, one) for one in (secrets.cluster, secrets.own)])
            found = await self._ask_servers(client.server, expected_servers(machines), both)
        except (NoServersExpected, CertificateAuthorityUnavailable) as error:
            return NotObserved(printable(str(error)))
        return servers_facts(found, self._now())

    def _load(self, read: ReadSecret) -> CertificateAuthority:
        pair = _pair_of(read)
        return load_certificate_authority({CERTIFICATE_KEY: pair.certificate, PRIVATE_KEY: pair.key}, now=self._now())

    def _nodes_with_certificate_of(self, own: ReadSecret) -> tuple[str, ...]:
        if not isinstance(own.held, HeldPair):
            return ()
        nodes = attested_nodes(self._caches, self._key, tuple(self._caches.machines_of(self._key)))
        return tuple(one.node for one in nodes.attested if one.client == own.held.signs.public_key_hash)

    # Writes

    async def _create(self, cluster: ClusterView, cluster_ca: ReadSecret) -> None:
        pair = await asyncio.to_thread(_new_pair, certificate_in(_pair_of(cluster_ca)), self._now())
        name, version = f"{self._key.name}-{NODE_CLIENT_CA}", self._caches.version.clusters.api_version
        manifest = pair_manifest(name, pair, cluster, version, self._caches.authentic.keys())
        await self._management.create(SECRETS.collection(self._key.namespace), manifest)
        _LOG.info(
            "made a node-client authority",
            extra={"cluster": str(self._key), "caCertHash": pair.reference.public_key_hash},
        )

    async def _seal(self, own: ReadSecret) -> None:
        sealed = sealed_anew(own.manifest, _pair_of(own).reference, self._caches.authentic.keys())
        path = SECRETS.object(f"{self._key.name}-{NODE_CLIENT_CA}", self._key.namespace)
        await self._management.replace(path, sealed)

    async def _publish(self, cluster: ClusterView, secrets: _Secrets) -> None:
        """Add what is missing; what a person put there stays."""
        cluster_ca, own = certificate_in(_pair_of(secrets.cluster)).der, certificate_in(_pair_of(secrets.own)).der
        before = secrets.trust_object
        if not before:
            only = bundle_of(cluster_ca)
            data = {CLIENT_CA: only + bundle_of(own), SERVER_CA: only, LINK: b""}
            manifest = published_manifest("trust", cluster, self._caches.version.clusters.api_version, data)
            await self._management.create(SECRETS.collection(self._key.namespace), manifest)
            return
        found = read_bundle(decoded(before).get(CLIENT_CA, b""))
        assert not isinstance(found, UnreadableBundle)
        missing = [one for one in (cluster_ca, own) if one not in found]
        value = base64.b64encode(bundle_of(*found, *missing)).decode("ascii")
        path = SECRETS.object(f"{self._key.name}-trust", self._key.namespace)
        await self._management.replace(path, {**before, "data": {**mapping_of(before, "data"), CLIENT_CA: value}})


_UNTIL_WOKEN: Final = frozenset(
    {Reason.NOT_CHOSEN, Reason.NOT_ALLOWED, Reason.NOT_SUPPORTED, Reason.ROTATION_UNDER_WAY, Reason.PAUSED}
)
"""Their end wakes the reconciler."""


def _client_authorities(trust: Mapping[str, object]) -> Bundle | Absent | Unusable:
    if not trust:
        return Absent()
    try:
        found = read_bundle(decoded(trust).get(CLIENT_CA, b""))
    except ValueError as error:
        return Unusable(str(error))
    return Unusable(found.message) if isinstance(found, UnreadableBundle) else tuple(map(digest_of, found))


def _pair_of(read: ReadSecret) -> Pair:
    """The plan makes no move that needs a pair without one."""
    assert not isinstance(read.pair, NoPair)
    return read.pair


def _new_pair(like: CACertificate, now: datetime) -> Pair:
    made = new_node_client_authority(new_rotation_id(), like=like, now=now)
    return Pair(reference_of(made.certificate), made.certificate_pem, made.private_key_pem)


__all__ = ["NODE_CLIENT_SIGNS", "NodeClientReconciler"]
