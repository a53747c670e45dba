"""What all actions of ``rotate`` share: the connection to the management cluster, and exit codes."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Coroutine
from typing import Any, Final

from signer.cli.cluster_action import Found, run_on_cluster
from signer.cli.rotate_reading import NoPolicy
from signer.controller.named_cluster import NoSuchCluster
from signer.kube.client import Client
from signer.model.cluster import ClusterKey
from signer.model.command_failures import CommandFailed

EXIT_NEEDS_ATTENTION: Final = 3
EXIT_REJECTED: Final = 4
EXIT_WAITS: Final = 5
EXIT_NOT_ORDERED: Final = 6


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
    try:
        return run_on_cluster(options, action, NoPolicy)
    except (NoSuchCluster, NoPolicy) as error:
        raise RotateFailed(str(error)) from error
