"""``node-attestation-controller crds``: print the CustomResourceDefinitions."""

from __future__ import annotations

import argparse

from signer.cli.output import print_text
from signer.crds import access_definitions, custom_resource_definitions


def add_crds(parser: argparse.ArgumentParser) -> None:
    """Complete the parser of the command."""
    parser.add_argument(
        "--access", action="store_true", help="also those of access, which only a controller with --access needs"
    )
    parser.set_defaults(command=_crds)


def _crds(options: argparse.Namespace) -> int:
    definitions = custom_resource_definitions()
    print_text("---\n".join((*definitions, *access_definitions()) if options.access else definitions))
    return 0
