"""Arguments of ``explain``."""

from __future__ import annotations

import argparse
from datetime import datetime
from pathlib import Path

from signer.cli.loading import Load
from signer.cli.parsers.arguments import add_configuration, add_management_cluster, add_output
from signer.model.fields import parse_time


def add_explain(parser: argparse.ArgumentParser, load: Load) -> None:
    """Complete the parser of the command."""
    parser.description = (
        "Runs the controller's checks on one CSR and changes nothing. Exit code 0: it was or would be approved "
        "or challenged; 4: it was or would be denied; 5: it waits; 6: the policy leaves it alone, it is not for this "
        "controller, or the Machine or node has no request."
    )
    parser.set_defaults(load=load)
    parser.add_argument(
        "csr",
        metavar="CSR|machine/NAME|node/NAME",
        help="name of the CSR in the workload cluster, a file, or - for stdin; or a Machine in the Cluster's "
        "namespace, or a node, whose newest request is explained: the newest that waits, if one does",
    )
    parser.add_argument("--cluster", metavar="NAMESPACE/NAME", help="the Cluster in which the CSR was posted")
    add_management_cluster(parser)
    add_configuration(parser)
    parser.add_argument(
        "--objects",
        type=Path,
        metavar="FILE|FOLDER",
        help="work offline, from a recording or from manifests",
    )
    parser.add_argument(
        "--at",
        metavar="TIME",
        type=_time,
        help="decide as of this time, such as 2026-01-02T03:04:05Z (default: now, or the time of the recording)",
    )
    parser.add_argument("--record", type=Path, metavar="FILE", help="write a recording of the inputs, without secrets")
    parser.add_argument(
        "--all", action="store_true", help="print every check and step, and not only the one that stops the request"
    )
    add_output(parser)
    parser.add_argument("-v", "--verbose", action="store_true", help="show log messages")


def _time(text: str) -> datetime:
    try:
        return parse_time(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
