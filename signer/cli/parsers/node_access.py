"""Arguments of ``node-access``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from signer.cli.loading import Load
from signer.cli.parsers.arguments import add_cluster, add_controller_namespace, add_management_cluster, add_output
from signer.model.addresses import ADDRESS_TYPES

if TYPE_CHECKING:
    from signer.cli.parsers.arguments import Commands

DEFAULT_FOLDER: Final = "~/.ssh/node-access"


def add_node_access(parser: argparse.ArgumentParser, *, config: Load, known_hosts: Load, preflight: Load) -> None:
    """Complete the parser of the command."""
    parser.description = (
        "Reads the management cluster, changes nothing there, and connects to no node. Log in with "
        "ssh-sign, which needs no API server."
    )
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    _add_config(actions, config)
    _add_known_hosts(actions, known_hosts)
    _add_preflight(actions, preflight)


def _add_config(actions: Commands, load: Load) -> None:
    parser = actions.add_parser(
        "config",
        help="write a folder with ssh_config and known_hosts for one Cluster",
        description="Writes FOLDER/NAMESPACE.CLUSTER/config with a host NODE.CLUSTER for each attested node, and "
        "known_hosts beside it. Each Cluster has files of its own: a host authority counts for one Cluster.",
    )
    _add_common(parser)
    _add_plain_keys(parser)
    parser.add_argument(
        "--folder",
        default=DEFAULT_FOLDER,
        metavar="FOLDER",
        help="where the Cluster's folder is written (default: %(default)s)",
    )
    parser.add_argument("--port", type=int, default=22, metavar="PORT", help="of the nodes' sshd (default: 22)")
    parser.add_argument("--login", default="root", metavar="LOGIN", help="on the nodes (default: root)")
    parser.add_argument(
        "--jump-host", default="", metavar="HOST,...", help="reach the nodes through this host, as ProxyJump has it"
    )
    parser.add_argument("--identity", default="", metavar="FILE", help="the private key; its certificate is beside it")
    parser.add_argument(
        "--address-type",
        action="append",
        choices=ADDRESS_TYPES,
        help="connect to the Machine's address of this type; repeat it for a second choice "
        f"(default: {', '.join(ADDRESS_TYPES)}, in this order)",
    )
    parser.set_defaults(load=load)


def _add_known_hosts(actions: Commands, load: Load) -> None:
    parser = actions.add_parser(
        "known-hosts",
        help="print the known_hosts lines of one Cluster",
        description="Prints a line for each host authority, for names of this Cluster alone. Keep a file for each "
        "Cluster, and use it with HostKeyAlias=NODE.CLUSTER.NAMESPACE.",
    )
    _add_common(parser)
    _add_plain_keys(parser)
    parser.set_defaults(load=load)


def _add_common(parser: argparse.ArgumentParser) -> None:
    add_cluster(parser)
    add_management_cluster(parser)


def _add_plain_keys(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--plain-keys",
        action="store_true",
        help="for the break-glass kit: add each attested node's host keys, for host certificates run out in a long "
        "outage; reads the controller key, which proves the records",
    )
    add_controller_namespace(parser)


def _add_preflight(actions: Commands, load: Load) -> None:
    parser = actions.add_parser(
        "preflight",
        help="list other ways into the machines of a Cluster than SSH certificates",
        description="Reads the management cluster with your rights, and changes nothing. Exit code 0: no object that "
        "was read declares another way in; 3: one does; 5: it is not known.",
    )
    add_cluster(parser)
    add_management_cluster(parser)
    add_output(parser)
    parser.set_defaults(load=load)
