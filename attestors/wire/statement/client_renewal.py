"""``ClientRenewal``: the nodes' client certificates by one CA are to be renewed now, before their time.

It names the CA by its key identifier, which each certificate has as authority key identifier (RFC 5280 section
4.2.1.1). So a node whose certificate is by another CA already has nothing to do, and no renewal leads to another one.

Each node renews at a time of its own within the spread, which digests of the nodes' names determine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from attestors.wire.statement.cluster_trust import node_digest
from attestors.wire.statement.strict_json import expect_keys, number_of, text_of

MAXIMUM_SPREAD_SECONDS: Final = 6 * 3600
_KEY_IDENTIFIER: Final = re.compile(r"(?:[0-9a-f]{2}){8,64}")


@dataclass(frozen=True, slots=True)
class ClientRenewal:
    """The renewal of the client certificates by one CA.

    Raises:
        MalformedStatement: a field is out of bounds.
    """

    authority: str
    """The CA's subject key identifier, hexadecimal."""
    begin: int
    """Unix time from which nodes renew."""
    spread_seconds: int
    """Within which all of them begin."""

    def __post_init__(self) -> None:
        text_of(self.authority, "authority", _KEY_IDENTIFIER)
        number_of(self.begin, "begin")
        number_of(self.spread_seconds, "spreadSeconds", minimum=1, maximum=MAXIMUM_SPREAD_SECONDS)

    def due(self, node_name: str) -> int:
        """When that node renews (Unix time)."""
        return self.begin + int(node_digest(node_name), 16) % self.spread_seconds

    def document(self) -> dict[str, Any]:
        """The payload's JSON form."""
        return {"authority": self.authority, "begin": self.begin, "spreadSeconds": self.spread_seconds}

    @classmethod
    def parse(cls, payload: dict[str, Any]) -> ClientRenewal:
        """Parse the JSON form.

        Raises:
            MalformedStatement: anything else.
        """
        expect_keys(payload, "payload", "authority", "begin", "spreadSeconds")
        return cls(payload["authority"], payload["begin"], payload["spreadSeconds"])
