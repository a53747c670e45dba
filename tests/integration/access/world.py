"""The engine of access grants on the embedded management API: real objects, rights, watches and seals; a clock, nodes,
admission and published bundles that a test sets.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final, TypeVar, cast

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from attestors.wire.node_access import Trust
from signer.access import bastion_objects
from signer.access.carrying_out import Tools
from signer.access.certificates import GrantCertificates
from signer.access.containers.creators import NoGateway
from signer.access.containers.nodes import ContainerNodes
from signer.access.creator import Guard, Lock, Protected
from signer.access.gathering import Sources
from signer.access.parts import (
    Publication,
    TargetNode,
    TargetsAnswer,
    TargetsFound,
    TargetsGone,
    TargetsUnknown,
)
from signer.access.reconciler import GrantReconciler
from signer.access.revocation_list import RevocationList
from signer.access.rights import Rights
from signer.access.store import StoredGrant
from signer.access.waking import GrantCaches
from signer.authority.ssh.authorities import HostAuthority, UserAuthority
from signer.configuration import AccessPermission
from signer.crds import access_definitions
from signer.kube.client import Client, JsonObject, Parameters
from signer.kube.clocks import ClockAnswer, ClocksAgree
from signer.kube.errors import ApiError, Conflict, NotFound
from signer.kube.resources import (
    ACCESS_APPROVALS,
    ACCESS_GRANTS,
    CLUSTERS_V1BETA2,
    MACHINES_V1BETA2,
    NODE_ATTESTATION_POLICIES,
)
from signer.model.access import AccessGrant, Nodes
from signer.model.access.bastion import FINALIZER as BASTION_FINALIZER
from signer.model.access.digest import digest_of_spec
from signer.model.access.grant import HEARTBEAT_ANNOTATION
from signer.model.cluster import ClusterKey
from signer.model.floors import NO_FLOORS
from signer.model.namespace_limits import DEFAULT_NAMESPACE_LIMITS, NamespaceLimits
from signer.ssh.available import AvailableAuthorities
from signer.ssh.revocations import PublishedRevocations, Revocation, combined
from signer.store.cache import Cache
from signer.store.caches import Caches
from signer.store.cluster_api import ClusterAPIVersion
from signer.testing.api import EmbeddedAPI
from signer.testing.cluster_api import cluster_manifest
from signer.testing.world import CONTROLLER_NAMESPACE, ManagementCluster
from tests.support.access_objects import ALICE, AUTHORITY_KEY, BOB, USER_KEY
from tests.support.openssh import private_key
from tests.support.remembered_audit import RememberedAudit
from tests.support.yaml_documents import safe_load

NAMESPACE: Final = "team-a"
CLUSTER: Final = ClusterKey(NAMESPACE, "production")
CONTROLLER: Final = "access-controller"
MASTERS: Final = ("system:masters",)
USER_AUTHORITY: Final = UserAuthority(cast("Ed25519PrivateKey", private_key("ed25519", 90)))
HOST_AUTHORITY: Final = HostAuthority(cast("Ed25519PrivateKey", private_key("ed25519", 91)))
CAROL: Final = {"username": "carol", "uid": "u-3", "groups": ["system:authenticated"]}
BASTION: Final[Mapping[str, Any]] = {"bastion": "local", "ingress": [{"ipBlock": {"cidr": "198.51.100.7/32"}}]}


class Killed(BaseException):
    """The process has ended, as by SIGKILL."""


@dataclass
class Deadline:
    """How many writes a process still makes; it dies before the next one, or after it and before the answer comes."""

    writes: int | None = None
    after: bool = False
    made: list[str] = field(default_factory=list)

    def before(self, call: str) -> None:
        if self.writes is not None and not self.after and len(self.made) == self.writes:
            raise Killed(call)

    def done(self, call: str) -> None:
        self.made.append(call)
        if self.writes is not None and self.after and len(self.made) == self.writes + 1:
            raise Killed(call)


class MortalClient:
    """The management API as a process sees it."""

    def __init__(self, client: Client, deadline: Deadline) -> None:
        self._client = client
        self._deadline = deadline

    async def get(self, path: str, params: Parameters | None = None) -> JsonObject:
        return await self._client.get(path, params)

    async def _write(self, call: str, write: Callable[[], Any]) -> JsonObject:
        self._deadline.before(call)
        answer = await write()
        self._deadline.done(call)
        return cast("JsonObject", answer)

    async def create(self, path: str, body: JsonObject, params: Parameters | None = None) -> JsonObject:
        if path.endswith("subjectaccessreviews"):
            return await self._client.create(path, body)
        return await self._write(f"POST {path}", lambda: self._client.create(path, body, params))

    async def replace(self, path: str, body: JsonObject) -> JsonObject:
        return await self._write(f"PUT {path}", lambda: self._client.replace(path, body))

    async def patch(self, path: str, patch: JsonObject, *more: Any, **named: Any) -> JsonObject:
        return await self._write(f"PATCH {path}", lambda: self._client.patch(path, patch, *more, **named))

    async def delete(self, path: str, **named: Any) -> JsonObject:
        return await self._write(f"DELETE {path}", lambda: self._client.delete(path, **named))


@dataclass
class ChosenLock:
    """What the trial of the creator lock shows."""

    answer: Lock
    now: Lock | None = None
    """What a trial shows that is made now, if something else."""
    tried: list[str] = field(default_factory=list)

    async def fresh(self, namespace: str, since: float = float("-inf")) -> Lock:
        self.tried.append(namespace)
        return self.answer if self.now is None or since == float("-inf") else self.now

    def forget(self, namespace: str) -> None:
        """Nothing is kept."""


def guard(changed: datetime, generation: int = 1) -> Guard:
    return Guard("ValidatingAdmissionPolicy/node-access-grants", "p-1", generation, changed)


@dataclass
class Counts:
    """Implements Observer and Tell."""

    issues: list[tuple[str, str]] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    holds: list[str] = field(default_factory=list)
    lateness: list[float] = field(default_factory=list)
    events: list[tuple[str, str]] = field(default_factory=list)

    def issued(self, cluster: ClusterKey, hop: str) -> None:
        self.issues.append((str(cluster), hop))

    def ended(self, cluster: ClusterKey, cause: str) -> None:
        self.ends.append(cause)

    def held(self, cluster: ClusterKey, reason: str) -> None:
        self.holds.append(reason)

    def late(self, seconds: float) -> None:
        self.lateness.append(seconds)

    def __call__(self, grant: StoredGrant, kind: str, reason: str, message: str) -> None:
        self.events.append((grant.metadata.name, reason))


@dataclass
class World:
    """The management cluster, and what does not depend on a process."""

    api: EmbeddedAPI
    now: datetime = field(default_factory=lambda: (datetime.now(UTC) + timedelta(seconds=5)).replace(microsecond=0))
    nodes: set[str] = field(default_factory=lambda: {"worker-1", "worker-2"})
    address: str = "10.0.0.5"
    """Of each node."""
    gone_nodes: set[str] = field(default_factory=set)
    unknown_nodes: str = "not attested"
    published: set[str] = field(default_factory=set)
    publishes: bool = True
    """Whether the trust bundle follows the list."""
    permission: AccessPermission = field(
        default_factory=lambda: AccessPermission(frozenset({"*"}), bastions=frozenset({"local"}))
    )
    audit: RememberedAudit = field(default_factory=RememberedAudit)
    counts: Counts = field(default_factory=Counts)
    lock: ChosenLock = field(init=False)
    clocks: ClockAnswer = field(default_factory=ClocksAgree)
    """How the controller's clock, ``now``, stands to the API server's."""
    seconds: float = 0.0
    pods: dict[str, JsonObject] = field(default_factory=dict)
    """Of the workload cluster, by path."""
    node_hints: ContainerNodes = field(init=False)
    limits: NamespaceLimits = DEFAULT_NAMESPACE_LIMITS
    lists: dict[ClusterKey, RevocationList] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._since = self.now
        self.node_hints = ContainerNodes(self.monotonic)
        self.lock = ChosenLock(Protected((guard(self.now - timedelta(days=1)),), self.now))

    def begin_now(self) -> None:
        """The clock goes with that of the API server again."""
        self.now = (datetime.now(UTC) + timedelta(seconds=5)).replace(microsecond=0)

    def pass_by(self, elapsed: timedelta) -> None:
        """Time passes."""
        self.now += elapsed

    def monotonic(self) -> float:
        return (self.now - self._since).total_seconds()

    # Implements Targets

    def of(self, grant: AccessGrant, was_found: bool) -> TargetsAnswer:
        if not isinstance(grant.target, Nodes):
            return TargetsFound(tuple(map(self._target, sorted(self.nodes))), every_node=True)
        found = [name for name in grant.target.names if name in self.nodes]
        if found:
            return TargetsFound(tuple(map(self._target, found)))
        if was_found or self.gone_nodes.issuperset(grant.target.names):
            return TargetsGone("no Machine is left")
        return TargetsUnknown(self.unknown_nodes)

    def _target(self, name: str) -> TargetNode:
        return TargetNode(name, (self.address,), 22)

    def known_hosts(self, grant: AccessGrant, found: TargetsFound) -> tuple[str, ...]:
        return (f"@cert-authority * {AUTHORITY_KEY}",)

    # Implements Get, of the workload cluster

    async def get(self, path: str) -> JsonObject:
        if path not in self.pods:
            raise NotFound(path)
        return self.pods[path]

    # People

    def grant(self, name: str = "repair", *, creator: Mapping[str, Any] = ALICE, **spec: Any) -> dict[str, Any]:
        """A person makes a grant."""
        body = {
            "clusterRef": {"name": CLUSTER.name},
            "target": {"nodes": ["worker-1"]},
            "sshPublicKey": USER_KEY,
            "createdBy": dict(creator),
            **spec,
        }
        return self.api.create(
            {
                "apiVersion": ACCESS_GRANTS.api_version,
                "kind": "AccessGrant",
                "metadata": {"name": name, "namespace": spec.pop("namespace", NAMESPACE)},
                "spec": {field: value for field, value in body.items() if value is not None},
            }
        )

    def approve(self, name: str, creator: Mapping[str, Any], grant: Mapping[str, Any], **spec: Any) -> None:
        """A person approves a grant as it is."""
        self.api.create(
            {
                "apiVersion": ACCESS_APPROVALS.api_version,
                "kind": "AccessApproval",
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {
                    "grantRef": {"name": grant["metadata"]["name"], "uid": grant["metadata"]["uid"]},
                    "decision": "Approve",
                    "specDigest": digest_of_spec(grant["spec"]),
                    "createdBy": dict(creator),
                    **spec,
                },
            }
        )

    def edit(self, patch: Mapping[str, Any], name: str = "repair", subresource: str = "") -> None:
        self.api.patch("accessgrants", name, patch, NAMESPACE, subresource)

    def beat(self, text: str, name: str = "repair") -> None:
        """The creator's client sends a heartbeat."""
        self.edit({"metadata": {"annotations": {HEARTBEAT_ANNOTATION: text}}}, name)

    def delete(self, name: str = "repair") -> None:
        self.api.delete("accessgrants", name, NAMESPACE)

    def found(self, name: str = "repair", namespace: str = NAMESPACE) -> dict[str, Any]:
        """The grant; empty if it is gone."""
        return next((one for one in self.grants(namespace) if one["metadata"]["name"] == name), {})

    def grants(self, namespace: str = NAMESPACE) -> list[dict[str, Any]]:
        return self.api.objects("accessgrants", namespace)

    def bastions(self) -> list[dict[str, Any]]:
        return self.api.objects("bastions", NAMESPACE)

    def status(self, name: str = "repair") -> dict[str, Any]:
        found: dict[str, Any] = self.found(name).get("status") or {}
        return found

    def reason(self, kind: str = "Ready", name: str = "repair") -> str:
        return next((one["reason"] for one in self.status(name).get("conditions", ()) if one["type"] == kind), "")

    def revoked(self) -> set[str]:
        """The key ids in the list of revocations."""
        maps = self.api.objects("configmaps", NAMESPACE)
        texts = [one["data"]["revocations"] for one in maps if one["metadata"]["name"].endswith("access-revocations")]
        return {entry["keyID"] for text in texts for entry in safe_load(text)}

    def allow(self, *users: str, verbs: tuple[str, ...] = ("use",), login: str = "root") -> None:
        """Give a right in the namespace."""
        for user in users:
            name = f"{user}-{'-'.join(verbs)}-{login}"
            rule = {"apiGroups": ["access.cluster.x-k8s.io"], "resources": ["logins"], "verbs": list(verbs)}
            metadata = {"name": name, "namespace": NAMESPACE}
            rbac = "rbac.authorization.k8s.io"
            role = {"apiGroup": rbac, "kind": "Role", "name": name}
            subject = {"kind": "User", "apiGroup": rbac, "name": user}
            for kind, rest in (
                ("Role", {"rules": [{**rule, "resourceNames": [login]}]}),
                ("RoleBinding", {"roleRef": role, "subjects": [subject]}),
            ):
                self.api.apply({"apiVersion": f"{rbac}/v1", "kind": kind, "metadata": metadata, **rest})

    def withdraw(self, user: str, verbs: tuple[str, ...] = ("use",), login: str = "root") -> None:
        self.api.delete("rolebindings", f"{user}-{'-'.join(verbs)}-{login}", NAMESPACE)

    def policy(self, access: Mapping[str, Any] | None, cluster: ClusterKey = CLUSTER) -> None:
        """Set ``spec.ssh.access``; None takes it away."""
        ssh = {} if access is None else {"access": dict(access)}
        self.api.apply(
            {
                "apiVersion": NODE_ATTESTATION_POLICIES.api_version,
                "kind": "NodeAttestationPolicy",
                "metadata": {"name": cluster.name, "namespace": cluster.namespace},
                "spec": {"authorizedAttestors": [{"name": "keyed-mac"}], "ssh": ssh},
            }
        )

    def add_cluster(self, cluster: ClusterKey = CLUSTER) -> None:
        self.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": cluster.namespace}})
        self.api.apply(cluster_manifest(cluster.namespace, cluster.name))
        self.policy({}, cluster)

    # The bastion controller

    def bastion_controller(self) -> None:
        """One pass: a new bastion becomes ready, one that is being deleted goes."""
        for bastion in self.bastions():
            name, metadata = bastion["metadata"]["name"], bastion["metadata"]
            if "deletionTimestamp" in metadata:
                self.api.patch("bastions", name, {"metadata": {"finalizers": []}}, NAMESPACE)
                continue
            if BASTION_FINALIZER not in metadata.get("finalizers", ()):
                patch = {"metadata": {"finalizers": [BASTION_FINALIZER]}}
                metadata = self.api.patch("bastions", name, patch, NAMESPACE)["metadata"]
            status = ready_bastion(metadata["generation"])
            self.api.patch("bastions", name, {"status": status}, NAMESPACE, "status")


def ready_bastion(generation: int) -> dict[str, Any]:
    """The status of a bastion that answers."""
    condition = {
        "type": "BastionReady",
        "status": "True",
        "reason": "SuccessfullyReconciled",
        "message": "ready",
        "lastTransitionTime": "2026-11-27T14:00:00Z",
    }
    return {
        "observedGeneration": generation,
        "ingress": {"ip": "203.0.113.9", "port": 2222},
        "hostKeys": [AUTHORITY_KEY],
        "egress": ["203.0.113.9/32"],
        "conditions": [condition],
    }


@dataclass
class WorldPublications:
    """Implements Publications: the bundle follows the list, if the world publishes."""

    world: World
    revocation_list: RevocationList

    def of(self, cluster: ClusterKey, key_id: str) -> Publication:
        if self.world.publishes and any(
            key_id in one.key_ids  # type: ignore[union-attr]
            for one in self.revocation_list.of(cluster)
        ):
            self.world.published.add(key_id)
        return Publication.PUBLISHED if key_id in self.world.published else Publication.PENDING


@dataclass
class WorldClocks:
    """Implements ClockAnswers."""

    world: World

    def answer(self) -> ClockAnswer:
        return self.world.clocks

    async def fresh(self, path: str) -> ClockAnswer:
        return self.world.clocks


WorldT = TypeVar("WorldT", bound=World)


class Process:
    """One process of the controller. Its looks are made one by one, or it runs."""

    def __init__(self, world: World, client: Client, deadline: Deadline) -> None:
        self.world = world
        version = ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2)
        self.caches = Caches(
            version,
            own_namespace=CONTROLLER_NAMESPACE,
            monotonic=world.monotonic,
            floors=NO_FLOORS,
            limits=world.limits,
        )
        self.stores = GrantCaches.register(self.caches)
        self.deadline = deadline
        management = cast("Any", MortalClient(client, deadline))
        published = PublishedRevocations(lambda: world.now)
        self.revocation_list = RevocationList(
            management=management,
            caches=self.caches,
            published=published,
            now=lambda: world.now,
            clock=lambda: world.clocks,
        )
        sources = Sources(
            caches=self.caches,
            grants=self.stores.grants,
            bastions=self.stores.bastions,
            approvals_of=self.stores.approvals_of,
            management=management,
            permission=world.permission,
            lock=cast("Any", world.lock),
            rights=Rights(management, world.monotonic),
            targets=world,
            bastion_objects=bastion_objects,
            publications=WorldPublications(world, self.revocation_list),
            authorities_of=_authorities_of,
            now=lambda: world.now,
            clocks=WorldClocks(world),
        )
        tools = Tools(
            management=management,
            caches=self.caches,
            grants=self.stores.grants,
            bastions=self.stores.bastions,
            targets=world,
            revocation_list=self.revocation_list,
            authorities_of=_authorities_of,
            audit_log=world.audit,
            gateway_users=NoGateway(),
            gateway=world.permission.gateway,
            node_hints=world.node_hints,
        )
        certificates = GrantCertificates(
            caches=self.caches,
            authorities_of=_authorities_of,
            revocations_of=combined(_nothing, self.revocation_list.of),
            revocation_list=self.revocation_list,
            now=lambda: world.now,
        )
        self.reconciler = GrantReconciler(
            sources=sources,
            tools=tools,
            certificates=certificates,
            observer=world.counts,
            tell=world.counts,
            monotonic=world.monotonic,
            random=Random(0),
            filled=self.stores.filled,
        )
        self.stores.on_change(self.reconciler, self.caches)

    async def settle(self, *, rounds: int = 60) -> None:
        """Look at every grant until nothing more happens at this time, the bastion controller in between."""
        for _ in range(rounds):
            await self.in_step()
            moved = False
            for key in sorted({*self._keys(), *self.reconciler.vanished}):
                moved = await self.look(key) or moved
            self.world.bastion_controller()
            if not moved and await self.is_in_step():
                return
        raise AssertionError(f"no end of moves: {self.deadline.made[-12:]}")

    async def look(self, key: tuple[str, str]) -> bool:
        """One look; returns whether another one is due now."""
        before = len(self.deadline.made)
        try:
            seconds = await self.reconciler.look(key)
        except (Conflict, NotFound):
            return True
        return len(self.deadline.made) > before or (seconds is not None and seconds <= 0.01)

    def _keys(self) -> list[tuple[str, str]]:
        return [(one.metadata.namespace, one.metadata.name) for one in self.stores.grants.values()]

    async def is_in_step(self) -> bool:
        """Whether the caches show what the API has."""
        api = self.world.api
        caches: dict[str, Cache[Any]] = {
            "accessgrants": self.stores.grants,
            "bastions": self.stores.bastions,
            "accessapprovals": self.stores.approval_cache,
        }
        clusters = {
            (one["metadata"]["name"], "deletionTimestamp" in one["metadata"], bool(one["spec"].get("paused")))
            for one in api.objects("clusters")
        }
        policies = {
            (one["metadata"]["namespace"], one["metadata"]["name"], one["metadata"]["generation"])
            for one in api.objects("nodeattestationpolicies")
        }
        return (
            all(_follows(cache, api.objects(plural)) for plural, cache in caches.items())
            and clusters == {(one.key.name, one.deleting, one.paused) for one in self.caches.clusters.values()}
            and policies
            == {(one.cluster.namespace, one.cluster.name, one.generation) for one in self.caches.policies.values()}
        )

    async def in_step(self) -> None:
        for _ in range(400):
            if await self.is_in_step():
                return
            await asyncio.sleep(0.005)
        raise AssertionError("the caches do not follow")


def _follows(cache: Cache[Any], objects: Sequence[JsonObject]) -> bool:
    """Whether the cache shows these objects. Of a namespace over its limit, it counts them, and shows some."""
    wanted = {_version(one["metadata"]) for one in objects}
    has = {(key, version) for key, version in cache._versions.items()}
    over = {one.namespace: one.count for one in cache._bound.over()}
    dropped = [one for one in wanted if one[0][0] in over]
    return wanted - has <= set(dropped) and has <= wanted and sum(over.values()) == len(dropped)


def _version(metadata: Mapping[str, Any]) -> tuple[tuple[str, str], str]:
    return (metadata["namespace"], metadata["name"]), metadata["resourceVersion"]


def _authorities_of(cluster: ClusterKey) -> AvailableAuthorities:
    trust = Trust((USER_AUTHORITY.public_key,), (), (HOST_AUTHORITY.public_key,), 1)
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    return AvailableAuthorities(USER_AUTHORITY, HOST_AUTHORITY, trust, moment, moment)


def _nothing(cluster: ClusterKey) -> tuple[Revocation, ...]:
    return ()


@contextlib.asynccontextmanager
async def process(
    world: World, deadline: Deadline | None = None, groups: Sequence[str] = MASTERS
) -> AsyncIterator[Process]:
    """A process that has listed everything and watches; it ends without any last word."""
    async with Client(world.api.connection(CONTROLLER, groups)) as client:
        made = Process(world, client, deadline if deadline is not None else Deadline())
        running = asyncio.create_task(made.caches.run(client))
        try:
            await asyncio.wait_for(made.caches.filled(), 20)
            await asyncio.wait_for(made.stores.filled(), 20)
            await made.in_step()
            for cluster in [one.key for one in made.caches.clusters.values()]:
                with contextlib.suppress(ApiError):
                    await made.revocation_list.look(cluster)
            yield made
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running


@contextlib.contextmanager
def new_world(kind: Callable[[EmbeddedAPI], WorldT]) -> Iterator[WorldT]:
    """A management cluster with one Cluster, whose policy allows grants."""
    with EmbeddedAPI() as api, ManagementCluster(api):
        for text in access_definitions():
            api.install_crd(safe_load(text))
        world = kind(api)
        world.add_cluster()
        world.allow("alice", "bob")
        yield world


__all__ = ["BASTION", "BOB", "CAROL", "CLUSTER", "NAMESPACE", "Deadline", "Killed", "Process", "World", "new_world"]
