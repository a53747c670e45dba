"""``node-attestation-controller crds``: print the CustomResourceDefinitions."""

from __future__ import annotations

import argparse

from signer.cli.plain_output import print_text
from signer.crds import access_definitions, custom_resource_definitions


def run_crds(options: argparse.Namespace) -> int:
    """Run the command with its parsed arguments."""
    definitions = custom_resource_definitions()
    print_text("---\n".join((*definitions, *access_definitions()) if options.access else definitions))
    return 0
