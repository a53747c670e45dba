"""What the condition says of a former authority: written for people, and read by ``rotate CLUSTER``. Pure."""

from __future__ import annotations

import re
from typing import Final

from signer.rotation.node_client.former import Former, Retiring

NODE_CLIENT_CONDITION: Final = "NodeClientAuthoritySigns"
_RETIRING: Final = re.compile(
    r"; (former authority: sha256:[0-9a-f]{64}, retired since \S+, nodes [A-Za-z]+), \d+ with"
)


def retiring_text(former: Former, users: int) -> str:
    """The end of the condition's message; empty while nothing is retired. Each order that is accepted changes it."""
    if not isinstance(former, Retiring):
        return ""
    authority, retirement = former.authority, former.retirement
    return (
        f"; former authority: {authority.public_key_hash}, retired since {retirement.since:%Y-%m-%dT%H:%M:%SZ}, "
        f"nodes {retirement.nodes.value}, {users} with its certificate"
    )


def retiring_in(message: str) -> str:
    """What an order changes in the condition's message; empty while nothing is retired."""
    found = _RETIRING.search(message)
    return found.group(1) if found else ""


__all__ = ["NODE_CLIENT_CONDITION", "retiring_in", "retiring_text"]
