"""A management cluster and a workload cluster in memory, and the controller's part between them."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final, cast

from attestors.wire.node_access import Trust
from attestors.wire.ssh.keys import PublicKey
from attestors.wire.ssh.signatures import public_key_of
from signer.access.containers.connections import ConnectionSecrets
from signer.access.containers.creators import Creators
from signer.access.containers.reconciler import ContainerAccessReconciler
from signer.access.store import StoredGrant, stored_grant
from signer.authority.ssh.authorities import HostAuthority, UserAuthority
from signer.configuration import AccessPermission
from signer.kube.client import JsonObject
from signer.kube.connection import ClusterConnection
from signer.kube.errors import ApiError, NotFound
from signer.kube.resources import SECRETS
from signer.kube.scheduling import TimedSemaphore
from signer.model.cluster import ClusterKey
from signer.model.fields import format_time
from signer.model.gateway_connection import GatewayConnection, connection_name, parse_gateway_connection
from signer.ssh.available import AvailableAuthorities, NotAvailable, Reason, SSHAuthorities
from signer.store.cache import Cache
from tests.support.openssh import private_key
from tests.unit.signer.access.looks import KEYS
from tests.unit.signer.rotation.memory_api import Call, Interfere, MemoryAPI, MemoryClient, Moment, Objects
from tests.unit.signer.ssh import world as ssh_world
from tests.unit.signer.ssh.world import KEY, START

GATEWAYS: Final = "gateways"
PATH: Final = SECRETS.object(connection_name(KEY), GATEWAYS)
POLICY: Final = ssh_world.POLICY
CLUSTER: Final = ssh_world.CLUSTER
TOKENS: Final = "/api/v1/namespaces/node-access/serviceaccounts/node-access-gateway/token"
ANYWHERE: Final = AccessPermission(frozenset({"*"}), gateway_namespace=GATEWAYS)


def authority(number: int) -> PublicKey:
    return public_key_of(private_key("ed25519", number))


def authorities(*numbers: int, break_glass: tuple[int, ...] = ()) -> AvailableAuthorities:
    """Authorities of which the first one signs."""
    user = UserAuthority(cast("Any", private_key("ed25519", numbers[0])))
    host = HostAuthority(cast("Any", private_key("ed25519", 99)))
    trust = Trust(tuple(map(authority, numbers)), tuple(map(authority, break_glass)), (host.public_key,), 1)
    return AvailableAuthorities(user, host, trust, START, START)


class Faults(Interfere):
    """Fails the calls whose method and path contain one of the texts."""

    def __init__(self) -> None:
        self.of: dict[str, ApiError] = {}

    async def __call__(self, call: Call, moment: Moment) -> None:
        for text, error in self.of.items():
            if moment is Moment.BEFORE and text in f"{call.method} {call.path}":
                raise error


class WorkloadMemory(MemoryClient):
    """A client of the workload cluster. The API server gives tokens."""

    def __init__(self, now: Any) -> None:
        self.faults = Faults()
        super().__init__(MemoryAPI(Objects()), self.faults)
        self.server = ClusterConnection("https://10.0.0.1:6443", b"the CA", "kubernetes")
        self.lifetime = timedelta(hours=24)
        self.tokens: list[str] = []
        self.now = now
        self.asked: list[JsonObject] = []

    def create(self, path: str, body: JsonObject) -> Awaitable[JsonObject]:
        return self._do("POST", path, lambda: self._token(body)) if path == TOKENS else super().create(path, body)

    def _token(self, body: JsonObject) -> JsonObject:
        if TOKENS.removesuffix("/token") not in self.api.objects.found:
            raise NotFound("no ServiceAccount", status=404)
        self.asked.append(copy.deepcopy(body))
        self.tokens.append(f"token-{len(self.tokens) + 1}")
        return {"status": {"token": self.tokens[-1], "expirationTimestamp": format_time(self.now() + self.lifetime)}}

    def found(self, plural: str, name: str) -> JsonObject:
        """The object; empty without it."""
        return next((one for path, one in self.api.objects.found.items() if path.endswith(f"/{plural}/{name}")), {})


def grants_cache(*, is_filled: bool = True) -> Cache[StoredGrant]:
    """The controller's cache of AccessGrants."""
    grants = Cache("accessgrants", stored_grant)
    if is_filled:
        grants.filled.set()
    return grants


async def until(holds: Callable[[], Any]) -> None:
    """Wait for something that other tasks do."""
    for _ in range(5000):
        if holds():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it does not come")


@dataclass
class Process:
    """One process of the controller."""

    world: World
    ssh: ssh_world.Process
    authorities: SSHAuthorities
    connections: ConnectionSecrets
    creators: Creators
    grants: Cache[StoredGrant]
    reconciler: ContainerAccessReconciler
    changes: list[str] = field(default_factory=list)

    @property
    def condition(self) -> Any:
        """Status and reason; an empty reason without the condition."""
        found = [(one.met, one.reason) for one in self.reconciler.conditions]
        return found[0] if found else (None, "")

    async def settle(self) -> None:
        """A list of all Secrets, a look at the workload cluster, and one at the Secret."""
        await self.connections.sweep()
        await self.reconciler.look(self.world.workload)
        await self.connections.look(KEY)


class World:
    """Both clusters, and their time."""

    def __init__(self, *, access: bool = True) -> None:
        self.management = ssh_world.World(ssh={"access": {}} if access else {})
        self.management_faults = Faults()
        self.memory = WorkloadMemory(lambda: self.now)
        self.monotonic = 0.0

    @property
    def workload(self) -> Any:
        """The client of the workload cluster."""
        return self.memory

    @property
    def now(self) -> datetime:
        return self.management.now

    def wait(self, **duration: float) -> None:
        self.management.now += timedelta(**duration)

    async def started(self, permission: AccessPermission = ANYWHERE, *, shown: Any = None) -> Process:
        """A process whose SSH authorities are available."""
        ssh = await ssh_world.Process.started(self.management)
        self.client = MemoryClient(self.management.api, self.management_faults)
        known = SSHAuthorities()
        known.offer(KEY, shown if shown is not None else authorities(1))
        connections = ConnectionSecrets(
            cast("Any", self.client),
            namespace=GATEWAYS,
            caches=ssh.caches,
            permission=permission,
            authorities_of=known.of,
            random=Random(0),
        )
        known.on_change(connections.changed)
        changes: list[str] = []
        grants = grants_cache()
        creators = Creators(keys=lambda: KEYS, grants=grants, now=lambda: self.now, monotonic=lambda: self.monotonic)
        reconciler = ContainerAccessReconciler(
            KEY,
            connections=connections,
            creators=creators,
            tools=permission.tools,
            slots=TimedSemaphore(4, 2.0),
            changed=lambda: changes.append("changed"),
            now=lambda: self.now,
            random=Random(0),
        )
        connections.follow(KEY, lambda: changes.append("followed"))
        return Process(self, ssh, known, connections, creators, grants, reconciler, changes)

    @property
    def secret(self) -> JsonObject:
        return self.management.found(PATH)

    @property
    def connection(self) -> GatewayConnection:
        return parse_gateway_connection(self.secret)

    @property
    def trusted(self) -> list[PublicKey]:
        """The user authorities in the Secret."""
        return list(self.connection.user_authorities)

    @property
    def writes(self) -> int:
        """How often the Secret was written."""
        return len(self.management.api.objects.contents.get(PATH, []))

    def choose(self, ssh: Any) -> None:
        self.management.choose(ssh)

    def patch_cluster(self, patch: JsonObject) -> None:
        self.management.api.edit(CLUSTER, patch)


__all__ = [
    "CLUSTER",
    "GATEWAYS",
    "KEY",
    "PATH",
    "POLICY",
    "ClusterKey",
    "NotAvailable",
    "Process",
    "Reason",
    "World",
    "authorities",
    "authority",
    "until",
]
