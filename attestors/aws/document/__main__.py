"""``python -m attestors.aws.document FILE...``: verify what was recorded on instances."""

from __future__ import annotations

import argparse
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


def main(arguments: Sequence[str] | None = None) -> int:
    """One line for each file; the exit status is 0 if all verify, 1 if one does not, 2 if something is not there."""
    parser = argparse.ArgumentParser(
        prog="python -m attestors.aws.document",
        description="Verify EC2 instance identity documents, as /latest/dynamic/instance-identity/rsa2048 gives them.",
    )
    parser.add_argument("file", type=Path, nargs="+", help="base64, with or without PEM's header and footer")
    parser.add_argument("--certificates", type=Path, help="folder with <region>.pem of further Regions")
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
