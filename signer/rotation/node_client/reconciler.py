"""Makes, publishes and proves the node-client authority of one workload cluster while it is connected.

Without an order, nothing that it does can lock anybody out: it adds a CA to what API servers are told to trust, and has
it sign once all of them do. A person orders another authority in its place. Then it takes the former one away, once no
node has a certificate of it.
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

from attestors.wire.statement import ClusterIdentity, MalformedStatement
from attestors.wire.statement.names import STATEMENT_CONFIG_MAP
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
from signer.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound
from signer.kube.resources import SECRETS
from signer.kube.supervision import until_wanted
from signer.model.authority_suffixes import KUBEADM_CONTROL_PLANE, NODE_CLIENT_CA, ONE_AUTHORITY, suffixes_for
from signer.model.cluster import ClusterKey, ClusterView
from signer.model.condition import ConditionType, PolicyCondition
from signer.model.decision import MAXIMUM_MESSAGE_CHARACTERS, Deferred, printable
from signer.model.fields import mapping_of
from signer.model.policy import NodeClientAuthority, Policy
from signer.model.seal import ControllerKeys
from signer.rotation.authorities import AuthorityKind, AuthorityReference, new_rotation_id
from signer.rotation.bundles import UnreadableBundle, bundle_of, digest_of, read_bundle, reference_of
from signer.rotation.facts import (
    Absent,
    AuthenticationFacts,
    Bundle,
    HeldPair,
    NotObserved,
    ServersFacts,
    Unusable,
)
from signer.rotation.management import CLIENT_CA, LINK, SERVER_CA
from signer.rotation.node_client.former import (
    FORMER_SUFFIX,
    Former,
    ReadFormer,
    Retired,
    Retiring,
    former_manifest,
    read_former,
    with_key,
    without_key,
)
from signer.rotation.node_client.orders import CarriedOut, KeepFormer, SkipNodes, carry_out
from signer.rotation.node_client.plan import (
    NOT_YET,
    Ask,
    AskFormer,
    DoNotSign,
    ForgetFormer,
    FormerNodes,
    MakeAuthority,
    MakeSuccessor,
    Move,
    NodeClientFacts,
    NotAsked,
    NotWanted,
    Prune,
    Publish,
    Reason,
    SealAuthority,
    SealFormer,
    Sign,
    Stage,
    Unpublish,
    Wanted,
    Write,
    every_server_refuses,
    next_move,
)
from signer.rotation.node_client.shown import NODE_CLIENT_CONDITION, retiring_text
from signer.rotation.node_client.signing import NodeClientSigning
from signer.rotation.observer import AskServers, attested_nodes, servers_facts
from signer.rotation.operations import NeverRotated, Order
from signer.rotation.phases import Phase
from signer.rotation.proofs import AGAIN, NotKnown, Proven, named
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
from signer.rotation.statements import NotPublished, RenewalFacts, SequenceTooLow, publish_renewal
from signer.rotation.statements.readers import ensure_readers
from signer.rotation.workload import AUTHENTICATION, pruned, read_authentication
from signer.store.caches import Caches

_LOG = logging.getLogger(__name__)
IDLE_SECONDS: Final = 600.0
"""Between looks at a cluster that does not use it; a change of its policy is seen at once."""
PROVEN_SECONDS: Final = 300.0
"""Between passes over the API servers while it signs. Each pass writes two canaries to the audit log."""
WAITING: Final = Backoff(base_seconds=5.0, maximum_seconds=PROVEN_SECONDS, jitter=0.2)
CHANGED_SECONDS: Final = 0.5
"""After a write that another one came before."""
NODE_CLIENT_SIGNS: Final = ConditionType(NODE_CLIENT_CONDITION, lambda policy: False)
"""It never counts toward Ready: while it is False, nodes get certificates of the cluster's CA."""


class ManagementCalls(Get, Create, Replace, Protocol):
    """The calls to the management cluster."""


@dataclass(frozen=True, slots=True)
class _Secrets:
    own: ReadSecret
    former: ReadFormer
    cluster: ReadSecret
    trust: Bundle | Absent | Unusable
    trust_object: JsonObject

    @property
    def former_pair(self) -> Pair:
        """The plan makes no move that needs it without one."""
        assert not isinstance(self.former.pair, NoPair)
        return self.former.pair


@dataclass(frozen=True, slots=True)
class _AskedFormer:
    """What one pass has shown of the former authority."""

    servers: ServersFacts | NotObserved
    authentication: AuthenticationFacts | NotObserved
    authentication_object: JsonObject


class Tell(Protocol):
    """Records an Event on the policy."""

    def __call__(self, kind: str, reason: str, message: str) -> None:
        """``kind`` is Normal or Warning."""
        ...


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
        tell: Tell,
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
        self._tell = tell
        self._changed = changed
        self._now = now
        self._random = random
        self._wanted = asyncio.Event()
        self._waits = 0
        self._last: Move | _NothingToShow = _NothingToShow()
        self._users: tuple[str, ...] = ()
        self._former: Former = Absent()
        self._former_users: tuple[str, ...] = ()
        self._refused_since: datetime | NotObserved = NOT_YET
        self._absent_since: datetime | NotObserved = NOT_YET

    @property
    def conditions(self) -> Sequence[PolicyCondition]:
        """For the policy's status."""
        match self._last:
            case Sign(_, message, stage):
                return (PolicyCondition(NODE_CLIENT_SIGNS, True, stage.value, self._message(message)),)
            case DoNotSign(reason, proof):
                met = None if isinstance(proof, NotKnown) else False
                message = f"the cluster's CA signs the nodes' client certificates: {proof.message}{self._still_used()}"
                return (PolicyCondition(NODE_CLIENT_SIGNS, met, reason.value, self._message(message)),)
            case _:
                return ()

    def _still_used(self) -> str:
        if not self._users:
            return "; no node has a certificate of the node-client authority"
        return f"; nodes with a certificate of the node-client authority: {named(self._users)}"

    def _message(self, text: str) -> str:
        """With what is said of the former authority, however many members ``text`` names."""
        end = retiring_text(self._former, len(self._former_users))
        return printable(text)[: MAXIMUM_MESSAGE_CHARACTERS - len(end)] + end

    @property
    def users(self) -> tuple[str, ...] | Absent:
        """The nodes whose newest client certificate is by it; Absent if the cluster does not use it."""
        return Absent() if isinstance(self._last, _NothingToShow) else self._users

    @property
    def former_users(self) -> tuple[str, ...] | Absent:
        """The nodes whose newest client certificate is by the former one; Absent unless one is being retired."""
        shown = not isinstance(self._last, _NothingToShow) and isinstance(self._former, Retiring)
        return self._former_users if shown else Absent()

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
                await until_wanted(self._wanted, pause)
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
        self._caches.require_current(self._key.namespace)
        secrets = await self._read()
        if isinstance(wanted, NotWanted) and isinstance(secrets.own.held, Absent) and not self._is_chosen():
            self._last = _NothingToShow()
            return IDLE_SECONDS
        facts = self._facts(wanted, secrets)
        asked = _AskedFormer(NOT_YET, NOT_YET, {})
        move = next_move(facts)
        if isinstance(move, Ask):
            facts = replace(facts, servers=await self._servers(client, secrets.cluster, secrets.own.pair))
            move = next_move(facts)
        if isinstance(move, AskFormer):
            asked = await self._ask_former(client, secrets)
            facts = self._with_former(facts, asked)
            move = next_move(facts)
        else:
            self._refused_since = self._absent_since = NOT_YET
        assert not isinstance(move, Ask | AskFormer)
        self._former, self._former_users = secrets.former.former, facts.former_nodes.users
        self._users = self._nodes_with_certificate_of(secrets.own)
        match move:
            case Sign(authority, _, stage):
                return await self._sign(move, authority, stage, cluster, secrets, client)
            case DoNotSign(reason, _):
                self._signing.stop(self._key)
                self._last = move
                return IDLE_SECONDS if reason in _UNTIL_WOKEN else self._waiting()
            case _:
                await self._write(move, cluster, secrets, client, asked)
                return 0.0

    def _facts(self, wanted: Wanted | NotWanted, secrets: _Secrets) -> NodeClientFacts:
        former = secrets.former.former
        return NodeClientFacts(
            now=self._now(),
            wanted=wanted,
            own=secrets.own.held,
            sealed_with=secrets.own.sealed_with,
            cluster=secrets.cluster.held,
            trust=secrets.trust,
            servers=NotAsked(),
            signs=self._signing.of(self._key),
            former=former,
            former_sealed_with=secrets.former.sealed_with,
            former_nodes=self._nodes_of_former(former) if isinstance(former, Retiring) else FormerNodes(),
        )

    async def _sign(
        self,
        move: Sign,
        authority: AuthorityReference,
        stage: Stage,
        cluster: ClusterView,
        secrets: _Secrets,
        client: Client,
    ) -> float:
        begins = self._signing.of(self._key) != authority
        if begins:
            _LOG.info(
                "the node-client authority signs",
                extra={"cluster": str(self._key), "caCertHash": authority.public_key_hash},
            )
        self._signing.sign(self._key, authority)
        if not isinstance(self._last, Sign) or self._last.stage is not stage:
            self._waits = 0
        self._last = move
        if not isinstance(secrets.former.former, Retiring):
            return PROVEN_SECONDS
        if stage is Stage.NODES_RENEW:
            await self._tell_nodes(cluster, secrets, client)
        if begins:
            return 0.0
        pause = self._waiting()
        return pause if isinstance(self._refused_since, NotObserved) else min(pause, AGAIN.total_seconds() + 1)

    async def _write(
        self, move: Write, cluster: ClusterView, secrets: _Secrets, client: Client, asked: _AskedFormer
    ) -> None:
        match move:
            case MakeAuthority():
                await self._create(cluster, secrets.cluster)
            case SealAuthority():
                await self._seal(secrets.own)
            case SealFormer():
                former = secrets.former.former
                assert isinstance(former, Retiring | Retired)
                await self._put_former(former, decoded(secrets.former.manifest), cluster, secrets)
            case MakeSuccessor():
                self._signing.stop(self._key)  # the Secret is about to hold another one
                await self._replace_own(cluster, secrets)
            case Publish(with_former):
                await self._publish(cluster, secrets, with_former=with_former)
            case Unpublish():
                await self._unpublish(secrets)
            case Prune():
                former = secrets.former.former
                assert isinstance(former, Retiring)
                await client.replace(AUTHENTICATION, pruned(asked.authentication_object, {former.authority.digest}))
                self._log("the former node-client authority is pruned from extension-apiserver-authentication", secrets)
            case ForgetFormer():
                await self._forget(cluster, secrets)

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
        suffixes = (NODE_CLIENT_CA, FORMER_SUFFIX, AuthorityKind.CLUSTER, "trust")
        own, former, cluster, trust = [await self._get(suffix) for suffix in suffixes]
        return _Secrets(
            read_kept_pair(AuthorityKind.CLUSTER, own, keys) if own else ABSENT,
            read_former(former, keys),
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

    async def _servers(self, client: Client, cluster: ReadSecret, other: Pair | NoPair) -> ServersFacts | NotObserved:
        machines = tuple(self._caches.machines_of(self._key))
        try:
            both = TwoAuthorities(*[await asyncio.to_thread(self._load, one) for one in (cluster.pair, other)])
            found = await self._ask_servers(client.server, expected_servers(machines), both)
        except (NoServersExpected, CertificateAuthorityUnavailable) as error:
            return NotObserved(printable(str(error)))
        return servers_facts(found, self._now())

    async def _ask_former(self, client: Client, secrets: _Secrets) -> _AskedFormer:
        servers = await self._servers(client, secrets.cluster, secrets.former.pair)
        authentication, found = await read_authentication(client)
        return _AskedFormer(servers, authentication, found)

    def _with_former(self, facts: NodeClientFacts, asked: _AskedFormer) -> NodeClientFacts:
        """The facts with what this pass has shown, and since when it was so."""
        assert isinstance(facts.former, Retiring)
        refused = isinstance(every_server_refuses(asked.servers), Proven)
        absent = (
            isinstance(asked.authentication, AuthenticationFacts)
            and facts.former.authority.digest not in asked.authentication.client
        )
        now = self._now()
        self._refused_since = _since(self._refused_since, now) if refused else NOT_YET
        self._absent_since = _since(self._absent_since, now) if absent else NOT_YET
        return replace(
            facts,
            now=now,
            former_servers=asked.servers,
            refused_since=self._refused_since,
            authentication=asked.authentication,
            absent_since=self._absent_since,
        )

    def _load(self, pair: Pair | NoPair) -> CertificateAuthority:
        assert not isinstance(pair, NoPair)
        return load_certificate_authority({CERTIFICATE_KEY: pair.certificate, PRIVATE_KEY: pair.key}, now=self._now())

    def _nodes_with_certificate_of(self, own: ReadSecret) -> tuple[str, ...]:
        if not isinstance(own.held, HeldPair):
            return ()
        nodes = attested_nodes(self._caches, self._key, tuple(self._caches.machines_of(self._key)))
        return tuple(one.node for one in nodes.attested if one.client == own.held.signs.public_key_hash)

    def _nodes_of_former(self, former: Retiring) -> FormerNodes:
        nodes = attested_nodes(self._caches, self._key, tuple(self._caches.machines_of(self._key)))
        users = tuple(one.node for one in nodes.attested if one.client == former.authority.public_key_hash)
        unknown = (one.node for one in nodes.attested if not one.is_all and one.node not in users)
        return FormerNodes(users, (*unknown, *nodes.unattested))

    # Orders

    async def carry_out(self, order: Order) -> None:
        """Implements :class:`~signer.rotation.reconciler.NodeClientOrders`.

        Raises:
            OperationRejected: it is not possible now; the message says why.
            ApiError: the management cluster cannot be asked, or the write failed.
            Deferred: the controller key is not available, or the caches are out of touch.
        """
        self._caches.require_current(self._key.namespace)
        cluster = self._caches.clusters.get(self._key.namespace, self._key.name)
        wanted = NotWanted(Reason.NOT_CHOSEN, "there is no Cluster") if cluster is None else self._wants(cluster)
        secrets = await self._read()
        outcome = carry_out(order, self._facts(wanted, secrets))
        if isinstance(outcome, CarriedOut):
            return
        assert cluster is not None
        former = outcome.former
        match outcome:
            case KeepFormer():
                self._signing.stop(self._key)
                await self._put_former(former, with_key(_pair_of(secrets.own)), cluster, secrets)
                message = f"node-client authority {former.authority.public_key_hash} is replaced by another one"
                self._tell("Normal", "NodeClientAuthorityReplaced", message)
                self._last = DoNotSign(Reason.NOT_PROVEN, NotKnown("another authority is made in its place"))
            case SkipNodes():
                await self._put_former(former, with_key(secrets.former_pair), cluster, secrets)
                users = self._nodes_of_former(former)
                message = (
                    "API servers are to refuse the former node-client authority although these nodes may have nothing "
                    f"else: {named((*users.users, *users.unknown)) or 'none'}"
                )
                self._tell("Warning", "NodesSkipped", message)
                _LOG.warning(
                    "nodes are not waited for", extra={"cluster": str(self._key), "detail": printable(message)}
                )
        self._former, self._former_users = former, self._nodes_of_former(former).users
        self._changed()  # whoever ordered it waits for that
        self.wake()

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

    async def _tell_nodes(self, cluster: ClusterView, secrets: _Secrets, client: Client) -> None:
        """Have agents renew certificates of the former authority at once. A failure holds nothing but the nodes."""
        former = secrets.former.former
        assert isinstance(former, Retiring)
        try:
            facts = RenewalFacts(
                cluster=ClusterIdentity(namespace=self._key.namespace, name=self._key.name, uid=cluster.uid),
                authority=certificate_in(secrets.former_pair),
                sequence=int(former.retirement.since.timestamp()),
                signer=await asyncio.to_thread(self._load, secrets.cluster.pair),
                nodes=len(self._former_users),
            )
            await self._ensure_readers(client)
            keys = self._caches.authentic.statement_keys()
            published = await publish_renewal(client, facts, keys, self._now())
        except (ApiError, NotPublished, SequenceTooLow, MalformedStatement, AuthorityError) as error:
            _LOG.warning(
                "nodes are not told to renew their client certificates",
                extra={"cluster": str(self._key), "error": printable(str(error))},
            )
            return
        if published.written:
            self._log("nodes with certificates of the former node-client authority are told to renew them", secrets)

    async def _ensure_readers(self, client: Client) -> None:
        """As for a rotation: the manifest with its own grants has this one."""
        with contextlib.suppress(Forbidden):
            await ensure_readers(client, STATEMENT_CONFIG_MAP)

    async def _replace_own(self, cluster: ClusterView, secrets: _Secrets) -> None:
        """At exactly the version that was read, whose pair is in the former's Secret."""
        pair = await asyncio.to_thread(_new_pair, certificate_in(_pair_of(secrets.cluster)), self._now())
        name, version = f"{self._key.name}-{NODE_CLIENT_CA}", self._caches.version.clusters.api_version
        fresh = pair_manifest(name, pair, cluster, version, self._caches.authentic.keys())
        replaced = sealed_anew({**secrets.own.manifest, "data": fresh["data"]}, pair.reference, self._keys())
        await self._management.replace(SECRETS.object(name, self._key.namespace), replaced)
        _LOG.info(
            "made another node-client authority",
            extra={"cluster": str(self._key), "caCertHash": pair.reference.public_key_hash},
        )

    async def _put_former(
        self, former: Retiring | Retired, data: Mapping[str, bytes], cluster: ClusterView, secrets: _Secrets
    ) -> None:
        before = secrets.former.manifest
        version = self._caches.version.clusters.api_version
        manifest = former_manifest(before, former, data, cluster, version, self._keys())
        if before:
            path = SECRETS.object(f"{self._key.name}-{FORMER_SUFFIX}", self._key.namespace)
            await self._management.replace(path, manifest)
        else:
            await self._management.create(SECRETS.collection(self._key.namespace), manifest)

    async def _forget(self, cluster: ClusterView, secrets: _Secrets) -> None:
        """Delete the key. The certificate stays, so that the authority cannot come back unnoticed."""
        former = secrets.former.former
        assert isinstance(former, Retiring)
        retired = Retired(former.authority, former.retirement)
        await self._put_former(retired, without_key(secrets.former_pair), cluster, secrets)
        message = (
            f"node-client authority {former.authority.public_key_hash} is replaced: every API server refuses it, and "
            "its key is deleted"
        )
        self._tell("Normal", "NodeClientAuthorityForgotten", message)
        self._log("the former node-client authority is refused everywhere, and its key is deleted", secrets)

    def _log(self, message: str, secrets: _Secrets) -> None:
        former = secrets.former.former
        assert isinstance(former, Retiring | Retired)
        _LOG.info(message, extra={"cluster": str(self._key), "caCertHash": former.authority.public_key_hash})

    def _keys(self) -> ControllerKeys:
        return self._caches.authentic.keys()

    async def _publish(self, cluster: ClusterView, secrets: _Secrets, *, with_former: bool) -> None:
        """Add what is missing; what a person put there stays."""
        cluster_ca, own = certificate_in(_pair_of(secrets.cluster)).der, certificate_in(_pair_of(secrets.own)).der
        clients = [cluster_ca, own]
        if with_former:
            clients.append(certificate_in(secrets.former_pair).der)
        before = secrets.trust_object
        if not before:
            data = {CLIENT_CA: bundle_of(*clients), SERVER_CA: bundle_of(cluster_ca), LINK: b""}
            manifest = published_manifest("trust", cluster, self._caches.version.clusters.api_version, data)
            await self._management.create(SECRETS.collection(self._key.namespace), manifest)
            return
        found = read_bundle(decoded(before).get(CLIENT_CA, b""))
        assert not isinstance(found, UnreadableBundle)
        await self._put_client_authorities(before, (*found, *(one for one in clients if one not in found)))

    async def _unpublish(self, secrets: _Secrets) -> None:
        """Remove the former authority; what else is there stays."""
        before, former = secrets.trust_object, secrets.former.former
        found = read_bundle(decoded(before).get(CLIENT_CA, b""))
        assert not isinstance(found, UnreadableBundle)
        assert isinstance(former, Retiring | Retired)
        left = tuple(one for one in found if digest_of(one) != former.authority.digest)
        await self._put_client_authorities(before, left)
        self._log("the former node-client authority is published no longer", secrets)

    async def _put_client_authorities(self, before: JsonObject, certificates: tuple[bytes, ...]) -> None:
        value = base64.b64encode(bundle_of(*certificates)).decode("ascii")
        path = SECRETS.object(f"{self._key.name}-trust", self._key.namespace)
        await self._management.replace(path, {**before, "data": {**mapping_of(before, "data"), CLIENT_CA: value}})


_UNTIL_WOKEN: Final = frozenset(
    {Reason.NOT_CHOSEN, Reason.NOT_ALLOWED, Reason.NOT_SUPPORTED, Reason.ROTATION_UNDER_WAY, Reason.PAUSED}
)
"""Their end wakes the reconciler."""


def _since(before: datetime | NotObserved, now: datetime) -> datetime:
    """The first of the passes in a row."""
    return now if isinstance(before, NotObserved) else before


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
