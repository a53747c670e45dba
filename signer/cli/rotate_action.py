"""What all actions of ``rotate`` share: the connection to the management cluster, and exit codes."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from signer.cli.arguments import cluster_key
from signer.cli.management import management_access
from signer.cli.rotate_reading import NoPolicy
from signer.controller.named_cluster import NoSuchCluster, require_cluster
from signer.kube.client import Client
from signer.model.cluster import ClusterKey
from signer.model.command_failures import CommandFailed
from signer.store.cluster_api import discover_cluster_api

EXIT_NEEDS_ATTENTION: Final = 3
EXIT_REJECTED: Final = 4
EXIT_WAITS: Final = 5
EXIT_NOT_ORDERED: Final = 6
Found = TypeVar("Found")


class RotateFailed(CommandFailed):
    """The command cannot do what it is for; the message says why."""


def run_action(
    options: argparse.Namespace, action: Callable[[Client, ClusterKey], Coroutine[Any, Any, Found]]
) -> Found:
    """Run it with a client of the management cluster and the Cluster that the arguments name.

    Raises:
        RotateFailed: the Cluster does not exist, or has no policy.
        ApiError: from the management cluster.
    """
    logging.basicConfig(level=logging.CRITICAL, stream=sys.stderr)
    key = cluster_key(options.cluster, default_namespace=options.namespace)

    async def connected() -> Found:
        access = await management_access(options)
        async with Client(access.connection, token_source=access.token_source) as management:
            try:
                return await action(management, key)
            except NoPolicy:
                await require_cluster(management, (await discover_cluster_api(management)).clusters, key)
                raise

    try:
        return asyncio.run(connected())
    except (NoSuchCluster, NoPolicy) as error:
        raise RotateFailed(str(error)) from error
