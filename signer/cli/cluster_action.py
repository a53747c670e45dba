"""Runs what a command does on one Cluster that its arguments name."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from signer.cli.arguments import cluster_key
from signer.cli.management import management_access
from signer.controller.named_cluster import require_cluster
from signer.kube.client import Client
from signer.model.cluster import ClusterKey
from signer.store.cluster_api import discover_cluster_api

Found = TypeVar("Found")


def run_on_cluster(
    options: argparse.Namespace,
    action: Callable[[Client, ClusterKey], Coroutine[Any, Any, Found]],
    finds_nothing: type[Exception],
) -> Found:
    """Run ``action`` with a client of the management cluster and the Cluster that the arguments name. It raises
    ``finds_nothing`` if something of the Cluster is not there; then the Cluster itself may not exist.

    Raises:
        NoSuchCluster: the Cluster does not exist.
        ApiError: from the management cluster.
    """
    logging.basicConfig(level=logging.CRITICAL, stream=sys.stderr)
    key = cluster_key(options.cluster, default_namespace=options.namespace)

    async def connected() -> Found:
        access = await management_access(options)
        async with Client(access.connection, token_source=access.token_source) as management:
            try:
                return await action(management, key)
            except finds_nothing:
                await require_cluster(management, (await discover_cluster_api(management)).clusters, key)
                raise

    return asyncio.run(connected())
