"""Arguments of ``crds``."""

from __future__ import annotations

import argparse

from signer.cli.loading import Load


def add_crds(parser: argparse.ArgumentParser, load: Load) -> None:
    """Complete the parser of the command."""
    parser.add_argument(
        "--access", action="store_true", help="also those of access, which only a controller with --access needs"
    )
    parser.set_defaults(load=load)
