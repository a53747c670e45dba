"""The entry point of ``node-attestation-controller``; names the missing extra on a host with only the agent.

Commands that ask no API server start without the rest of the controller, which would import Kubernetes' client.
"""

from __future__ import annotations

import sys
from typing import Final

from signer.model.program_version import DISTRIBUTION
from signer.offline import COMMANDS

EXIT_USAGE: Final = 2
_EXTRA: Final = frozenset(
    {"aiohappyeyeballs", "aiohttp", "argcomplete", "httptools", "kubernetes", "msgspec", "prometheus_client", "rich"}
)
"""Modules of the extra ``controller``, which a node lacks."""


def main() -> int:
    """Run the controller's command line."""
    if sys.argv[1:] and sys.argv[1] in COMMANDS:
        from signer.offline.main import main as run_offline

        return run_offline()
    try:
        from signer.cli import main as run

        return run()  # which imports kubernetes where it is needed
    except ModuleNotFoundError as error:
        missing = what_is_missing(error, f"{DISTRIBUTION}[controller]")
        if not missing:
            raise
        print(f"node-attestation-controller: {missing}", file=sys.stderr)
        return EXIT_USAGE


def what_is_missing(error: ModuleNotFoundError, requirement: str) -> str:
    """Which of the controller's libraries is missing, and what to install; empty if another module is missing."""
    if (error.name or "").partition(".")[0] not in _EXTRA:
        return ""
    return f"{error.name} is not installed: pip install '{requirement}'"
