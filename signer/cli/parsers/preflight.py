"""Arguments of ``preflight``."""

from __future__ import annotations

import argparse

from signer.cli.loading import Load
from signer.cli.parsers.arguments import (
    add_cluster,
    add_config,
    add_controller_namespace,
    add_management_cluster,
    add_output,
)


def add_preflight(parser: argparse.ArgumentParser, load: Load) -> None:
    """Complete the parser of the command."""
    parser.description = "Changes nothing. Exit code 0: the cluster is ready for Enforce; 3: steps remain."
    parser.set_defaults(load=load)
    add_cluster(parser)
    add_management_cluster(parser)
    add_controller_namespace(parser)
    add_config(parser)
    add_output(parser)
