"""``credential``: the exec credential plugin."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from authenticator.commands.arguments import add_common, configuration_of, report
from authenticator.flow.certificates import NodeCertificates
from authenticator.flow.clock import Clock
from authenticator.model.exec_credential import INFO_VARIABLE, UnusableExecInfo, encode_credential, parse_info
from authenticator.model.failures import ExitCode, InvalidConfiguration
from authenticator.model.kubeconfig import UnusableKubeconfig, cluster_of_exec_info
from authenticator.model.plan import expiration
from authenticator.store.store import Store

if TYPE_CHECKING:
    from authenticator.commands.arguments import Commands


def add(commands: Commands) -> None:
    """Add the command."""
    command = commands.add_parser(
        "credential",
        help="print a client certificate for client-go; what the exec stanza of a kubeconfig runs",
        description="Prints an ExecCredential with the node's client certificate; asks for one where there is none.",
    )
    add_common(command)
    command.set_defaults(command=run)


def run(options: argparse.Namespace) -> ExitCode:
    """Print an ExecCredential.

    Raises:
        Failure: there is no certificate.
    """
    try:
        info = parse_info(os.environ.get(INFO_VARIABLE, ""))
        cluster = cluster_of_exec_info(info.cluster) if info.cluster is not None else None
    except UnusableExecInfo as error:
        raise InvalidConfiguration(str(error)) from error
    except UnusableKubeconfig as error:
        raise InvalidConfiguration(f"the kubeconfig that runs this plugin: {error}") from error
    configuration = configuration_of(options)
    clock = Clock()
    certificates = NodeCertificates(configuration, Store(configuration.store), clock, report, cluster)
    use = certificates.client()
    print(
        encode_credential(
            info.api_version,
            certificate=use.pair.certificate,
            key=use.pair.key,
            expiration=expiration(use, clock.now()),
        )
    )
    return ExitCode.DONE
