"""KubeadmConfigs of a scripted management API, and the tracing of tokens over it."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Any, NoReturn

import pytest

from signer.kube.backoff import Backoff
from signer.kube.client import JsonObject, Parameters
from signer.kube.errors import ApiError, ResourceNotServed
from signer.kube.resources import CLUSTERS_V1BETA2, KUBEADM_CONFIGS_V1BETA1, KUBEADM_CONFIGS_V1BETA2, MACHINES_V1BETA2
from signer.kube.watch import list_and_watch
from signer.model.bootstrap_token import TokenOwner, Trace, TracingOff
from signer.model.cluster import ClusterKey
from signer.model.floors import NO_FLOORS
from signer.store import bootstrap_tokens
from signer.store.bootstrap_tokens import BootstrapTokens
from signer.store.caches import Caches, ProviderIDs
from signer.store.cluster_api import ClusterAPIVersion
from signer.store.token_tracing import REFUSED_SECONDS, TracingOn
from tests.unit.signer.builders import machine_view, policy

KEY = ClusterKey("team-a", "prod")
SECRET_HALF = "0123456789abcdef"
M1, M2 = TokenOwner("team-a", "Machine", "m1"), TokenOwner("team-a", "Machine", "m2")
POOL = TokenOwner("team-a", "MachinePool", "p1")
USERNAME = "system:bootstrap:aaa111"
GROUP = f"/apis/{KUBEADM_CONFIGS_V1BETA2.group}"
V1BETA2 = f"/apis/{KUBEADM_CONFIGS_V1BETA2.api_version}"
V1BETA1 = f"/apis/{KUBEADM_CONFIGS_V1BETA1.api_version}"
CONFIGS = KUBEADM_CONFIGS_V1BETA2.collection()


def config(
    name: str, token_id: str, owner: TokenOwner, *, cluster: str = "prod", namespace: str = "team-a"
) -> JsonObject:
    return {
        "metadata": {
            "namespace": namespace,
            "name": name,
            "labels": {"cluster.x-k8s.io/cluster-name": cluster},
            "ownerReferences": [
                {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": owner.kind, "name": owner.name, "controller": True}
            ],
        },
        "spec": {"joinConfiguration": {"discovery": {"bootstrapToken": {"token": f"{token_id}.{SECRET_HALF}"}}}},
    }


def machine(name: str, provider_id: str = "", cluster: str = "prod") -> JsonObject:
    return {
        "metadata": {"namespace": "team-a", "name": name, "uid": name},
        "spec": {"clusterName": cluster, "providerID": provider_id},
    }


def pool(name: str, cluster: str = "prod", **metadata: Any) -> JsonObject:
    return {"metadata": {"namespace": "team-a", "name": name, **metadata}, "spec": {"clusterName": cluster}}


def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry after milliseconds."""
    soon = Backoff(base_seconds=0.001, maximum_seconds=0.005, jitter=0)
    monkeypatch.setattr(bootstrap_tokens, "REFUSED_BACKOFF", soon)
    monkeypatch.setattr(bootstrap_tokens, "DISCOVERY_BACKOFF", soon)
    monkeypatch.setattr(bootstrap_tokens, "list_and_watch", partial(list_and_watch, backoff=soon))


class ManagementAPI:
    """Discovery, lists and watches of KubeadmConfigs, with scripted failures."""

    def __init__(self) -> None:
        self.objects: dict[str, JsonObject] = {}
        self.served = {V1BETA2: ["kubeadmconfigs", "kthreesconfigs"], V1BETA1: ["kubeadmconfigs"]}
        self.errors: dict[str, ApiError] = {}
        """Errors by path, while they are set."""
        self.asked = 0
        """Number of discovery calls."""
        self.listed: list[str] = []
        self.handed_on: list[JsonObject] = []
        """The objects of the last list, as the caller left them."""
        self.bounds: list[tuple[int, int | None]] = []
        """For each list: page size in objects, and maximum bytes."""
        self.lists_may_go_on = asyncio.Event()
        self.lists_may_go_on.set()
        self._version = 0
        self._events: asyncio.Queue[JsonObject | ApiError] = asyncio.Queue()

    def put(self, item: JsonObject, *, seen: bool = True) -> None:
        """Store an object; without ``seen`` no watch event is sent."""
        self._version += 1
        item["metadata"]["resourceVersion"] = str(self._version)
        self.objects[item["metadata"]["name"]] = item
        if seen:
            self._events.put_nowait({"type": "MODIFIED", "object": item})

    def remove(self, name: str) -> None:
        self._events.put_nowait({"type": "DELETED", "object": self.objects.pop(name)})

    def break_watch(self, error: ApiError) -> None:
        self._events.put_nowait(error)

    async def get(self, path: str) -> JsonObject:
        if path == GROUP:
            self.asked += 1
        if path in self.errors:
            raise self.errors[path]
        if path == GROUP and self.served:
            return {"versions": [{"version": served.rpartition("/")[2]} for served in self.served]}
        if path not in self.served:
            raise ResourceNotServed("no such group or version", status=404)
        return {"resources": [{"name": name} for name in self.served[path]]}

    async def list_pages(
        self,
        path: str,
        params: Parameters | None = None,
        limit: int = 500,
        *,
        maximum_bytes: int | None = None,
    ) -> AsyncGenerator[JsonObject, None]:
        self.listed.append(path)
        self.bounds.append((limit, maximum_bytes))
        if path in self.errors:
            raise self.errors[path]
        await self.lists_may_go_on.wait()
        self.handed_on = copy.deepcopy(list(self.objects.values()))
        yield {"metadata": {"resourceVersion": str(self._version)}, "items": list(self.handed_on)}

    async def watch(
        self,
        path: str,
        params: Parameters | None = None,
        *,
        timeout_seconds: float,
        idle_seconds: float = 0.0,
        accepted: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[JsonObject, None]:
        if path in self.errors:
            raise self.errors[path]
        accepted()
        while True:
            event = await self._events.get()
            if isinstance(event, ApiError):
                raise event
            yield event


class World:
    """The tokens over an API, caches with Machines, and the wake-ups."""

    def __init__(self) -> None:
        self.at = 100.0
        self.step = 0.001
        """Seconds between two reads of the clock."""
        self.api = ManagementAPI()
        version = ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2)
        self.caches = Caches(version, own_namespace="own", floors=NO_FLOORS)
        self.tokens = BootstrapTokens(self.api, self.caches, monotonic=self._tick)
        self.tokens.on_change(lambda cluster, provider_ids: self.wakes.append((cluster, provider_ids)))
        self.wakes: list[tuple[ClusterKey, ProviderIDs]] = []
        self._task: asyncio.Task[NoReturn] | None = None

    def start(self) -> None:
        """Start to watch the objects that the test has stored."""
        self._task = asyncio.create_task(self.tokens.run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def _tick(self) -> float:
        self.at += self.step
        return self.at

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():  # noqa: ASYNC110 - many conditions, few of them an Event
                await asyncio.sleep(0.001)

    async def running(self) -> None:
        """Watching, after the first list."""
        if self._task is None:
            self.start()
        await self.until(lambda: isinstance(self.tokens.tracing(), TracingOn))

    async def off(self) -> None:
        """Refused for long enough to turn tracing off."""
        if self._task is None:
            self.start()
        await self.asked_for(REFUSED_SECONDS)
        await self.until(lambda: isinstance(self.tokens.tracing(), TracingOff))

    async def asked_for(self, seconds: float) -> None:
        """Let the time pass while the API server is called several times."""
        for _ in range(4):
            await self.asked_again()
            self.at += seconds / 4
        await self.asked_again()

    async def asked_again(self) -> None:
        asked = self.api.asked
        await self.until(lambda: self.api.asked >= asked + 2)

    def trace(self, token_id: str = "aaa111", cluster: ClusterKey = KEY) -> Trace:  # noqa: S107 - the public half
        return self.tokens.trace(cluster, token_id)

    async def require(self, machine_name: str = "m1", username: str = USERNAME, untraceable: str = "Allow") -> None:
        chosen = policy(bootstrapTokens={"untraceable": untraceable})
        await self.tokens.require_token_of_machine(username, machine_view(name=machine_name), chosen)
