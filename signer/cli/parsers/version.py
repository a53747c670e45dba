"""Arguments of ``version``."""

from __future__ import annotations

import argparse

from signer.cli.loading import Load
from signer.cli.parsers.arguments import add_controller_namespace, add_management_cluster, add_output


def add_version(parser: argparse.ArgumentParser, load: Load) -> None:
    """Complete the parser of the command."""
    parser.description = "Changes nothing. Exit code 1: the controller's version is not known."
    parser.set_defaults(load=load)
    parser.add_argument("--client", action="store_true", help="only this program's version; asks no cluster")
    add_management_cluster(parser)
    add_controller_namespace(parser)
    add_output(parser)
