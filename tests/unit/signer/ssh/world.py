"""A management cluster in memory with one Cluster, and controllers that look after its SSH authorities."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final, TypeVar, cast

from attestors.wire.node_access import Trust
from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.signatures import public_key_of
from signer.authority.ssh.private_key import new_private_key
from signer.configuration import SSHPermission
from signer.kube.errors import ApiError
from signer.kube.resources import CLUSTERS_V1BETA2, MACHINES_V1BETA2, NODE_ATTESTATION_POLICIES, SECRETS
from signer.model.cluster import ClusterKey
from signer.model.decision import Deferred
from signer.model.floors import NO_FLOORS
from signer.model.seal import ControllerKeys
from signer.rotation.operations import OPERATION_ANNOTATION, SKIP_GATES_ANNOTATION
from signer.ssh.available import AvailableAuthorities, NotAvailable, SSHAuthorities
from signer.ssh.reconciler import SSHReconciler
from signer.ssh.reports import NodeReport, NotReported, Reports
from signer.store.caches import Caches
from signer.store.cluster_api import ClusterAPIVersion
from signer.store.controller_key import controller_key_secret
from tests.unit.signer.rotation.memory_api import Interfere, MemoryAPI, MemoryClient, Objects, split

KEY: Final = ClusterKey("tenant", "blue")
OWN_NAMESPACE: Final = "own"
KEYS: Final = ControllerKeys(bytes(range(32)))
START: Final = datetime(2026, 1, 1, tzinfo=UTC)
ANYWHERE: Final = SSHPermission(frozenset({"*"}))
POLICY: Final = NODE_ATTESTATION_POLICIES.object(KEY.name, KEY.namespace)
CLUSTER: Final = CLUSTERS_V1BETA2.object(KEY.name, KEY.namespace)
USER: Final = SECRETS.object("blue-ssh-user", KEY.namespace)
HOST: Final = SECRETS.object("blue-ssh-host", KEY.namespace)
_KEY_SECRET: Final = SECRETS.object("node-attestation-controller-key", OWN_NAMESPACE)
_Result = TypeVar("_Result")


def run(scenario: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a scenario, for at most a minute."""
    return asyncio.run(asyncio.wait_for(scenario, 60))


def new_line() -> str:
    """The public key of a new authority."""
    return key_line(public_key_of(new_private_key()))


class World:
    """The management cluster."""

    def __init__(self, keys: ControllerKeys = KEYS, *, ssh: Any = None) -> None:
        """``ssh`` is ``spec.ssh`` of the policy; None leaves it off."""
        self.api = MemoryAPI(Objects())
        self.now = START
        self.reports: Reports | NotReported = Reports(())
        self.set_keys(keys)
        self.api.put(CLUSTER, {"spec": {}})
        spec: dict[str, Any] = {"authorizedAttestors": [{"name": "keyed-mac"}]}
        self.api.put(POLICY, {"spec": spec if ssh is None else {**spec, "ssh": ssh}})

    def set_keys(self, keys: ControllerKeys) -> None:
        """Replace the controller key."""
        self.keys = keys
        self.api.put(_KEY_SECRET, controller_key_secret(OWN_NAMESPACE, keys))

    def choose(self, ssh: Any) -> None:
        """Replace ``spec.ssh``; None takes it away."""
        self.api.edit(POLICY, {"spec": {"ssh": None}})
        self.api.edit(POLICY, {"spec": {"ssh": ssh}})

    def found(self, path: str) -> dict[str, Any]:
        """The Secret; empty without it."""
        return self.api.objects.found.get(path, {})

    def keys_ever(self, path: str) -> set[tuple[str, str]]:
        """Every pair that the Secret ever had, Base64."""
        contents = self.api.objects.contents.get(path, [])
        return {(one["data"]["ssh-privatekey"], one["data"]["ssh-publickey"]) for one in contents}

    def public_key(self, path: str) -> str:
        """The public key in the Secret."""
        return base64.b64decode(self.found(path)["data"]["ssh-publickey"]).decode()

    def wait(self, days: float) -> None:
        """Time passes."""
        self.now += timedelta(days=days)


class Process:
    """One process of the controller."""

    def __init__(self, world: World, interfere: Interfere | None = None) -> None:
        self.world = world
        self.client = MemoryClient(world.api, interfere or Interfere())
        version = ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2)
        self.caches = Caches(version, own_namespace=OWN_NAMESPACE, monotonic=self._monotonic, floors=NO_FLOORS)
        self.authorities = SSHAuthorities()
        self.errors: list[Exception] = []
        self.told: list[tuple[str, str, str]] = []
        self.changes = 0
        self.allow(ANYWHERE)

    def allow(self, permission: SSHPermission) -> None:
        """Configure it otherwise."""
        self.reconciler = SSHReconciler(
            KEY,
            management=cast("Any", self.client),
            caches=self.caches,
            authorities=self.authorities,
            permission=permission,
            reports=lambda key: self.world.reports,
            tell=lambda kind, reason, message: self.told.append((kind, reason, message)),
            changed=self._changed,
            now=lambda: self.world.now,
            random=Random(0),
        )

    def _changed(self) -> None:
        self.changes += 1

    def _monotonic(self) -> float:
        return (self.world.now - START).total_seconds()

    @classmethod
    async def started(cls, world: World, interfere: Interfere | None = None) -> Process:
        """A process that has listed everything, and watches."""
        self = cls(world, interfere)
        quiet = MemoryClient(world.api, Interfere())
        await self.read_key()
        await self.caches.fill(cast("Any", quiet))
        paths = [call.path for call in quiet.calls if call.method == "LIST"]
        for path, cache in zip(paths, self.caches.watched(), strict=True):
            world.api.watches.append((split(path, is_object=False)[0], cache))
        return self

    async def read_key(self) -> None:
        """Read the controller key."""
        await self.caches.controller_key.refresh(cast("Any", MemoryClient(self.world.api, Interfere())))

    def stop(self) -> None:
        """The process ends: nothing is delivered to it."""
        own = set(map(id, self.caches.watched()))
        self.world.api.watches = [one for one in self.world.api.watches if id(one[1]) not in own]

    async def pass_once(self) -> float:
        """One pass, with the errors that its loop handles."""
        try:
            return await self.reconciler.look()
        except (ApiError, Deferred) as error:
            self.errors.append(error)
            return 1.0

    async def until_it_waits(self) -> str:
        """Passes until it waits; its condition's reason and message."""
        for _ in range(10):
            if await self.pass_once() > 0:
                return self.shown()
        raise AssertionError("no end")

    def shown(self) -> str:
        """Reason and message of the first condition; empty without it."""
        return next((f"{one.reason}: {one.message}" for one in self.reconciler.conditions), "")

    def of(self) -> AvailableAuthorities | NotAvailable:
        """What a part that signs is told."""
        return self.authorities.of(KEY)

    def offered(self) -> dict[str, Any]:
        """The same by public keys, which can be compared."""
        found = self.available()
        return {
            "user": found.user.public_key.fingerprint,
            "host": found.host.public_key.fingerprint,
            "trust": found.trust,
            "created": (found.user_created_at, found.host_created_at),
        }

    def available(self) -> AvailableAuthorities:
        """The same, where they are available."""
        found = self.of()
        assert isinstance(found, AvailableAuthorities), found
        return found


def node(name: str, version: int, host: str = "", *, end: datetime = START) -> NodeReport:
    """What a node reports; ``host`` is the fingerprint of the authority of its host certificate."""
    return NodeReport(name, version, host, end)


def order(world: World, operation: str, gates: str = "") -> None:
    """A person writes the annotation."""
    annotations = {OPERATION_ANNOTATION: operation, **({SKIP_GATES_ANNOTATION: gates} if gates else {})}
    world.api.edit(POLICY, {"metadata": {"annotations": annotations}})


def ordered(world: World) -> str:
    """The order that no controller has taken."""
    return str(world.found(POLICY)["metadata"].get("annotations", {}).get(OPERATION_ANNOTATION, ""))


class Fleet:
    """Nodes that take whatever is offered, attest with it, and renew their host certificates."""

    def __init__(self, process: Process, *names: str) -> None:
        self.process = process
        self.names = list(names)
        self.asleep: set[str] = set()
        """Nodes that do not attest."""
        self.trusts: dict[str, Trust] = {}
        self.reports: dict[str, NodeReport] = {}

    def attest(self) -> None:
        """Each node that is awake attests with the trust that it has, and takes the present one: a new version is
        reported by the second request.
        """
        found = self.process.available()
        now = self.process.world.now
        for name in self.names:
            if name in self.asleep:
                continue
            has = self.trusts.get(name)
            if has is None or has.version < found.trust.version:
                self.trusts[name] = found.trust
            version = has.version if has else 0
            self.reports[name] = node(name, version, found.host.public_key.fingerprint, end=now + timedelta(days=30))
        self.process.world.reports = Reports(tuple(self.reports.values()))
