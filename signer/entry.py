"""The entry point of ``node-attestation-controller``: says what to install where only the node's half is."""

from __future__ import annotations

import sys
from typing import Final

EXIT_USAGE: Final = 2
_EXTRA: Final = frozenset(
    {"aiohappyeyeballs", "aiohttp", "httptools", "kubernetes", "msgspec", "prometheus_client", "rich"}
)
"""What the extra ``controller`` brings, and a node does not have."""


def main() -> int:
    """Run the controller's command line."""
    try:
        from signer.cli import main as run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        cure = "pip install 'capi-node-attestation[controller]'"
        print(f"node-attestation-controller: {error.name} is not installed: {cure}", file=sys.stderr)
        return EXIT_USAGE
    return run()
