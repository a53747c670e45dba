"""The management cluster that a command's arguments name."""

from __future__ import annotations

import argparse

from signer.kube.management import ManagementAccess, management_connection


async def management_access(options: argparse.Namespace) -> ManagementAccess:
    """The way to the management cluster, from the arguments of :func:`signer.cli.arguments.add_management_cluster`.

    Raises:
        ManagementConfigurationRefused: the configuration is missing or unusable.
    """
    return await management_connection(options.kubeconfig, options.context)
