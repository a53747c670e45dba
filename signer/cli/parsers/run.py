"""Arguments of ``run``."""

from __future__ import annotations

import argparse
from typing import Final

from signer.cli.loading import Load
from signer.cli.parsers.controller_arguments import add_controller_arguments
from signer.controller.diagnostics.arguments import add_diagnostics_arguments
from signer.model.flow import DEFAULT_WORKERS

DEFAULT_MAXIMUM_MEBIBYTES: Final = 100


def add_run(parser: argparse.ArgumentParser, load: Load) -> None:
    """Complete the parser of the command."""
    parser.description = (
        "Runs until SIGTERM or SIGINT. Exit code 0: stopped by a signal; 1: failure at run time; 2: wrong "
        "usage or configuration; 4: lost its Lease."
    )
    parser.set_defaults(load=load)
    add_controller_arguments(parser)
    parser.add_argument(
        "--workers-per-cluster",
        type=_positive,
        default=DEFAULT_WORKERS,
        metavar="N",
        help="requests decided concurrently in each cluster (default: %(default)s)",
    )
    add_diagnostics_arguments(parser)
    parser.add_argument(
        "--audit-log-path", default="", metavar="PATH", help="write an audit log there; - is standard output"
    )
    parser.add_argument(
        "--audit-log-maxsize",
        type=_not_negative,
        default=DEFAULT_MAXIMUM_MEBIBYTES,
        metavar="MIB",
        help="rotate the audit log at this size in MiB; 0: never (default: %(default)s)",
    )
    parser.add_argument(
        "--audit-log-maxbackup",
        type=_not_negative,
        default=0,
        metavar="N",
        help="number of rotated audit logs to keep; 0: all (default: %(default)s)",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="log more")


def _not_negative(text: str) -> int:
    return _between(0, 1_000_000, text)


def _positive(text: str) -> int:
    return _between(1, 1000, text)


def _between(least: int, most: int, text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > len(str(most)) or not least <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"must be between {least} and {most}")
    return int(text)
