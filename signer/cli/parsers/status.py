"""Arguments of ``status``."""

from __future__ import annotations

import argparse
from typing import Final

from signer.cli.loading import Load
from signer.cli.parsers.arguments import (
    add_config,
    add_controller_namespace,
    add_management_cluster,
    add_output,
    namespace,
)
from signer.cli.parsers.leader_election import add_lease_name

HTML: Final = "html"
DEFAULT_TIMEOUT_SECONDS: Final = 10.0


def add_status(parser: argparse.ArgumentParser, load: Load) -> None:
    """Complete the parser of the command."""
    parser.description = "Changes nothing. Exit code 0: nothing needs attention; 3: something needs attention."
    parser.set_defaults(load=load)
    parser.add_argument(
        "cluster",
        nargs="?",
        metavar="CLUSTER",
        help="list the Machines of this Cluster: its name, or NAMESPACE/NAME (default: list the Clusters)",
    )
    add_management_cluster(parser)
    add_controller_namespace(parser)
    add_config(parser)
    add_lease_name(parser, "name of the Lease by which the controller's replicas elect their leader, as they have it")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "-n",
        "--namespace",
        type=namespace,
        help="list only Clusters of this namespace (default: all); the namespace of CLUSTER (default: default)",
    )
    which.add_argument(
        "-A", "--all-namespaces", action="store_true", help="list Clusters of all namespaces, as without -n"
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=DEFAULT_TIMEOUT_SECONDS,
        metavar="SECONDS",
        help="time limit for each workload cluster (default: %(default)s)",
    )
    add_output(parser, html="one page for a wall or a mail, with no script and nothing loaded from elsewhere")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError("must be a number of seconds") from None
    if not 0 < seconds <= 600:
        raise argparse.ArgumentTypeError("must be more than 0 and at most 600 seconds")
    return seconds
