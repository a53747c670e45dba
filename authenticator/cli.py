"""``kubelet-authenticator``: not built yet; it says so, and what to use until then."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Final

EXIT_NOT_AVAILABLE: Final = 69
"""EX_UNAVAILABLE of sysexits.h: a kubelet that calls it gets no credential, and no false one."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of ``kubelet-authenticator``."""
    parser = argparse.ArgumentParser(
        prog="kubelet-authenticator",
        description="The kubelet's exec credential plugin: makes key, evidence and CSR, and keeps the certificate.",
        epilog="This release holds the controller only; the plugin follows. signer.testing.nodes.SimulatedNode makes "
        "the same requests for tests.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('capi-node-attestation')}")
    parser.parse_args(arguments)
    parser.print_help(sys.stderr)
    return EXIT_NOT_AVAILABLE


if __name__ == "__main__":
    sys.exit(main())
