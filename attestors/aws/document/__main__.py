"""``python -m attestors.aws.document FILE...``: verifies documents recorded on instances."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from attestors.aws.document import (
    IdentityDocumentRefused,
    RegionCertificatesUnreadable,
    load_region_certificates,
    read_recorded,
    verify_identity_document,
)
from attestors.command_parser import CommandParser


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one line per file. Exit status: 0 all verify, 1 one does not, 2 a file is missing or unusable."""
    parser = CommandParser(
        prog="python -m attestors.aws.document",
        description="Verify EC2 instance identity documents, as /latest/dynamic/instance-identity/rsa2048 gives them.",
    )
    parser.add_argument(
        "file", type=Path, nargs="+", metavar="FILE", help="a document: base64, with or without PEM's header and footer"
    )
    parser.add_argument(
        "--certificates", type=Path, metavar="FOLDER", help="folder with <region>.pem for further Regions"
    )
    given = parser.parse_args(arguments)
    refused = False
    try:
        certificates = load_region_certificates(given.certificates)
        for path in given.file:
            try:
                document = verify_identity_document(read_recorded(path.read_bytes()), certificates)
            except IdentityDocumentRefused as error:
                refused = True
                print(f"{path}: refused: {error}")
            else:
                print(f"{path}: {document.provider_id} of account {document.account_id}")
    except (OSError, RegionCertificatesUnreadable) as error:
        print(error, file=sys.stderr)
        return 2
    return 1 if refused else 0


if __name__ == "__main__":
    raise SystemExit(main())
