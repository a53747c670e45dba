"""Arguments of ``audit``."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Final

from signer.cli.loading import Load
from signer.cli.parsers.arguments import add_controller_namespace, add_management_cluster, add_output
from signer.model.audit_head import HEADS_NAME
from signer.model.seal import SECRET_NAME

# At most 20 octets (RFC 5280, section 4.1.2.2), and perhaps a sign octet in front.
_SERIAL_NUMBER: Final = re.compile(r"[0-9a-fA-F]{1,42}", re.ASCII)


def add_audit(parser: argparse.ArgumentParser, *, verify: Load, show: Load) -> None:
    """Complete the parser of the command."""
    subcommands = parser.add_subparsers(required=True, metavar="COMMAND")
    verifying = subcommands.add_parser(
        "verify",
        help="check that no line was changed or removed, and replay every decision",
        description="Changes nothing, and works offline without --management-cluster. Exit code 0: the log is intact "
        "and every replayed decision is the same; 1: the log was changed, or a decision differs; 2: wrong usage or "
        "configuration, or the management cluster cannot be read; 74: the report cannot be written.",
    )
    verifying.set_defaults(load=verify)
    _add_files(verifying)
    verifying.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="the controller's --config, for attestors that need the operator's settings",
    )
    _add_evidence(verifying)
    showing = subcommands.add_parser(
        "show",
        help="print the decisions about one request, node or certificate, or who has an access grant",
        description="Works offline and replays nothing. Exit code 0: at least one line was found; 1: none was "
        "found; 2: wrong usage, or a file cannot be read; 74: the output cannot be written.",
    )
    showing.set_defaults(load=show)
    _add_files(showing)
    what = showing.add_mutually_exclusive_group(required=True)
    what.add_argument("--csr", metavar="NAME", help="name of the CertificateSigningRequest")
    what.add_argument(
        "--node",
        metavar="NAME",
        help="name of the node: its certificates, and what was denied or waits in its name or of its Machine",
    )
    what.add_argument(
        "--serial", type=_serial_number, metavar="HEX", help="serial number of the certificate, hexadecimal"
    )
    what.add_argument(
        "--key-id", metavar="KEYID", help="key id of an access grant, as sshd of a node logs it at each login"
    )


def _add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="the log and its rotated files")
    add_output(parser)


def _add_evidence(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--management-cluster",
        action="store_true",
        help="read the controller key and the published heads from the management cluster, and check both",
    )
    add_management_cluster(parser)
    add_controller_namespace(parser)
    parser.add_argument(
        "--controller-key",
        type=Path,
        metavar="FILE",
        help=f"offline: Secret {SECRET_NAME}, as `kubectl get -o yaml` prints it; check the MAC of every line",
    )
    parser.add_argument(
        "--heads",
        type=Path,
        metavar="FILE",
        help=f"offline: ConfigMap {HEADS_NAME}; check that no end was cut off (needs --controller-key)",
    )
    parser.add_argument(
        "--partial",
        action="store_true",
        help="the files are not those of every replica: a published chain without a line in them is no fault",
    )


def _serial_number(text: str) -> int:
    """Parse a serial number as openssl and browsers write it, with or without colons."""
    digits = text.replace(":", "")
    if _SERIAL_NUMBER.fullmatch(digits) is None:
        raise argparse.ArgumentTypeError("must be hexadecimal digits, as openssl x509 -serial prints them")
    return int(digits, 16)
