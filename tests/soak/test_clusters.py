"""The soak test's operations on Clusters: tokens are revoked, and Clusters are deleted and added again."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from random import Random
from typing import Any

import pytest

from signer.decision.authority_secrets import decode_secret
from signer.kube.client import Client
from signer.kube.connection import ClusterConnection
from signer.kube.errors import NotFound, Unauthorized
from signer.kube.kubeconfig import parse_kubeconfig
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS, MACHINES_V1BETA2, SECRETS
from signer.testing.api import EmbeddedAPI
from signer.testing.clients import LoopThread
from signer.testing.world import ManagementCluster
from tests.integration.fixtures import provider_id
from tests.soak.access import Access
from tests.soak.cluster_objects import create_all, delete_all, objects_of
from tests.soak.proxy import FaultyProxy
from tests.soak.weather import Weather
from tests.soak.world import open_access

pytestmark = pytest.mark.slow


@pytest.fixture
def access() -> Iterator[Access]:
    with EmbeddedAPI(seed_kubeadm=True) as api, ManagementCluster(api) as management:
        proxy = FaultyProxy("soaked", api, Weather(Random(1)), stall_seconds=0.1)
        yield open_access(management.add_cluster("soaked", api), proxy)


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    with LoopThread() as thread:
        thread.run(coroutine)


async def may_list(connection: ClusterConnection) -> bool:
    async with Client(connection) as client:
        try:
            await client.get(CERTIFICATE_SIGNING_REQUESTS.collection())
        except Unauthorized:
            return False
        return True


def test_a_former_token_is_valid_until_it_is_revoked(access: Access) -> None:
    async def rotated() -> None:
        before = access.connection
        async with access.proxy, Client(access.cluster.management.api.connection()) as management:
            former = await access.renew(management)
            secret = decode_secret(await management.get(SECRETS.object("soaked-kubeconfig", "default")))
            assert await may_list(parse_kubeconfig(secret["value"]))
        assert [await may_list(one) for one in (before, access.connection)] == [True, True]
        await access.revoke(former)
        await access.revoke(former)  # as after a lost response
        assert [await may_list(one) for one in (before, access.connection)] == [False, True]

    run(rotated())


@pytest.mark.parametrize("with_dependents", [False, True])
def test_a_cluster_is_deleted_and_added_again(access: Access, with_dependents: bool) -> None:
    cluster = access.cluster
    cluster.add_machine("machine", provider_id=provider_id("machine"))
    cluster.authorize("insecure")
    seen: list[object] = []

    async def meanwhile() -> None:
        body = await asyncio.to_thread(cluster.patch, {})
        seen.append(body["metadata"]["deletionTimestamp"])

    async def deleted_and_added() -> None:
        async with Client(cluster.management.api.connection()) as management:
            await delete_all(management, access, meanwhile, with_dependents=with_dependents)
            machine = MACHINES_V1BETA2.object("machine", cluster.namespace)
            names = [(resource, body["metadata"]["name"]) for resource, body in objects_of(access)]
            paths = [resource.object(name, cluster.namespace) for resource, name in names]
            assert [path for path in paths if await is_there(management, path)] == []
            assert await is_there(management, machine) is not with_dependents
            await create_all(management, objects_of(access), Random(1))
            assert all([await is_there(management, path) for path in paths])

    run(deleted_and_added())
    assert seen, "the Cluster had no deletionTimestamp while it was being deleted"


async def is_there(client: Client, path: str) -> bool:
    try:
        await client.get(path)
    except NotFound:
        return False
    return True
