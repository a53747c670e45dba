"""The calls of a provider to an API server of the tests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from signer.bastions.kubernetes_calls import KubernetesCalls
from signer.kube.client import Client
from signer.kube.connection import ClusterConnection
from signer.testing.clients import LoopThread


@contextmanager
def kubernetes_calls(connection: ClusterConnection) -> Iterator[KubernetesCalls]:
    """As the controller makes them: from this thread, through an event loop in another."""
    with LoopThread("controller") as thread:

        async def open_client() -> tuple[Client, KubernetesCalls]:
            client = await Client(connection).__aenter__()
            return client, KubernetesCalls(client, asyncio.get_running_loop())

        client, calls = thread.run(open_client())
        try:
            yield calls
        finally:
            thread.run(client.close())
