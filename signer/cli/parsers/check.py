"""Arguments of ``check``."""

from __future__ import annotations

import argparse

from signer.cli.loading import Load
from signer.cli.parsers.arguments import add_output
from signer.cli.parsers.controller_arguments import add_controller_arguments


def add_check(parser: argparse.ArgumentParser, load: Load) -> None:
    """Complete the parser of the command."""
    parser.description = (
        "Takes the arguments of run, changes nothing and serves nothing. Exit code 0: nothing needs attention; 2: "
        "wrong usage, or a configuration that cannot be parsed; 3: something needs attention."
    )
    parser.set_defaults(load=load)
    parser.add_argument("--offline", action="store_true", help="check the configuration and the attestors only")
    parser.add_argument(
        "--service-account",
        metavar="NAME",
        help="check the grants of this ServiceAccount of the controller's namespace, which needs create on "
        "subjectaccessreviews (default: those of the user of --kubeconfig)",
    )
    add_controller_arguments(parser)
    add_output(parser)
