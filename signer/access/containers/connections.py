"""Keeps the gateway's Secrets in the management cluster: one for each Cluster whose containers people may reach.

One queue serves all Clusters, so a Secret goes when access is withdrawn, even if its workload cluster is out of reach.
Every five minutes the controller lists all Secrets: it puts back what somebody changed, and removes what belongs to no
Cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final, Protocol, TypeAlias

from signer.access.containers.conditions import (
    AUTHORITIES_NOT_AVAILABLE,
    FAILED,
    FORBIDDEN,
    GATEWAY_NAMESPACE_MISSING,
    STAYS,
    Connected,
    NoProblem,
    Problem,
)
from signer.access.containers.wishes import Wish, wish_of
from signer.configuration import AccessPermission
from signer.kube.backoff import Backoff
from signer.kube.calls import Delete, GetListCreateReplace
from signer.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound
from signer.kube.resources import SECRETS
from signer.kube.supervision import isolated
from signer.kube.wanted_object import OWNER, OWNER_LABEL
from signer.kube.workqueue import QueueClosed, WorkQueue
from signer.model.cluster import ClusterKey
from signer.model.decision import Deferred, printable
from signer.model.fields import items_of, mapping_of, text_of
from signer.model.gateway_connection import (
    GATEWAY_CONNECTION_TYPE,
    GatewayConnection,
    InvalidGatewayConnection,
    connection_name,
    parse_gateway_connection,
    render_gateway_connection,
)
from signer.ssh.available import AvailableAuthorities, NotAvailable, Reason, SSHAuthoritiesOf
from signer.store.caches import Caches

_LOG = logging.getLogger(__name__)
WORKERS: Final = 4
"""Secrets that are written at once."""
SWEEP_SECONDS: Final = 300.0
"""Between lists of all Secrets."""
PAGE_SECRETS: Final = 100
CHANGED_SECONDS: Final = 0.5
"""After a write that another one came before."""
BACKOFF: Final = Backoff(base_seconds=1.0, maximum_seconds=SWEEP_SECONDS, jitter=0.5)


class ManagementCalls(GetListCreateReplace, Delete, Protocol):
    """The calls to the management cluster, all of them in the gateway's namespace."""


@dataclass(frozen=True, slots=True)
class Nothing:
    """There is no Secret that could be read, or there should be none."""


Stored: TypeAlias = GatewayConnection | Nothing
_NOTHING: Final = Nothing()
_NO_PROBLEM: Final = NoProblem()


class ConnectionSecrets:
    """Looks after the Secrets of the Clusters that this replica serves. Made and run in one event loop."""

    name: Final = "gateway connections"

    def __init__(
        self,
        management: ManagementCalls,
        *,
        namespace: str,
        caches: Caches,
        permission: AccessPermission,
        authorities_of: SSHAuthoritiesOf,
        random: Random,
    ) -> None:
        """``namespace`` is the gateway's."""
        self._management = management
        self._namespace = namespace
        self._caches = caches
        self._permission = permission
        self._authorities_of = authorities_of
        self._random = random
        self._queue: WorkQueue[ClusterKey] = WorkQueue(backoff=BACKOFF, random=random)
        self._kubeconfigs: dict[ClusterKey, bytes] = {}
        """By the parts that are connected to the workload clusters."""
        self._stored: dict[ClusterKey, GatewayConnection] = {}
        """The Secrets at the last look."""
        self._problems: dict[ClusterKey, Problem] = {}
        self._followers: dict[ClusterKey, Callable[[], None]] = {}
        self._sweep_wanted = asyncio.Event()
        self._is_listed = False

    # For the parts of the workload clusters

    def wish(self, key: ClusterKey) -> Wish:
        """What is to become of the Cluster's connection.

        Raises:
            Deferred: the caches may lack a change of Cluster or policy.
        """
        return wish_of(key, self._caches, self._permission, self._authorities_of)

    def offer(self, key: ClusterKey, kubeconfig: bytes) -> None:
        """From now on, this is the way into the workload cluster."""
        if self._kubeconfigs.get(key) != kubeconfig:
            self._kubeconfigs[key] = kubeconfig
            self.changed(key)

    def withdraw(self, key: ClusterKey) -> None:
        """There is no way into the workload cluster any more."""
        if self._kubeconfigs.pop(key, None) is not None:
            self.changed(key)

    def follow(self, key: ClusterKey, changed: Callable[[], None]) -> None:
        """Call ``changed`` after each look at the Cluster's Secret that shows something else."""
        self._followers[key] = changed

    def state_of(self, key: ClusterKey) -> Problem | NoProblem | Connected:
        """Whether the Secret is there and as it should be; NoProblem while it is not known yet."""
        if key in self._problems:
            return self._problems[key]
        return Connected() if key in self._stored else _NO_PROBLEM

    # Wakes

    def changed(self, key: ClusterKey) -> None:
        """The Cluster, its policy, its authorities or its credential have changed."""
        if self._is_listed:
            self._queue.add(key)

    def shards_changed(self) -> None:
        """This replica serves other Clusters."""
        self._sweep_wanted.set()

    # Work

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._sweep_for_ever(), name="all gateway connections")
                for number in range(WORKERS):
                    tasks.create_task(self._work(), name=f"gateway connections {number}")
        finally:
            self._is_listed = False

    async def _sweep_for_ever(self) -> None:
        attempt = 0
        while True:
            self._sweep_wanted.clear()
            try:
                await self.sweep()
                attempt, pause = 0, SWEEP_SECONDS * (1 - 0.2 * self._random.random())
            except (ApiError, Deferred) as error:
                pause = BACKOFF.delay(attempt, self._random)
                attempt += 1
                self._cannot_list(error, pause)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._sweep_wanted.wait()

    def _cannot_list(self, error: ApiError | Deferred, pause: float) -> None:
        _LOG.warning(
            "the gateway's Secrets cannot be listed",
            extra={
                "namespace": self._namespace,
                "error": printable(str(error)),
                "retryInSeconds": round(pause, 1),
            },
        )
        for key in tuple(self._followers):
            self._note(key, self._problem(error))

    async def sweep(self) -> None:
        """List all Secrets of the type, and look at each Cluster whose Secret is not as it should be.

        Raises:
            ApiError: from the management cluster.
            Deferred: the caches may lack a change.
        """
        self._caches.require_in_touch()
        stored: dict[ClusterKey, GatewayConnection] = {}
        async for connection in self._listed():
            stored[connection.cluster] = connection
        self._stored = stored
        self._is_listed = True
        for key in {cluster.key for cluster in self._caches.clusters.values()} | stored.keys() | self._problems.keys():
            if not self._is_settled(key):
                self._queue.add(key)

    def _is_settled(self, key: ClusterKey) -> bool:
        if key in self._problems:
            return False
        try:
            return not self._is_served(key) or self._wanted(key) == self._stored.get(key, _NOTHING)
        except InvalidGatewayConnection:
            return False

    async def _listed(self) -> AsyncIterator[GatewayConnection]:
        query = {"fieldSelector": f"type={GATEWAY_CONNECTION_TYPE}"}
        async for page in self._management.list_pages(SECRETS.collection(self._namespace), query, PAGE_SECRETS):
            for item in items_of(page, "items"):
                try:
                    yield parse_gateway_connection(item)
                except InvalidGatewayConnection as error:
                    _LOG.warning(
                        "a Secret in the gateway's namespace is no connection",
                        extra={
                            "namespace": self._namespace,
                            "object": printable(text_of(mapping_of(item, "metadata"), "name")),
                            "error": str(error),
                        },
                    )

    async def _work(self) -> None:
        while True:
            try:
                key = await self._queue.get()
            except QueueClosed:
                return
            try:
                with isolated(partial(self._faulted, key)):
                    await self._look_once(key)
            finally:
                self._queue.done(key)

    def _faulted(self, key: ClusterKey, error: BaseException) -> None:
        _LOG.error("a look at a gateway connection failed", exc_info=error, extra={"cluster": str(key)})
        self._note(key, Problem(FAILED, "a defect of the controller; its log says more"))
        self._queue.retry(key)

    async def _look_once(self, key: ClusterKey) -> None:
        try:
            await self.look(key)
        except (AlreadyExists, Conflict):
            self._queue.add_after(key, CHANGED_SECONDS)
            return
        except (ApiError, Deferred, InvalidGatewayConnection) as error:
            retry = self._queue.retry(key)
            _LOG.warning(
                "a gateway connection is not as it should be",
                extra={"cluster": str(key), "error": printable(str(error)), "retryInSeconds": round(retry, 1)},
            )
            self._note(key, self._problem(error))
            return
        self._queue.forget(key)

    async def look(self, key: ClusterKey) -> None:
        """Have one Cluster's Secret be as it should be.

        Raises:
            ApiError: from the management cluster; Conflict and AlreadyExists if somebody else wrote.
            Deferred: the caches may lack a change.
            InvalidGatewayConnection: the kubeconfig is too large.
        """
        if not self._is_served(key):
            self._forget(key)
            return
        wanted = self._wanted(key)
        if wanted != self._stored.get(key, _NOTHING):
            if isinstance(wanted, Nothing):
                await self._remove(key)
            else:
                await self._write(wanted)
        if self._caches.clusters.get(key.namespace, key.name) is None:
            self._forget(key)
        else:
            self._note(key, self._doubt(key))

    def _is_served(self, key: ClusterKey) -> bool:
        if not self._caches.shards.own(key) or not self._caches.watches(key.namespace):
            return False
        cluster = self._caches.clusters.get(key.namespace, key.name)
        return cluster is None or self._caches.watch_filter.selects(cluster)

    def _wanted(self, key: ClusterKey) -> Stored:
        """The Secret as it should be. What is not known stays as it is stored."""
        stored = self._stored.get(key, _NOTHING)
        match self.wish(key):
            case Wish.WITHDRAWN:
                return _NOTHING
            case Wish.UNDECIDED:
                return stored
            case Wish.WANTED:
                authorities, kubeconfig = self._authorities_of(key), self._kubeconfigs.get(key)
                if isinstance(stored, GatewayConnection):
                    kubeconfig = kubeconfig if kubeconfig is not None else stored.kubeconfig
                    known = stored.user_authorities
                    trusted = known if isinstance(authorities, NotAvailable) else authorities.trust.user_authorities
                    return GatewayConnection(key, kubeconfig, trusted, self._permission.tools)
                if kubeconfig is None or isinstance(authorities, NotAvailable):
                    return _NOTHING
                return GatewayConnection(key, kubeconfig, authorities.trust.user_authorities, self._permission.tools)

    def _doubt(self, key: ClusterKey) -> Problem | NoProblem:
        authorities = self._authorities_of(key)
        if isinstance(authorities, AvailableAuthorities) or authorities.reason is Reason.NOT_KNOWN:
            return _NO_PROBLEM  # that nothing is known, as after a start, is said by the authorities' own condition
        if self.wish(key) is Wish.WANTED:
            return Problem(AUTHORITIES_NOT_AVAILABLE, f"{authorities.reason}: {authorities.message}; {STAYS}")
        return _NO_PROBLEM

    async def _write(self, wanted: GatewayConnection) -> None:
        manifest = render_gateway_connection(wanted, self._namespace)
        manifest["metadata"]["labels"] = {OWNER_LABEL: OWNER}
        path = SECRETS.object(connection_name(wanted.cluster), self._namespace)
        try:
            found = await self._management.get(path)
        except NotFound:
            found = None
        if found is not None and (found.get("type") != GATEWAY_CONNECTION_TYPE or found.get("immutable")):
            await self._management.delete(path, uid=text_of(mapping_of(found, "metadata"), "uid"))
            found = None
        if found is None:
            await self._management.create(SECRETS.collection(self._namespace), manifest)
        else:
            version = text_of(mapping_of(found, "metadata"), "resourceVersion")
            manifest["metadata"]["resourceVersion"] = version
            await self._management.replace(path, manifest)
        self._stored[wanted.cluster] = wanted
        _LOG.info("the gateway's connection is written", extra={"cluster": str(wanted.cluster)})

    async def _remove(self, key: ClusterKey) -> None:
        with contextlib.suppress(NotFound):
            await self._management.delete(SECRETS.object(connection_name(key), self._namespace))
        self._stored.pop(key, None)
        _LOG.info("the gateway's connection is removed", extra={"cluster": str(key)})

    def _problem(self, error: Exception) -> Problem:
        said = printable(str(error))
        if isinstance(error, NotFound):
            return Problem(
                GATEWAY_NAMESPACE_MISSING,
                f"namespace {self._namespace} of the management cluster does not exist; create it, or name another "
                "one in access.gatewayNamespace of the configuration file",
            )
        if isinstance(error, Forbidden):
            return Problem(FORBIDDEN, f"management cluster: {said}; grant what deploy/rbac/containers.yaml has")
        return Problem(FAILED, f"management cluster: {said}")

    def _note(self, key: ClusterKey, state: Problem | NoProblem) -> None:
        if isinstance(state, Problem):
            self._problems[key] = state
        else:
            self._problems.pop(key, None)
        self._followers.get(key, _nobody)()

    def _forget(self, key: ClusterKey) -> None:
        self._kubeconfigs.pop(key, None)
        self._problems.pop(key, None)
        self._followers.pop(key, None)


def _nobody() -> None:
    """The Cluster's part does not run."""


__all__ = ["ConnectionSecrets", "ManagementCalls"]
